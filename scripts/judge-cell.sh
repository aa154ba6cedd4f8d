#!/usr/bin/env bash
# Usage: scripts/judge-cell.sh
# Has OpenAFS's ptserver and vlserver judge afs::cell: users, groups, hosts and the registration of
# a server, also while the ptserver is stopped. OpenAFS's file server reads the sysid that was made.
# Needs root, network namespaces, and OpenAFS's packages. Without them it says what is missing, and
# exits with 0. All traffic stays in the namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."

cell=$PWD/scripts/afs/cell.sh
missing=$("$cell" needs) || { echo "SKIPPED judge-cell: this machine lacks $missing"; exit 0; }
out=${CARGO_TARGET_DIR:-$PWD/target}
case $out in /*) ;; *) out=$PWD/$out ;; esac
cargo build -q -p poolhouse-afs --example cell_member
member=$out/debug/examples/cell_member

export ZAFS_STATE ZAFS_NS=${ZAFS_NS:-cjudge}
work=$(mktemp -d)
ZAFS_STATE=$work/cell
trap '"$cell" down >/dev/null 2>&1; rm -rf "$work"' EXIT
"$cell" up 1 >/dev/null || { echo "the cell does not come up" >&2; exit 1; }
"$cell" host 2

failed=0
check() { # NAME PATTERN FILE: whether the file has the pattern
  if grep -qE -- "$2" "$3"; then echo "ok: $1"; else
    echo "FAILED: $1"
    failed=1
  fi
}
on() { timeout 120 "$cell" run "$@"; }
pts() { on 1 pts "$@" -localauth >/dev/null; }
pts createuser someone
pts creategroup someone:friends -owner someone
pts adduser someone someone:friends
pts createuser 10.92.0.2
pts adduser 10.92.0.2 someone:friends

config=/etc/openafs/server local=/var/lib/openafs/local
"$cell" run 2 "$member" $config $local admin Someone nobody-here 10.92.0.2 10.92.0.9 \
  </dev/null >"$work/first"
check "an administrator" '^user admin id 1 groups \[-204, -102, -101, 1\].*administrator true' "$work/first"
check "a user in a group" '^user Someone id 2 groups \[-[0-9]+, -102, -101, 2\].*"someone:friends".* false' "$work/first"
check "an unknown name" '^user nobody-here id 32766 groups \[-101, 32766\]' "$work/first"
check "a host in a group" '^host 10.92.0.2 groups \[PrincipalId\(-[0-9]+\)' "$work/first"
check "a host in none" '^host 10.92.0.9 groups \[\]' "$work/first"
check "the registration" '^registered true \[10.92.0.2\] None' "$work/first"
on 1 vos listaddrs -printuuid -localauth >"$work/addresses"
check "vos listaddrs" '^10.92.0.2$' "$work/addresses"
uuid=$(grep -B1 -x 10.92.0.2 "$work/addresses" | head -1)

# A second server claims the addresses of two others. Programs that start in the same second number
# their connections alike, and a server confuses them.
sleep 1
mkdir "$work/other"
printf '10.92.0.2\nf 10.92.0.1\n' >"$work/other/NetInfo"
on 2 "$member" $config "$work/other" </dev/null >"$work/second"
check "addresses of other servers" '^registered false.*another server' "$work/second"
sleep 1

# Known users stay known while the ptserver is stopped.
mkfifo "$work/names"
"$cell" run 2 "$member" $config $local admin <"$work/names" >"$work/away" &
exec 3>"$work/names"
for _ in $(seq 100); do grep -q ^registered "$work/away" && break; sleep 0.1; done
"$cell" stop 1 ptserver >/dev/null 3>&-
echo someone >&3
for _ in $(seq 300); do grep -q '^user someone' "$work/away" && break; sleep 0.1; done
check "no ptserver" '^user someone error 5376' "$work/away"
"$cell" start 1 ptserver >/dev/null 3>&-
for _ in $(seq 60); do
  echo someone >&3
  sleep 1
  grep -q '^user someone id 2' "$work/away" && break
done
exec 3>&-
wait
check "the ptserver is back" '^user someone id 2 ' "$work/away"

# OpenAFS's file server takes the UUID over.
"$cell" servers 2 >/dev/null
on 1 vos listaddrs -printuuid -localauth >"$work/after"
check "OpenAFS keeps the UUID" "^${uuid}$" "$work/after"
exit $failed
