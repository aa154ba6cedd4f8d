#!/usr/bin/env bash
# Usage: scripts/oracle-s390x.sh
# Unpacks Debian's OpenZFS tools for s390x, which is big-endian, and an emulator for it, under
# target/oracle. The package lists and state are separate, so the system does not change. Prints a
# directory with two programs:
#   run PROGRAM ARGUMENT...   runs zdb or ztest of s390x
#   ztest ARGUMENT...         runs ztest of s390x
# ztest starts itself again for each pass. For this, the kernel must know the emulator: a
# binfmt_misc in a namespace of its own (Linux 6.7).
# If something is not available, the script fails with the reason in its last line. Needs apt-get,
# dpkg and unshare.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD/target/oracle/s390x
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
zfs=(zfsutils-linux zfs-test libzfs6linux libzpool6linux libnvpair3linux libuutil3linux libzfsbootenv1linux)
# The libraries of these programs, and the libraries of those.
libs=(libc6 libgcc-s1 libblkid1 libssl3 libudev1 libuuid1 zlib1g libaio1 libtirpc3 libgssapi-krb5-2 libkrb5-3 libk5crypto3 libcom-err2
  libkrb5support0 libkeyutils1)

fail() {
  echo "$*" >&2
  exit 1
}

# Downloads packages, and unpacks them under the name of their architecture.
get() { # ARCHITECTURE SUITE PACKAGE...
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
# The first 20 bytes of an s390x program, and a mask of the relevant bits: 64 bits, big-endian,
# machine 22.
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
# Both must print their usage. Their exit status does not matter.
for program in "run zdb -h" "ztest --help"; do
  # shellcheck disable=SC2086 # a program and its arguments
  "$here"/$program >"$here/help" 2>&1 || true
  grep -qi '^usage' "$here/help" || fail "$program: $(tail -n 1 "$here/help")"
done
echo "$here"
