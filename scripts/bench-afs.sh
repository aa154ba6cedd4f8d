#!/usr/bin/env bash
# Usage: scripts/bench-afs.sh [--rounds N] [--seconds N] [--base PROGRAM] [--record] [LOAD...]
# Measures the AFS file server beside OpenAFS's, in turns, in a cell in namespaces: the server's CPU
# time for each call or MiB. Prints a table, and writes target/bench-afs.json.
#
# LOAD: null, status, bulk, create, small, write, read, single, clear, crypt, clients (64 at once), shards,
# volumes, start; all of them if none is named. `shards` compares our server alone on one core and on two.
# `volumes` measures verbs of vos with more and more volumes, and writes target/bench-afs-volumes.json.
# `start` measures the start with up to 1.5 million names, and writes target/bench-afs-start.json. It takes
# some minutes, since the peer does.
#   --rounds N      medians of N rounds (3)
#   --seconds N     how long each load runs (3)
#   --base PROGRAM  also measures another build of the example `afs_server`
#   --record        writes docs/results/data/afs-*.json too, and updates their pages
# AFS_SERVER, as scripts/afs.sh explains it, names a server in the place of the release build of the
# example.
# Needs root, network namespaces, and Debian's packages of OpenAFS. Without them it says what is
# missing, and exits with 0.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/afs/lib.sh
. scripts/afs/lib.sh

command="make bench-afs${*:+ BENCH_ARGS=\"$*\"}"
base='' record='' options=() loads=()
while [ $# -gt 0 ]; do
  case $1 in
    --rounds | --seconds) options+=("$1" "${2:?}"); shift ;;
    --base) base=$(realpath "${2:?}"); shift ;;
    --record) record=1 ;;
    -*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    *) loads+=("$1") ;;
  esac
  shift
done

skip() { echo "SKIPPED bench-afs: this machine lacks $*"; exit 0; }
missing=$("$cell" needs) || skip "$missing"
missing=$(build_load "$out/afsbench") || skip "$missing"
if [ -z "${AFS_SERVER:-}" ]; then
  cargo build -q --release -p poolhouse-afs --example afs_server
  AFS_SERVER=$out/release/examples/afs_server
fi

# The pool and the peer's partition are in memory.
[ ! -d /dev/shm ] || export TMPDIR=${BENCH_SCRATCH:-/dev/shm}
set_up 2
# make_volume prints what it does.
make_volume bench.peer $theirs >/dev/null
make_volume bench.ours $ours >/dev/null
servers=(--server "peer=1=$theirs=dafileserver" --server "ours=2=$ours=ours")
if [ -n "$base" ]; then
  for one in dafileserver davolserver salvageserver; do "$cell" stop 3 $one; done
  start_ours 3 "$base"
  make_volume bench.base $second >/dev/null
  servers+=(--server "base=3=$second=ours")
fi

# Starts our server anew on host 2, on the given cores, for the comparison of shards.
restart() { # CORES OPTION...
  local cores=$1
  shift
  stop_ours 2
  start_ours 2 "taskset -c $cores $AFS_SERVER $*"
}

measure() { # ARGUMENT...
  scripts/afs/bench.py --load-client "$out/afsbench" --out "$out/bench-afs.json" --command "$command" \
    "${options[@]}" "${servers[@]}" "$@"
}

[ ${#loads[@]} -gt 0 ] ||
  loads=(null status bulk create small write read single clear crypt clients shards volumes start)
if [[ " ${loads[*]} " == *' start '* ]]; then
  cargo build -q --release -p poolhouse-afs --example afs_start
  mkdir -p "$work/images"
  scripts/afs/start.py --program "$out/release/examples/afs_start" --images "$work/images" --command "$command" \
    --out "$out/bench-afs-start.json" ${record:+--record docs/results/data/afs-start.json}
  # The other loads need the peer, without the names.
  find "$ZAFS_STATE/h1/vicepa" -maxdepth 1 -name 'V05*.vol' -size 0 -delete
  "$cell" servers 1
fi
if [[ " ${loads[*]} " == *' volumes '* ]]; then
  cargo build -q --release -p poolhouse-afs --example afs_verbs
  scripts/afs/verbs.py --program "$out/release/examples/afs_verbs" --keys "$keys" --command "$command" \
    --out "$out/bench-afs-volumes.json" ${record:+--record docs/results/data/afs-volumes.json} \
    --server "peer=1=$theirs=dafileserver" --server "ours=2=$ours=ours"
fi
rm -f "$out/bench-afs.json"
plain=()
for one in "${loads[@]}"; do case $one in shards | volumes | start) ;; *) plain+=("$one") ;; esac; done
[ ${#plain[@]} = 0 ] || measure "${plain[@]}"
if [[ " ${loads[*]} " == *' shards '* ]]; then
  for round in $(seq 3); do
    for one in '0 --shards 1' '0,1 --shards 1' '0,1 --shards 2'; do
      # shellcheck disable=SC2086
      restart $one
      measure --shards "$one" status
    done
  done
fi
[ ! -e "$out/bench-afs.json" ] ||
  scripts/afs/bench.py --out "$out/bench-afs.json" --table ${record:+--record docs/results/data/afs-speed.json}
[ -z "$record" ] || scripts/results.py
