#!/usr/bin/env bash
# Usage: scripts/rx-judge.sh [SECONDS]
# Has programs of OpenAFS judge crate rx: rxdebug and a load client against our server, and our
# client against ptserver and vlserver, at all levels of rxkad. SECONDS is how long each load runs
# (2).
# Needs root, network namespaces, and OpenAFS's packages. Without them it says what is missing, and
# exits with 0. All traffic stays in the namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

# shellcheck source=scripts/afs/lib.sh
. scripts/afs/lib.sh

skip() { echo "SKIPPED rx-judge: this machine lacks $*"; exit 0; }
seconds=${1:-2} bench=$out/afsbench
missing=$("$cell" needs) || skip "$missing"
missing=$(build_load "$bench") || skip "$missing"
cargo build -q --release -p poolhouse-rx --examples

export ZAFS_STATE ZAFS_NS=${ZAFS_NS:-rxjudge}
ZAFS_STATE=$(mktemp -d)/cell
trap '"$cell" down >/dev/null 2>&1; rm -rf "$(dirname "$ZAFS_STATE")"' EXIT
"$cell" up 1 >/dev/null || { echo "the cell does not come up" >&2; exit 1; }
"$cell" host 2
"$cell" start 2 "$out/release/examples/memory_server" 0.0.0.0:7000 1 $keys

failed=0
check() { # NAME PATTERN: whether standard input has the pattern
  if grep -qE -- "$2"; then echo "ok: $1"; else
    echo "FAILED: $1"
    failed=1
  fi
}
pid=$(cat "$ZAFS_STATE/h2/run/memory_server.pid")
cpu() { awk '{print ($14 + $15) * 10}' "/proc/$pid/stat"; }
load() { # OPERATION THREADS SIZE [LEVEL]
  local before text
  before=$(cpu)
  text=$(on 1 "$bench" 10.92.0.2 536870912 "$1" "$2" "$seconds" "$3" ${4:+"$4"} || true)
  echo "   $text; server CPU $(($(cpu) - before)) ms"
  check "$1, $2 threads, ${4:-rxnull}" 'errors 0 ' <<<"$text"
}

on 1 rxdebug 10.92.0.2 7000 -version | check "rxdebug -version" 'AFS version: Poolhouse'
for level in "" -localauth -encrypt; do
  load null 4 1024 $level
  load status 4 1024 $level
  load bulk 4 1024 $level
  load read 1 1048576 $level
  load write 1 1048576 $level
  load read 4 4194304 $level
done
text=$(on 1 rxdebug 10.92.0.2 7000 -allconnections -peers -rxstats -long)
check "rxdebug lists connections" 'Connection from host 10.92.0.1, port [0-9]+' <<<"$text"
check "rxdebug lists rxkad connections" 'security index 2' <<<"$text"
check "rxdebug lists peers" 'Peer at host 10.92.0.1' <<<"$text"
check "no busy packet was sent" 'packets sent: .* busy 0 ' <<<"$text"
text=$(on 2 "$out/release/examples/cell_client" $keys 10.92.0.1 10.92.0.2 || true)
for level in Clear Auth Crypt; do
  check "ptserver answers, $level" "^$level system:administrators -204\$" <<<"$text"
  check "vlserver registers, $level" "^$level registered\$" <<<"$text"
done
check "vlserver refuses a user" 'someone registers: .* code 363546' <<<"$text"
check "a silent server delays no other" '^probes \[true, false, true\]$' <<<"$text"
on 1 vos listaddrs -localauth -noresolve | check "vos lists the address" '^10\.92\.0\.2$'
exit $failed
