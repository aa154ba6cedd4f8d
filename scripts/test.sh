#!/usr/bin/env bash
# Usage: scripts/test.sh [--retry] [ARGUMENTS OF CARGO TEST]
# Runs all test programs, also those behind a failure, and names at the end those that failed.
#   --retry  Runs each failed program once more, alone. If it passes then, the line `FLAKY name` names
#            it at the end and in target/flaky/list, the output of its failure stays beside that, and the
#            run has not failed.
#            Ends each program after TEST_LIMIT seconds (900).
set -euo pipefail
cd "$(dirname "$0")/.."

retry=
if [ "${1:-}" = --retry ]; then retry=yes; shift; fi
[ $# -gt 0 ] || set -- --workspace
out=${CARGO_TARGET_DIR:-target}
case $out in /*) ;; *) out=$PWD/$out ;; esac
mkdir -p "$out"
log=$(mktemp "$out/test-output.XXXXXX")
trap 'rm -f "$log"' EXIT
export CARGO_TERM_COLOR=never
limit=()
if [ -n "$retry" ]; then
  limit=(timeout --kill-after=10 "${TEST_LIMIT:-900}")
  host=$(rustc -vV | sed -n 's/^host: //p' | tr 'a-z-' 'A-Z_')
  export "CARGO_TARGET_${host}_RUNNER=${limit[*]}"
fi

status=0
cargo test --no-fail-fast "$@" 2>&1 | tee "$log" || status=$?
[ "$status" -ne 0 ] || exit 0

# One line for each failed program: what cargo calls it, where its output begins and ends in the log,
# and its file (`-` for tests in documentation).
failed=$(awk '
  /^ +Running .*\(.*\)$/ { file = $NF; gsub(/[()]/, "", file); begin = NR }
  /^ +Doc-tests / { file = "-"; begin = NR }
  /^error: (test|doctest) failed, to rerun pass `.*`$/ {
    name = $0; sub(/^[^`]*`/, "", name); sub(/`$/, "", name)
    print begin "\t" NR "\t" file "\t" name
  }' "$log")
if [ -z "$failed" ]; then
  echo "== no test program ran to its end, or the build failed; see above" >&2
  exit "$status"
fi

again() { # FILE NAME: runs one program as cargo does, alone
  local file=$1 package
  # shellcheck disable=SC2086 # cargo's own arguments
  [ "$file" != - ] || { cargo test $2; return; }
  package=${2#-p }
  package=crates/${package%% *}
  package=${package/crates\/poolhouse-/crates/}
  case $file in /*) ;; *) file=$PWD/$file ;; esac
  (cd "$package" && CARGO_MANIFEST_DIR=$PWD "${limit[@]}" "$file")
}

failures=() flaky=()
while IFS=$'\t' read -r begin end file name; do
  if [ -z "$retry" ]; then failures+=("$name"); continue; fi
  mkdir -p "$out/flaky"
  kept=$out/flaky/$(printf %s "${name#-p }" | tr -cs 'a-z0-9_\n' -).log
  sed -n "${begin},${end}p" "$log" >"$kept"
  echo "== once more, alone: $name"
  if again "$file" "$name" </dev/null; then
    flaky+=("FLAKY $name: $(sed -n 's/^test \(.*\) \.\.\. FAILED$/\1/p' "$kept" | paste -sd ' ') ($kept)")
  else
    failures+=("$name")
  fi
done <<<"$failed"

[ ${#flaky[@]} -eq 0 ] || printf '%s\n' "${flaky[@]}" | tee -a "$out/flaky/list"
if [ ${#failures[@]} -gt 0 ]; then
  printf 'FAILED %s\n' "${failures[@]}"
  exit 1
fi
