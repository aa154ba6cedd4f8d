#!/usr/bin/env bash
# Usage: scripts/oracle-tools.sh
# Unpacks Debian's OpenZFS tools and test suite (bookworm-backports, contrib) under target/oracle, with a package
# list and state of its own: nothing of the system changes. Prints the folder. Needs apt-get and dpkg.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/target/oracle
tools=$here/root
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
packages=(zfsutils-linux zfs-test libzfs6linux libzpool6linux libnvpair3linux libuutil3linux libzfsbootenv1linux)

if [ ! -e "$here/done" ]; then
  mkdir -p "$here"/{state/lists/partial,cache/archives/partial,debs} "$tools"
  keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  echo "deb [signed-by=$keyring] $mirror bookworm-backports main contrib" >"$here/sources.list"
  : >"$here/dpkg-status"
  apt=(apt-get -q -o "Dir::Etc::SourceList=$here/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$here/state"
    -o "Dir::State::Status=$here/dpkg-status" -o "Dir::Cache=$here/cache" -o APT::Sandbox::User=root)
  "${apt[@]}" update >&2
  (cd "$here/debs" && "${apt[@]}" download "${packages[@]}" >&2)
  for deb in "$here"/debs/*.deb; do dpkg -x "$deb" "$tools"; done
  touch "$here/done"
fi
echo "$tools"
