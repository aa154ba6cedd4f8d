#!/bin/bash
# Usage: judge-afs-compare.sh [list FOLDER]
# With `list`: prints the paths of a folder, with types, modes, links, sizes, targets and sums.
#
# Without arguments, in a folder of scripts/judge-afs.sh: imports its pool by OpenZFS's kernel module,
# first read-only, and compares each volume and clone with what is expected. Then it scrubs the pool.
# Needs root, zdb, and no pool of the name `judge`.
set -eu

# A mount point has the mode 644. Modes of other links differ between file systems, sizes and times of
# folders too.
list() (
  cd "$1"
  find . \( -type l \( -lname '#*.' -o -lname '%*.' \) -printf 'mount point %l %p\0' \) -o \
    -type l -printf 'link %l %p\0' -o -type d -printf '%y %m %n %p\0' -o -printf '%y %m %n %s %p\0' | LC_ALL=C sort -z | tr '\0\n' '\n?'
  find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum
)
if [ "${1:-}" = list ]; then
  list "$2"
  exit
fi

from=$PWD failed=0
work=$(mktemp -d "${TMPDIR:-/tmp}/compare.XXXXXX")
mkdir "$work/dev" "$work/at"
cp --sparse=always "$from/dev/d0" "$work/dev/d0"

volumes() {
  local at name count=0
  while read -r at name; do
    mount -t zfs -o ro,zfsutil "$at" "$work/at" 2>/dev/null || mount -t zfs -o ro "$at" "$work/at" || { failed=1; continue; }
    list "$work/at" >"$work/have"
    if [ -n "$(find "$work/at" -type l \( -lname '#*.' -o -lname '%*.' \) ! -perm 644)" ]; then
      echo "$name: modes of mount points"
      failed=1
    fi
    umount "$work/at"
    if cmp -s "$from/$name.list" "$work/have"; then
      echo "$name: the same as $at, $(wc -l <"$work/have") lines"
      count=$((count + $(wc -l <"$work/have")))
    else
      echo "$name: differs from $at"
      diff "$from/$name.list" "$work/have" | head -n 20
      failed=1
    fi
  done <"$from/volumes"
  compared=$count
}

zpool import -N -o readonly=on -d "$work/dev" judge
zfs list -H -o name -t all -r judge | sort | diff - "$from/datasets" || failed=1
volumes
zpool export judge
cmp "$from/dev/d0" "$work/dev/d0" || { echo 'a read-only import has written'; failed=1; }

zpool import -N -d "$work/dev" judge
zpool scrub -w judge
volumes
zpool status -v judge
zpool status judge | grep -q 'errors: No known data errors' || failed=1
zpool status judge | grep -q 'with 0 errors' || failed=1
zpool status -p judge | awk '/NAME.*CKSUM/ { on = 1; next } /^errors/ { on = 0 } on && NF >= 5 && $3 + $4 + $5 > 0 { bad = 1 } END { exit bad }' || failed=1
zpool export judge
zdb -e -p "$work/dev" -bcc judge >"$work/zdb" 2>&1 || { tail -n 20 "$work/zdb"; failed=1; }
grep -q 'No leaks' "$work/zdb" || failed=1
[ $failed = 0 ] && echo "OpenZFS $(cat /sys/module/zfs/version): $compared lines the same in $(wc -l <"$from/volumes") volumes and clones, scrubbed, no leak"
exit $failed
