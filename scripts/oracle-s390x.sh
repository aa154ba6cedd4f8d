#!/usr/bin/env bash
# Usage: scripts/oracle-s390x.sh
# Unpacks Debian's OpenZFS tools of s390x, which is big-endian, and an emulator for its programs under target/oracle, with package lists
# and a state of its own: nothing of the system changes. Prints a folder with
#   run PROGRAM ARGUMENT...   runs zdb or ztest of s390x;
#   ztest ARGUMENT...         the latter.
# ztest starts itself anew for each pass, which takes a kernel that knows the emulator: a binfmt_misc of a namespace of its own (Linux 6.7).
# Fails, and says why in its last line, where something of this is not to be had. Needs apt-get, dpkg and unshare.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/target/oracle/s390x
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
zfs=(zfsutils-linux zfs-test libzfs6linux libzpool6linux libnvpair3linux libuutil3linux libzfsbootenv1linux)
# What those are linked with, and what these are linked with in turn.
libs=(libc6 libgcc-s1 libblkid1 libssl3 libudev1 libuuid1 zlib1g libaio1 libtirpc3 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libcom-err2
  libkrb5support0 libkeyutils1)

fail() {
  echo "$*" >&2
  exit 1
}

get() { # ARCHITECTURE SUITE PACKAGE...: downloads the packages and unpacks them under that architecture's name
  local arch=$1 suite=$2 state=$here/state-$1-$2
  shift 2
  mkdir -p "$state"/{lists/partial,cache/archives/partial,debs} "$here/$arch"
  echo "deb [arch=$arch signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main contrib" >"$state/sources.list"
  : >"$state/status"
  local apt=(apt-get -q -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o "Dir::Etc::SourceList=$state/sources.list"
    -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$state" -o "Dir::State::Status=$state/status" -o "Dir::Cache=$state/cache"
    -o APT::Sandbox::User=root)
  "${apt[@]}" update >&2 || fail "no package list of $suite for $arch"
  (cd "$state/debs" && "${apt[@]}" download "$@" >&2) || fail "not all of $suite's packages for $arch are there: $*"
  local deb
  for deb in "$state"/debs/*.deb; do dpkg -x "$deb" "$here/$arch"; done
}

if [ ! -e "$here/done" ]; then
  rm -rf "$here"
  get s390x bookworm-backports "${zfs[@]}"
  get s390x bookworm "${libs[@]}"
  get "$(dpkg --print-architecture)" bookworm qemu-user-static
  touch "$here/done"
fi
emulator=$here/$(dpkg --print-architecture)/usr/bin/qemu-s390x-static

cat >"$here/run" <<EOF
#!/bin/sh
program=\$1
shift
QEMU_LD_PREFIX=$here/s390x exec $emulator $here/s390x/sbin/\$program "\$@"
EOF
# The first 20 bytes of a program of s390x, and which of their bits count: 64 bits, big-endian, machine 22.
cat >"$here/inside" <<EOF
#!/bin/sh
set -e
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ':s390x:M::\\x7fELF\\x02\\x02\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x02\\x00\\x16:\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfc\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xff\\xfe\\xff\\xff:$emulator:F' >/proc/sys/fs/binfmt_misc/register
exec "\$@"
EOF
cat >"$here/ztest" <<EOF
#!/bin/sh
export QEMU_LD_PREFIX=$here/s390x ZDB=$here/s390x/sbin/zdb
exec unshare --user --map-root-user --mount $here/inside $here/s390x/sbin/ztest "\$@"
EOF
chmod +x "$here"/{run,inside,ztest}
# Both answer with their usage, and their status is no matter.
for program in "run zdb -h" "ztest --help"; do
  # shellcheck disable=SC2086 # a program and its arguments
  "$here"/$program >"$here/help" 2>&1 || true
  grep -qi '^usage' "$here/help" || fail "$program: $(tail -n 1 "$here/help")"
done
echo "$here"
