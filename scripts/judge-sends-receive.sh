#!/bin/bash
# Receives the streams in the current directory with OpenZFS's kernel module; scripts/judge-sends.sh
# has made them. It compares files, their attributes, and the estimated sizes of streams with the
# pool that was sent. Needs root, 1 GiB of space in TMPDIR, and no pools of the names `send-src` and
# `received`.
set -eu
from=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/receive.XXXXXX")
mkdir "$work/a" "$work/b" "$work/devices"
# OpenZFS opens the devices for writing, even of a read-only pool.
cp "$from"/*.img "$work/devices/"
zpool import -N -o readonly=on -d "$work/devices" send-src
zfs load-key -L prompt send-src/enc <"$from/passphrase"
truncate -s 700M "$work/received.img"
zpool create -m none -O acltype=posix -O xattr=sa received "$work/received.img"
# shellcheck source=scripts/judge-streams-lib.sh
. "$from/lib.sh"

receive() { # NAME: its streams, in their order
  local stream
  for stream in "$from/$1".*; do
    zfs receive -u "received/$1" <"$stream" || { echo "$stream: not received"; failed=1; }
  done
}

for form in '' -L -e -c -Lec -w; do
  receive "fs$form"
  for snapshot in a b c; do same "send-src/fs@$snapshot" "received/fs$form@$snapshot"; done
  receive "vol$form"
done
receive enc
receive enc-w
zfs load-key -L prompt received/enc-w <"$from/passphrase"
for snapshot in e1 e2; do
  same "send-src/enc@$snapshot" "received/enc@$snapshot"
  same "send-src/enc@$snapshot" "received/enc-w@$snapshot"
done
receive k1
receive clone
same send-src/tree/k1@r1 received/k1@r1
same send-src/tree/k1clone@r2 received/clone@r2

for package in tree grow; do
  receive "$package"
  same_tree send-src/tree "received/$package"
done
receive multi
for snapshot in a b c; do same "send-src/fs@$snapshot" "received/multi@$snapshot"; done

while IFS='	' read -r options size; do
  # shellcheck disable=SC2086 # the options are words
  [ "$(zfs send -nP $options | tail -n 1)" = "$size" ] || { echo "size of '$options': not $size"; failed=1; }
done <"$from/sizes"

zpool scrub -w received
zpool status -v received
zpool status received | grep -q 'errors: No known data errors' || failed=1
zpool export received
zpool export send-src
zdb -e -p "$work" -bcc received >"$work/zdb" 2>&1 || { tail -n 20 "$work/zdb"; failed=1; }
grep 'No leaks' "$work/zdb" || failed=1
exit "$failed"
