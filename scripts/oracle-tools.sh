#!/usr/bin/env bash
# Usage: scripts/oracle-tools.sh [PACKAGE ...]
# Unpacks Debian's OpenZFS tools and test suite (bookworm-backports, contrib) under target/oracle.
# It also unpacks the named packages of Debian; PACKAGE/RELEASE selects another release than
# bookworm. The package list and state are separate, so the system does not change. Prints the
# directory. Needs apt-get and dpkg.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/target/oracle
tools=$here/root
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages=(zfsutils-linux zfs-test libzfs6linux libzpool6linux libnvpair3linux libuutil3linux libzfsbootenv1linux)

apt=(apt-get -q -o "Dir::Etc::SourceList=$here/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$here/state"
  -o "Dir::State::Status=$here/dpkg-status" -o "Dir::Cache=$here/cache" -o APT::Sandbox::User=root)

unpack() { # PACKAGE...
  local one
  mkdir -p "$here"/{state/lists/partial,cache/archives/partial,debs} "$tools"
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  printf "deb [signed-by=$keyring] $mirror %s main contrib\n" bookworm bookworm-backports >"$here/sources.list"
  : >"$here/dpkg-status"
  "${apt[@]}" update >&2
  for one in "$@"; do
    (cd "$here/debs" && "${apt[@]}" download "$one" >&2)
    dpkg -x "$here/debs/${one%%/*}"_*.deb "$tools"
  done
}

if [ ! -e "$here/done" ]; then
  # Name the backports explicitly, as bookworm's own packages are older.
  unpack "${packages[@]/%//bookworm-backports}"
  touch "$here/done"
fi
more=()
for one in "$@"; do [ -e "$here/done-${one/\//@}" ] || more+=("$one"); done
if [ ${#more[@]} -gt 0 ]; then
  unpack "${more[@]}"
  for one in "${more[@]}"; do touch "$here/done-${one/\//@}"; done
fi
echo "$tools"
