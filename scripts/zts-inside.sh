#!/usr/bin/env bash
# Usage: scripts/zts-inside.sh ROOM
# Only scripts/zts.sh runs this, as the first process of new mount and process namespaces.
#
# Makes a disposable root, enters it, and runs the selected tests there, as OpenZFS's own runner
# does: a group's setup, its tests with a time limit each, its cleanup. A test passed if it exits
# with 0, and was skipped if it exits with 4.
set -u
here=$PWD
[ $$ = 1 ] || { echo "$0 runs in namespaces of its own, made by scripts/zts.sh" >&2; exit 2; }
die() {
  echo "zts: $*" >&2
  exit 1
}

# --- The root ---------------------------------------------------------------
enter() { # ROOM
  local scratch=$1/scratch root=$1/root one
  mount --make-rprivate / && mkdir -p "$scratch" "$root" && mount -o loop "$1/image" "$scratch" || die 'no scratch image'
  mkdir "$scratch"/{upper,work,zts,tmp,vartmp}
  chmod 755 "$scratch/upper" "$scratch/zts"
  chmod 1777 "$scratch/tmp" "$scratch/vartmp"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$root" || die 'no overlay'
  # The root has devices of its own, without the disks of this machine and with a private /dev/zvol.
  mount -t tmpfs -o mode=755 tmpfs "$root/dev" && mkdir "$root"/dev/{shm,pts,disk,mapper} && chmod 1777 "$root/dev/shm"
  for one in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0 ptmx:5:2 fuse:10:229 loop-control:10:237; do
    IFS=: read -r name major minor <<<"$one"
    mknod -m 666 "$root/dev/$name" c "$major" "$minor" || die "no device $name"
  done
  for one in $(seq 0 127); do mknod -m 660 "$root/dev/loop$one" b 7 "$one"; done
  # zhack asks the kernel through this device whether the pool is in use, and needs the answer no.
  # /dev/null knows no pool.
  mknod -m 666 "$root/dev/zfs" c 1 3
  ln -s /proc/self/fd "$root/dev/fd"
  ln -s /proc/self/fd/0 "$root/dev/stdin"
  ln -s /proc/self/fd/1 "$root/dev/stdout"
  ln -s /proc/self/fd/2 "$root/dev/stderr"
  mount -t devpts devpts "$root/dev/pts"
  mount --rbind /sys "$root/sys" && mount -t proc proc "$root/proc" || die 'no /proc and /sys'
  # Large files go directly to the image, not through the overlay.
  mkdir -p "$root/zts"
  mount --bind "$scratch/zts" "$root/zts" && mount --bind "$scratch/tmp" "$root/tmp" && mount --bind "$scratch/vartmp" "$root/var/tmp" || die 'no scratch folders'
  for one in etc/zfs run var/lib/zfs; do mkdir -p "$root/$one" && mount -t tmpfs -o mode=755 tmpfs "$root/$one" || die "no $one"; done
  mkdir "$root/run/lock"
  for one in "$PWD" "$ZTS_TOOLS"; do mkdir -p "$root$one" && mount --bind -o ro "$one" "$root$one" || die "no $one"; done
  # Mount only the program, not its directory: tests may write to that directory.
  mkdir -p "$root$(dirname "$POOLHOUSE")" && { [ -e "$root$POOLHOUSE" ] || : >"$root$POOLHOUSE"; } && mount --bind -o ro "$POOLHOUSE" "$root$POOLHOUSE" || die "no $POOLHOUSE"
  mkdir -p "$root$ZTS_REPORT" && mount --bind "$ZTS_REPORT" "$root$ZTS_REPORT" || die 'no folder for the report'
  cd "$root" && mkdir -p .old && pivot_root . .old && umount -l /.old && rmdir /.old && cd / || die 'no other root'
  touch /.thrown-away
}

# --- What the tests find there -----------------------------------------------
# Makes a wrapper of a program, which searches these library directories first.
carry() { # LIBRARIES PROGRAM NAME
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "$1" "$2" >"$3" && chmod 755 "$3"
}

# Makes the only directory on the tests' PATH, as zfs-tests.sh does: our commands, the suite's
# helpers, and the system programs that it names.
furnish() {
  local one found missing='' path=$ZTS_TOOLS/bin:$ZTS_TOOLS/sbin:$ZTS_TOOLS/usr/bin:$ZTS_TOOLS/usr/sbin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin
  mkdir -m 755 /zts/{bin,path,disks,tree,suite,lib} && chmod 1777 /zts/disks
  cp -a "$ZTS_SUITE/zfs-tests/." /zts/suite/
  # The suite reads kernel module files from the daemon's tree. Only these two paths are changed.
  grep -rlIE '/proc/spl|/sys/module/(zfs|\$module)' /zts/suite | xargs -r sed -i -E 's#/proc/spl#/zts/tree/proc/spl#g; s#/sys/module/(zfs|\$module)#/zts/tree/sys/module/\1#g'
  ln -sf "$(PATH=$path type -P ksh93 || PATH=$path type -P ksh)" /bin/ksh && [ -x /bin/ksh ] || die 'no ksh'
  . /zts/suite/include/commands.cfg
  for one in zpool zfs zdb zinject zstream mount.zfs zfs_ids_to_path; do ln -s "$POOLHOUSE" "/zts/path/$one"; done
  ln -sf "$POOLHOUSE" /sbin/mount.zfs
  # The zedlets come from the package. Tests find zed by its name.
  if [ -d "$ZTS_TOOLS/etc/zfs/zed.d" ]; then
    ln -s "$here/scripts/zts-zed.py" /zts/path/zed
    mkdir -p /usr/lib/zfs-linux && cp -a "$ZTS_TOOLS/usr/lib/zfs-linux/zed.d" /usr/lib/zfs-linux/ && cp -a "$ZTS_TOOLS/etc/zfs/zed.d" /etc/zfs/ || die 'no zedlets'
  fi
  # OpenZFS's scripts that read kstats use ours. Other programs of OpenZFS are absent.
  for one in arc_summary arcstat dbufstat zilstat; do
    found=$(PATH=$path type -P "$one") && sed 's#/proc/spl#/zts/tree/proc/spl#g; s#/sys/module/#/zts/tree/sys/module/#g' "$found" >"/zts/path/$one" && chmod 755 "/zts/path/$one"
  done
  local libraries=$ZTS_TOOLS/lib/x86_64-linux-gnu:$ZTS_TOOLS/usr/lib/x86_64-linux-gnu
  # Some helpers of the suite need OpenZFS's libraries. They have no kernel module to talk to.
  for one in $ZFSTEST_FILES; do
    [ ! -x "/zts/suite/bin/$one" ] || carry "$libraries" "/zts/suite/bin/$one" "/zts/path/$one"
  done
  # These are independent of our program and of the kernel module.
  for one in zhack zgenhostid; do
    ! found=$(PATH=$path type -P "$one") || carry "$libraries" "$found" "/zts/path/$one"
  done
  # Our program contains the feature sets of `compatibility`. But tests read OpenZFS's files.
  mkdir -p /usr/share/zfs && cp -a "$ZTS_SUITE/compatibility.d" /usr/share/zfs/
  # The scripts of `zpool iostat -c`: links into a directory of the package.
  if [ -d "$ZTS_TOOLS/etc/zfs/zpool.d" ]; then
    mkdir -p /usr/lib/zfs-linux && cp -a "$ZTS_TOOLS/usr/lib/zfs-linux/." /usr/lib/zfs-linux/ && cp -a "$ZTS_TOOLS/etc/zfs/zpool.d" /etc/zfs/
  fi
  for one in $SYSTEM_FILES_COMMON $SYSTEM_FILES_LINUX; do
    if found=$(PATH=$path type -P "$one"); then
      case $found in
        "$ZTS_TOOLS"/*) carry "$libraries" "$found" "/zts/path/$one" ;;
        *) ln -s "$found" "/zts/path/$one" ;;
      esac
    else missing="$missing $one"; fi
  done
  ln -sf /bin/ksh /zts/path/ksh
  ln -sf /usr/bin/python3 /zts/path/python3
  ln -sf "$(type -P fsck.ext4)" /zts/path/fsck
  ln -sf "$(type -P mkfs.ext4)" /zts/path/newfs
  ln -sf gzip /zts/path/compress
  ln -sf gunzip /zts/path/uncompress
  # The suite uses sudo as root, to become another user.
  cat >/zts/path/sudo <<'SUDO'
#!/bin/bash
user=root
while [ $# -gt 0 ]; do
  case $1 in
    -u) user=$2; shift ;;
    -Eu | -nu) user=$2; shift ;;
    -E | -n) ;;
    *) break ;;
  esac
  shift
done
[ "$user" != root ] || [ "$(id -u)" = 0 ] || { echo 'sudo: root alone may' >&2; exit 1; }
exec /usr/bin/setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups "$@"
SUDO
  # Here no rules create device nodes, and no module can be loaded.
  for one in udevadm modprobe; do
    [ -e "/zts/path/$one" ] || { printf '#!/bin/sh\nexit 0\n' >"/zts/path/$one"; chmod 755 "/zts/path/$one"; missing=${missing/ $one/}; }
  done
  chmod 755 /zts/path/sudo
  useradd -m -s /bin/bash ztsrun || die 'no user to run as'
  echo "zts: absent:$missing" >&2
}

daemon=''
serve() {
  mkdir -p /zts/tree
  "$POOLHOUSE" serve --tree /zts/tree --attach >>"$ZTS_REPORT/daemon.log" 2>&1 </dev/null &
  daemon=$!
  local i
  for i in $(seq 300); do
    [ -S /run/poolhouse/control.sock ] && "$POOLHOUSE" zpool list >/dev/null 2>&1 && return
    sleep 0.1
  done
  die "the daemon does not answer: $ZTS_REPORT/daemon.log"
}

# Whether the daemon still runs and answers. If not, starts another.
served() {
  if kill -0 "$daemon" 2>/dev/null; then
    timeout 20 /zts/path/zpool list >/dev/null 2>&1
    [ $? = 124 ] || return 0
    echo "zts: the daemon does not answer" >>"$ZTS_REPORT/daemon.log"
    kill -9 "$daemon"
    wait "$daemon" 2>/dev/null
  else
    echo "zts: the daemon died" >>"$ZTS_REPORT/daemon.log"
  fi
  umount -l /zts/tree 2>/dev/null
  serve
  return 1
}

# Removes everything that a group left.
sweep() {
  local one
  served
  for one in $(timeout 60 /zts/path/zpool list -H -o name 2>/dev/null); do timeout 60 /zts/path/zpool destroy -f "$one" || timeout 60 /zts/path/zpool export -f "$one"; done >/dev/null 2>&1
  # A suspended pool without devices can't be exported. It ends with its daemon, and so do the
  # processes that keep its mounts busy.
  if [ -n "$(timeout 60 /zts/path/zpool list -H -o name 2>/dev/null)" ]; then
    echo "zts: pools are left: another daemon" >>"$ZTS_REPORT/daemon.log"
    kill -9 "$daemon"
    wait "$daemon" 2>/dev/null
    umount -l /zts/tree 2>/dev/null
    serve
  fi
  rm -rf /zts/disks/[!f]* /testpool* /zts/disks/f[!i]* 2>/dev/null
  # Tests that were killed leave exported pools on the disks.
  for one in $DISKS; do
    timeout 60 /zts/path/zpool labelclear -f "/dev/$one"
    # They also leave file systems, whose signature is before the cleared label.
    dd if=/dev/zero of="/dev/$one" bs=16k count=1
  done >/dev/null 2>&1
}

# Some tests need a terminal, and use the console as one.
console() {
  python3 - <<'PY' &
import os, pty
terminal, console = pty.openpty()
os.chmod(os.ttyname(console), 0o666)
os.symlink(os.ttyname(console), "/dev/console")
while os.read(terminal, 65536):
    pass
PY
  local i
  for i in $(seq 100); do [ -e /dev/console ] && return; sleep 0.1; done
  die 'no console'
}

# --- Running -------------------------------------------------------------------
script() { # GROUP NAME
  local at=/zts/suite/tests/functional/$1/$2 end
  for end in '' .ksh .sh .py; do [ ! -f "$at$end" ] || { echo "$at$end"; return; }; done
  return 1
}

# Runs one script, and records its result.
one() { # GROUP NAME USER
  local group=$1 name=$2 user=$3 at rc result log began=$SECONDS
  log=$ZTS_REPORT/logs/$group/$name.log
  at=$(script "$group" "$name") || { printf '%s\t%s\tFAIL\tabsent\n' "$group" "$name" >>"$ZTS_REPORT/results.tsv"; return 1; }
  [ "$user" = root ] && user='' || user='sudo -E -u ztsrun'
  # shellcheck disable=SC2086
  (cd /zts/disks && PATH=/zts/path exec timeout -k 10 "$ZTS_LIMIT" $user "$at") >"$log" 2>&1 </dev/null
  rc=$?
  case $rc in
    0) result=PASS ;;
    4) result=SKIP ;;
    124 | 137) result=KILLED ;;
    *) result=FAIL ;;
  esac
  served || result=FAIL
  printf '%s\t%s\t%s\t%s\n' "$group" "$name" "$result" $((SECONDS - began)) | tee -a "$ZTS_REPORT/results.tsv"
  [ "$result" = PASS ]
}

group() { # NAME USER
  local name=$1 user=$2 tests one ok=1
  mkdir -p "$ZTS_REPORT/logs/$name"
  tests=$(awk -v g="$name" '$1 == g { print $2 }' "$ZTS_REPORT/chosen")
  if script "$name" setup >/dev/null; then one "$name" setup root || ok=''; fi
  for one in $tests; do
    if [ -n "$ok" ]; then one "$name" "$one" "$user"; else printf '%s\t%s\tFAIL\tsetup\n' "$name" "$one" >>"$ZTS_REPORT/results.tsv"; fi
  done
  if script "$name" cleanup >/dev/null; then (cd /zts/disks && PATH=/zts/path exec timeout -k 10 "$ZTS_LIMIT" "$(script "$name" cleanup)") >"$ZTS_REPORT/logs/$name/cleanup.log" 2>&1 </dev/null; fi
  sweep
}

enter "$1"
[ -e /.thrown-away ] || die 'not in the root that is thrown away'
furnish
console
serve
[ -z "$(/zts/path/zpool list -H -o name 2>/dev/null)" ] || die 'there are pools already'
# The environment that zfs-tests.sh sets for tests.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
export UNAME=Linux STF_SUITE=/zts/suite STF_TOOLS=$ZTS_SUITE/test-runner STF_PATH=/zts/path FILEDIR=/zts/disks TMPDIR=/zts/disks KEEP=rpool __ZFS_POOL_EXCLUDE=rpool TESTFAIL_CALLBACKS=
# Ordinary users would have daemons of their own.
export POOLHOUSE_RUN_DIR=/run/poolhouse
export LOSETUP=/sbin/losetup DMSETUP=/sbin/dmsetup HOME=/root
DISKS=''
for i in 0 1 2; do
  truncate -s "$ZTS_SIZE" "/zts/disks/file-vdev$i"
  DISKS="$DISKS $(basename "$(losetup --show -f "/zts/disks/file-vdev$i")")" || die 'no loop device'
done
export DISKS=${DISKS# }
. /zts/suite/include/default.cfg
cut -d ' ' -f 1,3 "$ZTS_REPORT/chosen" | uniq | while read -r name user; do group "$name" "$user"; done
kill -TERM "$daemon"
wait "$daemon"
for i in $DISKS; do losetup -d "/dev/$i"; done
exit 0
