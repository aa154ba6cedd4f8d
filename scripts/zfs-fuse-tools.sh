#!/usr/bin/env bash
# Usage: scripts/zfs-fuse-tools.sh
# Unpacks Debian's zfs-fuse 0.7 and the libfuse 2 that it wants under target/zfs-fuse: nothing of the system changes, and nothing is
# started. Prints the folder. Needs apt-get, dpkg, and a list of packages that has them (Debian bookworm's has; `apt-get update` before).
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
