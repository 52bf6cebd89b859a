#!/bin/sh
# browser.sh find   prints the path of a Chromium that the browser tests can drive; exit 1 where there is none
# browser.sh get    the same, and unpacks Debian's headless one into .tools/chromium where there is none
#
# STREAMBENCH_BROWSER names another one. The tests call this script too, so that there is one answer to "which browser".
set -eu

here=$(cd "$(dirname "$0")" && pwd)
checkout=$(dirname "$here")
unpacked=$checkout/.tools/chromium

find_browser() {
    if [ -n "${STREAMBENCH_BROWSER:-}" ]; then
        [ -x "$STREAMBENCH_BROWSER" ] && { echo "$STREAMBENCH_BROWSER"; return 0; }
        echo "STREAMBENCH_BROWSER=$STREAMBENCH_BROWSER is not a program" >&2
        return 1
    fi
    # The headless shell first: it is enough, and takes two thirds of the memory.
    for name in chromium-headless-shell chromium chromium-browser google-chrome; do
        command -v "$name" && return 0
    done
    [ -x "$unpacked/chromium" ] && { echo "$unpacked/chromium"; return 0; }
    return 1
}

# The unpacked browser looks for its libraries where Debian would have installed them. The wrapper finds them relative to
# itself, so that the checkout can be moved.
write_wrapper() {
    program=$(cd "$unpacked/root" && find usr/lib -type f -perm -u+x \( -name chromium-headless-shell -o -name headless_shell -o -name chrome-headless-shell \) | head -n 1)
    [ -n "$program" ] || { echo "the package chromium-headless-shell holds no browser; is it another distribution's?" >&2; return 1; }
    libraries=$(cd "$unpacked/root" && find usr/lib -name '*.so*' -exec dirname {} \; | sort -u | sed 's#^#$root/#' | paste -s -d :)
    cat >"$unpacked/chromium" <<WRAPPER
#!/bin/sh
root=\$(cd "\$(dirname "\$0")" && pwd)/root
LD_LIBRARY_PATH="$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}" exec "\$root/$program" "\$@"
WRAPPER
    chmod +x "$unpacked/chromium"
}

case "${1:-find}" in
find)
    find_browser
    ;;
get)
    find_browser && exit 0
    [ -z "${STREAMBENCH_BROWSER:-}" ] || exit 1
    echo "no Chromium found: unpacking Debian's chromium-headless-shell into .tools/chromium (300 MB)" >&2
    rm -rf "$unpacked"
    if "$here/apt_user.sh" "$unpacked" chromium-headless-shell >&2 && write_wrapper; then
        "$unpacked/chromium" --version >/dev/null 2>&1 || {
            echo "the unpacked browser does not start; a library is missing:" >&2
            "$unpacked/chromium" --version 2>&1 | head -n 3 >&2
            rm -rf "$unpacked"
            exit 1
        }
        find_browser
    else
        rm -rf "$unpacked"
        cat >&2 <<'MISSING'
No browser: neither chromium-headless-shell nor chromium is installed, and it could not be unpacked (see above).
Any of these brings one:
  apt-get install --no-install-recommends chromium-headless-shell     (Debian, as root)
  make browser                                                        (Debian, as anyone, once apt's sources can be reached)
  STREAMBENCH_BROWSER=/path/to/chromium make test                     (any other Chromium, also a playwright one)
MISSING
        exit 1
    fi
    ;;
*)
    echo "usage: $0 [find | get]" >&2
    exit 2
    ;;
esac
