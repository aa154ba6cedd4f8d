#!/usr/bin/env bash
# Usage: KERNEL=COMMAND scripts/judge-receives.sh DIR
# Receives the snapshots of the fixture `send-src`, whose devices are in DIR, in each form of stream.
# Then COMMAND gets a folder and a script. It runs the script as root where OpenZFS's kernel module
# is, with the folder's content in the current directory. The script compares files with those of
# the same snapshots, sends and receives further ones, scrubs, and exits with 0 if all is well.
# POOLHOUSE names the program; without it, this script builds it.
set -euo pipefail
[ $# -eq 1 ] && [ -n "${KERNEL:-}" ] || { sed -n '2,7s/^# //p' "$0" >&2; exit 2; }
devices=$(realpath "$1")
cd "$(dirname "$0")/.."
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program
  POOLHOUSE=${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-receives.XXXXXX")
mkdir -m 700 "$work/run"
mkdir "$work/images"
export POOLHOUSE_RUN_DIR=$work/run
zpool() { "$POOLHOUSE" zpool "$@"; }
zfs() { "$POOLHOUSE" zfs "$@"; }
cleanup() {
  zpool export -a >/dev/null 2>&1 || true
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT

zpool import -N -o readonly=on -d "$devices" send-src
echo 'correct horse' >"$work/images/passphrase"
zfs load-key -L prompt send-src/enc <"$work/images/passphrase"
truncate -s 700M "$work/images/ours.img"
zpool create -m none -O acltype=posix -O xattr=sa ours "$work/images/ours.img"

receive() { # TARGET OPTION... SNAPSHOT
  local target=$1
  shift
  zfs send "$@" | zfs receive -u "ours/$target"
}
for form in '' -L -e -c -Lec; do
  receive "fs$form" $form send-src/fs@a
  receive "fs$form" $form -i @a send-src/fs@b
  receive "vol$form" $form send-src/tree/vol@r1
done
receive enc send-src/enc@e1
receive enc -i @e1 send-src/enc@e2
# Raw streams, which need no key. Of the first one, the kernel module receives the increment.
receive raw -w send-src/enc@e1
receive raws -w send-src/enc@e1
receive raws -w -i @e1 send-src/enc@e2
zfs send -w send-src/enc@e1 | head -c 900000 | zfs receive -u -s ours/rawrest 2>/dev/null || true
zfs send -w -t "$(zfs get -H -o value receive_resume_token ours/rawrest)" | zfs receive -u -s ours/rawrest
receive k1 send-src/tree/k1@r1
zfs send -i send-src/tree/k1@r1 send-src/tree/k1clone@r2 | zfs receive -u -o origin=ours/k1@r1 ours/clone
# Packages. Of the second one, the kernel module receives the increment.
receive tree -R send-src/tree@r2
receive grow -R -s send-src/tree@r1
receive multi send-src/fs@a
receive multi -I @a send-src/fs@c
# A stream that breaks off, and goes on. And one that the kernel module is to continue.
zfs send -L send-src/fs@a | head -c 3000000 | zfs receive -u -s ours/resumed 2>/dev/null || true
zfs send -t "$(zfs get -H -o value receive_resume_token ours/resumed)" | zfs receive -u -s ours/resumed
zfs send -L send-src/fs@a | head -c 9000000 | zfs receive -u -s ours/partial 2>/dev/null || true
# By force, over a change and a snapshot of it.
receive forced send-src/fs@a
zfs set mountpoint="$work/forced" ours/forced
mountpoint -q "$work/forced" || zfs mount ours/forced
echo mine >"$work/forced/mine"
zfs snapshot ours/forced@mine
rm "$work/forced/mine"
zfs unmount ours/forced
zfs send -i @a send-src/fs@b | zfs receive -u -F ours/forced
# Space by user of what arrived raw: counted here, then changed by an increment, and counted again.
receive counted -w send-src/enc@e1
zfs load-key -L prompt ours/counted <"$work/images/passphrase"
zfs set mountpoint="$work/counted" ours/counted
change() {
  mountpoint -q "$work/counted" || zfs mount ours/counted
  echo more >"$work/counted/more"
  # A quota is enforced once the count is complete.
  zfs set userobjquota@0=1 ours/counted
  while touch "$work/counted/probe" 2>/dev/null; do
    rm "$work/counted/probe"
    zpool sync ours
  done
  zfs set userobjquota@0=none ours/counted
  zfs unmount ours/counted
}
change
zfs send -w -i @e1 send-src/enc@e2 | zfs receive -u -F ours/counted
change
zfs userspace -Hpn ours/counted | sort >"$work/images/userspace"
zpool export ours
zpool export send-src
cp "$devices"/*.img "$work/images/"
cp scripts/judge-receives-compare.sh "$work/images/compare.sh"
cp scripts/judge-streams-lib.sh "$work/images/lib.sh"
$KERNEL "$work/images" "$work/images/compare.sh"
