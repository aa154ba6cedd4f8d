#!/usr/bin/env bash
# Usage: KERNEL=COMMAND scripts/judge-sends.sh DIR
# Sends the snapshots of the fixture `send-src`, whose devices are in DIR, in each form of stream.
# Then COMMAND gets a folder and a script. It runs the script as root where OpenZFS's kernel module
# is, with the folder's content in the current directory. The script receives the streams, compares
# files with those of the same snapshots, scrubs, and exits with 0 if all is well.
# POOLHOUSE names the program; without it, this script builds it.
set -euo pipefail
[ $# -eq 1 ] && [ -n "${KERNEL:-}" ] || { sed -n '2,7s/^# //p' "$0" >&2; exit 2; }
devices=$(realpath "$1")
cd "$(dirname "$0")/.."
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program
  POOLHOUSE=${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-sends.XXXXXX")
mkdir -m 700 "$work/run"
mkdir "$work/out"
export POOLHOUSE_RUN_DIR=$work/run
zpool() { "$POOLHOUSE" zpool "$@"; }
zfs() { "$POOLHOUSE" zfs "$@"; }
cleanup() {
  zpool export -a >/dev/null 2>&1 || true
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT

streams=$work/streams
mkdir "$streams"
zpool import -N -o readonly=on -d "$devices" send-src
echo 'correct horse' >"$streams/passphrase"
zfs load-key -L prompt send-src/enc <"$streams/passphrase"

send() { # NAME OPTION... SNAPSHOT: makes a stream, and notes its estimated size
  local name=$1
  shift
  zfs send "$@" >"$streams/$name"
  echo "$*	$(zfs send -nP "$@" | tail -n 1)" >>"$streams/sizes"
}
for form in '' -L -e -c -Lec -w; do
  send "fs$form.1" $form send-src/fs@a
  send "fs$form.2" $form -i @a send-src/fs@b
  send "fs$form.3" $form -i @b send-src/fs@c
  send "vol$form.1" $form send-src/tree/vol@r1
done
send enc.1 send-src/enc@e1
send enc.2 -i @e1 send-src/enc@e2
send enc-w.1 -w send-src/enc@e1
send enc-w.2 -w -i @e1 send-src/enc@e2
send k1.1 send-src/tree/k1@r1
send clone.1 -i send-src/tree/k1@r1 send-src/tree/k1clone@r2
# Packages. Of the second one, the clone comes with the increment.
send tree.1 -R send-src/tree@r2
send grow.1 -R -s send-src/tree@r1
send grow.2 -R -I @r1 send-src/tree@r2
send multi.1 send-src/fs@a
send multi.2 -I @a send-src/fs@c
zpool export send-src
cp "$devices"/*.img "$streams/"
cp scripts/judge-sends-receive.sh "$streams/receive.sh"
cp scripts/judge-streams-lib.sh "$streams/lib.sh"
$KERNEL "$streams" "$streams/receive.sh"
