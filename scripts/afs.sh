#!/usr/bin/env bash
# Usage: scripts/afs.sh [--daemon] [--all] [CHECK...]
# Has OpenAFS's programs judge the AFS file server and volume server, in a cell in namespaces
# (scripts/afs/cell.sh). Without names, the quick checks run; with --all, the long ones too. With
# --daemon, Poolhouse's daemon is the server, by scripts/afs/daemon.sh. Without it, an example of the
# crate is.
#
# Hosts: 1 has the database servers and OpenAFS's file server, 2 and 3 have ours, 4 is a client.
#
# AFS_SERVER  The program that serves. It is run on its host as AFS_SERVER ADDRESS KEYFILEEXT CELL
#             IMAGE, makes a pool on the image if that is empty, and ends with its standard input.
#             Default: the example `afs_server` of the crate.
# POOLHOUSE   The program whose daemon serves. Without it, the script builds it.
# AFS_KEEP    If set, the cell is left running; ZAFS_STATE and ZAFS_NS name it.
#
# The output of each check stays in target/afs/CHECK.log. The status is 1 if one failed, else 0. What
# can't run here is skipped by name.
set -uo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/afs/lib.sh
. scripts/afs/lib.sh
# shellcheck source=scripts/afs/volumes.sh
. scripts/afs/volumes.sh
# shellcheck source=scripts/afs/files.sh
. scripts/afs/files.sh
# shellcheck source=scripts/afs/suites.sh
. scripts/afs/suites.sh
# shellcheck source=scripts/afs/kafs.sh
. scripts/afs/kafs.sh
# shellcheck source=scripts/afs/crash.sh
. scripts/afs/crash.sh
# shellcheck source=scripts/afs/adopt.sh
. scripts/afs/adopt.sh
# shellcheck source=scripts/afs/soak.sh
. scripts/afs/soak.sh

quick=(probes verbs verbs-same mixed blocks dumps afsio tree git archives model many names quota big
  writers dead-client restart crash adopt pool)
long=(model-long sparse pjdfstest fsx stress crash-long transfers soak kafs)

checks=("${quick[@]}") daemon=''
while [[ ${1:-} == --* ]]; do
  case $1 in
    --all) checks=("${quick[@]:0:${#quick[@]}-1}" "${long[@]}" pool) ;;
    --daemon) daemon=1 ;;
    *) echo "there is no option $1; there are: --daemon --all" >&2 && exit 2 ;;
  esac
  shift
done
if [ $# -gt 0 ]; then checks=("$@"); fi
for check in "${checks[@]}"; do
  [[ " ${quick[*]} ${long[*]} " == *" $check "* ]] || {
    echo "there is no check $check; there are: ${quick[*]} ${long[*]}" >&2
    exit 2
  }
done

missing=$("$cell" needs) || {
  for check in "${checks[@]}"; do echo "$check: SKIPPED: this machine lacks $missing"; done
  exit 0
}
cargo build -q -p poolhouse-afs --example afsdump || exit 1
# shellcheck disable=SC2034
afsdump=$out/debug/examples/afsdump
set_up 2 3

passed=0 failed=0 skipped=0
for check in "${checks[@]}"; do
  begun=$SECONDS
  clear_cell
  (check_"${check//-/_}") >"$report/$check.log" 2>&1
  case $? in
    0) result="ok" passed=$((passed + 1)) ;;
    77) result="SKIPPED: $(tail -1 "$report/$check.log")" skipped=$((skipped + 1)) ;;
    *) result="FAILED: $(grep '^expected' "$report/$check.log" | tail -1 || true) ($report/$check.log)" failed=$((failed + 1)) ;;
  esac
  echo "$check: $result ($((SECONDS - begun)) s)"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
