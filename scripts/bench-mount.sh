#!/usr/bin/env bash
# Usage: scripts/bench-mount.sh poolhouse|zfs-fuse|ext4|null ROOM
# Mounts a new, empty file system of that kind, with everything that it needs in the directory ROOM.
#
# It prints `PID DIR`: the process that serves it (0 for the kernel), and the mountpoint. It removes
# everything when its standard input ends. If something is missing, it says so on standard error and
# exits with 77.
#
# The devices are sparse files of SIZE (8G) in ROOM. With LOG set, pools have one more as log
# device.
#   poolhouse  needs POOLHOUSE, the program
#   zfs-fuse   needs root, and ZFS_FUSE, the directory into which scripts/zfs-fuse-tools.sh
#              unpacked it (target/zfs-fuse/root)
#   ext4       needs root, losetup and mkfs.ext4; it uses a loop device on the same file system
#              as the others
#   null       needs BENCH, the program poolhouse-bench: a FUSE file system that keeps names in
#              memory and no data, as the limit of what FUSE can do
# The pools have no compression. No file system keeps access times.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
name=$1 room=$2 size=${SIZE:-8G}
zfs_fuse=${ZFS_FUSE:-$here/target/zfs-fuse/root}

missing() {
  echo "missing: $*" >&2
  exit 77
}
root() { [ "$(id -u)" = 0 ] || missing "root, without whom there is no $name"; }

# zfs-fuse uses a fixed socket and cache file in system directories. A mount namespace gives it
# private copies of these.
if [ "$name" = zfs-fuse ] && [ -z "${BENCH_ISOLATED:-}" ]; then
  root
  [ -x "$zfs_fuse/sbin/zfs-fuse" ] || missing "zfs-fuse in $zfs_fuse: scripts/zfs-fuse-tools.sh unpacks it"
  BENCH_ISOLATED=1 exec unshare -m --propagation private bash "$0" "$@"
fi

mkdir -p "$room/mnt"
take_away=()
cleanup() {
  local i
  for ((i = ${#take_away[@]} - 1; i >= 0; i--)); do eval "${take_away[i]}" >&2 || true; done
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
image=$room/image
truncate -s "$size" "$image"
devices=("$image")
if [ -n "${LOG:-}" ]; then
  truncate -s 1G "$room/log-device"
  devices+=(log "$room/log-device")
fi
pid=0 dir=$room/mnt

case $name in
  poolhouse)
    [ -x "${POOLHOUSE:-}" ] || missing 'POOLHOUSE, the program'
    mkdir -m 700 "$room/run"
    mkfifo "$room/ready"
    export POOLHOUSE_RUN_DIR=$room/run
    "$POOLHOUSE" serve --background --run-dir "$room/run" >"$room/ready" &
    pid=$!
    read -r _ <"$room/ready"
    for alias in zpool zfs; do ln -s "$(realpath "$POOLHOUSE")" "$room/$alias"; done
    pool=bench$$
    "$room/zpool" create -o ashift=12 -O atime=off -O compression=off -m "$room/mnt" "$pool" "${devices[@]}"
    # A pool that can't be exported, as one without space, is destroyed: the daemon ends with it.
    take_away+=("wait $pid" "$room/zpool export $pool || $room/zpool destroy -f $pool || kill -9 $pid")
    ;;
  zfs-fuse)
    mkdir -p /run/zfs /etc/zfs /var/lib/zfs
    for own in /run/zfs /etc/zfs /var/lib/zfs; do mount -t tmpfs none "$own"; done
    libs=("$zfs_fuse"/lib/*-linux-gnu)
    with() { LD_LIBRARY_PATH=${libs[0]} "$zfs_fuse/sbin/$@"; }
    LD_LIBRARY_PATH=${libs[0]} "$zfs_fuse/sbin/zfs-fuse" -n --no-kstat-mount -m 4096 -a 3600 -e 3600 -o default_permissions >"$room/log" 2>&1 &
    pid=$!
    take_away+=("wait $pid" "kill $pid")
    for _ in $(seq 600); do
      with zpool list >/dev/null 2>&1 && break
      kill -0 "$pid" 2>/dev/null || missing "a zfs-fuse that starts: $(tail -n 1 "$room/log")"
      sleep .1
    done
    pool=bench$$
    with zpool create -f -o ashift=12 -m "$room/mnt" "$pool" "${devices[@]}" 2>/dev/null || with zpool create -f -m "$room/mnt" "$pool" "${devices[@]}" >&2
    with zfs set atime=off "$pool" >&2
    take_away+=("with zpool destroy -f $pool 2>/dev/null")
    dir=/proc/$$/root$room/mnt
    ;;
  ext4)
    root
    for tool in losetup mkfs.ext4; do command -v "$tool" >/dev/null || missing "$tool"; done
    loop=$(losetup --find --show "$image") || missing 'a loop device'
    take_away+=("losetup -d $loop")
    # Without these options, the kernel would write inode tables during the measurement.
    mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$loop" >&2
    mount -o noatime "$loop" "$room/mnt"
    take_away+=("umount $room/mnt")
    ;;
  null)
    [ -x "${BENCH:-}" ] || missing 'BENCH, the program poolhouse-bench'
    mkfifo "$room/ready" "$room/end"
    "$BENCH" null "$room/mnt" <"$room/end" >"$room/ready" &
    pid=$!
    exec 8>"$room/end"
    read -r _ <"$room/ready"
    take_away+=("umount -l $room/mnt 2>/dev/null" "wait $pid" "exec 8>&-")
    ;;
  *)
    missing "a file system $name"
    ;;
esac

echo "$pid $dir"
cat >/dev/null
