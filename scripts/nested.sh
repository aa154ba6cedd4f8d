#!/usr/bin/env bash
# Usage: scripts/nested.sh [pjdfstest|fsx|programs|user ...]
# Runs foreign programs on file systems that are nested in the mount of another: in the outer one,
# in a nested one, in one nested in that, and across them.
#
# `pjdfstest`, `fsx` and `programs` use root's daemon with --nest. `user` uses an ordinary user's
# daemon, with fusermount3. Afterwards each pool is exported, checked by OpenZFS's zdb (ZDB),
# imported, and compared with its earlier contents, with inode numbers.
#   POOLHOUSE           the program
#   PROGRAMS            the directory of pjdfstest and fsx (target/suites/bin)
#   SUITE_SECONDS (60)  how long fsx runs
#   SUITE_SEED (1)      the first seed of fsx
# Prints a line for each part. Logs stay in target/suites/report. What can't run is reported as
# missing, and the exit status is then 77. Needs root.
set -uo pipefail
cd "$(dirname "$0")/.."
home=${NESTED_HOME:-$PWD}
PROGRAMS=${PROGRAMS:-$home/target/suites/bin}
seconds=${SUITE_SECONDS:-60}
fail() { echo "$*"; return 1; }
missing() { echo "missing: $*"; return 77; }
same() { # WHAT GOT WANTED
  [ "$2" = "$3" ] || fail "$1: '$2', not '$3'"
}
# Lists the contents of a tree, by relative paths. FORMAT adds fields, such as inode numbers.
listing() { # FOLDER [FORMAT]
  (cd "$1" && find . -mindepth 1 -printf "%P %y %m %U %G %n %T@ %l ${2:-}\n" | LC_ALL=C sort &&
    find . -type f -printf '%P %s\n' | LC_ALL=C sort && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}

judged() { # FOLDER: checks the pool with zdb, which lists leaks and bad checksums
  "$ZDB" -e -p "$1" -bcc nested >"$work/zdb" 2>&1 && grep -q 'No leaks' "$work/zdb" || { tail -5 "$work/zdb"; fail 'zdb finds fault'; }
}

# Each of these parts runs on $mnt, with file systems at a, a/b and other, all on the same daemon.

# All file systems have files with the same object numbers. Their inode numbers must differ, and
# must stay the same after a remount.
numbers() {
  local at before
  for at in "" a a/b other; do
    mkdir "$mnt/$at/n" && (cd "$mnt/$at/n" && seq 100 | xargs touch) || return
  done
  same 'inode numbers that occur twice' "$(find "$mnt" -printf '%i\n' | sort | uniq -d)" '' || return
  same 'devices' "$(find "$mnt" -printf '%D\n' | sort -u | wc -l)" 1 || return
  before=$(find "$mnt" -printf '%i %p\n' | sort)
  zfs unmount nested && zfs mount -a || return
  same 'inode numbers after a remount' "$(find "$mnt" -printf '%i %p\n' | sort | diff - <(echo "$before"))" '' || return
  same 'find -xdev' "$(find "$mnt" -xdev | wc -l)" "$(find "$mnt" | wc -l)" &&
    same 'du -x' "$(du -sx --apparent-size "$mnt" | cut -f1)" "$(du -s --apparent-size "$mnt" | cut -f1)" && rm -r "$mnt"/{,a/,a/b/,other/}n
}

errno() { # rename|link FROM TO: prints the error number of the call
  perl -e 'my ($call, $from, $to) = @ARGV; my $done = $call eq "link" ? link($from, $to) : rename($from, $to); print $done ? 0 : $! + 0' "$@"
}

# Between two file systems rename and link fail with EXDEV (18), and mv copies. Within one they
# work.
across() {
  local from to all=(. a a/b other)
  for from in "${all[@]}"; do
    mkdir -p "$mnt/$from/x/deep" && echo "$from" >"$mnt/$from/x/file" && ln "$mnt/$from/x/file" "$mnt/$from/x/deep/link" && echo y >"$mnt/$from/y" || return
  done
  for from in "${all[@]}"; do
    same "$from: rename" "$(errno rename "$mnt/$from/y" "$mnt/$from/x/y")" 0 && same "$from: link" "$(errno link "$mnt/$from/x/y" "$mnt/$from/y")" 0 && rm "$mnt/$from/x/y" || return
    for to in "${all[@]}"; do
      [ "$from" != "$to" ] || continue
      same "rename $from $to" "$(errno rename "$mnt/$from/y" "$mnt/$to/z")" 18 && same "link $from $to" "$(errno link "$mnt/$from/y" "$mnt/$to/z")" 18 &&
        same "rename a folder $from $to" "$(errno rename "$mnt/$from/x" "$mnt/$to/z")" 18 || return
      listing "$mnt/$from/x" >"$work/x" && mv "$mnt/$from/x" "$mnt/$to/moved" && [ ! -e "$mnt/$from/x" ] || fail "mv $from $to" || return
      listing "$mnt/$to/moved" | cmp - "$work/x" && mv "$mnt/$to/moved" "$mnt/$from/x" || return
    done
    # A rename over a mountpoint fails (EBUSY), and removes nothing. Over a directory that contains
    # a mountpoint, the kernel itself refuses it (ENOTEMPTY).
    case $from in a) to=16 ;; a/b) to=39 ;; *) to=18 ;; esac
    same "rename over a mountpoint from $from" "$(mkdir "$mnt/$from/e" && errno rename "$mnt/$from/e" "$mnt/a/b")" $to && rmdir "$mnt/$from/e" || return
  done
  ! rmdir "$mnt/a/b" 2>/dev/null && ! mv -T "$mnt/other" "$mnt/others" 2>/dev/null || fail 'a mountpoint went' || return
  rm -r "$mnt"/{,a/,a/b/,other/}{x,y}
}

# cp, rsync and tar copy trees of all kinds of files into each file system, and out of all at once.
copies() {
  local to kit=$mnt/kit
  command -v rsync >/dev/null || { missing rsync; return; }
  mkdir -p "$kit/d/e" && head -c 300000 /dev/urandom >"$kit/data" && truncate -s 3M "$kit/sparse" && printf end >>"$kit/sparse" && ln "$kit/data" "$kit/d/hard" &&
    ln "$kit/data" "$kit/d/e/harder" && ln -s ../data "$kit/d/soft" && mkfifo "$kit/fifo" && chmod 2750 "$kit/d" || return
  if command -v setfattr >/dev/null; then setfattr -n user.word -v value "$kit/data" && setfacl -m u:1:rx "$kit/d/e" || return; fi
  touch -d @1234567890.123456789 "$kit/d" "$kit/data" && chmod 444 "$kit/data" || return
  listing "$kit" >"$work/kit"
  for to in a a/b other; do
    cp -a --sparse=always "$kit" "$mnt/$to/cp" && rsync -aHAXS -@-1 "$kit/" "$mnt/$to/rsync" && mkdir "$mnt/$to/tar" && tar -C "$kit" --format=posix -cS . | tar -C "$mnt/$to/tar" -xp || return
    for copy in cp rsync tar; do
      listing "$mnt/$to/$copy" | diff "$work/kit" - || fail "$to/$copy differs" || return
    done
    if command -v setfattr >/dev/null; then
      for copy in cp rsync; do
        same "attribute in $to/$copy" "$(getfattr --only-values -n user.word "$mnt/$to/$copy/data")" value &&
          same "ACL in $to/$copy" "$(getfacl -c "$mnt/$to/$copy/d/e" | grep -c user:daemon:r-x)" 1 || return
      done
    fi
    # A second rsync must copy nothing.
    same "rsync again to $to" "$(rsync -aHAXSni -@-1 "$kit/" "$mnt/$to/rsync" | grep -v '/$')" '' || return
  done
  # Programs recognize hard links by device and inode number. So a file of one file system must not
  # be taken for that of another.
  cp -a "$mnt" "$work/cp" && rsync -aHx -@-1 "$mnt/" "$work/rsync" && mkdir "$work/tar" && tar -C "$mnt" --format=posix --one-file-system -c . | tar -C "$work/tar" -xp || return
  # The sizes and link counts of directories, and the times of symbolic links, differ elsewhere.
  plainly() { listing "$1" | awk '$2 == "d" { $3 = ""; $6 = "" } { print }'; }
  plainly "$mnt" >"$work/all"
  for copy in cp rsync tar; do
    plainly "$work/$copy" | diff "$work/all" - >"$work/diff" || { head -5 "$work/diff"; fail "$copy of all differs"; return; }
  done
  rm -rf "$work"/{cp,rsync,tar} "$mnt"/{a,a/b,other}/{cp,rsync,tar}
}

# A clone in one file system, with a worktree in another. What git recorded about its files must
# hold after a remount.
gits() {
  command -v git >/dev/null || { missing git; return; }
  export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' GIT_CONFIG_KEY_1=user.name GIT_CONFIG_VALUE_1=suite \
    GIT_CONFIG_KEY_2=user.email GIT_CONFIG_VALUE_2=suite@localhost
  git clone -q --no-local "$home" "$mnt/a/clone" && cd "$mnt/a/clone" && git fsck --full --strict --no-dangling --no-progress && git worktree add -q -b side "$mnt/other/tree" &&
    mkdir "$mnt/a/b/sub" && cd "$mnt/a/b/sub" && git init -q && echo sub >file && git add file && git commit -qm sub || return
  cd "$mnt/other/tree" && git mv README.md READ.md && git commit -qam moved && git rebase -q HEAD~1 && git gc -q && git -c protocol.file.allow=always submodule add -q "$mnt/a/b/sub" sub &&
    git commit -qm sub || return
  cd / && zfs unmount nested && zfs mount -a || return
  for at in a/clone other/tree a/b/sub; do
    # git compares size, times and inode number, without reading contents.
    git -C "$mnt/$at" diff-files --quiet || fail "git takes files of $at for changed" || return
    same "$at" "$(git -C "$mnt/$at" status --porcelain)" '' || return
  done
  git -C "$mnt/other/tree" fsck --full --no-dangling --no-progress
}

# A program with its source in one file system and its objects in another. It runs from a third.
build() {
  command -v make cc >/dev/null || { missing 'make and cc'; return; }
  "$home/scripts/c-project.sh" "$mnt/source" 20 5 && mkdir -p "$mnt/a/objects" "$mnt/a/b/bin" || return
  local make=(make -s -j2 -f "$mnt/source/Makefile" OUT="$mnt/a/objects")
  "${make[@]}" check && cp "$mnt/a/objects/program" "$mnt/a/b/bin" && same 'the program' "$("$mnt/a/b/bin/program" words)" 210 || return
  "${make[@]}" -q || fail 'what was made is not up to date' || return
  sleep 0.01 && touch "$mnt/source/part7.c" && same 'made again' "$("${make[@]}" -n | grep -c -- ' -c ')" 1 && "${make[@]}" check || return
  zfs unmount nested && zfs mount -a && "${make[@]}" -q || fail 'not up to date after a remount' || return
  # The same in clones of one of them, in parallel.
  zfs snapshot -r nested@built && for i in 1 2 3 4; do zfs clone nested/a@built nested/clone$i || return; done
  for i in 1 2 3 4; do (rm "$mnt/clone$i/objects/part$i.o" && make -s -f "$mnt/source/Makefile" OUT="$mnt/clone$i/objects" check) & done
  wait && for i in 1 2 3 4; do [ -e "$mnt/clone$i/objects/part$i.o" ] && zfs destroy nested/clone$i || return; done
  zfs destroy -r nested@built
}

programs() { numbers && across && copies && gits && build && echo 'rename, link, mv, cp, rsync, tar, find, du, git, make in and across them: as they should be'; }

fsx() {
  [ -x "$PROGRAMS/fsx" ] || { missing "$PROGRAMS/fsx"; return; }
  local end=$((SECONDS + seconds)) seed=${SUITE_SEED:-1} at ended ops=0
  cat >"$work/fsx.toml" <<TOML
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 5
fsync = 0.2
fdatasync = 0.2
punch_hole = 5
sendfile = 5
posix_fadvise = 1
copy_file_range = 5
TOML
  while [ $SECONDS -lt $end ]; do
    local pids=()
    for at in . a a/b other; do
      "$PROGRAMS/fsx" -S $seed -N 2000 -f "$work/fsx.toml" -P "$work" "$mnt/$at/fsx" >"$work/fsx.$((seed % 4))" 2>&1 &
      pids+=($!)
      seed=$((seed + 1))
    done
    for ended in "${pids[@]}"; do wait "$ended" || { tail -20 "$work"/fsx.[0-3]; fail "seeds $((seed - 4)) to $((seed - 1))"; return; }; ops=$((ops + 2000)); done
  done
  echo "$ops operations, in four file systems at a time"
}

# The results in each file system must equal those in a mount of its own.
pjdfstest() {
  [ -x "$PROGRAMS/pjdfstest" ] || { missing "$PROGRAMS/pjdfstest"; return; }
  local at other said
  POOLHOUSE_RUN_DIR=$room/plain zpool create -m "$room/plain-mnt" -O acltype=posix -O xattr=sa plain "$room/dev/plain" || return
  said=$(scripts/pjdfstest.sh "$PROGRAMS/pjdfstest" "$room/plain-mnt" "$room/work")
  echo "$said" >"$work/plain"
  POOLHOUSE_RUN_DIR=$room/plain zpool destroy plain
  for at in . a a/b; do
    case $at in a) other=a/b ;; *) other=a ;; esac
    said=$(scripts/pjdfstest.sh "$PROGRAMS/pjdfstest" "$(realpath "$mnt/$at")" "$mnt/$other")
    diff "$work/plain" - <<<"$said" || fail "$at is not as a mount of its own" || return
  done
  echo "$(tail -1 "$work/plain"), in a mount of its own, around others, nested, and nested in what is nested"
}

if [ "${1:-}" = inside ]; then # runs as an ordinary user, in $room
  room=$2 mnt=$2/mnt work=$2/work
  umask 022
  cd / || exit 1
  # The user's daemon ends when no pool is left. So this ends it in every case.
  trap 'cd / && zpool destroy -f nested >/dev/null 2>&1' EXIT
  zpool create -m "$mnt" -O acltype=posix -O xattr=sa nested "$room/d0" && zfs create nested/a && zfs create nested/a/b && zfs create nested/other || exit 1
  same 'mounts' "$(grep -c ' fuse.poolhouse ' /proc/self/mounts)" 1 && programs && { [ ! -x "$PROGRAMS/fsx" ] || seconds=$((seconds / 4)) fsx; } || exit 1
  listing "$mnt" %i >"$work/before" && zpool export nested || exit 1
  [ -z "${ZDB:-}" ] || judged "$room" || exit 1
  zpool import -d "$room" nested && listing "$mnt" %i | diff "$work/before" - || exit 1
  zpool destroy nested && echo 'the same, as an ordinary user'
  exit
fi

[ "$(id -u)" = 0 ] || { missing root; exit 77; }
: "${POOLHOUSE:?names the program}"
report=$home/target/suites/report
mkdir -p "$report"
room=$(mktemp -d "${TMPDIR:-/var/tmp}/poolhouse-nested.XXXXXX")
chmod 755 "$room"
mkdir -m 700 "$room/run" "$room/plain"
mkdir "$room/bin" "$room/dev" "$room/work" "$room/mnt" "$room/nodes" "$room/theirs"
mnt=$room/mnt work=$room/work
for name in poolhouse zpool zfs; do cp "$(realpath "$POOLHOUSE")" "$room/bin/$name" && chmod 755 "$room/bin/$name"; done
# Without -i, mount(8) looks for a helper of this FUSE file system even for a remount.
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$room/bin/mount" && chmod 755 "$room/bin/mount"
tools=$home/target/oracle/root
if [ -z "${ZDB:-}" ] && [ -x "$tools/sbin/zdb" ]; then
  # A copy that an ordinary user can run too.
  cp -a "$tools/sbin/zdb" "$tools"/lib/*-linux-gnu/lib*.so* "$room/theirs/"
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$room/theirs" "$room/theirs/zdb" >"$room/bin/zdb" && chmod 755 "$room/bin/zdb"
  ZDB=$room/bin/zdb
fi
[ -z "${ZDB:-}" ] || export ZDB
export PATH=$room/bin:$PATH POOLHOUSE_RUN_DIR=$room/run
cleanup() {
  zpool export -af >/dev/null 2>&1
  POOLHOUSE_RUN_DIR=$room/plain zpool export -af >/dev/null 2>&1
  [ -z "${daemon:-}" ] || kill "$daemon" 2>/dev/null && wait "$daemon" 2>/dev/null
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

user() {
  local need
  for need in setpriv unshare fusermount3; do command -v $need >/dev/null || { missing "$need"; return; }; done
  # A user name that every system has, since fusermount3 needs a name. The repository may be in a
  # directory that only root can enter, so copy what the user needs.
  mkdir -p "$room/user/work" "$room/nested-home/scripts" && chmod 755 "$room/nested-home" "$room/nested-home/scripts" && cp scripts/*.sh "$room/nested-home/scripts/" &&
    git clone -q --bare --no-local "$home" "$room/nested-home/.git" && truncate -s 4G "$room/user/d0" && chown -R 65534:65534 "$room/user" "$room/nested-home/.git" && chmod -R a+rX "$room/nested-home" &&
    mkdir -p "$room/programs" && { cp "$PROGRAMS/fsx" "$room/programs/" 2>/dev/null || :; } && chmod -R a+rX "$room/programs" "$room/dev" || return
  # shellcheck disable=SC2016 # for the inner shell
  unshare --mount bash -c 'mount --make-rprivate / && mount -t tmpfs -o mode=755 none "$1/nodes" && mknod -m 666 "$1/nodes/fuse" c 10 229 && mount --bind "$1/nodes/fuse" /dev/fuse &&
    { cut -d" " -f2,3 /proc/self/mounts | grep " fuse.poolhouse$" | cut -d" " -f1 | xargs -r -n1 umount -l; true; } &&
    exec setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_RUNTIME_DIR -u TMPDIR HOME="$1/user" POOLHOUSE_RUN_DIR="$1/user/run" NESTED_HOME="$1/nested-home" PROGRAMS="$1/programs" \
      "$1/nested-home/scripts/nested.sh" inside "$1/user"' bash "$room"
}

stand() { # PART: runs it on a pool of root's daemon with --nest, then checks the pool
  truncate -s 8G "$room/dev/d0" "$room/dev/plain" &&
    zpool create -m "$mnt" -O acltype=posix -O xattr=sa nested "$room/dev/d0" && zfs create nested/a && zfs create nested/a/b && zfs create nested/other || return
  same 'mounts of the pool' "$(awk -v at="$mnt" '$3 == "fuse.poolhouse" && index($2, at) == 1' /proc/self/mounts | wc -l)" 1 && (cd "$home" && $1)
  local ended=$?
  if [ $ended = 0 ]; then
    listing "$mnt" %i >"$work/before" && zpool export nested || return
    [ -z "${ZDB:-}" ] || judged "$room/dev" || return
    zpool import -d "$room/dev" nested && listing "$mnt" %i | diff "$work/before" - >"$work/diff" || { head -5 "$work/diff"; fail 'it is not the same after an import'; return; }
  fi
  zpool destroy nested
  rm -rf "$work"/* "$room"/dev/d0 "$room"/dev/plain
  return $ended
}

"$room/bin/poolhouse" serve --run-dir "$room/run" --nest >"$report/nested.daemon" 2>&1 &
daemon=$!
for _ in $(seq 100); do [ -S "$room/run/control.sock" ] && break; sleep 0.1; done
[ -n "${ZDB:-}" ] || echo 'without zdb: scripts/oracle-tools.sh fetches it'
status=0 done=()
for part in "${@:-pjdfstest fsx programs user}"; do
  for part in $part; do
    case $part in user) run=user ;; pjdfstest | fsx | programs) run="stand $part" ;; *) echo "there is no part $part" >&2; exit 2 ;; esac
    $run >"$report/nested-$part.log" 2>&1
    case $? in
      0) done+=("$part"); printf '%-10s %s\n' "$part" "$(tail -1 "$report/nested-$part.log")" ;;
      77) [ $status = 0 ] && status=77; printf '%-10s %s\n' "$part" "$(tail -1 "$report/nested-$part.log")" ;;
      *) status=1; printf '%-10s %s\n' "$part" "FAILED, see $report/nested-$part.log: $(tail -1 "$report/nested-$part.log")" ;;
    esac
  done
done
[ ${#done[@]} = 0 ] || echo "as they should be: ${done[*]}"
exit $status
