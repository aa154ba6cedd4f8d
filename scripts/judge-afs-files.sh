#!/usr/bin/env bash
# Usage: scripts/judge-afs-files.sh first|links|second|sums
# Makes or changes files in the current directory, or prints their sums, for scripts/judge-afs.sh. In a
# volume of AFS and in a local folder the result is the same. $WORK has an archive of files.
set -euo pipefail
umask 022

# Bytes that do not compress, the same each time.
noise() { # SEED MIB
  python3 -c 'import random, sys
r = random.Random(int(sys.argv[1]))
for _ in range(int(sys.argv[2])): sys.stdout.buffer.write(r.randbytes(1 << 20))' "$@"
}

first() {
  local i deep=deep
  mkdir tree
  tar xf "$WORK/tree.tar" -C tree --no-same-owner 2>/dev/null || true
  [ -e tree/crates/afs/src/lib.rs ]
  noise 1 4 >noise
  dd if=noise of=sparse bs=64k count=1 seek=80 status=none
  : >empty
  ln noise other-name
  ln noise third-name
  mkdir none many names
  for i in $(seq 20); do deep=$deep/d$i; done
  mkdir -p "$deep"
  echo here >"$deep/file"
  for i in $(seq 700); do echo "$i" >"many/file-number-$i"; done
  : >"names/$(printf 'n%.0s' $(seq 255))"
  for i in 'with space' $'new\nline' $'\xc3\xa9t\xc3\xa9' $'\xff\xfe' '*'; do echo "$i" >"names/$i"; done
  chmod 600 noise
  chmod 700 none
  chmod 755 empty
  chmod 444 "$deep/file"
}

# Links and mount points. OpenAFS's client in user space puts `/afs/` before the targets.
links() {
  ln -s tree/docs link
  ln -s "$(printf 'long/%.0s' $(seq 150))" long-link
  ln -s nowhere dangling
  ln -s ../../outside tree/docs/guide/link
  ln -s '#tree.' mount-point
  ln -s '%zafs.test:site.' tree/mount-point-in-cell
}

second() {
  rm -r tree/docs/internals
  mv tree/docs/guide tree/guides
  mv many/file-number-2 first-moved
  rm many/file-number-*[37]
  noise 2 1 >>noise
  rm third-name
  truncate -s 1000 sparse
  rm -f dangling
  mkdir -p deep/new/newer
  echo new >deep/new/newer/file
  echo more >>tree/scripts/judge.sh
  rmdir none
}

# Mount points lead to other volumes, so they are left out.
sums() {
  find . -name '*mount-point*' -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum
}

"$1"
