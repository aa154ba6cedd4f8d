#!/usr/bin/env bash
# Usage: scripts/afs/client.sh MOUNT COMMAND...
# On a host of the cell: mounts the cell with afsd.fuse, runs a command with AFS as the folder of
# all volumes, and unmounts. The status is that of the command; 99 if the mount fails.
set -uo pipefail
mount=$1
shift
mkdir -p "$mount"
afsd.fuse -dynroot -fakestat -memcache -blocks 100000 -mountdir "$mount" -confdir /etc/openafs \
  >"$mount.log" 2>&1 &
client=$!
echo $client >"$mount.pid"
export AFS=$mount/.:mount/zafs.test
for _ in $(seq 200); do
  # Before the mount, the folder is empty.
  mountpoint -q "$mount" && ls -d "$mount/." >/dev/null 2>&1 && break
  kill -0 $client 2>/dev/null || { cat "$mount.log"; exit 99; }
  sleep 0.1
done
"$@"
code=$?
umount "$mount" || umount -l "$mount"
for _ in $(seq 50); do kill -0 $client 2>/dev/null || break; sleep 0.1; done
kill -9 $client 2>/dev/null
exit $code
