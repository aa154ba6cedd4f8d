#!/usr/bin/env bash
# Usage: scripts/clients.sh [zfs-auto-snapshot|zfsnap|sanoid|zfs-autobackup|pyznap|zfs_exporter ...]
# Runs foreign programs that call `zpool` and `zfs`, unchanged, with our commands first on PATH.
# Each runs on a new pool with a daemon of its own. Then the script checks what they did: the
# snapshots that they took and destroyed, the metrics that they show.
#
# The programs are installed into target/clients as a user would install them, by name and version:
# packages of Debian (with apt's signatures as checksums; the system does not change), of PyPI and
# of Go's module proxy.
#
# POOLHOUSE names the program; without it, the script builds it. The output of each program stays in
# target/clients/report. A program that can't be installed or run here is reported as missing, and
# the exit status is then 1, as for a failure.
set -uo pipefail
cd "$(dirname "$0")/.."
programs=$PWD/target/clients
report=$programs/report
root=$programs/root
mkdir -p "$report" "$root"
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program || exit 1
  POOLHOUSE=${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse
fi

room=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-clients.XXXXXX")
mkdir -m 700 "$room/run"
mkdir "$room/bin" "$room/mnt"
chmod 755 "$room"
export POOLHOUSE_RUN_DIR=$room/run
for name in zpool zfs; do ln -s "$(realpath "$POOLHOUSE")" "$room/bin/$name"; done
PATH=$room/bin:$PATH
cleanup() {
  zpool export -af >/dev/null 2>&1
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

missing() { # WHAT
  echo "missing: $*"
  return 77
}

wrong() { # WHAT
  echo "wrong: $*"
  return 1
}

# Unpacks packages of Debian under target/clients/root, with a package list and state of its own.
debian() { # PACKAGE...
  command -v apt-get >/dev/null || { missing "$*: no apt-get to get it with"; return; }
  local state=$programs/apt one apt
  apt=(apt-get -q -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State=$state"
    -o "Dir::State::Status=$state/status" -o "Dir::Cache=$state/cache" -o APT::Sandbox::User=root)
  for one in "$@"; do
    [ ! -e "$state/debs/$one" ] || continue
    if [ ! -e "$state/updated" ]; then
      mkdir -p "$state"/{lists/partial,cache/archives/partial,debs}
      local mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
      echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm main contrib" >"$state/sources.list"
      : >"$state/status"
      "${apt[@]}" update >"$report/apt.log" 2>&1 && touch "$state/updated"
    fi
    (cd "$state/debs" && "${apt[@]}" download "$one" >>"$report/apt.log" 2>&1 && dpkg -x "${one}"_*.deb "$root") ||
      { missing "Debian's package $one: $report/apt.log"; return; }
    touch "$state/debs/$one"
  done
}

# Installs programs of PyPI under target/clients/py. No Python installation changes.
pypi() { # PROGRAM PACKAGE==VERSION...
  local program=$1
  shift
  [ ! -x "$programs/py/bin/$program" ] || return 0
  { python3 -m venv "$programs/py" && "$programs/py/bin/pip" install -q "$@"; } >"$report/pip-$program.log" 2>&1 ||
    missing "$*, which could not be installed: $report/pip-$program.log"
}

# Builds a Go program, unless it is on PATH. Go checks the module's sums against its database.
go_program() { # PROGRAM MODULE@VERSION
  [ ! -x "$programs/go/$1" ] || return 0
  if type -P "$1" >/dev/null; then
    mkdir -p "$programs/go" && ln -sf "$(type -P "$1")" "$programs/go/$1"
    return
  fi
  command -v go >/dev/null || { missing "$2: no Go compiler to build it with"; return; }
  GOBIN=$programs/go go install "$2" >"$report/go-$1.log" 2>&1 || missing "$2, which could not be built: $report/go-$1.log"
}

# Runs a program that uses files by absolute paths. A mount namespace puts ours at these paths.
overlaid() { # FOLDER-WITH-FILES SYSTEM-FOLDER COMMAND...
  [ "$(id -u)" = 0 ] || { missing "root, who can show $3 files in $2"; return; }
  unshare -m sh -c 'mount -t overlay overlay -o "lowerdir=$0:$1" "$1" && shift && exec "$@"' "$1" "$(realpath "$2")" "${@:3}"
}

snapshots() { zfs list -H -o name -t snapshot -s name -r clients; }

# Checks the number of snapshots whose names match.
count() { # NUMBER PATTERN WHEN
  local found
  found=$(snapshots | grep -cE -e "$2")
  [ "$found" = "$1" ] || wrong "$found snapshots like $2 $3, not $1"
}

zfs_auto_snapshot() {
  debian zfs-auto-snapshot || return
  local auto=$root/usr/sbin/zfs-auto-snapshot i
  zfs set com.sun:auto-snapshot=false clients/other
  # The program creates snapshots of the pool, one for each dataset, and destroys the oldest.
  for i in 1 2 3; do
    "$auto" --verbose --label=frequent --keep=2 --event="run $i" // || return
    # The names have a resolution of minutes, so give this one another minute.
    zfs rename -r "$(snapshots | grep '^clients@zfs-auto-snap_frequent-' | grep -v -e -2001-)" "@zfs-auto-snap_frequent-2001-01-0$i-0000" || return
  done
  count 2 '^clients/data@zfs-auto-snap_frequent' 'after three runs that keep two' || return
  count 0 '^clients/other@' 'of what is left out' || return
  snapshots | grep -q '^clients/data/deep@zfs-auto-snap_frequent-2001-01-03-0000$' || wrong 'the newest is not there'
  [ "$(zfs get -H -o value com.sun:auto-snapshot-desc clients/data@zfs-auto-snap_frequent-2001-01-03-0000)" = 'run 3' ] || wrong 'its event is not told'
}

zfsnap() {
  debian zfsnap || return
  # The program calls /sbin/zfs.
  inside() { overlaid "$room/bin" /sbin "$root/usr/sbin/zfSnap" "$@"; }
  inside -v -a 1s -r clients/data || return
  inside -v -a 1w clients/other || return
  count 2 '^clients/data(/deep)?@.*--1s$' 'after snapshots that live a second' || return
  sleep 2
  inside -v -d || return
  count 0 '--1s$' 'after their second' || return
  count 1 '^clients/other@.*--1w$' 'of those that live a week' || return
}

sanoid() {
  debian sanoid libconfig-inifiles-perl libcapture-tiny-perl || return
  command -v perl >/dev/null || { missing perl; return; }
  command -v ps >/dev/null || { missing "ps, which sanoid asks who sends"; return; }
  local home=$room/sanoid
  mkdir -p "$home"/{cache,run}
  cp "$root/usr/share/sanoid/sanoid.defaults.conf" "$home/"
  policy() { # HOURLY
    printf '[clients/data]\nrecursive = yes\nuse_template = all\n[template_all]\nfrequently = 0\nhourly = %s\ndaily = 1\nmonthly = 0\nautosnap = yes\nautoprune = yes\n' "$1" >"$home/sanoid.conf"
  }
  # Debian's version reads its defaults in /usr/share.
  run() { PERL5LIB=$root/usr/share/perl5 overlaid "$root/usr/share" /usr/share perl "$root/usr/sbin/sanoid" --configdir="$home" --cache-dir="$home/cache" --run-dir="$home/run" "$@"; }
  policy 1
  run --verbose --take-snapshots || return
  count 2 '^clients/data(/deep)?@autosnap_.*_hourly$' 'after taking' || return
  count 2 '^clients/data(/deep)?@autosnap_.*_daily$' 'after taking' || return
  run --verbose --take-snapshots || return
  count 4 '@autosnap_' 'after taking again within the hour' || return
  policy 0
  sleep 2
  run --verbose --force-update --prune-snapshots || return
  count 0 '_hourly$' 'that are no longer wanted' || return
  count 2 '_daily$' 'after pruning' || return
  run --monitor-health | tee "$room/health" && grep -q '^OK ZPOOL clients : ONLINE' "$room/health" || { wrong 'the pool is not told to be well'; return; }
  run --monitor-capacity | tee "$room/capacity" && grep -q '^OK' "$room/capacity" || wrong 'its capacity is not told to be well'
}

zfs_autobackup() {
  pypi zfs-autobackup zfs-autobackup==3.3 || return
  local i
  zfs set autobackup:nightly=true clients/data
  zfs set autobackup:nightly=false clients/data/deep
  for i in 1 2 3; do
    "$programs/py/bin/zfs-autobackup" --verbose --allow-empty --keep-source 2 nightly || return
    [ "$i" = 3 ] || sleep 1
  done
  count 2 '^clients/data@nightly-' 'after three runs that keep two' || return
  count 0 '^clients/data/deep@' 'of what is left out' || return
}

pyznap() {
  pypi pyznap pyznap==1.6.0 'setuptools<80' || return
  printf '[clients/data]\nhourly = 2\nsnap = yes\nclean = yes\n' >"$room/pyznap.conf"
  "$programs/py/bin/pyznap" --config "$room/pyznap.conf" snap --take || return
  count 1 '^clients/data@pyznap_.*_hourly$' 'after taking' || return
  printf '[clients/data]\nhourly = 0\nsnap = no\nclean = yes\n' >"$room/pyznap.conf"
  "$programs/py/bin/pyznap" --config "$room/pyznap.conf" snap --clean || return
  count 0 '@pyznap_' 'after cleaning' || return
}

zfs_exporter() {
  go_program zfs_exporter github.com/pdf/zfs_exporter/v2@v2.3.11 || return
  command -v curl >/dev/null || { missing curl; return; }
  local port=$((20000 + RANDOM % 20000)) pid ok=1 i
  zfs snapshot clients/data@one
  "$programs/go/zfs_exporter" --web.listen-address="127.0.0.1:$port" --collector.dataset-snapshot >"$report/zfs_exporter.served" 2>&1 &
  pid=$!
  for i in $(seq 100); do
    curl -sf "http://127.0.0.1:$port/metrics" >"$room/metrics" && ok=0 && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
  done
  kill $pid 2>/dev/null
  wait $pid
  [ $ok = 0 ] || { wrong "it never answered: $report/zfs_exporter.served"; return; }
  grep '^zfs_' "$room/metrics" >"$report/zfs_exporter.metrics"
  metric() { # NAME{LABELS} VALUE: large numbers have an exponent
    awk -v name="$1" -v value="$2" '$1 == name && $2 + 0 == value + 0 { found = 1 } END { exit !found }' "$report/zfs_exporter.metrics" ||
      wrong "no metric $1 of $2"
  }
  metric 'zfs_pool_health{pool="clients"}' 0 || return
  metric 'zfs_pool_size_bytes{pool="clients"}' "$(zpool get -Hp -o value size clients)" || return
  metric 'zfs_dataset_referenced_bytes{name="clients/data",pool="clients",type="filesystem"}' "$(zfs get -Hp -o value referenced clients/data)" || return
  metric 'zfs_dataset_volume_size_bytes{name="clients/volume",pool="clients",type="volume"}' 8388608 || return
  for i in pool dataset-filesystem dataset-snapshot dataset-volume; do metric "zfs_scrape_collector_success{collector=\"$i\"}" 1 || return; done
}

all=(zfs-auto-snapshot zfsnap sanoid zfs-autobackup pyznap zfs_exporter)
[ $# -gt 0 ] || set -- "${all[@]}"
bad=0
for client in "$@"; do
  if [[ " ${all[*]} " != *" $client "* ]]; then
    echo "there is no client $client; there are: ${all[*]}" >&2
    exit 2
  fi
  truncate -s 200M "$room/disk"
  { zpool create -O atime=off -m "$room/mnt" clients "$room/disk" && zfs create clients/data && zfs create clients/data/deep &&
    zfs create clients/other && zfs create -V 8M clients/volume && echo content >"$room/mnt/data/file"; } || exit 1
  (${client//-/_}) >"$report/$client.log" 2>&1
  code=$?
  case $code in
    0) echo "$client: ok" ;;
    77) bad=1 && echo "$client: $(tail -1 "$report/$client.log")" ;;
    *) bad=1 && echo "$client: FAILED: $(tail -1 "$report/$client.log") ($report/$client.log)" ;;
  esac
  zpool destroy clients || exit 1
  rm "$room/disk"
done
exit $bad
