#!/usr/bin/env bash
# Usage: scripts/afs/cell.sh COMMAND
# A cell of OpenAFS's servers on one machine, in network and mount namespaces, without Kerberos.
#
#   needs              print what is missing here, if anything; then the status is 1
#   up [N]             bring up the database servers on host 1, file servers on hosts 1 to N (2; 0)
#   host H             add host H, without a server
#   servers H          start OpenAFS's file server and volume server on host H
#   start H PROGRAM... start a program on host H; PROGRAM may be a name of OpenAFS's
#   stop H NAME        stop it: SIGQUIT for OpenAFS's file server, SIGTERM for others
#   kill H NAME        SIGKILL
#   run H COMMAND...   run a command as if on host H
#   down               stop everything, and delete the cell
#
# Host H has the address 10.92.0.H and, in ZAFS_STATE/hH, its own /etc/openafs, /var/lib/openafs,
# /var/log/openafs and /vicepa, /vicepb. The key of the cell is random, so `-localauth` works and
# user names do not. No traffic leaves the namespaces. Of the machine itself only empty folders of
# these names are made.
#
# ZAFS_STATE   where the files of the hosts live ($TMPDIR/poolhouse-cell)
# ZAFS_NS      prefix of the network namespaces, one for each cell (poolhouse)
# ZAFS_OPTIONS more options of OpenAFS's file server
set -uo pipefail
state=${ZAFS_STATE:-${TMPDIR:-/tmp}/poolhouse-cell}
prefix=${ZAFS_NS:-poolhouse}
cell=zafs.test
net=10.92.0
programs=/usr/lib/openafs
script=$(realpath "$0")

fail() { echo "cell.sh: $*" >&2; exit 1; }

needs() {
  [ "$(id -u)" = 0 ] || { echo "root"; return 1; }
  local one
  for one in ip unshare perl asetkey vos pts rxdebug; do
    command -v "$one" >/dev/null || { echo "$one (Debian: iproute2, openafs-client, openafs-krb5)"; return 1; }
  done
  for one in vlserver ptserver dafileserver davolserver salvageserver; do
    [ -x "$programs/$one" ] || { echo "$one (Debian: openafs-dbserver, openafs-fileserver)"; return 1; }
  done
  unshare -n -m true 2>/dev/null || { echo "network and mount namespaces"; return 1; }
  unshare -n ip link add name one type veth peer name two 2>/dev/null || { echo "virtual network devices"; return 1; }
}

exists() { ip netns list | grep -qw -- "$1"; }

# The hosts hang on a namespace that routes between them, since some kernels have no bridges.
network() { # HOST
  local h=$1 router=$prefix-router host=$prefix-$1
  if ! exists "$router"; then
    ip netns add "$router" && ip -n "$router" link set lo up || fail "no network namespace"
    ip netns exec "$router" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward' || fail "no routing"
  fi
  exists "$host" && return
  ip netns add "$host" && ip -n "$host" link set lo up &&
    ip link add lan netns "$host" type veth peer name "host$h" netns "$router" &&
    ip -n "$host" link set lan up && ip -n "$router" link set "host$h" up &&
    ip -n "$host" addr add "$net.$h/32" dev lan &&
    ip -n "$router" addr add "$net.254/32" dev "host$h" &&
    ip -n "$host" route add "$net.254" dev lan &&
    ip -n "$host" route add "$net.0/24" via "$net.254" &&
    ip -n "$router" route add "$net.$h/32" dev "host$h" || fail "no network for host $h"
}

# asetkey takes keys of this type from a keytab only.
keytab() {
  perl -e '
    my ($cell, $key) = @ARGV;
    my $text = sub { pack("n/a*", $_[0]) };
    my $entry = pack("n", 2) . $text->(uc $cell) . $text->("afs") . $text->($cell)
      . pack("NNC", 1, time, 1) . pack("n", 18) . $text->(pack("H*", $key)) . pack("N", 1);
    binmode STDOUT;
    print pack("n", 0x0502), pack("N", length $entry), $entry;' "$cell" "$1"
}

host() { # HOST
  local h=$1 root=$state/h$1 folder
  network "$h"
  mkdir -p "$root"/{etc/server,lib/db,lib/local,log,run,cache,vicepa,vicepb}
  chmod 700 "$root"/lib/{db,local}
  touch "$root"/vicep{a,b}/AlwaysAttach "$root/etc/server/UserList"
  for folder in "$root/etc" "$root/etc/server"; do
    echo "$cell" >"$folder/ThisCell"
    printf '>%s\n%s #db\n' "$cell" "$net.1" >"$folder/CellServDB"
  done
  echo "/afs:/var/cache/openafs:50000" >"$root/etc/cacheinfo"
  echo "$net.$h" >"$root/lib/local/NetInfo"
  [ -s "$state/keytab" ] || keytab "$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n')" >"$state/keytab"
  [ -s "$root/etc/server/KeyFileExt" ] ||
    run "$h" asetkey add rxkad_krb5 1 18 "$state/keytab" "afs/$cell@${cell^^}" || fail "no key"
}

run() { # HOST COMMAND...
  local h=$1
  shift
  # shellcheck disable=SC2016
  ip netns exec "$prefix-$h" unshare -m --propagation private sh -c '
    root=$1; shift
    bind() { mkdir -p "$2" && mount --bind "$root/$1" "$2" || exit 1; }
    bind etc /etc/openafs; bind lib /var/lib/openafs; bind log /var/log/openafs
    bind cache /var/cache/openafs; bind vicepa /vicepa; bind vicepb /vicepb
    exec "$@"' sh "$state/h$h" "$@"
}

pid_of() { cat "$state/h$1/run/$2.pid" 2>/dev/null; } # HOST NAME

start() { # HOST PROGRAM ARGUMENT...
  local h=$1 path=$2 name
  shift 2
  name=$(basename "$path")
  [ ! -x "$programs/$path" ] || path=$programs/$path
  stop "$h" "$name"
  # Each shell on the way executes the next program, so the id is that of the server. Without its
  # redirection, standard input would be empty.
  # shellcheck disable=SC2016
  setsid "$script" run "$h" sh -c 'echo $$ >"$1.new" && mv "$1.new" "$1"; shift; exec "$@"' \
    sh "$state/h$h/run/$name.pid" "$path" "$@" <&0 >>"$state/h$h/log/$name.out" 2>&1 &
  for _ in $(seq 100); do [ -z "$(pid_of "$h" "$name")" ] || return 0; sleep 0.05; done
  fail "$name does not start on host $h"
}

stop() { # HOST NAME [SIGNAL]
  local h=$1 name=$2 signal=${3:-TERM} pid
  pid=$(pid_of "$h" "$name")
  [ -n "$pid" ] || return 0
  [ $# -gt 2 ] || case $name in fileserver | dafileserver) signal=QUIT ;; esac
  kill "-$signal" "$pid" 2>/dev/null
  for _ in $(seq 600); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
  [ ! -d "/proc/$pid" ] || kill -KILL "$pid" 2>/dev/null
  rm -f "$state/h$h/run/$name.pid"
}

# Waits for an Rx server.
answers() { # HOST PORT
  for _ in $(seq 200); do
    run 1 rxdebug "$net.$1" "$2" -version 2>/dev/null | grep -q 'AFS version' && return
    sleep 0.1
  done
  fail "no answer from host $1, port $2: see $state/h$1/log"
}

servers() { # HOST
  # dafileserver waits for salvageserver.
  start "$1" salvageserver
  # shellcheck disable=SC2086
  start "$1" dafileserver ${ZAFS_OPTIONS:-}
  start "$1" davolserver
  answers "$1" 7000
  answers "$1" 7005
}

up() { # [COUNT]
  local h count=${1:-2} missing
  missing=$(needs) || fail "missing: $missing"
  mkdir -p "$state"
  host 1
  for h in $(seq 2 "$count"); do host "$h"; done
  start 1 ptserver
  start 1 vlserver
  answers 1 7002
  answers 1 7003
  # A database with one server elects it after a while.
  for _ in $(seq 150); do
    run 1 pts createuser admin -id 1 -localauth >/dev/null 2>&1
    run 1 pts adduser admin system:administrators -localauth >/dev/null 2>&1
    run 1 pts membership admin -localauth 2>/dev/null | grep -q administrators &&
      run 1 vos listvldb -localauth -quiet >/dev/null 2>&1 && break
    sleep 0.5
  done
  for h in $(seq "$count"); do servers "$h"; done
}

down() {
  local pid h
  # Database servers last: file servers tell them goodbye.
  for pid in $(ls "$state"/h*/run/*.pid 2>/dev/null | grep -Ev '/(pt|vl)server.pid') \
    "$state"/h1/run/{pt,vl}server.pid; do
    h=${pid#"$state"/h}
    stop "${h%%/*}" "$(basename "$pid" .pid)"
  done
  for h in $(ip netns list | awk '{print $1}' | grep -E -- "^$prefix-([0-9]+|router)$"); do
    ip netns del "$h"
  done
  [ ! -s "$state/keytab" ] || rm -rf --one-file-system "$state"
}

command=${1:-}
[ $# -eq 0 ] || shift
case $command in
  needs | up | host | servers | start | run | down) "$command" "$@" ;;
  stop) stop "$1" "$2" ;;
  kill) stop "$1" "$2" KILL ;;
  *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
