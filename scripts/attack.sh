#!/usr/bin/env bash
# Usage: scripts/attack.sh
# Attacks root's daemon as an ordinary user would, within bounds. The daemon runs in namespaces of
# its own (mounts, network), with a /run of its own. Each attack ends by itself.
# Prints a line for each attack. Exits with 1 if one of them succeeded.
# Needs root, curl, python3, setpriv, unshare and util-linux's script. POOLHOUSE names the program;
# without it, the script builds it.
set -uo pipefail
cd "$(dirname "$0")/.."
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program || exit 1
  POOLHOUSE=${CARGO_TARGET_DIR:-target}/release/poolhouse
fi
if [ "${1:-}" != inside ]; then
  [ "$(id -u)" = 0 ] || { echo 'missing: root'; exit 77; }
  for need in curl python3 setpriv unshare script ip; do
    command -v $need >/dev/null || { echo "missing: $need"; exit 77; }
  done
  POOLHOUSE=$(realpath "$POOLHOUSE") exec unshare --mount --net --pid --fork --kill-child "$0" inside
fi

mount --make-rprivate / && mount -t proc proc /proc && ip link set lo up || exit 1
mount -t tmpfs -o size=16M,mode=755 tmpfs /run || exit 1
room=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-attack.XXXXXX")
mkdir "$room/bin" "$room/mnt"
chmod 755 "$room" "$room/bin"
for name in poolhouse zpool zfs; do cp "$POOLHOUSE" "$room/bin/$name"; done
chmod 755 "$room/bin"/*
PATH=$room/bin:$PATH
unset POOLHOUSE_RUN_DIR XDG_RUNTIME_DIR
mnt=$room/mnt
daemon=
cleanup() {
  zpool export -af >/dev/null 2>&1
  [ -z "$daemon" ] || { kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null; }
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

status=0
verdict() { # NAME SECONDS RESULT WHAT: prints a line about one attack
  if [ "$3" = 0 ]; then printf 'held    %-22s %3d s  %s\n' "$1" "$2" "$4"
  else printf 'FAILED  %-22s %3d s  %s\n' "$1" "$2" "$4"; status=1; fi
}
stranger() { setpriv --reuid=61012 --regid=61012 --clear-groups "$@"; }
ask() { # METHOD BODY: sends a request as a stranger, and prints the answer
  stranger curl -s --max-time 60 --unix-socket "$socket" --data-binary "@$2" "http://daemon/v1/$1"
}
alive() { [ -d "/proc/$daemon" ] && zpool list -H -o name attacked >/dev/null || { echo 'the daemon is gone'; return 1; }; }
memory() { awk '/VmHWM/ { print int($2 / 1024) }' "/proc/$daemon/status"; }
begin() { # OPTIONS OF SERVE: starts the daemon
  poolhouse serve --shared --metrics 127.0.0.1:9876 "$@" 2>>"$room/log" &
  daemon=$!
  for _ in $(seq 300); do [ -S "$socket" ] && return; sleep 0.1; done
  echo 'no daemon'; return 1
}

# If /run is full, a daemon must use another directory, and strangers must find it.
head -c 32M /dev/zero >/run/full 2>/dev/null
[ -e /tmp/poolhouse-0 ] || made=1
socket=/tmp/poolhouse-0/control.sock
begin && stranger zpool list >/dev/null || exit 1
kill $daemon && wait $daemon
[ -z "${made:-}" ] || rm -r /tmp/poolhouse-0
rm /run/full
socket=/run/poolhouse/control.sock
begin || exit 1
truncate -s 256M "$room/d0" "$room/d1" "$room/spare"
chmod 644 "$room"/d? "$room/spare"
zpool create -m "$mnt" attacked "$room/d0" || exit 1
for i in $(seq 20); do echo "attacked/f$i"; done | xargs -n1 zfs create -o canmount=off || exit 1
zfs snapshot -r attacked@s || exit 1

long_names() {
  local name
  name=$(head -c 60000 /dev/zero | tr '\0' a)
  printf 'url = "http://daemon/v1/%s"\noutput = /dev/null\n%.0s' $(seq 1200 | sed "s/.*/$name/") >"$room/urls"
  local before
  before=$(stat -c %s "$room/log")
  stranger curl -s --max-time 100 --unix-socket "$socket" -K "$room/urls"
  local grown=$(($(stat -c %s "$room/log") - before))
  alive || return
  echo "1,200 requests; the log grew by $grown bytes"
  [ $grown -lt 262144 ]
}
refused() {
  local before
  before=$(stat -c %s "$room/log")
  printf 'url = "http://daemon/v1/import"\noutput = /dev/null\n%.0s' $(seq 2000) >"$room/urls"
  stranger curl -s --max-time 100 --unix-socket "$socket" -K "$room/urls"
  local grown=$(($(stat -c %s "$room/log") - before))
  alive || return
  echo "2,000 refusals; the log grew by $grown bytes"
  [ $grown -lt 262144 ]
}
full_run() {
  head -c 32M /dev/zero >/run/full 2>/dev/null
  refused
  local result=$?
  rm -f /run/full
  return $result
}
named() { # NAMES OF PROPERTIES, as Python: prints the size of the answer and the daemon's memory
  python3 -c "
import json
names = $1
query = {'kinds': ['filesystem', 'snapshot'], 'props': {'named': names}}
json.dump({'query': query}, open('$room/query', 'w'), separators=(',', ':'))"
  chmod 644 "$room/query"
  local before
  before=$(memory)
  for _ in 1 2 3 4; do ask datasets "$room/query" | wc -c & done | sort -n | tail -1 >"$room/most"
  wait
  alive || return
  echo "four requests at once; $(cat "$room/most") bytes of answer, $(($(memory) - before)) MiB more memory"
  [ $(($(memory) - before)) -lt 128 ]
}
same_property() { named "['used'] * 145000" && named "['used'] * 30000"; }
many_written() { named "['written@%d' % n for n in range(70000)]" && named "['written@%d' % n for n in range(4000)]"; }
# Every client of this address is a stranger.
idle_metrics() {
  python3 - <<'PY'
import socket, time, urllib.request
idle = [socket.create_connection(('127.0.0.1', 9876)) for _ in range(161)]
begun = time.monotonic()
page = urllib.request.urlopen('http://127.0.0.1:9876/metrics', timeout=60).read()
took = time.monotonic() - begun
print('161 idle connections; a scrape of %d bytes took %.1f s' % (len(page), took))
raise SystemExit(took > 5)
PY
}
set_id() {
  cp /usr/bin/id "$mnt/su" && chmod 6777 "$mnt/su" && zpool sync && stat "$mnt/su" >/dev/null || return
  sleep 12
  stat "$mnt/su" >/dev/null
  stranger sh -c "echo >>$mnt/su" || return
  echo "mode $(stat -c %a "$mnt/su") after another user's write; it runs as $(stranger "$mnt/su" -u)"
  [ "$(stat -c %a "$mnt/su")" = 777 ] && [ "$(stranger "$mnt/su" -u)" = 61012 ]
}
readers_lock() {
  zpool create -m none other "$room/d1" && zpool export other || return
  stranger flock -s "$room/d1" sleep 30 &
  local holder=$!
  sleep 1
  zpool import -d "$room/d1" other
  local result=$?
  kill $holder
  echo "an import of an image on which a reader holds a lock: exit code $result"
  [ $result = 0 ] && zpool destroy other
}
terminals() {
  zfs set "user:note=$(printf '\033]0;owned\007')" attacked || return
  TERM=xterm script -qec 'zfs get -H -o value user:note attacked' /dev/null </dev/null >"$room/seen"
  echo "a property on a terminal: $(cat -v "$room/seen")"
  ! grep -q "$(printf '\033]')" "$room/seen"
}
limits() {
  zpool export attacked && kill "$daemon" && wait "$daemon"
  (ulimit -S -f 1; begin; echo $daemon >"$room/pid"; sleep infinity) &
  local shell=$!
  sleep 3
  daemon=$(cat "$room/pid")
  zpool import -d "$room/d0" attacked && dd if=/dev/urandom of="$mnt/large" bs=1M count=20 conv=fsync status=none
  local result=$?
  alive || result=1
  echo "20 MiB written by a daemon of a shell with ulimit -f 1"
  zpool export attacked
  kill "$daemon" $shell
  return $result
}

for name in long_names refused full_run same_property many_written idle_metrics set_id readers_lock terminals limits; do
  begun=$SECONDS
  ($name) >"$room/said" 2>&1
  verdict "$name" $((SECONDS - begun)) $? "$(tail -1 "$room/said")"
done
exit $status
