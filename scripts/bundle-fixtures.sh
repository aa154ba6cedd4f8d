#!/usr/bin/env bash
# Usage: scripts/bundle-fixtures.sh DIR
# Rebuilds fixtures/ from DIR, a directory with the whole set. It selects fixtures in which each
# feature occurs, 45 MB at most. It packs manifests and transcripts into one archive each, since
# they repeat each other.
set -euo pipefail
from=$(realpath "$1")
to=$(cd "$(dirname "$0")/.." && pwd)/fixtures
limit=45000000

# Left out, since each of their features occurs in another fixture, in parentheses:
#   raidz1-3 and its damaged forms (raidz-expanded, mirror2-damaged), raidz2-5 (raidz3-7, draid1),
#   multi-vdev, v5000-nofeat (v28), zil-slog and zil-crash (zil-freeze), send-src and send-partial.
chosen=(block-clone checkpoint dedup-fast dedup-legacy draid1 encrypted gang longname mirror2 mirror2-damaged
  raidz-expanded raidz3-7 removed-vdev single-lz4 stripe-classes v1 v28 whole-disk-gpt zil-freeze zvols)
# Dumps of the whole meta object set are nearly half of all transcripts. A few fixtures keep them.
with_mos_dump=' v1 removed-vdev checkpoint '

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
pack() { # FIXTURE FOLDER
  [ -d "$from/$1/$2" ] || return 0
  mkdir -p "$scratch/$1"
  cp -r "$from/$1/$2" "$scratch/$1/$2"
  chmod -R u+w "$scratch/$1"
  find "$scratch/$1/$2" -name '*.zst' -exec zstd -q -d --rm {} +
  case "$with_mos_dump" in *" $1 "*) ;; *) rm -f "$scratch/$1/$2"/zdb-mos-dddd.txt ;; esac
  tar -C "$scratch/$1" --sort=name --format=gnu --mode=u=rwX,go=rX --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - "$2" \
    | zstd -q --ultra -22 --long=27 -o "$to/$1/$2.tar.zst"
}

# big-endian stays: ztest wrote it (fixtures/README.md), so it is not in the whole set.
find "$to" -mindepth 1 -maxdepth 1 -type d ! -name big-endian -exec rm -rf {} +
for name in "${chosen[@]}"; do
  mkdir -p "$to/$name"
  find "$from/$name" -maxdepth 1 -type f -exec cp {} "$to/$name/" \;
  chmod -R u=rwX,go=rX "$to/$name"
  pack "$name" manifests
  pack "$name" outputs
done
total=$(find "$to" -type f -printf '%s\n' | awk '{ s += $1 } END { print s }')
echo "$total bytes in fixtures/"
[ "$total" -le "$limit" ]
