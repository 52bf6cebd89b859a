# Everything that is set up stays inside this checkout: Python packages in .venv, unpacked programs in .tools.

PY ?= python3
V := .venv
ARGS ?=
# Two more than there are cores: tests wait for servers, disks and processes for half of their time.
WORKERS ?= $(shell $(PY) -c 'import os; print(min(os.cpu_count() or 1, 8) + 2)' 2>/dev/null || echo 3)

# uv brings its own certificates; behind a proxy that has its own, only the system's work.
export UV_SYSTEM_CERTS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Hundreds of processes import the same modules: each would compile them anew.
unexport PYTHONDONTWRITEBYTECODE
# Spark's workers use this environment, whatever is first on PATH.
export PYSPARK_PYTHON := $(CURDIR)/$(V)/bin/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(V)/bin/python

NOTEBOOKS := $(sort $(wildcard notebooks/*.ipynb))
# Checks of the promised names that are kept beside the checkout, where they are.
CONTRACT := $(wildcard ../shared/contract)
# The user's own IPython and Jupyter settings must not decide about a test. Where make is killed, the tests end.
PYTEST := STREAMBENCH_TEST_MAKE=$$PPID IPYTHONDIR=$(CURDIR)/.tools/ipython JUPYTER_CONFIG_DIR=$(CURDIR)/.tools/jupyter JUPYTER_RUNTIME_DIR=$(CURDIR)/.tools/jupyter/runtime \
	$(V)/bin/python -m pytest -c pyproject.toml --rootdir . -n $(WORKERS) --dist loadfile --no-loadscope-reorder
NBVAL := -p tests.left_out -p nbval.plugin --nbval --nbval-current-env --nbval-cell-timeout=270 --nbval-sanitize-with=notebooks/sanitize.cfg

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup archive browser kafka rabbitmq prerequisites lint check test soak bench compiled plain demo lab clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

# Installs this package, editable, with the extras $(1). Leaves no stamp when it fails, so that the next run tries again.
# Spark puts an archive of PySpark first on the path of each Python process. What is imported from it is compiled each time,
# which takes half a second of CPU; the .pth file takes it off the path, where the same PySpark is installed.
define install
	@if $(V)/bin/python -c '' 2>/dev/null; then :; else $(PY) -m venv $(V); fi
	@[ -x $(V)/bin/uv ] || $(V)/bin/python -m pip install -q uv || true
	@if [ -x $(V)/bin/uv ] && $(V)/bin/uv pip install -q --python $(V)/bin/python -e '.[$(1)]'; then :; \
	else echo "uv did not manage, trying pip"; $(V)/bin/python -m pip install -q -e '.[$(1)]'; fi
	@cp tools/pyspark_zip.pth "$$($(V)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@touch $@
endef

$(V)/.ready-run: pyproject.toml
	@tools/prerequisites.sh $(PY)
	@echo "setting up $(V) (1-2 minutes the first time)"
	$(call install,all)

$(V)/.ready-test: pyproject.toml
	@tools/prerequisites.sh $(PY)
	@echo "setting up $(V) (1-3 minutes the first time)"
	$(call install,all$(comma)test)
	@touch $(V)/.ready-run

comma := ,

setup: $(V)/.ready-test  ## Python packages in .venv, for use and for tests

browser:  ## a headless Chromium: the installed one, else unpacked into .tools
	@tools/browser.sh get >/dev/null || [ "$${CI:-}" != true ]

kafka: setup  ## the jars of Apache Kafka: those of KAFKA_HOME, else fetched once with Maven
	@$(V)/bin/python -c 'from streambench.testing.brokers.kafka_jars import jars; jars(print)' || [ "$${CI:-}" != true ]

rabbitmq:  ## a RabbitMQ: the installed one, else Debian's, unpacked into .tools
	@tools/rabbitmq.sh get >/dev/null || [ "$${CI:-}" != true ]

prerequisites:
	@tools/prerequisites.sh $(PY)

lint: setup  ## ruff, mypy --strict, direction of imports
	$(V)/bin/ruff check .
	$(V)/bin/mypy
	$(V)/bin/lint-imports --no-cache

check: lint  ## the fast loop: lint, and the tests that need no server, browser, JVM or many processes
	$(PYTEST) --quick tests $(ARGS)

# An archive of Spark's classes, which most JVMs of the tests map. It is made beside lint, which leaves a core idle.
archive: setup
	@$(V)/bin/python -m tests.spark.archive >/dev/null 2>&1 </dev/null &

test: prerequisites setup archive browser kafka rabbitmq lint  ## everything: lint, tests, notebooks, browser
	$(PYTEST) $(NBVAL) tests $(NOTEBOOKS) $(CONTRACT) $(ARGS)

soak: prerequisites setup browser kafka rabbitmq  ## the same tests with larger figures
	SOAK=1 $(PYTEST) --timeout=3600 -o faulthandler_timeout=14400 tests $(ARGS)

bench: setup  ## the figures of docs/figures.md
	$(V)/bin/python -m benchmarks $(ARGS)

compiled: setup  ## compile the hot modules in place (a C compiler is needed); edits to them then take another "make compiled"
	STREAMBENCH_COMPILE=1 $(V)/bin/python setup.py -q build_ext --inplace
	$(V)/bin/python -c 'from streambench.container import event_loop; print("compiled:", event_loop.__file__)'

plain:  ## remove what "make compiled" made: plain Python again, which does the same
	find streambench -name '*.so' -delete
	rm -f streambench__mypyc.*.so
	rm -rf build

demo: $(V)/.ready-run  ## the demo in a terminal
	$(V)/bin/streambench demo $(ARGS)

lab: $(V)/.ready-run  ## JupyterLab on the notebooks, on this machine only
	$(V)/bin/jupyter lab --ip=127.0.0.1 --notebook-dir=notebooks $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS)

clean: plain  ## remove what was set up and built
	rm -rf $(V) .tools build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info magics/*.egg-info
