#!/usr/bin/env bash
# Usage: scripts/soak-afs.sh [--daemon] [--plan] MINUTES [SEED]
# Runs a cell of three servers under seeded steps: OpenAFS's on host 1, ours on hosts 2 and 3, which
# are killed now and then. All copies of all volumes are compared with a model. At the end, zdb
# checks the pools. scripts/afs.sh explains the cell, --daemon, AFS_SERVER, POOLHOUSE and AFS_KEEP.
#
# --plan  Print the steps of the seed, and do nothing.
# STEPS   If set, the run ends after so many steps.
# ZDB     The program that checks the pools.
#
# The log is target/afs/soak-SEED.log; after a failure, the images of the pools are beside it. The
# status is 1 if something was wrong.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/afs/lib.sh
. scripts/afs/lib.sh
# shellcheck source=scripts/afs/crash.sh
. scripts/afs/crash.sh
# shellcheck source=scripts/afs/soak.sh
. scripts/afs/soak.sh

daemon='' plan=''
while [[ ${1:-} == --* ]]; do
  case $1 in
    --daemon) daemon=1 ;;
    --plan) plan=1 ;;
    *) echo "there is no option $1; there are: --daemon --plan" >&2 && exit 2 ;;
  esac
  shift
done
minutes=${1:-30} seed=${2:-1}
[ -z "$plan" ] || exec python3 scripts/afs/soak.py --seed "$seed" --steps "${STEPS:-200}" --plan

missing=$("$cell" needs) || { echo "SKIPPED: this machine lacks $missing"; exit 0; }
set_up 2 3
log=$report/soak-$seed.log
(soak --seed "$seed" --minutes "$minutes" --steps "${STEPS:-0}" && check_pools) >"$log" 2>&1
code=$?
grep -E '^[0-9:]+ seed |FAILED|^expected' "$log"
if [ $code != 0 ]; then
  tail -n 3 "$log"
  cp "$ZAFS_STATE"/h1/log/*.out "$ZAFS_STATE"/h1/log/*Log "$report/" 2>/dev/null
  for h in 2 3; do
    cp "$ZAFS_STATE/h$h/log/ours.out" "$report/soak-$seed.h$h.out"
    cp --sparse=always "$work/h$h.img" "$report/soak-$seed.h$h.img"
  done
  echo "seed $seed failed: $log"
  exit 1
fi
echo "seed $seed: ok ($log)"
