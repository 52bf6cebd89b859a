#!/bin/sh
# apt_user.sh FOLDER PACKAGE...
#
# Unpacks Debian packages, and those of their dependencies that this machine lacks, into FOLDER/root. It needs no root and
# installs nothing: apt only resolves and downloads, into lists and caches of its own below FOLDER, and no maintainer script runs.
# What comes out has to be started with FOLDER/root's libraries on LD_LIBRARY_PATH. A package that is already installed is not
# downloaded, so look for the installed program first.
set -eu

[ $# -ge 2 ] || { echo "usage: $0 FOLDER PACKAGE..." >&2; exit 2; }
for program in apt-get dpkg-deb; do
    command -v "$program" >/dev/null || { echo "$program is not here: this is not a Debian-like system" >&2; exit 1; }
done

folder=$1
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
state=$folder/.apt
# Also when it fails or is interrupted: half a download is of no use to the next try.
trap 'rm -rf "$state"' EXIT
trap 'exit 130' INT TERM
mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$folder/root"

# The configured hooks are the system's business: they would clean the system's folders.
# APT::Sandbox::User empty: apt run by root would otherwise download as a user who cannot write here.
cat >"$state/apt.conf" <<SETTINGS
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Post-Invoke;
APT::Sandbox::User "";
Debug::NoLocking "1";
Acquire::Languages "none";
Acquire::Retries "3";
Dir::State::Lists "$state/lists";
Dir::State::extended_states "$state/extended_states";
Dir::Cache "$state/cache";
SETTINGS

apt-get -qq -c "$state/apt.conf" update
apt-get -qq -c "$state/apt.conf" install --yes --no-install-recommends --download-only "$@" >/dev/null

found=no
for package in "$state"/cache/archives/*.deb; do
    [ -e "$package" ] || continue
    dpkg-deb -x "$package" "$folder/root"
    found=yes
done
[ "$found" = yes ] || { echo "nothing to unpack: already installed? ($*)" >&2; exit 1; }
