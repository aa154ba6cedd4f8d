#!/usr/bin/env bash
# Usage: scripts/judge-afs.sh
# Makes a pool with volumes of AFS, through the daemon, OpenAFS's vos and OpenAFS's client, in a cell
# in namespaces. The same files are made in local folders. Then OpenZFS checks the pool:
#   - its zdb (ZDB, or the one that `make oracle` unpacked);
#   - KERNEL, a command that gets the images of the pool, as in scripts/judge.sh;
#   - KERNEL_SCRIPT, a command that gets a folder and a script. It runs the script as root where
#     OpenZFS's kernel module is, with the folder's content in the current directory. The script
#     compares each volume and clone with the local folder, and scrubs. It exits with 0 if all is well.
# At the end the daemon serves the pool again: dumps and files are what they were before.
# POOLHOUSE names the program; without it, this script builds it. Needs root and OpenAFS's packages.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts=$PWD/scripts
cell=$scripts/afs/cell.sh
missing=$("$cell" needs) || { echo "  SKIPPED: this machine lacks $missing"; exit 0; }
tools=$PWD/target/oracle/root
if [ -z "${ZDB:-}" ] && [ -x "$tools/sbin/zdb" ]; then
  ZDB=$tools/sbin/zdb
  libs=$(echo "$tools"/lib/*-linux-gnu)
fi
theirs() { LD_LIBRARY_PATH=${libs:-${LD_LIBRARY_PATH:-}} "$ZDB" "$@"; }
out=${CARGO_TARGET_DIR:-$PWD/target}
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program
  POOLHOUSE=$out/release/poolhouse
fi
POOLHOUSE=$(realpath "$POOLHOUSE")
cargo build -q -p poolhouse-afs --example afsdump
afsdump=$(realpath "$out")/debug/examples/afsdump

work=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-judge-afs.XXXXXX")
mkdir "$work/share" "$work/share/dev" "$work/expected"
mkdir -m 700 "$work/run"
export POOLHOUSE_RUN_DIR=$work/run WORK=$work
export ZAFS_NS=${ZAFS_NS:-poolhouse-judge} ZAFS_STATE=${ZAFS_STATE:-$work/cell}
theirs_at=10.92.0.1 ours_at=10.92.0.2
cleanup() {
  "$cell" down >/dev/null 2>&1
  rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
vos() { timeout 120 "$cell" run 1 vos "$@" -localauth >"$work/vos" 2>&1 || { cat "$work/vos"; echo "  vos $* fails"; return 1; }; }
# OpenAFS's client in user space sometimes ends before it has mounted.
client() {
  local try code=99
  for try in 1 2 3; do
    [ $code != 99 ] || { code=0 && timeout 600 "$cell" run 1 "$scripts/afs/client.sh" "$work/mount$try" "$@" || code=$?; }
  done
  return $code
}

# Makes the local folder for a volume.
folder() { mkdir -p -m 777 "$work/expected/$1"; } # VOLUME

# Works in a volume, and likewise in the local folder of what is expected there.
files() { # STAGE VOLUME
  folder "$2"
  (cd "$work/expected/$2" && bash "$scripts/judge-afs-files.sh" "$1")
  # shellcheck disable=SC2016
  client sh -c 'cd "$AFS:$2" && bash "$3" "$1"' sh "$1" "$2" "$scripts/judge-afs-files.sh"
}
volume() { vos restore "$2" a "$1" -file "$3"; } # NAME SERVER DUMP
same_as() { cp -a "$work/expected/$1" "$work/expected/$2"; } # VOLUME CLONE

make_pool() {
  "$cell" up 1
  "$cell" host 2
  "$cell" start 2 "$POOLHOUSE" serve
  for _ in $(seq 100); do [ ! -S "$work/run/poolhouse.sock" ] || break; sleep 0.1; done
  truncate -s 300M "$work/share/dev/d0"
  "$POOLHOUSE" zpool create -m none judge "$work/share/dev/d0"
  "$POOLHOUSE" afs enable --create --partition a --address $ours_at judge/vicepa >/dev/null
  for _ in $(seq 100); do vos listaddrs && grep -q . "$work/vos" && break; sleep 0.2; done
  vos create $theirs_at a new -maxquota 0
  vos dump new -file "$work/new"
  vos remove -id new
  scripts/afs/open-dump.py <"$work/new" >"$work/open"
  tar cf "$work/tree.tar" docs/guide docs/internals scripts crates/afs/src
}

fill() {
  local name since
  # OpenAFS's client fills a volume of OpenAFS's server, and one of ours.
  volume filled $theirs_at "$work/open"
  files first filled
  vos move filled $theirs_at a $ours_at a
  volume gone $ours_at "$work/open"
  files first gone
  files links gone
  vos dump gone -file "$work/dump"
  "$afsdump" dress <"$work/dump" >"$work/dressed"
  # A volume with a backup volume and an administrator's snapshot, which changes.
  volume tree $ours_at "$work/dressed"
  same_as gone tree
  vos backup tree
  same_as tree tree.backup
  since=$(date '+%m/%d/%Y %H:%M')
  files second tree
  "$POOLHOUSE" zfs snapshot "judge/vicepa/$(id_of tree)@administrator"
  same_as tree administrator
  # A volume that is restored: whole, and then with a change.
  vos dump tree.backup -file "$work/dump"
  volume copied $ours_at "$work/dump"
  vos dump tree -time "$since" -file "$work/dump"
  vos restore $ours_at a copied -file "$work/dump" -overwrite incremental
  same_as tree copied
  # Read-only clones: beside their volume, and alone.
  for name in site left; do
    volume $name $ours_at "$work/dressed"
    same_as gone $name
    vos addsite $ours_at a $name
    vos release $name
    same_as $name $name.readonly
    files second $name
  done
  vos remove -server $ours_at -partition a -id left
  rm -r "$work/expected/left"
  # What goes away with its backup volume, and what has nothing.
  vos backup gone
  vos remove -id gone
  rm -r "$work/expected/gone"
  volume empty $ours_at "$work/open"
  folder empty
}

id_of() { vos examine "$1" >&2 && awk 'NR == 1 { print $2 }' "$work/vos"; } # VOLUME

# Lists what is expected: each head and snapshot, and the folder with its files.
expectations() {
  local name id at
  : >"$work/share/volumes"
  for name in "$work"/expected/*; do
    name=${name##*/}
    case $name in
      administrator) at=$("$POOLHOUSE" zfs list -H -o name -t snapshot -r judge | grep '@administrator$') ;;
      *) id=$(id_of "$name") && at=$("$POOLHOUSE" zfs list -H -o name -t all -r judge | grep "[/@]$id\$") ;;
    esac
    echo "$at $name" >>"$work/share/volumes"
    bash "$scripts/judge-afs-compare.sh" list "$work/expected/$name" >"$work/share/$name.list"
    [ "$name" = administrator ] || { vos dump "$name" -file "$work/dump" && "$afsdump" vnodes <"$work/dump" >"$work/$name.vnodes"; }
  done
  "$POOLHOUSE" zfs list -H -o name -t all -r judge | sort >"$work/share/datasets"
}

# What the client sees now, and what vos dumps, is what was there before.
read_back() {
  local name differ=0
  for name in "$work"/expected/*; do
    name=${name##*/}
    [ "$name" != administrator ] || continue
    vos dump "$name" -file "$work/dump"
    "$afsdump" vnodes <"$work/dump" | cmp -s - "$work/$name.vnodes" || { echo "  $name: another dump"; differ=1; }
    # shellcheck disable=SC2016
    client sh -c 'cd "$AFS:$1" && bash "$2" sums' sh "$name" "$scripts/judge-afs-files.sh" >"$work/sums"
    (cd "$work/expected/$name" && bash "$scripts/judge-afs-files.sh" sums) | cmp -s - "$work/sums" ||
      { echo "  $name: other files"; differ=1; }
  done
  return $differ
}

make_pool
fill
expectations
"$POOLHOUSE" zpool export judge
bad=0
if [ -n "${ZDB:-}" ]; then
  if theirs -e -p "$work/share/dev" -bcc judge >"$work/zdb" 2>&1 && grep -q 'No leaks' "$work/zdb" &&
    theirs -e -p "$work/share/dev" -d judge >>"$work/zdb" 2>&1; then
    echo "  zdb: no leak, no bad checksum"
  else
    bad=1
    tail -n 15 "$work/zdb"
  fi
fi
if [ -n "${KERNEL_SCRIPT:-}" ]; then
  cp "$scripts/judge-afs-compare.sh" "$work/share/compare.sh"
  if $KERNEL_SCRIPT "$work/share" "$work/share/compare.sh" >"$work/kernel" 2>&1; then
    echo "  kernel: $(tail -n 1 "$work/kernel")"
  else
    bad=1
    tail -n 40 "$work/kernel"
  fi
fi
if [ -n "${KERNEL:-}" ]; then
  # shellcheck disable=SC2086 # a command and its options
  if $KERNEL "$work/share/dev/d0" >"$work/kernel" 2>&1; then
    echo "  kernel: imported, mounted, scrubbed"
  else
    bad=1
    tail -n 30 "$work/kernel"
  fi
fi
"$POOLHOUSE" zpool import -f -d "$work/share/dev" judge
if read_back; then echo "  read back: $(cat "$work"/share/*.list | wc -l) paths in $(wc -l <"$work/share/volumes") volumes and clones"; else bad=1; fi
[ $bad = 0 ]
