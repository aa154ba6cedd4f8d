# Functions for scripts/afs.sh: the cell, our servers in it, and how a check reports.
# shellcheck shell=bash

cell=$PWD/scripts/afs/cell.sh
out=${CARGO_TARGET_DIR:-target}
case $out in /*) ;; *) out=$PWD/$out ;; esac
report=$out/afs
mkdir -p "$report"
theirs=10.92.0.1 ours=10.92.0.2 second=10.92.0.3
keys=/etc/openafs/server/KeyFileExt
work='' # the folder of this run

# Ends a check as failed: what was expected, and what was there instead.
expected() {
  echo "expected $*"
  exit 1
}

# Ends a check as skipped.
skip() {
  echo "$*"
  exit 77
}

# Runs a command on a host.
on() { timeout "${limit:-120}" "$cell" run "$@"; } # HOST COMMAND...

# Runs vos, and ends the check if it fails.
vos() {
  echo "+ vos $*"
  on 1 vos "$@" -localauth || expected "status 0 of: vos $*"
}

# As vos, for commands that must fail.
refused() {
  echo "+ (refused) vos $*"
  ! on 1 vos "$@" -localauth || expected "an error of: vos $*"
}

# Removes every volume of the cell and of its servers.
clear_cell() {
  local name server id
  for name in $(on 1 vos listvldb -localauth 2>/dev/null | awk 'NF == 1 && /^[a-z]/ {print $1}'); do
    on 1 vos unlock "$name" -localauth
    on 1 vos delentry "$name" -localauth
  done
  for server in $theirs $ours $second; do
    for id in $(on 1 vos listvol $server a -fast -localauth 2>/dev/null | grep -E '^[0-9]+ *$' | sort -rn); do
      on 1 vos zap $server a -id "$id" -force -localauth
    done
  done
} >/dev/null 2>&1

# Makes a volume that anonymous users may write to.
make_volume() { # NAME SERVER
  vos restore "$2" a "$1" -file "$work/open.dump"
}

# Starts our server, or another program that takes its arguments, on a host.
start_ours() { # HOST [PROGRAM]
  local h=$1 fifo=$work/h$1.in
  mkdir -p "$work/$h"
  printf '#!/bin/sh\nexec %s "$@"\n' "${2:-$AFS_SERVER}" >"$work/$h/ours" && chmod +x "$work/$h/ours" || return
  # A new one each time: what a killed server leaves behind reads the old one, and must see its end.
  rm -f "$fifo" && mkfifo -m 600 "$fifo" || return
  # The server ends with its standard input, which this process keeps open.
  sleep infinity >"$fifo" &
  echo $! >"$work/h$h.writer"
  "$cell" start "$h" "$work/$h/ours" "10.92.0.$h" $keys zafs.test "$work/h$h.img" <"$fifo" || return
  for _ in $(seq 100); do
    limit=1 on 1 rxdebug "10.92.0.$h" 7005 -version 2>/dev/null | grep -q Poolhouse && return
    sleep 0.1
  done
  echo "our server on host $h does not answer: $ZAFS_STATE/h$h/log/ours.out" >&2
  return 1
}

pid_of_ours() { cat "$ZAFS_STATE/h$1/run/ours.pid"; } # HOST

# Stops our server on a host in order. The pool is then exported.
stop_ours() { # HOST
  local pid
  pid=$(pid_of_ours "$1")
  kill "$(cat "$work/h$1.writer")"
  for _ in $(seq 300); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
  [ ! -d "/proc/$pid" ] || { echo "our server on host $1 does not end" >&2; return 1; }
  rm "$ZAFS_STATE/h$1/run/ours.pid"
}

# Kills our server on a host.
kill_ours() { # HOST
  "$cell" kill "$1" ours
  kill "$(cat "$work/h$1.writer")"
}

tear_down() {
  # Whatever fails, the rest goes on.
  set +e
  local one
  [ -z "${AFS_KEEP:-}" ] || { echo "the cell is left: ZAFS_STATE=$ZAFS_STATE ZAFS_NS=$ZAFS_NS"; return; }
  for one in "$work"/h*.writer; do kill "$(cat "$one" 2>/dev/null)" 2>/dev/null; done
  "$cell" down >/dev/null 2>&1
  cp "$work"/*.out "$report/" 2>/dev/null
  rm -rf --one-file-system "$work"
}

# Builds what is missing, and brings up the cell, with our server on some hosts.
set_up() { # HOST...
  local h
  if [ -n "${daemon:-}" ]; then
    if [ -z "${POOLHOUSE:-}" ]; then
      cargo build -q -p poolhouse-program || exit 1
      POOLHOUSE=$out/debug/poolhouse
    fi
    POOLHOUSE=$(realpath "$POOLHOUSE") || exit 1
    export POOLHOUSE AFS_SERVER=$PWD/scripts/afs/daemon.sh
  elif [ -z "${AFS_SERVER:-}" ]; then
    cargo build -q -p poolhouse-afs --example afs_server || exit 1
    AFS_SERVER=$out/debug/examples/afs_server
  fi
  work=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-afs.XXXXXX")
  export ZAFS_NS=${ZAFS_NS:-poolhouse-afs} ZAFS_STATE=${ZAFS_STATE:-$work/cell}
  trap tear_down EXIT
  trap 'exit 130' INT TERM
  "$cell" up 3 || exit 1
  "$cell" host 4 || exit 1
  # OpenAFS's server registers the addresses, for servers of ours that don't.
  for h in "$@"; do
    for one in dafileserver davolserver salvageserver; do "$cell" stop $h $one; done
    start_ours $h || exit 1
  done
  on 1 vos create $theirs a empty -maxquota 0 -localauth >/dev/null &&
    on 1 vos dump empty -file "$work/new.dump" -localauth >/dev/null 2>&1 &&
    scripts/afs/open-dump.py <"$work/new.dump" >"$work/open.dump" &&
    on 1 vos remove -id empty -localauth >/dev/null || exit 1
}

# Builds the load client, or another client, from Debian's libraries of OpenAFS.
build_load() { # PROGRAM [SOURCE]
  local libs=/usr/lib multi
  command -v gcc >/dev/null || { echo gcc; return 1; }
  multi=$libs/$(gcc -print-multiarch)
  [ -f $libs/libafscp.a ] || { echo libopenafs-dev; return 1; }
  gcc -O2 -w -o "$1" "${2:-scripts/afs/bench.c}" -Wl,--start-group $libs/{libafscp,libafsauthent,libafsrpc}.a \
    $libs/afs/{libafsint,libvldb}.a $libs/{libopr,libafsrfc3961}.a $libs/afs/{libcmd,libafscom_err}.a \
    -Wl,--end-group -lpthread -lresolv -lcrypt "$multi"/{libhcrypto.so.5,libroken.so.19,libkrb5.so.26} \
    >&2 || { echo "a load client: gcc failed"; return 1; }
}

# Prints the files of a dump, with modes, sizes and sums.
list_dump() { "$afsdump" list <"$1" | sort; }

# Whether two texts are the same.
same() { # WHAT FILE OTHER
  diff -a "$2" "$3" && echo "same: $1" || expected "$1 to be the same: $2 and $3"
}
