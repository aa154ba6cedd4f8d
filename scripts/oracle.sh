#!/usr/bin/env bash
# Usage: scripts/oracle.sh [SHAPES]
# Compares our zdb with OpenZFS's own on pools that the bundled fixtures don't have: the datasets
# with their sizes and objects (-d), and the sums over all blocks (-b).
#   - fresh pools of ztest, of SHAPES shapes (default: all), each a short run with its own seed;
#   - without SHAPES, fresh pools of the other byte order: ztest and zdb of s390x in an emulator;
#   - the old and odd pools among the test data of zfs-test.
# Needs Debian's package mirror once. The tools stay in target/oracle. After a difference, the pools
# are kept there.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(scripts/oracle-tools.sh)
here=$PWD/target/oracle
cargo build -q --release -p poolhouse-program
ours=${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse
libs=$(echo "$tools"/lib/*-linux-gnu)
theirs() { LD_LIBRARY_PATH=$libs PATH=$tools/sbin:$PATH "$@"; }
judge=(theirs zdb)

bad=0
compared=0
# The lines that are compared: one for each dataset, and the sums. Averages and ratios follow from
# these. The sign of 0/0 depends on the processor.
datasets() { sed -n 's/^\(Dataset .*\)$/\1/p' | sort; }
sums() { awk -F: '/^\t(bp (count|logical|physical|allocated|deduped|cloned)|ganged count|Normal class|Special class|Dedup class|Embedded log)/ { sub(/^\t/, "", $1); split($2, n, " "); sub(/^-nan/, "nan", n[1]); print $1 ":", n[1] }'; }

compare() { # DIR POOL [zdb options]
  local dir=$1 pool=$2 want got
  shift 2
  for mode in d b; do
    if [ $mode = d ]; then filter=datasets; else filter=sums; fi
    want=$("${judge[@]}" "$@" -e -p "$dir" -$mode "$pool" 2>/dev/null | $filter) || true
    got=$("$ours" zdb "$@" -e -p "$dir" -$mode "$pool" 2>"$here/stderr" | $filter) || true
    compared=$((compared + 1))
    if [ -z "$want" ]; then
      echo "  $pool -$mode: OpenZFS's zdb shows nothing"
    elif [ "$want" = "$got" ]; then
      echo "  $pool -$mode: $(wc -l <<<"$want") lines agree"
    else
      bad=$((bad + 1))
      echo "  $pool -$mode: DIFFERENT (<: OpenZFS, >: ours)"
      diff <(echo "$want") <(echo "$got") | head -n 20 || true
      head -n 5 "$here/stderr"
    fi
  done
}

# Old and odd pools. Left out: version 999, which is refused, and two that are broken on purpose.
old=$here/old
mkdir -p "$old"
while read -r packed; do
  file=$old/$(basename "${packed%.*}")
  [ -e "$file" ] && continue
  case $packed in *.bz2) bzip2 -dc "$packed" ;; *) gzip -dc "$packed" ;; esac | dd of="$file.part" bs=1M conv=sparse status=none
  mv "$file.part" "$file"
done < <(find "$tools" -name '*.dat.bz2' -o -name '*.dat.Z')
read_all() { # DIR: checks that every pool in it opens, and that every file and object can be read
  if ORACLE=$1 cargo test -q --release -p poolhouse --test it oracle:: >"$here/read.log" 2>&1; then
    echo "  everything in $1 can be read"
  else
    bad=$((bad + 1))
    tail -n 30 "$here/read.log"
  fi
}

echo "Old pools of zfs-test:"
read_all "$old"
names=$(for f in "$old"/*.dat; do theirs zdb -l "$f" 2>/dev/null | sed -n "s/^    name: '\(.*\)'/\1/p"; done | sort -u)
for pool in $names; do
  case $pool in v999-pool | zfs-broken-mirror | v3-pool.dat) continue ;; esac
  compare "$old" "$pool"
done

fresh() { # ZTEST OPTION...: makes a pool with that ztest, reads and compares it
  local dir before=$bad
  dir=$(mktemp -d "$here/ztest.XXXXXX")
  if ! timeout 300 "$1" -f "$dir" -P 10 -s 160M -t 4 -d 4 "${@:2}" >"$dir/log" 2>&1; then
    echo "  ztest itself failed: $(tail -n 1 "$dir/log")"
  fi
  read_all "$dir"
  compare "$dir" ztest
  if [ "$bad" -eq "$before" ]; then rm -rf "$dir"; else echo "  kept: $dir"; fi
}

echo "Fresh pools of ztest:"
# ztest also makes what zpool create does not: a mirror of raidz. The last shape is killed in its
# last pass, not exported.
shapes=(
  "-v 1 -m 0 -K raidz -r 1 -a 9 -C special=off -k 0"
  "-v 2 -m 2 -K raidz -r 1 -a 12 -C special=off -k 0"
  "-v 1 -m 0 -K raidz -r 4 -R 1 -a 9 -C special=on -k 0"
  "-v 2 -m 0 -K raidz -r 5 -R 2 -a 12 -C special=random -k 0"
  "-v 1 -m 0 -K raidz -r 6 -R 3 -a 9 -C special=off -k 0"
  "-v 1 -m 0 -K eraidz -r 5 -R 1 -a 12 -C special=off -k 0"
  "-v 1 -m 0 -K draid -r 8 -R 2 -D 4 -S 1 -a 12 -C special=off -k 0"
  "-v 2 -m 2 -K raidz -r 3 -R 1 -a 12 -C special=off -k 0"
  "-v 1 -m 2 -K raidz -r 1 -a 9 -C special=off -k 100"
)
[ $# -eq 0 ] || shapes=("${shapes[@]:0:$1}")
for shape in "${shapes[@]}"; do
  echo " ztest $shape"
  # shellcheck disable=SC2086 # a shape is several words
  theirs fresh ztest -T 20 $shape
done

if [ $# -eq 0 ]; then
  echo "Fresh pools of ztest on s390x, which is big-endian:"
  if other=$(scripts/oracle-s390x.sh 2>"$here/s390x.log"); then
    # zdb of x86-64 can't check these pools: it fails to read some that zdb of s390x accepts.
    judge=("$other/run" zdb)
    for shape in "-v 1 -m 2 -K raidz -r 1 -a 9 -C special=off" "-v 1 -m 0 -K raidz -r 5 -R 2 -a 9 -C special=on"; do
      echo " ztest $shape"
      # shellcheck disable=SC2086
      fresh "$other/ztest" -T 30 -k 0 $shape
    done
  else
    echo "  SKIPPED: $(tail -n 1 "$here/s390x.log")"
  fi
fi
echo "$compared comparisons, $bad different"
[ "$bad" -eq 0 ]
