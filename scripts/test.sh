#!/usr/bin/env bash
# Usage: scripts/test.sh [--unit] [--retry] [--rounds N] [--jobs N] [FILTER...]
# Runs all tests, or those whose names contain a FILTER, and lists the failed ones at the end. A
# name is `spa::it scan::pauses`: the crate, its program if that is not the library, and the test.
#   --unit      Runs only unit tests.
#   --retry     Runs each failed test once more, alone. If it passes then, the line `FLAKY name`
#               lists it at the end and in target/flaky/list, and the run has not failed. The
#               output of each failure is in the same directory.
#   --any       A run without a matching test is no failure.
#   --rounds N  Runs all of them N times.
#   --jobs N    Runs N at a time; the default is one for each core.
# Ends each test after TEST_LIMIT seconds (300).
set -euo pipefail
cd "$(dirname "$0")/.."

out=${CARGO_TARGET_DIR:-target}
case $out in /*) ;; *) out=$PWD/$out ;; esac
mkdir -p "$out/flaky"
built=$(mktemp "$out/test-programs.XXXXXX")
trap 'rm -f "$built"' EXIT
export CARGO_TERM_COLOR=never

# Examples in documentation have no program of their own. They run only if no filter is given.
programs=() documentation=yes
if [ "${1:-}" = --unit ]; then
  programs=(--lib --bins) documentation=
  shift
  cargo build -q --workspace --bin run-tests
fi
for word in "$@"; do case $word in -* | [0-9]*) ;; *) documentation= ;; esac; done

start=$SECONDS
cargo test --workspace "${programs[@]}" --no-run --message-format=json-render-diagnostics >"$built"
echo "== built in $((SECONDS - start)) s"
status=0
"$out/debug/run-tests" --limit "${TEST_LIMIT:-300}" --out "$out/flaky" "$@" <"$built" || status=$?
[ -z "$documentation" ] || cargo test --workspace --doc -q || status=1
exit "$status"
