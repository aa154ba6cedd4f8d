#!/usr/bin/env bash
# Usage: [HOST='COMMAND' SERVER=ADDRESS] scripts/judge-afs-formats.sh [DUMP...]
# Lets OpenAFS judge dumps and directories that the crate `afs` makes. COMMAND runs its arguments on
# a host of a test cell, as root: the cell's name is in /etc/openafs/ThisCell, `vos -localauth`
# works, and ADDRESS has a file server with a partition /vicepa. COMMAND sees the same files as this
# script, and can mount by FUSE. Without HOST, the script brings up a cell of its own; this needs
# root, network namespaces, and OpenAFS's packages.
# Each DUMP is made anew, directories and access lists included. OpenAFS restores it, its client
# lists the files, adds and removes names in each directory, and OpenAFS dumps the volume again. The
# client needs volumes that anonymous users may write to. Default: those of the crate's tests.
# Then each side judges the other's increments. OpenAFS dumps what its client changed, and we restore
# that over what we had. We change a volume, and OpenAFS restores our increments over it. Each time,
# both sides then have the same vnodes, with all attributes.
set -euo pipefail
here=$(dirname "$(dirname "$(realpath "$0")")")
[ $# -ge 1 ] || set -- "$here"/crates/afs/tests/data/{made,openafs-full}.dump
dumps=()
for dump in "$@"; do dumps+=("$(realpath "$dump")"); done
cd "$here"
cell=$here/scripts/afs/cell.sh
if [ -z "${HOST:-}" ]; then
  missing=$("$cell" needs) || { echo "SKIPPED judge-afs-formats: this machine lacks $missing"; exit 0; }
  command -v afsd.fuse >/dev/null || { echo "SKIPPED judge-afs-formats: this machine lacks openafs-fuse"; exit 0; }
fi
cargo build -q -p poolhouse-afs --example afsdump --example afsvolume
afsdump=${CARGO_TARGET_DIR:-$PWD/target}/debug/examples/afsdump
afsvolume=${CARGO_TARGET_DIR:-$PWD/target}/debug/examples/afsvolume
work=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-afs.XXXXXX")
own=
if [ -z "${HOST:-}" ]; then
  export ZAFS_STATE=$work/cell ZAFS_NS=${ZAFS_NS:-fjudge}
  own=1 HOST="$cell run 1" SERVER=10.92.0.1
  "$cell" up 1
fi
on() { $HOST "$@"; }
# Its commands speak where nothing is wrong.
vos() {
  on vos "$@" -localauth >"$work/vos" 2>&1 || { cat "$work/vos"; return 1; }
}
cleanup() {
  vos remove "$SERVER" a judge >/dev/null 2>&1 || true
  [ -z "$own" ] || "$cell" down
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT

# Runs on the host: mounts the cell, lists the volume as `afsdump list` does, and changes it. With
# `now`, files of each second directory are different afterwards.
cat >"$work/client" <<'END'
set -eu
mkdir -p "$1/mount"
afsd.fuse -dynroot -fakestat -memcache -blocks 400000 -mountdir "$1/mount" -confdir /etc/openafs >"$1/client.log" 2>&1 &
client=$!
top=$1/mount/.:mount/$(cat /etc/openafs/ThisCell):judge
for i in $(seq 120); do ls "$top" >/dev/null 2>&1 && break; sleep 0.5; done
cd "$top"
# Mount points lead to other volumes. Those that the cell lacks are errors.
mapfile -t skip < <(while read -r path; do printf '%s\n' -path "$path" -prune -o; done <"$1/mounts")
find . "${skip[@]}" -type d -printf 'd %m %p\n' -o -type f -printf 'f %m %s %p\n' 2>"$1/errors" | sort >"$1/seen"
find . "${skip[@]}" -type d -print >"$1/directories" 2>"$1/errors" || grep -v 'No such device' "$1/errors" || true
keep=${2:-}
while read -r directory; do
  if [ -n "$keep" ]; then
    if [ "$keep" = later ]; then keep=now; continue; fi
    keep=later
    first=$(find "$directory" -maxdepth 1 -type f 2>"$1/errors" | sort | head -1)
    [ -z "$first" ] || mv "$first" "$directory/file that moved"
    mkdir "$directory/new directory"
    echo new >"$directory/new directory/file"
    ln -s elsewhere "$directory/new link"
    continue
  fi
  name=$directory/$(printf 'n%.0s' $(seq 100))
  for i in 1 2 3 4 5; do : >"$name$i"; done
  rm "$name"[1-5]
done <"$1/directories"
cd /
umount "$1/mount"
wait $client || true
END

# same NAME DUMP OTHER: reports whether two dumps have the same vnodes.
same() {
  local count
  "$afsdump" vnodes <"$2" >"$work/one"
  "$afsdump" vnodes <"$3" >"$work/other"
  if diff "$work/one" "$work/other" >"$work/differences"; then
    count=$(grep -vc / "$work/one")
    echo "  $1: $count vnodes"
  else
    echo "  $1: the vnodes differ"
    head -20 "$work/differences"
    status=1
  fi
}

status=0
for dump in "${dumps[@]}"; do
  "$afsdump" rebuild <"$dump" >"$work/new"
  "$afsdump" list <"$work/new" | sort >"$work/made"
  sed -n 's/^l [#%][^ ]* //p' "$work/made" >"$work/mounts"
  vos restore "$SERVER" a judge -file "$work/new"
  on bash "$work/client" "$work" || status=1
  # The client shows no sums.
  sed -n 's/^f \([0-7]* [0-9]*\) [0-9]* /f \1 /p; /^d/p' "$work/made" | sort >"$work/expected"
  if ! diff "$work/expected" "$work/seen" >"$work/differences"; then
    head -20 "$work/differences"
    status=1
  fi
  vos dump judge -file "$work/again"
  "$afsdump" list <"$work/again" | sort | diff "$work/made" - || status=1
  vos remove "$SERVER" a judge
  vos restore "$SERVER" a judge -file "$work/new"
  minute=$(date '+%m/%d/%Y %H:%M')
  on bash "$work/client" "$work" now || status=1
  vos dump judge -file "$work/again"
  vos dump judge -time "$minute" -file "$work/theirs"
  vos dump judge -time "$minute" -omitdirs -file "$work/omitted"
  vos remove "$SERVER" a judge
  echo "$(basename "$dump"): $(wc -l <"$work/made") files"
  for increment in theirs omitted; do
    "$afsvolume" apply 0 all "$work/new" "$work/$increment" >"$work/ours"
    same "$increment, $(stat -c %s "$work/$increment") of $(stat -c %s "$work/again") bytes" "$work/ours" "$work/again"
  done
  "$afsvolume" change "$dump" "$work"
  for increment in all changed; do
    vos restore "$SERVER" a judge -file "$work/before"
    vos restore "$SERVER" a judge -overwrite incremental -file "$work/$increment"
    vos dump judge -file "$work/again"
    vos remove "$SERVER" a judge
    same "$increment, $(stat -c %s "$work/$increment") of $(stat -c %s "$work/after") bytes" "$work/after" "$work/again"
  done
done
exit $status
