#!/bin/bash
# Compares snapshots of two pools that OpenZFS's kernel module has imported. The scripts that judge
# streams read it. `$work` has the folders `a` and `b`; `$failed` is 1 after a difference.
failed=0

contents() { # of the file system at $1. Some files are sparse and huge.
  (cd "$1" && find . -printf '%p %y %m %U %G %s %n %T@ %l\n' | sort
    find . -type f -size -40M -print0 | sort -z | xargs -0 -r md5sum
    find . -print0 | sort -z | xargs -0 -r getfattr -hd -m - -e hex
    find . ! -type l -print0 | sort -z | xargs -0 -r getfacl -np) 2>/dev/null
}
same() { # SENT RECEIVED
  mount -t zfs -o ro "$1" "$work/a"
  mount -t zfs -o ro "$2" "$work/b"
  contents "$work/a" >"$work/sent"
  contents "$work/b" >"$work/have"
  umount "$work/a" "$work/b"
  if cmp -s "$work/sent" "$work/have" && [ "$(zfs get -Hpo value guid "$1")" = "$(zfs get -Hpo value guid "$2")" ]; then
    echo "$1: the same as $2, $(wc -l <"$work/sent") lines"
  else
    echo "$1: differs from $2"
    diff "$work/sent" "$work/have" | head -n 20
    failed=1
  fi
}
properties() { # DATASET SOURCE: what is set in it and below
  zfs get -rHp -t filesystem,volume -s "$2" -o name,property,value all "$1" | grep -v '	volsize	' |
    sed "s|^$1||" | sort
}
same_tree() { # SENT RECEIVED: the fixture's tree, and what has become of it
  local one
  for one in @r1 @r2 /k1@r1 /k1@r2 /k1clone@r2; do same "$1$one" "$2$one"; done
  properties "$1" local >"$work/sent"
  properties "$2" received >"$work/have"
  diff "$work/sent" "$work/have" || { echo "$2: has other properties"; failed=1; }
}
