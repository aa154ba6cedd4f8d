#!/usr/bin/env bash
# Usage: scripts/bench-peers.sh [--rounds N] [--scale smoke|normal|full] [--out DIR] [GROUP...]
# Measures Poolhouse's engine beside OpenZFS's own in user space (libzpool), in turns on this
# machine.
#
# It prints a table, writes JSON and plots to DIR (docs/results/data), and updates the pages of
# docs/results.
# GROUP: reads, storm, free, unmap, overwrite, scrub, send, mounts (beside zfs-fuse, with fio, as
# root); all groups if none is named.
#   ZFS_SRC=DIR       a source tree of OpenZFS, built in user space with
#                     LIBZPOOL_CPPFLAGS=-DNDEBUG: the fair peer. Without it, Debian's libzpool is
#                     unpacked under target/oracle; the system does not change. Its assertions are
#                     on, and cost 1.0 to 1.7 times the CPU time.
#   BENCH_MEMORY=DIR  directory for images in memory (/dev/shm)
#   BENCH_DISK=DIR    directory for images on a disk (target/peers)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/target/peers
include=$out/include
mkdir -p "$out" "$include"
flags=(-O2 -g -fno-strict-aliasing -w -D_GNU_SOURCE -D_REENTRANT -D_FILE_OFFSET_BITS=64 -D_LARGEFILE64_SOURCE)

if [ -n "${ZFS_SRC:-}" ]; then
  s=$ZFS_SRC
  [ -e "$s/.libs/libzpool.so" ] || { echo "no libzpool in $s/.libs: build it first" >&2; exit 2; }
  flags+=(-DNDEBUG -include "$s/zfs_config.h" -I"$s/include" -I"$s/lib/libspl/include" -I"$s/lib/libspl/include/os/linux")
  # The headers of libzpool have moved, and some of its functions changed, after 2.4.
  if [ -e "$s/lib/libzpool/include/libzpool.h" ]; then
    flags+=(-DPEER_API=25 -include "$s/include/sys/simd_config.h" -I"$s/lib/libzpool/include")
  else
    flags+=(-DPEER_API=24 -I"$s/include/os/linux/zfs")
  fi
  libs=(-L"$s/.libs" -Wl,-rpath,"$s/.libs" -lzpool -lnvpair)
  for one in "$s"/.libs/libspl.a "$s"/.libs/libzutil.a; do [ ! -e "$one" ] || libs=("$one" "${libs[@]}"); done
  libraries=$s/.libs
  name="libzpool of $(sed -n 's/^Version: *//p' "$s/META") from source, no assertions"
else
  # zfs-dkms has one header that libzfslinux-dev includes, but lacks.
  root=$(scripts/oracle-tools.sh libzfslinux-dev/bookworm-backports zfs-dkms/bookworm-backports)
  libraries=$root/lib/$(uname -m)-linux-gnu
  mkdir -p "$include/more/sys"
  ln -sfn "$root/usr/include/libzpool" "$include/sys"
  ln -sfn "$root"/usr/src/zfs-*/include/sys/zfs_ioctl.h "$include/more/sys/zfs_ioctl.h"
  flags+=(-DPEER_API=23 -DDEBUG -UNDEBUG -DZFS_DEBUG -I"$root/usr/include/libspl" -I"$root/usr/include/libzfs" -I"$include" -idirafter "$include/more")
  libs=(-Wl,-rpath-link,"$libraries" "$libraries/libzpool.so.6" "$libraries/libnvpair.so.3")
  name="libzpool $(basename "$(echo "$root"/usr/src/zfs-*)" | sed s/zfs-//) of Debian, assertions on"
fi
${CC:-cc} "${flags[@]}" crates/bench/peers/libzpool.c -o "$out/libzpool" -rdynamic "${libs[@]}" -lpthread
cat >"$out/peer" <<EOF
#!/bin/sh
LD_LIBRARY_PATH='$libraries' exec '$out/libzpool' "\$@"
EOF
chmod +x "$out/peer"

scripts/zfs-fuse-tools.sh >/dev/null || echo "zfs-fuse can't be had: mounts are measured alone" >&2
cargo build -q --release -p poolhouse-bench -p poolhouse-program
export BENCH_MOUNTS=$PWD/scripts/bench-mount.sh POOLHOUSE=${POOLHOUSE:-${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse}
export PEER_PROGRAM=$out/peer PEER_NAME=$name BENCH_DISK=${BENCH_DISK:-$out}
export BENCH_DATE BENCH_COMMAND
BENCH_DATE=$(date +%F) BENCH_COMMAND="make bench-peers${*:+ PEERS_ARGS=\"$*\"}"
status=0
"${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse-bench" peers --out docs/results/data "$@" || status=$?
scripts/results.py
exit "$status"
