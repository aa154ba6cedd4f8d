#!/usr/bin/env bash
# Usage: scripts/afs/work.sh WORKLOAD VOLUME
# Works in a volume, below $AFS (scripts/afs/client.sh). What it prints depends on the content of
# the volume alone, so that it can be compared between servers.
set -uo pipefail
here=$(dirname "$(realpath "$0")")
sources=$here/..
cd "$AFS:$2" || exit 1

# Runs a command that may fail, and prints its status.
t() { "$@" 2>&1; echo "status $? of: $*"; }

# What is there: types, modes, links, sizes, sums. Repositories have times; git checks them.
sums() {
  find . -name .git -prune -o \( -type f -printf '%y %m %n %s %p\n' -o -type l -printf '%y %l %p\n' -o -printf '%y %m %p\n' \) | LC_ALL=C sort
  find . -name .git -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum
}

tree() {
  mkdir -p a/b/c e && echo hello >a/f
  ln a/f a/g; t ln a/f a/b/other-folder
  stat -c '%n %h %s' a/f a/g
  ln -s f a/link && readlink a/link && cat a/link
  t ln -s nowhere dangling; t cat dangling
  t mv a/f a/h; t mv a/h a/b/h; t ls a a/b
  t mv a/b e/; t rmdir e; t mv e e/b; t mkdir e; t rm a/none
  t mv -T a e/b/c; rm -f a/g a/link; t mv -T a e/b/c; t ls -R .
  echo 1 >one; echo 2 >two; t mv one two; cat two; t mv two e; t cat e/two
  t chmod 600 e/two; t chmod 755 e; touch -d 2020-01-02T03:04:05Z e/two; stat -c '%a' e/two
  truncate -s 100000 e/two; stat -c %s e/two; truncate -s 3 e/two; t cat e/two
  echo more >>e/two; cat e/two; t cat e; t rmdir e/two; t mkdir e/two/x
  exec 5<>open; echo kept >&5; rm open; t ls open; exec 5>&-
  for i in 1 2 3 4 5; do (for j in $(seq 20); do mkdir -p "p/$j" && echo "$i $j" >"p/$j/$i"; done) & done; wait
  find p | wc -l; rm -rf p; t mkdir -p x/y/z; t rmdir x; t rm -r x
  t flock e/two -c 'echo locked'
  t dd if=/dev/zero of=e/d bs=1k count=5 seek=3 conv=notrunc status=none; stat -c %s e/d
}

names() {
  local long
  long=$(printf 'n%.0s' $(seq 255))
  # OpenAFS's server also takes 256 bytes, and 257 are none of AFS's.
  : >"$long"; t mkdir "${long:1}"; : >"${long:1}/$long"; t rm "$long"; t mkdir "${long}nn"
  local one
  for one in "with space" $'new\nline' $'\xc3\xa9t\xc3\xa9' $'\xff\xfe' '*' '\' '-r' './ ' "'"; do : >"$one" || echo "no $one"; done
  t mv "with space" "other space"
  ls -A | LC_ALL=C sort | od -An -c | head -80
  local i deep=.
  for i in $(seq 60); do deep=$deep/level$i; done
  mkdir -p "$deep" && echo deep >"$deep/f" && cat "$deep/f"
}

many() {
  mkdir d && cd d || return
  local i
  for i in $(seq 5000); do : >"file-number-$i"; done
  ls | wc -l; ls | LC_ALL=C sort | sha256sum
  rm file-number-*[37]; ls | wc -l
  for i in $(seq 10 10 5000); do mv "file-number-$i" "renamed-$i-$(printf 'x%.0s' $(seq 60))"; done
  ls | wc -l; ls | LC_ALL=C sort | sha256sum
  stat -c '%n %h %s' renamed-10-* renamed-5000-*
  ls -l file-number-1 file-number-9999 2>&1 | cut -d ' ' -f 1-2
  cd .. && mv d e && ls e | wc -l
}

git_() {
  local origin=$WORK/origin
  export GIT_CONFIG_GLOBAL=$WORK/gitconfig GIT_CONFIG_NOSYSTEM=1 HOME=/nonexistent
  printf '[safe]\n\tdirectory = *\n' >"$WORK/gitconfig"
  t git -c core.preloadIndex=false clone -q "file://$origin" clone; cd clone || return
  git config user.name t; git config user.email t@example.org; git config core.preloadIndex false
  t git fsck --strict; git log --format=%H | head -3; t git status --short
  t git checkout -q side; t git status --short; t git checkout -q main
  export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
  t git merge -q side -m merged; for i in 1 2 3; do echo "$i" >>README; t git commit -qam "number $i"; done
  git rev-parse HEAD; t git gc -q; t git fsck; t git repack -adq; t git status --short
  t git clone -q "file://$PWD" ../again; t diff -r --exclude=.git . ../again
}

archives() {
  t tar xf "$WORK/tree.tar"; t diff -r "$WORK/tree" tree
  tar cf - tree | tar tf - | wc -l
  # This client sets neither owners nor times.
  rsync -a "$WORK/tree/" synced 2>/dev/null; echo "status $?"; t diff -r "$WORK/tree" synced
  t rsync -rlpci "$WORK/tree/" synced
  rm -rf synced/scripts; echo new >synced/new; t rsync -rlpc --delete "$WORK/tree/" synced; t diff -r tree synced
  t cp -r tree copied; t diff -r tree copied; t rm -rf copied
}

model() { python3 "$here/model.py" m 1 600; python3 "$here/model.py" n 2 600; }
model_long() { for i in 3 4 5 6 7 8; do python3 "$here/model.py" "m$i" "$i" 4000; done; }

# The quota is 3,000 KiB.
quota() {
  t dd if=/dev/zero of=a bs=1M count=2 status=none
  dd if=/dev/zero of=b bs=1M count=20 status=none 2>"$WORK/quota"; echo "status $?"
  grep -o 'Disk quota exceeded\|No space left' "$WORK/quota"
  rm -f a b; t dd if=/dev/zero of=c bs=1M count=1 status=none; stat -c %s c
  # The last one that fits in part may exceed the quota. The client stores after `close`.
  local i
  for i in 1 2 3 4 5; do head -c 600000 /dev/zero >"s$i" 2>/dev/null || echo "no s$i"; sleep 0.5; done
}

big() {
  python3 -c '
import random, sys
r = random.Random(7)
for _ in range(80): sys.stdout.buffer.write(r.randbytes(1 << 20))' >big
  stat -c %s big; sha256sum big
  cp big big2; t cmp big big2
  truncate -s 67108865 big2; t cmp -n 67108865 big big2; stat -c %s big2
  dd if=big of=big2 bs=1M skip=10 seek=70 count=5 conv=notrunc status=none; sha256sum big2
}

# This client can't truncate a file to more than 2 GiB, but writes there.
sparse() {
  head -c 4000000 "$WORK/tree.tar" >piece
  dd if=piece of=s bs=64k count=1 conv=notrunc status=none
  t dd if=piece of=s bs=1M seek=2500 conv=notrunc status=none; stat -c %s s
  t dd if=piece of=s bs=64k count=2 seek=81920 conv=notrunc status=none; stat -c %s s
  dd if=s bs=1M skip=2499 count=6 status=none | sha256sum
  dd if=s bs=64k skip=81919 status=none | sha256sum; dd if=s bs=64k count=2 status=none | sha256sum
  # What another client sees is read as a whole.
  rm s
}

"$1"
