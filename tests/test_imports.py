"""From a name in a configuration to what it names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from streambench import imports as load
from streambench.config import Config
from streambench.errors import ConfigError, MissingExtraError
from streambench.system.memory import MemoryStreams, MemorySystemFactory
from streambench.testing import run_job

KEY = "systems.m.samza.factory"


class Outer:
    class Inner:
        pass


@pytest.fixture(autouse=True)
def only_the_modules_there_were() -> Any:
    before = dict(sys.modules)
    yield
    for name in set(sys.modules) - set(before):
        del sys.modules[name]


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """What installed packages bring; a test adds to it."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(
        "importlib.metadata.entry_points", lambda group: [point for point in points if point.group == group]
    )
    return points


def named(value: str, **options: Any) -> Any:
    return load.resolve(Config({KEY: value}), KEY, group="streambench.systems", **options)


def in_file(directory: Path, path: str) -> Any:
    return load.by_path(Config.from_text("", directory=directory), "task.class", path)


def test_a_builtin_name_gives_what_it_stands_for() -> None:
    assert (
        named("memory", builtin={"memory": "streambench.system.memory:MemorySystemFactory"})
        is MemorySystemFactory
    )


@pytest.mark.parametrize(
    "path", ["streambench.system.memory.MemorySystemFactory", "streambench.system.memory:MemorySystemFactory"]
)
def test_a_dotted_path_gives_the_object_there(path: str) -> None:
    assert named(path) is MemorySystemFactory


def test_a_package_adds_a_name_by_an_entry_point(entry_points: list[EntryPoint]) -> None:
    entry_points.append(EntryPoint("mine", "streambench.system.memory:MemoryStreams", "streambench.systems"))
    assert named("mine") is MemoryStreams


def test_a_class_of_this_program_is_named_in_main_and_an_error_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "Mine", Outer, raising=False)
    assert named("__main__.Mine") is Outer
    with pytest.raises(ConfigError, match=r"there is no 'Mine'.*the one defined here is __main__\.Mine"):
        named("Mine")


def test_a_class_of_a_function_cannot_be_found() -> None:
    class Local:
        pass

    with pytest.raises(
        ConfigError, match=r"Local was defined in a function, .*define it at the top of its module"
    ):
        load.resolve(Config({KEY: Local}), KEY, group="streambench.systems")


def test_names_of_main_are_brought_to_where_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "Mine", Outer, raising=False)
    config = Config(
        {KEY: "__main__:Mine.Inner", "task.class": "tests.Else", "task.chooser.class": "__main__:Nowhere"}
    )
    names = {name: what for name, (_, what) in load.own_names(config).items()}
    assert names == {"Mine": Outer}
    monkeypatch.delattr(main, "Mine")
    load.install_main_names(names)
    assert load.resolve(config, KEY, group="streambench.systems") is Outer.Inner


def test_an_entry_point_of_another_group_is_none(entry_points: list[EntryPoint]) -> None:
    entry_points.append(EntryPoint("mine", "streambench.system.memory:MemoryStreams", "streambench.stores"))
    with pytest.raises(ConfigError, match="there is no 'mine'"):
        named("mine")


def test_a_package_cannot_take_a_builtin_name(entry_points: list[EntryPoint]) -> None:
    entry_points.append(
        EntryPoint("memory", "streambench.system.memory:MemoryStreams", "streambench.systems")
    )
    assert (
        named("memory", builtin={"memory": "streambench.system.memory:MemorySystemFactory"})
        is MemorySystemFactory
    )


@pytest.fixture
def no_modules_stay(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def a_package(directory: Path, imported: str = "from only_here.sub.helper import LATE") -> None:
    (directory / "only_here" / "sub").mkdir(parents=True)
    (directory / "only_here" / "__init__.py").touch()
    (directory / "only_here" / "sub" / "helper.py").write_text("LATE = 15\n")
    (directory / "only_here" / "sub" / "mod.py").write_text(f"{imported}\n\nclass Up:\n    late = LATE\n")


@pytest.mark.parametrize("path", ["only_here.sub.mod.Up", "only_here.sub.mod:Up", "only_here/sub/mod.py:Up"])
def test_a_package_beside_the_configuration_is_found(
    tmp_path: Path, no_modules_stay: None, path: str
) -> None:
    a_package(tmp_path)
    assert in_file(tmp_path, path).late == 15


@pytest.mark.filterwarnings("ignore::ImportWarning")
def test_a_relative_import_needs_the_name_of_the_module(tmp_path: Path, no_modules_stay: None) -> None:
    a_package(tmp_path, "from .helper import LATE")
    assert in_file(tmp_path, "only_here.sub.mod.Up").late == 15
    with pytest.raises(
        ConfigError,
        match=r"mod\.py cannot be imported: .*; name a module .* by its dots: only_here\.sub\.mod\.Class",
    ):
        in_file(tmp_path, "only_here/sub/mod.py:Up")


def test_a_module_of_that_name_from_elsewhere_is_told_of(
    tmp_path: Path, no_modules_stay: None, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "only_here.py").write_text(f"class Up:\n    place = {name!r}\n")
    assert in_file(tmp_path / "one", "only_here.Up").place == "one"
    assert not caplog.messages
    in_file(tmp_path / "other", "only_here.Up")
    assert (
        "one/only_here.py, and not from the one beside the configuration: write only_here.py:Up"
        in caplog.text
    )


def test_a_module_that_exits_is_an_error_of_the_key(tmp_path: Path, no_modules_stay: None) -> None:
    (tmp_path / "leaves.py").write_text("raise SystemExit(3)\n")
    for path in ("leaves.py:Up", "leaves.Up"):
        with pytest.raises(
            ConfigError, match=r"task\.class.*leaves.* ends the process \(SystemExit: 3\) when it is imported"
        ):
            in_file(tmp_path, path)


@pytest.mark.parametrize(
    ("key", "kind", "ours"),
    [
        (
            "systems.mem.samza.msg.serde",
            "serializers.JsonSerdeFactory",
            "write systems.mem.samza.msg.serde=json",
        ),
        (
            "serializers.registry.j.class",
            "serializers.StringSerdeFactory",
            "write serializers.registry.j.class=string",
        ),
        (
            "systems.mem.samza.factory",
            "system.inmemory.InMemorySystemFactory",
            "write systems.mem.samza.factory=memory",
        ),
        ("task.class", "Task", "task.class takes a Python class here"),
    ],
)
def test_a_java_class_is_refused_with_what_is_ours(key: str, kind: str, ours: str) -> None:
    path = f"org.apache.samza.{kind}"
    more = {"systems.mem.samza.msg.serde": "j"} if "registry" in key else {}
    with pytest.raises(ConfigError, match=f"^{key}: {path} is a Java class of Samza; {ours}"):
        run_job(None, {"task.class": "x.Y", key: path, **more}, {"mem.a": {0: [{}]}})
    if "serde" not in key:
        with pytest.raises(ConfigError, match=f"{path} is a Java class of Samza; {ours}"):
            load.by_path(Config(), key, path)


def test_an_unknown_name_is_an_error_that_names_the_key_and_the_choices(
    entry_points: list[EntryPoint],
) -> None:
    entry_points.append(EntryPoint("mine", "x:Y", "streambench.systems"))
    with pytest.raises(
        ConfigError, match=rf"{KEY}: there is no 'memry'; there are log, mine, or give package\.module\.Class"
    ):
        named("memry", builtin={"log": "x:Y"})


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("no_such_package.Thing", "there is no module no_such_package"),
        ("streambench.no_such_module.Thing", r"there is no module streambench\.no_such_module"),
        ("streambench.system.memory.Nothing", r"streambench\.system\.memory has no 'Nothing'"),
        ("streambench.system.memory:MemorySystemFactory.nothing", r"has no 'MemorySystemFactory\.nothing'"),
        (":Thing", "names no class"),
        ("module:", "names no class"),
    ],
)
def test_a_path_that_leads_nowhere_is_an_error_that_names_the_key(path: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        named(path)
    assert caught.value.key == KEY


def test_a_class_inside_a_class_is_found() -> None:
    config = Config({KEY: Outer.Inner})
    assert load.by_path(config, KEY, config[KEY]) is Outer.Inner


def test_a_missing_optional_dependency_is_reported_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_pika.py").write_text("import pika\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'streambench\[amqp\]'") as caught:
        named("needs_pika.Factory")
    assert caught.value.extra == "amqp"


def test_a_missing_dependency_of_a_users_module_is_not_blamed_on_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_something.py").write_text("import not_installed_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_at_all"):
        named("needs_something.Factory")


# Files


def test_a_file_is_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "clicks.py").write_text("class Task: pass\n")
    assert in_file(tmp_path, "jobs/clicks.py:Task").__name__ == "Task"


def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    (tmp_path / "job1.py").write_text("VERSION = 1\n")
    assert in_file(tmp_path, "job1.py:VERSION") == 1
    (tmp_path / "job1.py").write_text("VERSION = 2\n")
    assert in_file(tmp_path, "job1.py:VERSION") == 2


def test_annotations_of_a_file_are_values_as_in_an_import(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("class Task:\n    delay: int\n")
    assert in_file(tmp_path, "job.py:Task").__annotations__ == {"delay": int}


def test_two_files_of_one_name_do_not_disturb_each_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "job2.py").write_text(f"class Task: place = {name!r}\n")
    first, second = (in_file(tmp_path, f"{name}/job2.py:Task") for name in ("a", "b"))
    assert (first.place, second.place) == ("a", "b")
    assert sys.modules[first.__module__].Task is first
    assert sys.modules[second.__module__].Task is second


def test_a_file_named_like_a_module_of_python_does_not_take_its_place(tmp_path: Path) -> None:
    (tmp_path / "imaplib.py").write_text("class Task: pass\n")
    in_file(tmp_path, "imaplib.py:Task")
    assert "imaplib" not in sys.modules


def test_a_file_that_is_not_there_is_an_error_with_its_whole_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"task.class: there is no file {tmp_path}/nothing.py"):
        in_file(tmp_path, "nothing.py:Task")


def test_a_name_that_a_file_does_not_have_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "job3.py").write_text("class Task: pass\n")
    with pytest.raises(ConfigError, match=r"task\.class: job3\.py has no 'Tsak'"):
        in_file(tmp_path, "job3.py:Tsak")


def test_a_syntax_error_is_reported_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "job4.py").write_text("class Task:\n    def process(self:\n")
    with pytest.raises(ConfigError, match=r"task\.class: .*/job4\.py, line 2"):
        in_file(tmp_path, "job4.py:Task")


def test_what_a_file_raises_goes_through_and_leaves_no_half_made_module(tmp_path: Path) -> None:
    (tmp_path / "job5.py").write_text("x = 1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        in_file(tmp_path, "job5.py:Task")
    assert "job5" not in sys.modules


class Demanding:
    def __init__(self, url: str) -> None: ...


@pytest.mark.parametrize(
    "key",
    [
        "task.lifecycle.listener.x.class",
        "job.systemstreampartition.grouper.factory",
        "stores.s.factory",
        "systems.log.samza.factory",
    ],
)
def test_a_class_that_cannot_be_made_is_an_error_of_its_key(key: str) -> None:
    config = {"task.lifecycle.listeners": "x" if "listener" in key else "", key: Demanding}
    with pytest.raises(ConfigError, match="cannot make a Demanding: TypeError: .*'url'") as told:
        run_job(lambda *_: None, config, {("log.a" if "systems" in key else "mem.a"): {0: [1]}})
    assert told.value.key == key


def test_a_file_can_import_what_stands_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_task.py").write_text("LATE = 15\n")
    (tmp_path / "uses_it.py").write_text("from beside_the_task import LATE\n\nclass T:\n    late = LATE\n")
    config = Config.from_text("task.class=uses_it.py:T", directory=tmp_path)
    assert load.by_path(config, "task.class", "uses_it.py:T").late == 15


def test_an_import_that_fails_in_a_file_names_the_key_and_the_file(tmp_path):
    (tmp_path / "broken_import.py").write_text("import no_such_module\n")
    config = Config.from_text("task.class=broken_import.py:T", origin="job.properties", directory=tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"task\.class \(job\.properties:1\): broken_import\.py cannot be imported: .*no_such",
    ):
        load.by_path(config, "task.class", "broken_import.py:T")


def test_a_file_without_a_class_says_how_to_name_one(tmp_path):
    with pytest.raises(ConfigError, match=r"write late\.py:Class"):
        load.by_path(Config(), "task.class", "late.py")
