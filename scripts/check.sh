#!/usr/bin/env bash
# Usage: scripts/check.sh [COMMIT]
# Checks the format, runs clippy, and runs the unit tests of the crates with files that differ from
# COMMIT (HEAD).
set -euo pipefail
cd "$(dirname "$0")/.."

cargo fmt --all --check
cargo clippy --workspace --all-targets -q -- -D warnings
mapfile -t crates < <({ git diff --name-only "${1:-HEAD}"; git ls-files --others --exclude-standard; } |
  sed -n 's|^crates/\([^/]*\)/.*|\1|p' | sort -u)
if [ ${#crates[@]} -eq 0 ]; then
  echo "no crate has changed since ${1:-HEAD}"
  exit 0
fi
echo "unit tests of: ${crates[*]}"
# The names of unit tests are `CRATE PATH` for a crate, `CRATE::PROGRAM PATH` for its programs.
scripts/test.sh --unit --any "${crates[@]/%/ }" "${crates[@]/%/::}"
