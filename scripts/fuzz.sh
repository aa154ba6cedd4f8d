#!/usr/bin/env bash
# Usage: scripts/fuzz.sh SECONDS [TARGET...]
# Fuzzes every target (or the named ones) for its share of SECONDS, on all cores. The corpus grows
# in fuzz/corpus. Findings are in fuzz/artifacts. A stable compiler is enough: coverage is an LLVM
# pass, and Rust needs no sanitizer to detect a panic.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=$1
shift
jobs=$(nproc)
triple=$(rustc -vV | sed -n 's/^host: //p')
out=${CARGO_TARGET_DIR:-$PWD/fuzz/target}/fuzz

export CARGO_ENCODED_RUSTFLAGS
# The flags that cargo-fuzz uses. The target triple keeps them away from build scripts and macros.
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
  -Cllvm-args=-sanitizer-coverage-trace-compares --cfg=fuzzing)-Cforce-frame-pointers=yes
built=$(mktemp)
if ! (cd fuzz && cargo build -q --release --target "$triple" --target-dir "$out") 2>"$built"; then
  cat "$built"
  # The linker's message is one of very many lines.
  echo "the fuzz targets can't be built: $(grep -v '^ *|* *$' "$built" | grep -iE 'ld: |lld: |error|signal|space|memory' | cut -c1-300 | tail -n 8 | tr '\n' ';')"
  exit 1
fi
rm -f "$built"
unset CARGO_ENCODED_RUSTFLAGS
cargo build -q --workspace --example seeds
mapfile -t targets < <("${CARGO_TARGET_DIR:-target}/debug/examples/seeds" fuzz/corpus)
[ $# -eq 0 ] || targets=("$@")
each=$((seconds * jobs / ${#targets[@]}))
[ "$each" -ge 1 ] || each=1
# Each target runs on one core.
[ "$each" -le "$seconds" ] || each=$seconds

fuzz_one() { # TARGET SECONDS PROGRAM
  mkdir -p "fuzz/corpus/$1" "fuzz/artifacts/$1"
  local log
  log=$(mktemp)
  if FUZZ_TARGET=$1 "$3" "fuzz/corpus/$1" -artifact_prefix="fuzz/artifacts/$1/" -max_total_time="$2" -timeout=60 -rss_limit_mb=2048 \
    -max_len=131072 -len_control=0 -print_final_stats=1 -verbosity=1 >"$log" 2>&1; then
    echo "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") executions in $2 s, nothing found"
    rm -f "$log"
  else
    tail -n 40 "$log"
    echo "$1: FOUND something, see fuzz/artifacts/$1"
    rm -f "$log"
    return 1
  fi
}
export -f fuzz_one
status=0
printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I{} bash -c 'fuzz_one "$@"' _ {} "$each" "$out/$triple/release/any" || status=1
exit $status
