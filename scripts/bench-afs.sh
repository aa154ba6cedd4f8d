#!/usr/bin/env bash
# Usage: scripts/bench-afs.sh [OPTION...] [LOAD...]
# Measures the AFS file server beside OpenAFS's, in turns, in a cell in namespaces: the server's CPU
# time for each call or MiB. Prints a table, and writes target/bench-afs.json.
#
# LOAD: null, status, bulk, create, small, write, read, single, clear, crypt, clients (64 at once), shards,
# volumes, start; all of them if none is named. `shards` compares our server alone on one core and on two.
# `volumes` measures verbs of vos with more and more volumes, and writes target/bench-afs-volumes.json.
# `start` measures the start with up to 1.5 million names, and writes target/bench-afs-start.json. It takes
# some minutes, since the peer does.
#
# Each of these loads runs alone, if it is named. It writes target/bench-afs-LOAD.json, and has a page of its own.
#   first-use        64 clients use 10,000 volumes for the first time (about 10 minutes)
#   release          calls of `vos release` of 100 changed files among 20,000 to 2 and to 5 sites, by ours with blocks
#                    and with dumps (about 10 minutes; a million files: --files 1000000 --size 16 --sites 2
#                    --modes blocks, about 4 minutes and 12 GB of memory)
#   release-nothing  `vos release` of 1,000 unchanged volumes with two sites (about 30 minutes)
#   large            restore, dump, backup and remove of a volume of 20,000 files of 4 KiB and one of 256 MiB
#                    (about 5 minutes; a million files: --files 1000000 --size 0 --big 0, about an hour)
#   many             `volumes` with 10,000 and 100,000 volumes (about 10 minutes; our image grows to 8 GiB, and the
#                    peer's files to 3 GB. BENCH_SCRATCH names a folder on a disk if memory is too small)
#   attach           lock waits while three partitions of 100,000 and of 500,000 names are attached at once (2 minutes)
# For example: make bench-afs BENCH_ARGS="--record release"
#
#   --rounds N      medians of N rounds (3)
#   --seconds N     how long each load runs (3)
#   --volumes N     how many volumes, for first-use and release-nothing; a list of numbers for many and attach
#   --files N       how many files, for release and large
#   --size N        bytes of each of these files (release: 1024, large: 4096)
#   --big N         MiB of one more file, for large (256)
#   --sites LIST    numbers of sites, for release (2,5)
#   --modes LIST    how ours sends, for release (blocks,dumps)
#   --base PROGRAM  also measures another build of the example `afs_server`; of the loads that run alone, `large` does
#   --debug         takes builds for development, to try a load: not for figures
#   --record        writes docs/results/data/afs-*.json too, and updates their pages
# AFS_SERVER, as scripts/afs.sh explains it, names a server in the place of the release build of the
# example.
# Needs root, network namespaces, and Debian's packages of OpenAFS. Without them it says what is
# missing, and exits with 0.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/afs/lib.sh
. scripts/afs/lib.sh

BENCH_LOAD=$(cut -d' ' -f1 /proc/loadavg)
export BENCH_LOAD
command="make bench-afs${*:+ BENCH_ARGS=\"$*\"}"
base='' record='' options=() loads=() rounds=3 volumes='' files=20000 size='' big=256 sites=2,5 modes=blocks,dumps
build=release
while [ $# -gt 0 ]; do
  case $1 in
    --rounds | --seconds) options+=("$1" "${2:?}"); [ "$1" = --seconds ] || rounds=$2; shift ;;
    --volumes) volumes=${2:?}; shift ;;
    --files) files=${2:?}; shift ;;
    --size) size=${2:?}; shift ;;
    --big) big=${2:?}; shift ;;
    --sites) sites=${2:?}; shift ;;
    --modes) modes=${2:?}; shift ;;
    --debug) build=debug ;;
    --base) base=$(realpath "${2:?}"); shift ;;
    --record) record=1 ;;
    -*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
    *) loads+=("$1") ;;
  esac
  shift
done

[ ${#loads[@]} -gt 0 ] ||
  loads=(null status bulk create small write read single clear crypt clients shards volumes start)
alone=''
for one in "${loads[@]}"; do
  case $one in first-use | release | release-nothing | large | many | attach) alone=$one ;; esac
done
refuse() { echo "bench-afs: $*" >&2; exit 2; }
[ -z "$alone" ] || [ ${#loads[@]} = 1 ] || refuse "the load $alone runs alone"
[ -z "$alone" ] || [ "$alone" = large ] || [ -z "$base" ] ||
  refuse "--base is of no use for the load $alone"
skip() { echo "SKIPPED bench-afs: this machine lacks $*"; exit 0; }
missing=$("$cell" needs) || skip "$missing"
missing=$(build_load "$out/afsbench") || skip "$missing"
# Builds an example, and prints its path.
example() { # NAME
  local profile=(--release)
  # Names without volumes don't pass the checks of these builds.
  [ $build = release ] || profile=(--config profile.dev.package.poolhouse-afs.debug-assertions=false)
  cargo build -q "${profile[@]}" -p poolhouse-afs --example "$1" && echo "$out/$build/examples/$1"
}
[ -n "${AFS_SERVER:-}" ] || AFS_SERVER=$(example afs_server)

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

if [[ " ${loads[*]} " == *' start '* ]]; then
  program=$(example afs_start)
  mkdir -p "$work/images"
  scripts/afs/start.py --program "$program" --images "$work/images" --command "$command" \
    --out "$out/bench-afs-start.json" ${record:+--record docs/results/data/afs-start.json}
  # The other loads need the peer, without the names.
  find "$ZAFS_STATE/h1/vicepa" -maxdepth 1 -name 'V05*.vol' -size 0 -delete
  "$cell" servers 1
fi
if [[ " ${loads[*]} " == *' volumes '* ]]; then
  program=$(example afs_verbs)
  scripts/afs/verbs.py --program "$program" --keys "$keys" --command "$command" \
    --out "$out/bench-afs-volumes.json" ${record:+--record docs/results/data/afs-volumes.json} \
    --server "peer=1=$theirs=dafileserver" --server "ours=2=$ours=ours"
fi
# A load on volumes that has a page of its own.
volumes_load() { # LOAD PROGRAM ARGUMENT...
  local load=$1 program=$2
  shift 2
  "scripts/afs/$program" --command "$command" --rounds "$rounds" --out "$out/bench-afs-$load.json" \
    ${record:+--record "docs/results/data/afs-$load.json"} "${servers[@]}" "$@"
}
first_use() {
  local round server
  program=$(example afs_verbs)
  for server in $theirs $ours; do
    limit=7200 on 1 "$program" $server $keys fill 600000000 "${volumes:-10000}" >/dev/null
  done
  rm -f "$out/bench-afs-first-use.json.runs"
  for round in $(seq "$rounds"); do
    # It stops and starts the peer's three programs.
    "$cell" servers 1
    stop_ours 2
    start_ours 2
    volumes_load first-use first_use.py --load-client "$out/afsbench" --volumes "${volumes:-10000}"
  done
  volumes_load first-use first_use.py --load-client "$out/afsbench" --volumes "${volumes:-10000}" --table
}
# Hosts with the servers of OpenAFS, and with ours: those of the first two sites, and the others.
their_hosts=(1 3 5 7 9) our_hosts=(2 4 6 8 10)
sites_up=1
# Brings up hosts for so many sites of each kind.
bring_up() { # SITES
  local h one
  [ "$1" -le ${#our_hosts[@]} ] || refuse "at most ${#our_hosts[@]} sites"
  for ((; sites_up < $1; sites_up++)); do
    h=${their_hosts[sites_up]}
    "$cell" host "$h"
    "$cell" servers "$h"
    # OpenAFS's server registers the address of ours.
    h=${our_hosts[sites_up]}
    "$cell" host "$h"
    "$cell" servers "$h"
    for one in dafileserver davolserver salvageserver; do "$cell" stop "$h" $one; done
    start_ours "$h"
  done
}
# Starts our servers anew, with other options.
restart_all() { # OPTION...
  local h
  for h in "${our_hosts[@]:0:sites_up}"; do
    stop_ours "$h"
    start_ours "$h" "$AFS_SERVER $*"
  done
}
addresses() { printf '10.92.0.%s,' "$@" | sed 's/,$//'; } # HOST...
release_load() { # LOAD ARGUMENT...
  volumes_load "$1" release.py --program "$program" --keys "$keys" \
    --servers "peer=$(addresses "${their_hosts[@]:0:sites_up}")" \
    --servers "ours=$(addresses "${our_hosts[@]:0:sites_up}")" "${@:2}"
}
release() {
  program=$(example afs_verbs)
  local mode to=(--load-client "$out/afsbench" --dump "$work/many.dump" --list "$work/many.list" --files "$files"
    --size "${size:-1024}" --sites "$sites")
  # Servers restore files faster than clients can make them.
  "$(example afs_many)" "$files" "${size:-1024}" "$work/many.dump" "$work/many.list"
  bring_up "$(tr , '\n' <<<"$sites" | sort -n | tail -1)"
  rm -f "$out/bench-afs-release.json.runs"
  release_load release "${to[@]}" --step prepare
  for mode in ${modes//,/ }; do
    if [ "$mode" = dumps ]; then restart_all --dumps; else restart_all; fi
    release_load release "${to[@]}" --step measure --mode "$mode"
    stop_ours 2
    # The server says how it sent them.
    case $mode-$(grep '^sent as' "$ZAFS_STATE/h2/log/ours.out" | tail -1) in
      "blocks-sent as blocks "*", as dumps 0" | "dumps-sent as blocks 0, as dumps "*) ;;
      *-) echo "whether our server sent $mode is not known" ;;
      *) echo "bench-afs: our server was to send $mode: $(tail -1 "$ZAFS_STATE/h2/log/ours.out")" >&2; exit 1 ;;
    esac
    start_ours 2
  done
  release_load release "${to[@]}" --step table
  restart_all
}
release_nothing() {
  program=$(example afs_verbs)
  bring_up 2
  release_load release-nothing --step nothing --volumes "${volumes:-1000}"
}
large() {
  program=$(example afs_verbs)
  volumes_load large large.py --program "$program" --keys "$keys" --load-client "$out/afsbench" \
    --open "$work/open.dump" --folder "$work" --files "$files" --size "${size:-4096}" --big "$big"
}
many() {
  program=$(example afs_verbs)
  volumes_load many verbs.py --program "$program" --keys "$keys" --page afs-many.md --times 20 --list-times 3 \
    --volumes "${volumes:-10000,100000}"
}
attach() {
  program=$(example afs_start)
  mkdir -p "$work/images"
  volumes_load attach attach.py --program "$program" --images "$work/images" --volumes "${volumes:-100000,500000}"
}
if [ -n "$alone" ]; then
  "${alone//-/_}"
  [ -z "$record" ] || scripts/results.py
  exit
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
