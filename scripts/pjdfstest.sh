#!/usr/bin/env bash
# Usage: scripts/pjdfstest.sh PROGRAM FOLDER OTHER
# Runs pjdfstest (PROGRAM) in a FOLDER of the tested file system. OTHER is in another file system.
# Prints each test by name with its result, and exits with 1 if one failed.
#
# Needs root, and a `mount` on PATH that remounts the file system. Tests that remount run
# separately: one of pjdfstest's tests leaves a file open for writing, and then no remount is
# possible.
set -uo pipefail
program=$1 folder=$2 other=$3
settings=$(mktemp)
trap 'rm -f "$settings"' EXIT
run() { # REMOUNT [PATTERN]
  # Two users that every system has, with their groups.
  cat >"$settings" <<TOML
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = $1
[dummy_auth]
entries = [["nobody", "$(id -gn nobody)"], ["daemon", "$(id -gn daemon)"]]
TOML
  (cd "$folder" && "$program" -c "$settings" -p "$folder" -s "$other" "${@:2}") 2>&1 | sed 's/\x1b\[[0-9;]*m//g'
}
said=$(run false; run true erofs)
# A test that was skipped in the first run, and ran in the second, counts as run.
lines=$(awk 'NF == 2 && / (ok|FAILED|skipped)$/ { result[$1] = $2 } END { for (name in result) print name, result[name] }' <<<"$said" | LC_ALL=C sort)
count() { grep -c " $1\$" <<<"$lines"; }
[ "$(count ok)" -gt 300 ] || { echo "$said" | tail -20; echo 'it did not run'; exit 1; }
echo "$lines"
echo "$(count ok) of $(wc -l <<<"$lines") passed, $(count FAILED) failed, $(count skipped) skipped"
[ "$(count FAILED)" = 0 ]
