#!/usr/bin/env bash
# Usage: scripts/zts.sh [-l] [-t SECONDS] [-s SIZE] [-g GIB] [-o FOLDER] [GROUP|GROUP/TEST ...]
# Runs groups of OpenZFS's own test suite (Debian's package zfs-test, its tests unchanged) against our commands, and counts by group what passed.
# A group is named as its folder, with wildcards: cli_root/zpool_create, 'cli_root/*' (without any: cli_root/* and cli_user/*).
#
#   -l          lists what would run, and ends
#   -t SECONDS  what a test may take (120)
#   -s SIZE     the size of each of three loop devices over sparse files (4G, as OpenZFS has it)
#   -g GIB      the size of the sparse image that takes everything that is written (24)
#   -o FOLDER   results and logs (target/zts/report): results.tsv, and a log for each test
#
# The suite destroys every pool that it sees, removes what is below mountpoints, and makes users. So it runs in a root that is thrown away (scripts/zts-inside.sh):
# namespaces of its own for mounts and processes, an overlay over /, a /dev with loop devices and no disk, and the daemon there as well.
# Needs root, loop devices, FUSE and overlayfs. ZTS_TOOLS names a folder in which zfs-test and what it calls are unpacked, if they are not to be fetched;
# POOLHOUSE names the program if it is not to be built.
#
# The last lines are stable, and separated by tabs:
#   GROUP <name> total= pass= fail= skip= killed= setup=ok|FAIL|none
#   TOTAL total= pass= fail= skip= killed= groups= setup_failed=
# Tests of a group whose setup failed count as failed. The exit status is 0 if the suite ran, whatever it said.
set -uo pipefail
cd "$(dirname "$0")/.."
list='' limit=120 size=4G room=24 report=target/zts/report
usage() {
  sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" >&2
  exit 2
}
while getopts lt:s:g:o: option; do
  case $option in
    l) list=1 ;;
    t) limit=$OPTARG ;;
    s) size=$OPTARG ;;
    g) room=$OPTARG ;;
    o) report=$OPTARG ;;
    *) usage ;;
  esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- 'cli_root/*' 'cli_user/*'

tools=${ZTS_TOOLS:-$(scripts/oracle-tools.sh ksh93u+m pax attr parted libparted2 lsscsi rsync xxhash zfs-zed/bookworm-backports)} || exit 1
suite=$tools/usr/share/zfs
[ -d "$suite/zfs-tests" ] || { echo "no OpenZFS test suite in $suite" >&2; exit 1; }
mkdir -p "$report"
report=$(realpath "$report")

# Each line: a group, a test, and whether the group's tests run as an ordinary user. The run files are INI files with lists of Python.
python3 - "$suite/runfiles" "$@" >"$report/chosen" <<'PY' || exit 2
import ast, configparser, fnmatch, sys
folder, wanted = sys.argv[1], sys.argv[2:]
groups = {}
for name in ("common", "linux"):
    run = configparser.RawConfigParser()
    run.read(f"{folder}/{name}.run")
    for section in run.sections():
        group = groups.setdefault(section.split(":")[0].removeprefix("tests/functional/"), {"tests": []})
        # No user means whoever started the suite, who must not be root.
        group["user"] = "other" if run.get(section, "user", fallback="root") == "" else "root"
        group["tests"] += [t for t in ast.literal_eval(run.get(section, "tests")) if t not in group["tests"]]
chosen = []
for want in wanted:
    found = [(g, t) for g in groups if fnmatch.fnmatchcase(g, want) for t in groups[g]["tests"]]
    if not found:
        place, _, test = want.rpartition("/")
        found = [(place, t) for t in groups.get(place, {"tests": []})["tests"] if fnmatch.fnmatchcase(t, test)]
    if not found:
        sys.exit(f"no group or test {want}")
    chosen += [one for one in found if one not in chosen]
for group, test in chosen:
    print(group, test, groups[group]["user"])
PY
if [ -n "$list" ]; then
  cut -d ' ' -f 1,2 "$report/chosen"
  exit 0
fi
[ "$(id -u)" = 0 ] || { echo 'only root can make the root that is thrown away' >&2; exit 1; }
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program || exit 1
  POOLHOUSE=${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse
fi
POOLHOUSE=$(realpath "$POOLHOUSE")
export POOLHOUSE ZTS_SUITE=$suite ZTS_TOOLS=$tools ZTS_REPORT=$report ZTS_LIMIT=$limit ZTS_SIZE=$size

# Loop devices are seen by all: a second run would find this one's pools.
exec 9>/run/lock/poolhouse-zts.lock
flock -n 9 || { echo 'another run goes on' >&2; exit 1; }
rm -rf "$report"/{logs,results.tsv,daemon.log}
room_at=$(mktemp -d /var/tmp/poolhouse-zts.XXXXXX)
cleanup() {
  # The daemon went with its namespace; loop devices are everybody's, and ours lead into the image.
  local image device
  image=$(losetup -nO NAME -j "$room_at/image" | head -1)
  if [ -n "$image" ]; then
    for device in $(losetup -nO NAME,BACK-MAJ:MIN | awk -v of="$(cat "/sys/class/block/${image##*/}/dev")" '$2 == of { print $1 }'); do losetup -d "$device"; done
    losetup -d "$image"
  fi
  rm -rf --one-file-system "$room_at"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
truncate -s "${room}G" "$room_at/image" && mkfs.ext4 -q -E nodiscard,lazy_itable_init=1 -O ^has_journal "$room_at/image" || exit 1
unshare --mount --pid --fork --kill-child bash scripts/zts-inside.sh "$room_at" 9>&- || { echo "the suite did not run: see $report" >&2; exit 1; }

# What each group came to.
awk -v OFS='\t' '
  { name = $1; count[name, $3]++; total[name]++; all[$3]++; n++ }
  $2 == "setup" { setup[name] = $3 == "PASS" ? "ok" : "FAIL"; count[name, $3]--; total[name]--; all[$3]--; n-- }
  !(name in seen) { seen[name] = 1; order[++groups] = name }
  END {
    for (i = 1; i <= groups; i++) {
      name = order[i]
      if (setup[name] == "FAIL") bad++
      print "GROUP", name, "total=" total[name] + 0, "pass=" count[name, "PASS"] + 0, "fail=" count[name, "FAIL"] + 0, "skip=" count[name, "SKIP"] + 0,
        "killed=" count[name, "KILLED"] + 0, "setup=" (name in setup ? setup[name] : "none")
    }
    print "TOTAL", "total=" n + 0, "pass=" all["PASS"] + 0, "fail=" all["FAIL"] + 0, "skip=" all["SKIP"] + 0, "killed=" all["KILLED"] + 0,
      "groups=" groups + 0, "setup_failed=" bad + 0
  }' "$report/results.tsv"
