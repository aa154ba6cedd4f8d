#!/usr/bin/env bash
# Usage: scripts/rootless.sh [SET-UP ...]
# Tries each set-up without root, or with fewer rights, that this machine supports: doctor, a pool
# on a file, a mount or the reason against it, a file through it, ls and cp, export and import.
#
# Prints a line for each set-up. Exits with 1 if one of them fails. Set-ups that this machine does
# not support are listed as skipped. Needs root, to make the set-ups. POOLHOUSE names the program;
# without it, the script builds it.
set -uo pipefail
cd "$(dirname "$0")/.."
# Runs in the set-up: POOL FOLDER WANTS, where WANTS says whether a mount is expected.
if [ "${1:-}" = inside ]; then
  pool=$2 at=$3 wants=$4
  umask 022
  fail() { echo "$*"; exit 1; }
  mkdir -p "$at" && cd "$at" || fail 'no folder'
  truncate -s 128M "$at/d0" || fail 'no image'
  doctor=$(poolhouse doctor 2>&1)
  case $? in 0 | 1) ;; *) fail "doctor ended with $?: $doctor" ;; esac
  said=$(zpool create -m "$at/mnt" "$pool" "$at/d0" 2>&1)
  if zfs mount | grep -q "^$pool "; then
    [ "$wants" != no ] || fail 'mounted, which was not expected'
    echo content >"$at/mnt/file" || fail 'not written'
    mounted=mounted
  else
    [ "$wants" != yes ] || fail "not mounted: $said"
    zpool list -H -o name "$pool" >/dev/null || fail "no pool: $said"
    [ ! -e "$at/mnt" ] || fail 'the mountpoint was left'
    reason=$(zfs mount "$pool" 2>&1) && fail 'mounted after all'
    # The system's error alone is no reason. `doctor` must find what prevents mounts.
    case $reason in *'; '*) ;; *) fail "no advice: $reason" ;; esac
    [[ $doctor == *MISSING* ]] || fail "doctor misses nothing: $reason"
    mounted="not mounted (${reason#*; })"
    # The daemon must still copy files in and out.
    echo content >"$at/in"
    said=$(poolhouse cp "$at/in" "$pool:/file" && poolhouse ls "$pool:/" && poolhouse cp "$pool:/file" "$at/out" 2>&1)
    [ "$said" = file ] && [ "$(cat "$at/out")" = content ] || fail "no files without a mount: $said"
  fi
  zpool export "$pool" || fail 'not exported'
  # Without /proc, `ls` works only on an imported pool; see docs/guide/rootless.md.
  if [ -e /proc/self ]; then listed=$(poolhouse ls -d "$at" "$pool:/" 2>&1) || fail "ls: $listed"; fi
  if [ $mounted = mounted ] 2>/dev/null; then
    poolhouse cp -d "$at" "$pool:/file" "$at/copy" && [ "$(cat "$at/copy")" = content ] || fail 'cp'
  fi
  zpool import -d "$at" "$pool" >/dev/null 2>&1
  zpool list -H -o name "$pool" >/dev/null || fail 'not imported'
  [ "$mounted" != mounted ] || [ "$(cat "$at/mnt/file")" = content ] || fail 'the file is gone'
  zpool export "$pool" || fail 'not exported again'
  folder=$(grep -o "the daemon's folder: [^, ]*" <<<"$doctor")
  echo "$mounted; ${folder#the daemon\'s folder: }"
  exit 0
fi

if [ -z "${ROOTLESS_APART:-}" ] && [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program || exit 1
  POOLHOUSE=${CARGO_TARGET_DIR:-target}/release/poolhouse
fi
[ "$(id -u)" = 0 ] || { echo 'missing: root'; exit 77; }
for need in setpriv unshare; do
  command -v $need >/dev/null || { echo "missing: $need"; exit 77; }
done
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
if [ -z "${ROOTLESS_APART:-}" ]; then
  room=$(mktemp -d /var/tmp/poolhouse-rootless.XXXXXX)
  trap 'rm -rf --one-file-system "$room"' EXIT
  chmod 755 "$room"
  mkdir "$room/bin" "$room/dev"
  for name in poolhouse zpool zfs; do cp "$POOLHOUSE" "$room/bin/$name" && chmod 755 "$room/bin/$name"; done
  cp scripts/rootless.sh "$room/bin/rootless.sh" && chmod 755 "$room/bin/rootless.sh"
else
  room=$ROOTLESS_ROOM
  export PATH=$room/bin:$PATH
  unset POOLHOUSE_RUN_DIR XDG_RUNTIME_DIR TMPDIR
  mount --make-rprivate / && mount -t proc proc /proc || exit 1
  cut -d' ' -f2,3 /proc/self/mounts | grep ' fuse.poolhouse$' | cut -d' ' -f1 | xargs -r -n1 umount -l
  # A system where users can mount has these.
  mount -t tmpfs -o mode=755 none /run && mount -t tmpfs -o mode=1777 none /tmp &&
    mount -t tmpfs -o mode=755 none "$room/dev" && mknod -m 666 "$room/dev/fuse" c 10 229 &&
    mount --bind "$room/dev/fuse" /dev/fuse || { echo 'no /dev/fuse for users here'; exit 77; }
fi
named=65534
unknown=61014

skip() { echo "$*"; return 77; }
run() { # POOL WANTS COMMAND...: tries it in a set-up that COMMAND makes
  local pool=$1 wants=$2
  shift 2
  "$@" "$room/bin/rootless.sh" inside "$pool" "$room/$pool" "$wants"
}
own() { # POOL UID: makes a directory for a user
  mkdir -p "$room/$1" && chown "$2:$2" "$room/$1"
}
user() { setpriv --reuid="$1" --regid="$1" --clear-groups "${@:2}"; }
can_nest() { user $named unshare -rm true 2>/dev/null || skip 'users have no namespaces here'; }
apart() { # COMMAND...: runs it with mounts of its own, which the code in $furnish makes
  (unshare --mount bash -c "$furnish"' && exec "$@"' bash "$@")
}

root() { run root yes env; }
ordinary_user() { command -v fusermount3 >/dev/null || skip 'no fusermount3' || return; own ordinary_user $named; run ordinary_user yes user $named; }
no_fusermount3() { own no_fusermount3 $named; mkdir -p "$room/none"
  furnish="mount --bind /dev/null $(command -v fusermount3 || echo "$room/none")" && run no_fusermount3 no apart setpriv --reuid=$named --regid=$named --clear-groups; }
unknown_user() { own unknown_user $unknown; getent passwd $unknown >/dev/null && { skip "user $unknown has a name"; return; }
  run unknown_user no user $unknown; }
no_home() { own no_home $named; run no_home yes user $named env -u HOME; }
user_namespace() { can_nest || return; own user_namespace $named; run user_namespace no user $named unshare -r; }
user_and_mount_namespace() { can_nest || return; own user_and_mount_namespace $named; run user_and_mount_namespace yes user $named unshare -rm; }
beside_roots_folder() { can_nest || return; own beside_roots_folder $named
  furnish='mount -t tmpfs -o mode=755 none /run && mkdir /run/poolhouse'
  run beside_roots_folder yes apart setpriv --reuid=$named --regid=$named --clear-groups unshare -rm; }
taken_name() { own taken_name $named
  furnish="mkdir -p /tmp/poolhouse-$named"
  run taken_name yes apart setpriv --reuid=$named --regid=$named --clear-groups; }
without_sys_admin() { run without_sys_admin no setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin; }
no_new_privileges() { own no_new_privileges $named; run no_new_privileges no setpriv --reuid=$named --regid=$named --clear-groups --no-new-privs; }
no_fuse() { furnish="mount -t tmpfs none $room/none && mknod -m 666 $room/none/null c 1 3 && mount --bind $room/none /dev"
  mkdir -p "$room/none"; run no_fuse no apart; }
no_run() { furnish='mount -t tmpfs -o mode=555,ro none /run'; run no_run yes apart; }
full_run() { furnish='mount -t tmpfs -o mode=755,size=1M none /run && { head -c 4M /dev/zero >/run/full 2>/dev/null; true; }'
  run full_run yes apart; }
read_only_root() { furnish='mount --bind / /mnt && mount -o remount,ro,bind / && mount -t tmpfs none /run && mount -t tmpfs -o mode=1777 none /dev/shm'
  mkdir -p "$room/read_only_root"; mount -t tmpfs none "$room/read_only_root" && run read_only_root yes apart; local ended=$?
  umount -l "$room/read_only_root"; return $ended; }
no_proc() { furnish='while [ -e /proc/self ]; do umount -l /proc || exit 1; done'; run no_proc no apart; }
bubblewrap() { command -v bwrap >/dev/null || skip 'no bwrap' || return; own bubblewrap $named
  user $named bwrap --ro-bind / / --dev /dev true 2>/dev/null || skip 'bwrap can make nothing here' || return
  run bubblewrap no user $named bwrap --ro-bind / / --dev /dev --proc /proc --tmpfs /run --bind "$room/bubblewrap" "$room/bubblewrap"; }
podman_default() { command -v podman >/dev/null || skip 'no podman' || return
  mkdir -p "$room/podman_default"
  podman run --rm --rootfs --network none /:O true >/dev/null 2>&1 || skip 'podman runs no containers here' || return
  run podman_default no podman run --rm --network none -e "PATH=$PATH" -v "$room:$room" --rootfs /:O; }

all='root ordinary_user no_fusermount3 unknown_user no_home user_namespace user_and_mount_namespace beside_roots_folder
  taken_name without_sys_admin no_new_privileges no_fuse no_run full_run read_only_root no_proc bubblewrap podman_default'
if [ -n "${ROOTLESS_APART:-}" ]; then
  $ROOTLESS_APART
  exit
fi
status=0
for name in "${@:-$all}"; do
  for name in $name; do
    [[ " $(echo $all) " == *" $name "* ]] || { echo "there is no set-up $name" >&2; exit 2; }
    # Each set-up has its own /run and /tmp, and its daemons end with it.
    ROOTLESS_APART=$name ROOTLESS_ROOM=$room unshare --mount --pid --fork --kill-child "$room/bin/rootless.sh" >"$room/said" 2>&1
    case $? in
      0) printf 'works    %-25s %s\n' "$name" "$(tail -1 "$room/said")" ;;
      77) printf 'skipped  %-25s %s\n' "$name" "$(tail -1 "$room/said")" ;;
      *) status=1; printf 'FAILED   %-25s %s\n' "$name" "$(tail -3 "$room/said" | tr '\n' ' ')" ;;
    esac
  done
done
exit $status
