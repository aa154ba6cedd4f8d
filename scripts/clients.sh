#!/usr/bin/env bash
# Usage: scripts/clients.sh [zfs-auto-snapshot|zfsnap|sanoid|syncoid|zfs-autobackup|pyznap|bzfs|
#                            bzfs-tests|simplesnap|zfs_exporter|zrepl|go-zfs ...]
# Runs foreign programs that call `zpool` and `zfs`, unchanged, with our commands first on PATH.
# Each runs on two new pools, `clients` and `target`, of one daemon. Then the script checks what they
# did: the snapshots that they took, sent and destroyed, the metrics that they show.
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

# Whether a program of Go is there: built before, or on PATH.
installed() { # PROGRAM
  [ ! -x "$programs/go/$1" ] || return 0
  type -P "$1" >/dev/null && mkdir -p "$programs/go" && ln -sf "$(type -P "$1")" "$programs/go/$1"
}

# Builds a Go program, unless it is on PATH. Go checks the module's sums against its database.
go_program() { # PROGRAM MODULE@VERSION
  installed "$1" && return
  command -v go >/dev/null || { missing "$2: no Go compiler to build it with"; return; }
  GOBIN=$programs/go go install "$2" >"$report/go-$1.log" 2>&1 || missing "$2, which could not be built: $report/go-$1.log"
}

# Builds the tests of a Go library as a program.
go_tests() { # PROGRAM MODULE VERSION
  installed "$1" && return
  command -v go >/dev/null || { missing "$2: no Go compiler to build it with"; return; }
  mkdir -p "$programs/go-src/$1"
  (cd "$programs/go-src/$1" && rm -f go.mod go.sum && go mod init clients && go get -t "$2@$3" &&
    go test -mod=mod -c -o "$programs/go/$1" "$2") >"$report/go-$1.log" 2>&1 || missing "$2@$3, which could not be built: $report/go-$1.log"
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

# Checks that a dataset has the newest snapshot of another one, and the same files.
same() { # SOURCE COPY
  local newest
  newest=$(zfs list -H -o guid -t snapshot -s createtxg -d 1 "$1" | tail -1)
  zfs list -H -o guid -t snapshot -d 1 "$2" | grep -qx "$newest" || { wrong "$2 lacks the newest snapshot of $1"; return; }
  [ "$(zfs get -H -o value mounted "$2")" = yes ] || zfs mount "$2" || return
  files() { (cd "$(zfs get -H -o value mountpoint "$1")" && find . -xdev -type f -exec sha256sum {} + | sort); }
  diff <(files "$1") <(files "$2") || wrong "$2 has not the files of $1"
}

# Files that take a while to send.
fill() { # DATASET MIB
  dd if=/dev/urandom "of=$(zfs get -H -o value mountpoint "$1")/noise.$RANDOM" bs=1M "count=$2" status=none
}

# Creates an encrypted dataset.
locked() { # DATASET
  echo 'correct horse' >"$room/key"
  zfs create -o encryption=on -o keyformat=passphrase -o pbkdf2iters=100000 -o keylocation="file://$room/key" "$1"
}

# Breaks a stream off, so that the next receive resumes it.
break_off() { # SNAPSHOT COPY
  zfs send "$1" | head -c 3000000 | zfs receive -s "$2" && { wrong 'half a stream was received'; return; }
  [ "$(zfs get -H -o value receive_resume_token "$2")" != - ] || wrong 'there is no token to resume with'
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

syncoid() {
  debian sanoid libconfig-inifiles-perl libcapture-tiny-perl || return
  command -v perl >/dev/null || { missing perl; return; }
  command -v ps >/dev/null || { missing "ps, which syncoid asks who sends"; return; }
  run() {
    # Its snapshots are named by the second.
    sleep 1
    PERL5LIB=$root/usr/share/perl5 perl "$root/usr/sbin/syncoid" --no-privilege-elevation "$@"
  }
  # A tree, whole and then incremental. Its own snapshots are pruned on both sides.
  fill clients/data 2 && fill clients/data/deep 1
  run --recursive clients/data target/data || return
  same clients/data target/data && same clients/data/deep target/data/deep || return
  fill clients/data 1
  run --recursive clients/data target/data || return
  same clients/data target/data && same clients/data/deep target/data/deep || return
  count 1 '^clients/data@syncoid_' 'of its own' || return
  # From a bookmark, when the snapshot is gone.
  zfs snapshot clients/other@one && run --no-sync-snap --create-bookmark clients/other target/other || return
  zfs list -t bookmark clients/other#one >/dev/null || { wrong 'there is no bookmark'; return; }
  zfs destroy clients/other@one && fill clients/other 1 && zfs snapshot clients/other@two || return
  run --no-sync-snap --create-bookmark clients/other target/other && same clients/other target/other || return
  # A broken stream is resumed.
  zfs create clients/big && fill clients/big 8 && zfs snapshot clients/big@one || return
  break_off clients/big@one target/big && run --no-sync-snap clients/big target/big | tee "$room/told" || return
  grep -qi resum "$room/told" || { wrong 'it did not resume'; return; }
  same clients/big target/big || return
  # Raw.
  locked clients/locked && fill clients/locked 1 || return
  run --sendoptions=w clients/locked target/locked && fill clients/locked 1 && run --sendoptions=w clients/locked target/locked || return
  [ "$(zfs get -H -o value keystatus target/locked)" = unavailable ] || { wrong 'its key came along'; return; }
  zfs load-key -L "file://$room/key" target/locked && same clients/locked target/locked || return
  # A dataset that has changed is rolled back, with a volume beside it.
  fill target/other 1 && zfs snapshot clients/other@three || return
  run --no-sync-snap clients/other target/other && same clients/other target/other || return
  run clients/volume target/volume && run clients/volume target/volume
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
  # With sends: whole, incremental, thinned out on both sides, and raw.
  local backup=("$programs/py/bin/zfs-autobackup" --verbose --allow-empty)
  locked clients/locked && zfs set autobackup:offsite=true clients/data && zfs set autobackup:offsite=true clients/locked || return
  zfs create target/backup
  for i in 1 2 3; do
    fill clients/data 1 && fill clients/data/deep 1 && fill clients/locked 1
    "${backup[@]}" --keep-source 2 --keep-target 2 --clear-mountpoint offsite target/backup || return
    [ "$i" = 3 ] || sleep 1
  done
  [ "$(zfs list -H -o name -t snapshot -r target/backup/clients/data | grep -c '/data@offsite-')" = 2 ] || { wrong 'there are not two snapshots of three'; return; }
  zfs load-key -L "file://$room/key" target/backup/clients/locked || return
  for i in data data/deep locked; do
    zfs set "mountpoint=$room/copy/$i" "target/backup/clients/$i" && same "clients/$i" "target/backup/clients/$i" || return
  done
  # A tree at once, with all properties set anew.
  "${backup[@]}" --rollback --set-properties canmount=noauto --filter-properties atime offsite target/backup || return
  "${backup[@]}" --rollback --destroy-incompatible offsite target/backup
}

pyznap() {
  pypi pyznap pyznap==1.6.0 'setuptools<80' || return
  printf '[clients/data]\nhourly = 2\nsnap = yes\nclean = yes\n' >"$room/pyznap.conf"
  "$programs/py/bin/pyznap" --config "$room/pyznap.conf" snap --take || return
  count 1 '^clients/data@pyznap_.*_hourly$' 'after taking' || return
  printf '[clients/data]\nhourly = 0\nsnap = no\nclean = yes\n' >"$room/pyznap.conf"
  "$programs/py/bin/pyznap" --config "$room/pyznap.conf" snap --clean || return
  count 0 '@pyznap_' 'after cleaning' || return
  # With sends: whole, incremental, and resumed.
  printf '[clients/data]\nhourly = 2\nsnap = yes\nclean = yes\ndest = target/data\ndest_auto_create = yes\nresume = yes\n' >"$room/pyznap.conf"
  local i one
  for i in 1 2; do
    fill clients/data 2 && fill clients/data/deep 1
    "$programs/py/bin/pyznap" --config "$room/pyznap.conf" snap --take || return
    "$programs/py/bin/pyznap" --config "$room/pyznap.conf" send || return
    same clients/data target/data && same clients/data/deep target/data/deep || return
    # Its snapshots are an hour apart.
    [ "$i" = 1 ] || break
    for one in $(zfs list -H -o name -t snapshot -r clients target | grep 'data@pyznap_'); do
      zfs rename -r "$one" @pyznap_2001-01-01_00:00:00_hourly || return
    done
  done
}

bzfs() {
  pypi bzfs bzfs==1.12.0 || return
  local run=("$programs/py/bin/bzfs" --no-privilege-elevation --log-dir "$room/bzfs-logs") i
  for i in 1 2 3; do
    fill clients/data 2 && fill clients/data/deep 1
    zfs snapshot -r "clients/data@s$i" || return
    "${run[@]}" clients/data target/data --recursive || return
    same clients/data target/data && same clients/data/deep target/data/deep || return
  done
  # It bookmarks what it has sent.
  zfs destroy -r clients/data@s1 && zfs destroy clients/data#s1 || return
  "${run[@]}" clients/data target/data --recursive --delete-dst-snapshots --skip-replication || return
  [ "$(zfs list -H -t snapshot -o name -r target/data | tr '\n' ' ')" = 'target/data@s2 target/data@s3 target/data/deep@s1 target/data/deep@s2 target/data/deep@s3 ' ] || wrong 'what the source lacks was not destroyed'
}

# Its own integration tests, each on two new pools: those that it runs on one machine, with ssh to it.
bzfs_tests() {
  [ "$(id -u)" = 0 ] || { missing 'root, for the namespaces of the tests'; return; }
  local tool source=$programs/bzfs-1.25.0
  for tool in ssh ssh-keygen pv mbuffer zstd; do command -v "$tool" >/dev/null || { missing "$tool"; return; }; done
  [ -x /usr/sbin/sshd ] || { missing /usr/sbin/sshd; return; }
  if [ ! -d "$source" ]; then
    { python3 -m pip download -q --no-deps --no-binary bzfs -d "$programs/sdist" bzfs==1.25.0 && tar -xzf "$programs/sdist/bzfs-1.25.0.tar.gz" -C "$programs"; } \
      >"$report/pip-bzfs-tests.log" 2>&1 || { missing "the source of bzfs 1.25.0: $report/pip-bzfs-tests.log"; return; }
  fi
  unshare -m -n -p -f --kill-child --mount-proc --propagation private bash -c "$(declare -f bzfs_tests_inside); bzfs_tests_inside '$room/ssh' '$source'" \
    >"$report/bzfs.tests" 2>&1 || { wrong "a test failed: $report/bzfs.tests"; return; }
  [ "$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$report/bzfs.tests")" -ge 239 ] || wrong "some tests are missing: $report/bzfs.tests"
}

# In namespaces of their own the tests have port 22, and write to a home that is gone afterwards. They
# have a daemon there, whose mounts they see. All their processes end with them.
bzfs_tests_inside() { # FOLDER SOURCE
  local keys=$1/keys bin=$1/bin home
  # They call sudo, also as root. The real one would not keep the environment.
  mkdir -p "$bin" && printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n' >"$bin/sudo" && chmod +x "$bin/sudo" || return
  local PATH=$bin:$PATH POOLHOUSE_RUN_DIR=$1/run
  mkdir -m 700 "$POOLHOUSE_RUN_DIR" || return
  home=$(getent passwd 0 | cut -d: -f6)
  mkdir -p "$1"/{home,work,keys} && mount -t overlay overlay -o "lowerdir=$home,upperdir=$1/home,workdir=$1/work" "$home" || return
  mount -t tmpfs none /run && mkdir -m 755 /run/sshd && ip link set lo up && rm -rf "$home/.ssh" && mkdir -m 700 "$home/.ssh" || return
  ssh-keygen -q -t rsa -N '' -f "$home/.ssh/id_rsa" && ssh-keygen -q -t ed25519 -N '' -f "$keys/host" || return
  cp "$home/.ssh/id_rsa.pub" "$home/.ssh/authorized_keys"
  /usr/sbin/sshd -f /dev/null -h "$keys/host" -o PidFile=none -o UsePAM=no -o StrictModes=no \
    -o SetEnv="PATH=$PATH POOLHOUSE_RUN_DIR=$POOLHOUSE_RUN_DIR" || return
  local code=0
  cd "$2" && bzfs_test_mode=functional python3 -c '
import logging, sys, unittest
# Other tests, which run before these, would have named it.
logging.addLevelName(5, "TRACE")
from bzfs_tests.itest import test_integrations
result = unittest.TextTestRunner(verbosity=2, stream=sys.stdout).run(test_integrations.suite())
sys.exit(not result.wasSuccessful())' || code=1
  zpool export -af
  return $code
}

simplesnap() {
  debian simplesnap liblockfile-bin liblockfile1 logapp || return
  local tools=$root/usr/sbin:$root/usr/bin i
  zfs create target/store && zfs set org.complete.simplesnap:exclude=on target
  for i in 1 2; do
    fill clients/data 1
    # It calls /sbin/zfs.
    PATH=$tools:$PATH overlaid "$room/bin" /sbin "$root/usr/sbin/simplesnap" --host here --setname one --store target/store --local --wrapcmd "$root/usr/sbin/simplesnapwrap" || return
    sleep 1
  done
  same clients/data target/store/here/clients/data
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

# Its platform tests, each on a new pool. They take snapshots, bookmarks and holds, and replicate with
# faults on both sides.
zrepl() {
  go_program harness github.com/zrepl/zrepl/internal/platformtest/harness@v0.7.0 || return
  "$programs/go/harness" -poolname zreplplatformtest -imagepath "$room/zrepl.img" -mountpoint "$room/mnt-zrepl" \
    >"$report/zrepl.tests" 2>&1 || { wrong "a test failed: $report/zrepl.tests"; return; }
  # A line of the summary for each test.
  sed -n '/PASSING TESTS/,$p' "$report/zrepl.tests" >"$report/zrepl.summary"
  [ "$(grep -c '^  ' "$report/zrepl.summary")" -ge 55 ] || wrong "some tests are missing: $report/zrepl.summary"
}

# Its own tests, each on a new pool.
go_zfs() {
  go_tests go-zfs.test github.com/mistifyio/go-zfs/v4 v4.0.0 || return
  (cd "$room" && "$programs/go/go-zfs.test" -test.v) >"$report/go-zfs.tests" 2>&1 || { wrong "a test failed: $report/go-zfs.tests"; return; }
  [ "$(grep -c '^--- PASS' "$report/go-zfs.tests")" -ge 16 ] || wrong "some tests are missing: $report/go-zfs.tests"
}

all=(zfs-auto-snapshot zfsnap sanoid syncoid zfs-autobackup pyznap bzfs bzfs-tests simplesnap zfs_exporter zrepl go-zfs)
[ $# -gt 0 ] || set -- "${all[@]}"
bad=0
for client in "$@"; do
  if [[ " ${all[*]} " != *" $client "* ]]; then
    echo "there is no client $client; there are: ${all[*]}" >&2
    exit 2
  fi
  truncate -s 400M "$room/disk" "$room/target"
  { zpool create -O atime=off -m "$room/mnt-target" target "$room/target" && zpool create -O atime=off -m "$room/mnt" clients "$room/disk" && zfs create clients/data && zfs create clients/data/deep &&
    zfs create clients/other && zfs create -V 8M clients/volume && echo content >"$room/mnt/data/file"; } || exit 1
  (${client//-/_}) >"$report/$client.log" 2>&1
  code=$?
  case $code in
    0) echo "$client: ok" ;;
    77) bad=1 && echo "$client: $(tail -1 "$report/$client.log")" ;;
    *) bad=1 && echo "$client: FAILED: $(tail -1 "$report/$client.log") ($report/$client.log)" ;;
  esac
  zpool destroy target && zpool destroy clients || exit 1
  rm "$room/disk" "$room/target"
done
exit $bad
