#!/usr/bin/env bash
# Usage: scripts/zfs-fuse-tools.sh
# Unpacks Debian's zfs-fuse 0.7, and the libfuse 2 that it needs, under target/zfs-fuse. The system
# does not change, and nothing is started. Prints the directory. Needs apt-get, dpkg, and a package
# list that has them (that of Debian bookworm; run `apt-get update` before).
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/target/zfs-fuse
if [ ! -e "$here/done" ]; then
  mkdir -p "$here/debs" "$here/root"
  (cd "$here/debs" && apt-get -q -o APT::Sandbox::User=root download zfs-fuse libfuse2 >&2)
  for deb in "$here"/debs/*.deb; do dpkg -x "$deb" "$here/root"; done
  touch "$here/done"
fi
echo "$here/root"
