#!/bin/sh
# prerequisites.sh PYTHON: what the set-up cannot bring by itself. Without Python there is nothing; without Java or Maven parts
# are left out, which is said, and which is a failure under CI=true.
set -eu

python=$1
lacking=no

lacks() {
    echo "missing: $1" >&2
    echo "    without it: $2" >&2
    echo "    to get it:  $3" >&2
    lacking=yes
}

command -v "$python" >/dev/null || {
    echo "missing: Python 3.11 or newer ($python is not a program). Install it, or name one: make PY=/path/to/python3 ..." >&2
    exit 1
}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "missing: Python 3.11 or newer ($python is $("$python" -V 2>&1)). Name another one: make PY=/path/to/python3 ..." >&2
    exit 1
}
"$python" -c 'import venv, ensurepip' 2>/dev/null || {
    echo "missing: the venv module of $python. On Debian: apt install python3-venv. Or name another Python: make PY=/path/to/python3 ..." >&2
    exit 1
}

java=java
[ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
if command -v "$java" >/dev/null; then
    version=$("$java" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1)
    [ "${version:-0}" -ge 17 ] || lacks "Java 17 or newer ($java is ${version:-unknown})" "no Spark, no real Kafka broker" "apt install openjdk-17-jre-headless, or set JAVA_HOME"
else
    lacks "Java 17 or newer" "no Spark, no real Kafka broker" "apt install openjdk-17-jre-headless, or set JAVA_HOME"
fi
command -v mvn >/dev/null || lacks "Maven (mvn)" "no real Kafka broker" "apt install maven"

[ "$lacking" = no ] || [ "${CI:-}" != true ] || { echo "CI=true: nothing may be missing" >&2; exit 1; }
