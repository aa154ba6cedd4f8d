#!/bin/bash
# Compares a pool that scripts/judge-receives.sh has filled with the pool whose streams it has
# received. Then OpenZFS's kernel module goes on from there: it receives increments, resumes, sends,
# scrubs. Needs root, 2 GiB of space in TMPDIR, and no pools of the names `send-src`, `ours`, `again`.
set -eu
from=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/compare.XXXXXX")
mkdir "$work/a" "$work/b" "$work/devices" "$work/ours"
# OpenZFS opens the devices for writing, even of a read-only pool.
cp "$from"/*.img "$work/devices/"
mv "$work/devices/ours.img" "$work/ours/"
zpool import -N -o readonly=on -d "$work/devices" send-src
zfs load-key -L prompt send-src/enc <"$from/passphrase"
zpool import -N -d "$work/ours" ours
# shellcheck source=scripts/judge-streams-lib.sh
. "$from/lib.sh"

for form in '' -L -e -c -Lec; do
  for snapshot in a b; do same "send-src/fs@$snapshot" "ours/fs$form@$snapshot"; done
  # The kernel module goes on where we ended.
  # shellcheck disable=SC2086 # the form may be empty
  zfs send $form -i @b send-src/fs@c | zfs receive -u "ours/fs$form" || failed=1
  same send-src/fs@c "ours/fs$form@c"
done
for snapshot in e1 e2; do same "send-src/enc@$snapshot" "ours/enc@$snapshot"; done
# Before its key is loaded, and after that with accounting by user, which the module completes.
zfs send -w -i @e1 send-src/enc@e2 | zfs receive -u ours/raw || failed=1
for fs in raw raws rawrest; do
  zfs load-key -L prompt "ours/$fs" <"$from/passphrase" || failed=1
  same send-src/enc@e1 "ours/$fs@e1"
done
for fs in raw raws; do same send-src/enc@e2 "ours/$fs@e2"; done
zfs send -w -i @e1 send-src/enc@e2 | zfs receive -u ours/rawrest || failed=1
same send-src/enc@e2 ours/rawrest@e2
for fs in raws rawrest; do
  mount -t zfs -o zfsutil "ours/$fs" "$work/b" || failed=1
  echo more >"$work/b/more" || failed=1
  zfs userspace "ours/$fs" || failed=1
  umount "$work/b"
done
# The module has counted this one; Poolhouse has counted the other one.
zfs userspace -Hpn ours/raws | sort >"$work/theirs"
zfs load-key -L prompt ours/counted <"$from/passphrase" || failed=1
same send-src/enc@e2 ours/counted@e2
zfs userspace -Hpn ours/counted | sort >"$work/counted"
cat "$work/counted"
for other in "$work/theirs" "$from/userspace"; do diff "$other" "$work/counted" || failed=1; done
same send-src/tree/k1@r1 ours/k1@r1
same send-src/tree/k1clone@r2 ours/clone@r2
zfs send -R -I @r1 send-src/tree@r2 | zfs receive -u -F ours/grow || failed=1
for package in tree grow; do same_tree send-src/tree "ours/$package"; done
for snapshot in a b c; do same "send-src/fs@$snapshot" "ours/multi@$snapshot"; done
same send-src/fs@a ours/resumed@a
same send-src/fs@b ours/forced@b
zfs send -t "$(zfs get -H -o value receive_resume_token ours/partial)" | zfs receive -u -s ours/partial || failed=1
same send-src/fs@a ours/partial@a

# What we received can be sent. (With -e, OpenZFS 2.3 loses embedded spill blocks on the way.)
truncate -s 700M "$work/again.img"
zpool create -m none -O acltype=posix -O xattr=sa again "$work/again.img"
zfs send -Lc ours/fs-Lec@a | zfs receive -u again/fs || failed=1
zfs send -Lc -i @a ours/fs-Lec@b | zfs receive -u again/fs || failed=1
for snapshot in a b; do same "send-src/fs@$snapshot" "again/fs@$snapshot"; done
zpool scrub -w ours
zpool status -v ours
zpool status ours | grep -q 'errors: No known data errors' || failed=1
zpool export again
zpool export ours
zpool export send-src
zdb -e -p "$work/ours" -bcc ours >"$work/zdb" 2>&1 || { tail -n 20 "$work/zdb"; failed=1; }
grep 'No leaks' "$work/zdb" || failed=1
exit "$failed"
