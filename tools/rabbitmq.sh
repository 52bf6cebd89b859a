#!/bin/sh
# rabbitmq.sh find   prints the path of a rabbitmq-server that tests can start; exit 1 where there is none
# rabbitmq.sh get    the same, and unpacks Debian's into .tools/rabbitmq where there is none
#
# STREAMBENCH_RABBITMQ names another one. This looks where streambench.testing.brokers.rabbitmq does, before there is a Python to ask. The
# package is unpacked, not installed: installing it would start a service on all addresses of this machine.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
unpacked=$(dirname "$here")/.tools/rabbitmq

find_server() {
    if [ -n "${STREAMBENCH_RABBITMQ:-}" ]; then
        [ -x "$STREAMBENCH_RABBITMQ" ] && { echo "$STREAMBENCH_RABBITMQ"; return 0; }
        echo "STREAMBENCH_RABBITMQ=$STREAMBENCH_RABBITMQ is not a program" >&2
        return 1
    fi
    # Not the one in /usr/sbin: that becomes the user rabbitmq, and refuses to be started by any but root.
    for server in /usr/lib/rabbitmq/bin/rabbitmq-server /usr/local/lib/rabbitmq/bin/rabbitmq-server /opt/homebrew/sbin/rabbitmq-server; do
        [ -x "$server" ] && { echo "$server"; return 0; }
    done
    [ -x "$unpacked/rabbitmq-server" ] && { echo "$unpacked/rabbitmq-server"; return 0; }
    return 1
}

# Erlang looks for itself where Debian would have installed it. The wrapper finds it relative to itself, so that the checkout
# can be moved.
write_wrapper() {
    [ -x "$unpacked/root/usr/lib/rabbitmq/bin/rabbitmq-server" ] || { echo "the package rabbitmq-server holds no server" >&2; return 1; }
    sed -i -E 's#^( *)ROOTDIR=/usr/lib/erlang#\1ROOTDIR=$ERL_ROOTDIR#' "$unpacked"/root/usr/lib/erlang/bin/erl "$unpacked"/root/usr/lib/erlang/erts-*/bin/erl
    cat >"$unpacked/rabbitmq-server" <<'WRAPPER'
#!/bin/sh
root=$(cd "$(dirname "$0")" && pwd)/root
export ERL_ROOTDIR="$root/usr/lib/erlang"
export PATH="$ERL_ROOTDIR/bin:$PATH"
for libraries in "$root"/usr/lib/*-linux-gnu; do
    export LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
done
exec "$root/usr/lib/rabbitmq/bin/rabbitmq-server" "$@"
WRAPPER
    chmod +x "$unpacked/rabbitmq-server"
}

case "${1:-find}" in
find)
    find_server
    ;;
get)
    find_server && exit 0
    [ -z "${STREAMBENCH_RABBITMQ:-}" ] || exit 1
    echo "no RabbitMQ found: unpacking Debian's rabbitmq-server into .tools/rabbitmq (60 MB)" >&2
    rm -rf "$unpacked"
    if "$here/apt_user.sh" "$unpacked" rabbitmq-server >&2 && write_wrapper; then
        find_server
    else
        rm -rf "$unpacked"
        cat >&2 <<'MISSING'
No RabbitMQ: it is not installed, and could not be unpacked (see above). Either of these brings one:
  make rabbitmq                                                       (Debian, as anyone, once apt's sources can be reached)
  STREAMBENCH_RABBITMQ=/path/to/rabbitmq-server make test             (any other, 3.9 or newer)
MISSING
        exit 1
    fi
    ;;
*)
    echo "usage: $0 [find | get]" >&2
    exit 2
    ;;
esac
