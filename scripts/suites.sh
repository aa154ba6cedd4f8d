#!/usr/bin/env bash
# Usage: scripts/suites.sh [SUITE ...]
# SUITE: pjdfstest, fsx, stress, git, sqlite, postgres, kill, kill-log, kill-key, large, volumes,
# attack, rootless, nested; all of them if none is named.
#
# Runs foreign programs, which test file systems or rely on them, on a mount of a pool. Each gets a
# pool of its own, made with the commands. Then the pool is exported, checked by OpenZFS's zdb (ZDB,
# or the one that `make oracle` unpacked), imported, and compared with its earlier contents.
#   POOLHOUSE           the program; without it, the script builds it
#   SUITE_SECONDS (60)  how long programs without an end run
#   SUITE_DISK (8G)     size of the pool
#   SUITE_SEED (1)      the first seed of fsx
# Logs stay in target/suites/report. What can't run here is reported as missing, and the exit status
# is then 1, as for a failure.
set -uo pipefail
cd "$(dirname "$0")/.."
home=$PWD
seconds=${SUITE_SECONDS:-60}
programs=$home/target/suites
report=$programs/report
mkdir -p "$report"
tools=$home/target/oracle/root
if [ -z "${ZDB:-}" ] && [ -x "$tools/sbin/zdb" ]; then
  ZDB=$tools/sbin/zdb
  libs=$(echo "$tools"/lib/*-linux-gnu)
fi
theirs() { LD_LIBRARY_PATH=${libs:-${LD_LIBRARY_PATH:-}} "$ZDB" "$@"; }
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program || exit 1
  POOLHOUSE=${CARGO_TARGET_DIR:-$home/target}/release/poolhouse
fi
POOLHOUSE=$(realpath "$POOLHOUSE") || exit 1

room=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-suites.XXXXXX")
mkdir -m 700 "$room/run"
mkdir "$room/bin" "$room/dev" "$room/mnt" "$room/other"
chmod 755 "$room"
export POOLHOUSE_RUN_DIR=$room/run
for name in zpool zfs; do ln -s "$POOLHOUSE" "$room/bin/$name"; done
# Without -i, mount(8) looks for a helper of this FUSE file system even for a remount.
printf '#!/bin/sh\nexec %s -i "$@"\n' "$(command -v mount)" >"$room/bin/mount"
chmod +x "$room/bin/mount"
PATH=$room/bin:$PATH
mnt=$room/mnt
cleanup() {
  zpool export -af >/dev/null 2>&1
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

missing() { # WHAT
  echo "missing: $*"
  return 77
}

# Installs a program that is a crate, unless it is installed.
crate() { # NAME
  [ -x "$programs/bin/$1" ] && return
  cargo install -q --root "$programs" --target-dir "$programs/build" "$1" >"$report/install-$1.log" 2>&1 ||
    missing "$1, which could not be installed: $report/install-$1.log"
}

manifest() {
  (cd "$mnt" && find . -xdev -printf '%p %y %m %U %G %s %n %T@ %l\n' | LC_ALL=C sort &&
    find . -xdev -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum)
}

# Exports the pool, checks it, imports it, and compares its contents.
compare() { # SUITE
  manifest >"$report/$1.before" || return
  zpool export suites || return
  if [ -n "${ZDB:-}" ]; then
    theirs -e -p "$room/dev" -bcc suites >"$report/$1.zdb" 2>&1 || { echo "zdb finds fault: $report/$1.zdb"; return 1; }
    grep -q 'No leaks' "$report/$1.zdb" || { echo "zdb finds leaks: $report/$1.zdb"; return 1; }
  fi
  zpool import -l -d "$room/dev" suites || return
  manifest >"$report/$1.after" || return
  cmp "$report/$1.before" "$report/$1.after"
}

pjdfstest() {
  crate pjdfstest || return
  [ "$(id -u)" = 0 ] || { missing 'root, as whom pjdfstest runs'; return; }
  "$home/scripts/pjdfstest.sh" "$programs/bin/pjdfstest" "$mnt" "$room/other"
}

fsx() {
  crate fsx || return
  local end=$((SECONDS + seconds)) seed=${SUITE_SEED:-1} ops=0 most
  while [ $SECONDS -lt $end ]; do
    # Alternately within a few blocks, and over many.
    most=$((seed % 2 ? 65536 : 1048576))
    cat >"$room/fsx.toml" <<TOML
flen = $((most * 4))
[opsize]
max = $most
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
posix_fallocate = 2
punch_hole = 5
sendfile = 5
posix_fadvise = 1
copy_file_range = 5
TOML
    if "$programs/bin/fsx" -S $seed -N 2000 -f "$room/fsx.toml" -P "$report" "$mnt/fsx-$((seed % 4))" >"$room/fsx.said" 2>&1; then
      ops=$((ops + 2000))
    # fsx sometimes allocates 0 bytes. Every file system refuses that, and fsx takes it for a
    # missing operation.
    elif [[ $(grep -o ' [0-9]* [A-Z_]* .*' "$room/fsx.said" | tail -1) != *POSIX_FALLOCATE*'( '*' 0x0 bytes)' ]]; then
      cat "$room/fsx.said"
      echo "seed $seed"
      return 1
    fi
    seed=$((seed + 1))
  done
  echo "$ops operations"
}

stress() {
  command -v stress-ng >/dev/null || { missing stress-ng; return; }
  local one bad=() done=0 known
  known=$(stress-ng --help)
  local all=(access acl chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl file-ioctl
    filename flock fpunch fsize fstat getdent handle hdd inode-flags io iomix lease link locka lockf lockmix lockofd metamix mknod open
    readahead rename seek sendfile symlink sync-file touch unlink utime xattr)
  for one in "${all[@]}"; do
    [[ $known == *"--$one N"* ]] || continue
    done=$((done + 1))
    mkdir -p "$mnt/$one"
    timeout $((seconds + 120)) stress-ng --"$one" 2 --temp-path "$mnt/$one" --timeout $((seconds / 20 + 2)) --verify --metrics-brief >"$report/stress-$one.log" 2>&1 ||
      bad+=("$one")
  done
  echo "$((done - ${#bad[@]})) of $done stressors content${bad:+; not: ${bad[*]}}"
  [ ${#bad[@]} = 0 ]
}

git_tree() {
  command -v git >/dev/null || { missing git; return; }
  export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
  git clone -q --no-local "$home" "$mnt/clone" && cd "$mnt/clone" && git fsck --full --strict --no-dangling --no-progress && git repack -qad &&
    git checkout -q "$(git rev-list --max-parents=0 HEAD | tail -1)" && git checkout -q - && git fsck --full --no-dangling --no-progress &&
    [ -z "$(git status --porcelain)" ] && echo "$(git rev-list --count HEAD) commits, $(git ls-files | wc -l) files"
}

sqlite() {
  command -v sqlite3 >/dev/null || { missing sqlite3; return; }
  local mode at pids=() i round sums
  for mode in delete wal; do
    at=$mnt/$mode.db
    sqlite3 "$at" "pragma journal_mode=$mode; create table t(id integer primary key, who int, n int, pad blob); create table sums(who int primary key, n int);" >/dev/null || return
    for i in 1 2 3; do sqlite3 "$at" "insert into sums values($i, 0)" || return; done
    for i in 1 2 3; do
      for _ in $(seq 2000); do
        echo "begin immediate; insert into t(who,n,pad) select $i, abs(random() % 100), randomblob(abs(random() % 9000)); update sums set n = (select sum(n) from t where who=$i) where who=$i; commit;"
      done >"$room/$i.sql"
    done
    for round in 1 2 3; do
      pids=()
      for i in 1 2 3; do
        sqlite3 -cmd '.timeout 20000' "$at" <"$room/$i.sql" >/dev/null 2>&1 &
        pids+=($!)
      done
      sleep $((seconds / 6 + 1))
      # Kill the writers during their writes.
      kill -9 "${pids[@]}"
      wait "${pids[@]}" 2>/dev/null
    done
    sums=$(sqlite3 -cmd '.timeout 20000' "$at" "pragma integrity_check; select count(*) from sums where n <> (select coalesce(sum(n),0) from t where t.who = sums.who);")
    [ "$sums" = $'ok\n0' ] || { echo "$mode: $sums"; return 1; }
    echo "$mode: $(sqlite3 "$at" 'select max(id) from t') rows written, whole after kills"
  done
}

postgres() {
  local bin data=$mnt/pg log=$report/postgres.server as=() i round
  bin=$(dirname "$(ls -d /usr/lib/postgresql/*/bin/initdb 2>/dev/null | tail -1)" 2>/dev/null)
  [ -x "$bin/pgbench" ] || { missing PostgreSQL; return; }
  if [ "$(id -u)" = 0 ]; then as=(runuser -u postgres --); fi
  mkdir "$data" "$room/pg" && chmod 700 "$data" && { [ ${#as[@]} = 0 ] || chown postgres "$data" "$room/pg"; }
  : >"$log" && chmod 666 "$log"
  "${as[@]}" "$bin/initdb" -k -D "$data" >>"$log" 2>&1 || return
  start() { "${as[@]}" "$bin/pg_ctl" -w -t 120 -D "$data" -l "$log" -o "-k $room/pg -c listen_addresses=" start >>"$log" 2>&1; }
  start || return
  "${as[@]}" "$bin/pgbench" -h "$room/pg" -q -i -s 5 postgres >>"$log" 2>&1 || return
  for round in 1 2 3; do
    "${as[@]}" "$bin/pgbench" -h "$room/pg" -n -c 8 -j 2 -T $((seconds / 3 + 5)) postgres >"$report/pgbench-$round.log" 2>&1 &
    sleep $((seconds / 3))
    # Kill the server with all its processes. All commits that it reported as durable must be there
    # afterwards.
    i=$(head -1 "$data/postmaster.pid")
    # shellcheck disable=SC2046 # several words
    kill -9 "$i" $(pgrep -P "$i")
    wait $!
    sleep 1
    rm -f "$data/postmaster.pid" "$room"/pg/.s.*
    start || { echo 'does not recover'; return 1; }
  done
  local sums
  sums=$("${as[@]}" "$bin/psql" -h "$room/pg" -At postgres -c 'select (select sum(abalance) from pgbench_accounts) = (select sum(delta) from pgbench_history), (select sum(bbalance) from pgbench_branches) = (select sum(tbalance) from pgbench_tellers), count(*) from pgbench_history')
  "${as[@]}" "$bin/pg_amcheck" -h "$room/pg" --install-missing --heapallindexed postgres >>"$log" 2>&1 || echo 'pg_amcheck finds fault, or is not there'
  "${as[@]}" "$bin/pg_ctl" -w -D "$data" -m fast stop >>"$log" 2>&1 || return
  "${as[@]}" "$bin/pg_checksums" -D "$data" --check >>"$log" 2>&1 || { echo 'checksums are wrong'; return 1; }
  case $sums in 't|t|'*) echo "recovered three times, ${sums##*|} transactions" ;; *) echo "sums differ: $sums"; return 1 ;; esac
}

# The daemon is killed during writes, and the next one continues. Also with a log device, and
# encrypted.
killed() {
  local pid i sum
  for i in 1 2 3 4; do
    dd if=/dev/urandom of="$mnt/kept$i" bs=1M count=4 conv=fsync status=none || return
    sum=$(sha256sum <"$mnt/kept$i")
    exec 9>"$mnt/gone"
    head -c 5000000 /dev/zero >&9 && rm "$mnt/gone"
    cp -r "$home/crates" "$mnt/tree$i" 2>/dev/null &
    sleep $((1 + i % 2))
    pid=$(pgrep -f -- "--run-dir $room/run") && kill -9 "$pid" || return
    wait $!
    exec 9>&-
    zpool import -l -d "$room/dev" suites || return
    [ "$sum" = "$(sha256sum <"$mnt/kept$i")" ] || { echo "kept$i is not what fsync promised"; return 1; }
    rm -rf "$mnt/tree$i"
  done
  echo 'killed four times, and what was fsynced was there'
}

# Large things: a directory with a million entries, offsets of 16 TiB, a tree a thousand levels
# deep, the longest names, and a writer that is faster than its disk, with a daemon that has little
# memory.
large() {
  many && far && deep && long_names && outrun && echo "a million entries, 16 TiB, 1000 deep, long names, slow disk: $SECONDS s"
}

expect() { # WHAT GOT WANTED
  [ "$2" = "$3" ] || { echo "$1: $2, not $3"; return 1; }
}

remount() { zfs unmount suites && zfs mount suites; }

many() {
  local at=$mnt/many n=1000000 begun=$SECONDS
  mkdir "$at" && seq -f "$at/%.0f" $n | xargs -n 900 tee && echo "$n made: $((SECONDS - begun)) s" || return
  expect 'listed' "$(ls -f "$at" | wc -l)" $((n + 2)) && expect 'its size' "$(stat -c %s "$at")" $((n + 2)) || return
  expect 'files' "$(find "$at" -type f -size 0 -links 1 -printf . | wc -c)" $n || return
  seq -f "$at/%.0f" 2 2 $n | xargs rm && remount || return
  expect 'left' "$(ls -f "$at" | grep -v '^\.' | sort -n | cksum)" "$(seq 1 2 $n | cksum)" || return
  expect 'what is gone' "$(stat "$at/2" "$at/$n" 2>&1 | grep -c 'No such')" 2 || return
  # Removed names can be created again, in a directory with free slots.
  touch "$at/2" "$at/x" && expect 'found' "$(find "$at" -name '[2x]' | wc -l)" 2 || return
  # Keep a few for the comparison.
  seq -f "$at/%.0f" 5001 2 $n | xargs rm && expect 'at last' "$(ls "$at" | wc -l)" 2502
  echo "a directory of a million: $((SECONDS - begun)) s"
}

far() {
  local at=$mnt/far tib=$((1 << 40)) mib=$((1 << 20))
  head -c $mib /dev/urandom >"$room/piece"
  # A write across 16 TiB, after a hole.
  dd if="$room/piece" of="$at" bs=$mib seek=$((16 * tib - mib / 2)) oflag=seek_bytes conv=notrunc,fsync status=none || return
  expect 'size' "$(stat -c %s "$at")" $((16 * tib + mib / 2)) && remount || return
  dd if="$at" bs=$mib skip=$((16 * tib - mib / 2)) iflag=skip_bytes status=none | cmp - "$room/piece" || return
  expect 'zeros before it' "$(dd if="$at" bs=$mib count=1 skip=$((16 * tib - mib)) iflag=skip_bytes status=none | head -c $((mib / 2)) | tr -d '\0' | wc -c)" 0 || return
  [ "$(stat -c %b "$at")" -lt 8192 ] || { echo "it takes $(stat -c %b "$at") sectors"; return 1; }
  # A hole in the written range, and one after it.
  fallocate -p -o $((16 * tib)) -l 65536 "$at" && fallocate -p -o $((16 * tib + 65536)) -l $((8 * tib)) "$at" || return
  expect 'size with holes' "$(stat -c %s "$at")" $((16 * tib + mib / 2)) || return
  expect 'behind the hole' "$(dd if="$at" bs=$mib skip=$((16 * tib)) iflag=skip_bytes status=none | tr -d '\0' | wc -c)" 0 || return
  dd if="$at" bs=$((mib / 2)) count=1 skip=$((16 * tib - mib / 2)) iflag=skip_bytes status=none | cmp -n $((mib / 2)) - "$room/piece" || return
  # Growing and shrinking.
  truncate -s $((1 << 60)) "$at" && expect 'an exabyte' "$(stat -c %s "$at")" $((1 << 60)) || return
  truncate -s $((16 * tib - 1)) "$at" && truncate -s $((16 * tib + 5)) "$at" && sync -f "$at" && remount || return
  expect 'cut off' "$(dd if="$at" bs=$mib skip=$((16 * tib - 1)) iflag=skip_bytes status=none | od -An -tx1 | tr -d ' \n')" 000000000000 || return
  truncate -s 0 "$at" && cp "$room/piece" "$at"
}

deep() {
  local at=$mnt/deep path
  path=$at$(printf '/d%.0s' $(seq 1000))
  mkdir -p "$path" && echo here >"$path/file" && remount || return
  expect 'directories' "$(find "$at" -type d | wc -l)" 1001 && expect 'at the bottom' "$(cat "$path/file")" here || return
  # Go up one level at a time, by `..`.
  expect 'the way up' "$(cd "$path" && for ((i = 0; i < 1000; i++)); do cd -P ..; done && pwd -P)" "$at" || return
  # A directory can't move into itself, but out of itself.
  ! mv "$at/d" "$path/x" 2>/dev/null && mv "$at/d/d" "$at/e" && expect 'moved' "$(find "$at" | wc -l)" 1002 && expect 'at the bottom' "$(cat "$at/e${path#"$at/d/d"}/file")" here || return
  cp -r "$at" "$mnt/copy" && rm -r "$mnt/copy" && [ ! -e "$mnt/copy" ]
}

long_names() {
  local at=$mnt/long one two
  one=$(printf 'n%.0s' $(seq 255)) two=$(printf 'ä%.0s' $(seq 127))
  mkdir "$at" && touch "$at/$one" "$at/$two" && mkdir "$at/x$two" && ln -s "$(printf 't%.0s' $(seq 4095))" "$at/link" && remount || return
  expect 'names' "$(ls "$at" | wc -l)" 4 && [ -f "$at/$one" ] && [ -f "$at/$two" ] && expect 'target' "$(readlink "$at/link" | wc -c)" 4096 || return
  ! touch "$at/x$one" 2>"$room/said" && grep -q 'too long' "$room/said" || { echo 'a name of 256 bytes is taken'; return 1; }
  zfs create -o longname=on suites/longname || return
  at=$mnt/longname one=$(printf 'm%.0s' $(seq 1023))
  (cd "$at" && echo long >"$one" && mkdir d && mv "$one" "d/$one" && ln "d/$one" short && ! touch "x$one" 2>/dev/null) || { echo 'names of 1023 bytes'; return 1; }
  zfs unmount suites/longname && zfs mount suites/longname || return
  expect 'a long name' "$(cd "$at/d" && cat "$one" && find . -type f -printf '%f' | wc -c)" $'long\n1023'
}

# If control groups are available, the daemon gets 512 MiB, with all caches. It compresses more
# slowly than the writer writes.
outrun() {
  local group=/sys/fs/cgroup/memory/poolhouse-suites limit=$((512 << 20)) pid peak begun
  pid=$(pgrep -f -- "--run-dir $room/run")
  # End the old daemon, so that its memory does not count.
  zpool export suites && timeout 60 tail --pid="$pid" -f /dev/null || return
  if mkdir "$group" 2>/dev/null && echo $limit >"$group/memory.limit_in_bytes"; then
    (echo $BASHPID >"$group/cgroup.procs" && exec zpool import -d "$room/dev" suites) || return
  else
    echo 'no control group of version 1 for memory here'
    group=
    zpool import -d "$room/dev" suites || return
    limit=$(($(awk '/MemTotal/ { print $2 }' /proc/meminfo) * 1024 / 2))
  fi
  pid=$(pgrep -f -- "--run-dir $room/run") && zfs create -o compression=gzip-9 -o recordsize=1M suites/slow || return
  begun=$SECONDS
  # More data than the limit, and hard to compress.
  for i in 1 2 3 4; do
    dd if=/dev/urandom bs=1M count=$((seconds * 4)) status=none | tee "$mnt/slow/$i" | sha256sum >"$room/sum$i" &
  done
  wait
  peak=$(awk '/VmHWM/ { print $2 * 1024 }' "/proc/$pid/status") || { echo 'the daemon died'; return 1; }
  echo "$((seconds * 16)) MiB in $((SECONDS - begun)) s, the daemon at most $((peak >> 20)) MiB of $((limit >> 20)) MiB"
  [ "$peak" -lt $limit ] && [ $((seconds << 24)) -gt $limit ] || return
  for i in 1 2 3 4; do expect "slow/$i" "$(sha256sum <"$mnt/slow/$i")" "$(cat "$room/sum$i")" || return; done
  zfs destroy suites/slow || return
  # The next daemon has no limit.
  zpool export suites && timeout 60 tail --pid="$pid" -f /dev/null && zpool import -d "$room/dev" suites || return
  [ -z "$group" ] || rmdir "$group"
}

# Volumes use a daemon of their own, and other clients.
volumes() { POOLHOUSE=$POOLHOUSE "$home/scripts/volumes.sh"; }

# Attacks by strangers, against a daemon in namespaces of its own.
attack() { POOLHOUSE=$POOLHOUSE "$home/scripts/attack.sh"; }

# Set-ups of users, namespaces and containers.
rootless() { POOLHOUSE=$POOLHOUSE "$home/scripts/rootless.sh"; }

# Nested file systems, with a daemon of root and one of a user.
nested() { crate pjdfstest && crate fsx && PROGRAMS=$programs/bin POOLHOUSE=$POOLHOUSE "$home/scripts/nested.sh"; }

status=0
say() { printf '%-10s %s\n' "$1" "$2"; }
for suite in "${@:-pjdfstest fsx stress git sqlite postgres kill kill-log kill-key large volumes attack rootless nested}"; do
  for suite in $suite; do
    case $suite in git) run=git_tree ;; kill | kill-log | kill-key) run=killed ;; large | pjdfstest | fsx | stress | sqlite | postgres | volumes | attack | rootless | nested) run=$suite ;; *) echo "there is no suite $suite" >&2; exit 2 ;; esac
    log=$report/$suite.log
    rm -f "$room"/dev/*
    truncate -s "${SUITE_DISK:-8G}" "$room/dev/d0"
    truncate -s 1G "$room/dev/d1"
    more=() devices=("$room/dev/d0")
    [ "$suite" = kill-log ] && devices+=(log "$room/dev/d1")
    if [ "$suite" = kill-key ]; then
      head -c 32 /dev/urandom >"$room/key"
      more=(-O encryption=on -O keyformat=raw -O "keylocation=file://$room/key")
    fi
    zpool create -m "$mnt" -o ashift=12 -O acltype=posix -O xattr=sa "${more[@]}" suites "${devices[@]}" || exit 1
    (cd / && $run) >"$log" 2>&1
    result=$?
    case $result in 0) ;; 77) status=1 ;; *) status=1; say "$suite" "FAILED, see $log" ;; esac
    say "$suite" "$(tail -1 "$log")"
    if [ $result = 0 ]; then
      compare "$suite" >"$report/$suite.compare" 2>&1 || { status=1; say "$suite" "FAILED after export: $(tail -1 "$report/$suite.compare")"; }
    fi
    zpool destroy -f suites || exit 1
  done
done
exit $status
