#!/usr/bin/env bash
# Usage: scripts/afs/demo.sh
# On a Debian machine, as root: installs OpenAFS's database servers and its client in user space,
# brings up a cell in namespaces with Poolhouse as its file server, makes a volume, mounts it, and
# shows what to try next. Nothing starts outside of the namespaces. Ctrl-C or Enter cleans up. With
# DEMO_NOWAIT=1 it ends by itself. POOLHOUSE names the program; without it, the script builds it.
set -euo pipefail
cd "$(dirname "$0")/../.."
cell=$PWD/scripts/afs/cell.sh

[ "$(id -u)" = 0 ] || { echo "This demo needs root, for namespaces: sudo make demo-afs" >&2; exit 1; }
installed() { "$cell" needs >/dev/null && command -v afsd.fuse >/dev/null; }
if ! installed; then
  command -v apt-get >/dev/null || { echo "This demo needs OpenAFS's programs: $("$cell" needs)" >&2; exit 1; }
  echo "Installing OpenAFS's database servers and client ..."
  # No service starts, and no kernel module is built.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy && chmod +x $policy
    trap 'rm -f $policy' EXIT
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends iproute2 perl openafs-dbserver openafs-fileserver \
    openafs-client openafs-krb5 openafs-fuse >/dev/null
  if [ "$(cat $policy)" = "$(printf '#!/bin/sh\nexit 101')" ]; then rm -f $policy; fi
  lacks=$("$cell" needs) || { echo "This machine still lacks $lacks" >&2; exit 1; }
fi
if [ -z "${POOLHOUSE:-}" ]; then
  echo "Building (the first time takes a few minutes) ..."
  cargo build -q --release -p poolhouse-program
  POOLHOUSE=${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse
fi
POOLHOUSE=$(realpath "$POOLHOUSE")

room=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-demo.XXXXXX")
mkdir "$room/dev"
mkdir -m 700 "$room/run"
export ZAFS_STATE=$room/cell ZAFS_NS=${ZAFS_NS:-demo} POOLHOUSE_RUN_DIR=$room/run
cleanup() {
  trap - EXIT INT TERM HUP
  echo
  echo "Cleaning up."
  [ -z "${client:-}" ] || { kill "$client" 2>/dev/null || true; }
  "$POOLHOUSE" zpool export tank >/dev/null 2>&1 || true
  "$cell" down
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP
on() { "$cell" run 1 "$@"; }
show() {
  printf '\n$ %s\n' "$*"
  on "$@"
}

echo "Bringing up the cell zafs.test: its database servers, and Poolhouse's daemon ..."
"$cell" up 0
"$cell" start 1 "$POOLHOUSE" serve
for _ in $(seq 100); do ! "$POOLHOUSE" zpool list >/dev/null 2>&1 || break; sleep 0.1; done
truncate -s 2G "$room/dev/d0"
PATH=$(dirname "$POOLHOUSE"):$PATH
show poolhouse zpool create -m none tank "$room/dev/d0"
show poolhouse afs enable --create --partition a --address 10.92.0.1 tank/vicepa
for _ in $(seq 100); do on vos listaddrs -localauth 2>/dev/null | grep -q . && break; sleep 0.2; done
show poolhouse afs status
show vos create 10.92.0.1 a new -localauth
# There is no Kerberos here, so the client is anonymous. Its volume has rights for everyone.
on vos dump new -file "$room/new" -localauth >/dev/null 2>&1
scripts/afs/open-dump.py <"$room/new" >"$room/open"
show vos restore 10.92.0.1 a hello -file "$room/open" -localauth
cat >"$room/work" <<'END2'
show() { printf '\n$ %s\n' "$*"; sh -c "$*"; }
cd "$AFS:hello"
show 'echo "Hello from a pool" >greeting; cp -r /etc/openafs/server/CellServDB cells; mkdir more'
show 'ls -l; cat greeting'
show 'vos backup hello -localauth'
show 'echo changed >greeting'
cd "$AFS:hello.backup"
show 'cat greeting    # in the backup volume'
touch "$ROOM/ready"
[ -n "${DEMO_NOWAIT:-}" ] || sleep infinity
END2
ROOM=$room on scripts/afs/client.sh "$room/mount" bash "$room/work" &
client=$!
for _ in $(seq 300); do [ ! -e "$room/ready" ] || break; kill -0 $client 2>/dev/null || break; sleep 0.1; done
[ -e "$room/ready" ] || { echo "the client did not work" >&2; exit 1; }
show vos listvol 10.92.0.1 a -localauth
show poolhouse zfs list -r -t all -o name,used,refer tank

cat <<EOF

The cell is up. In another terminal, as root, try:

  export ZAFS_STATE=$ZAFS_STATE ZAFS_NS=$ZAFS_NS POOLHOUSE_RUN_DIR=$room/run
  $cell run 1 vos examine hello -localauth
  $cell run 1 vos create 10.92.0.1 a another -localauth
  $cell run 1 vos dump hello -localauth | wc -c
  $POOLHOUSE afs clients
  $POOLHOUSE afs volumes
  $POOLHOUSE zpool status tank

EOF
if [ -n "${DEMO_NOWAIT:-}" ]; then exit 0; fi
read -r -p "Enter or Ctrl-C ends the demo and cleans up. " || true
