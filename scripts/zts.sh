#!/usr/bin/env bash
# Usage: scripts/zts.sh [-l] [-t SECONDS] [-s SIZE] [-g GIB] [-o FOLDER] [GROUP|GROUP/TEST ...]
# Runs groups of OpenZFS's own test suite (Debian's package zfs-test, with unchanged tests) against
# our commands, and counts the results by group. The name of a group is its directory, with
# wildcards: cli_root/zpool_create, 'cli_root/*' (default: cli_root/* and cli_user/*).
#
#   -l          only lists the tests that would run
#   -t SECONDS  time limit of a test (120)
#   -s SIZE     size of each of three loop devices on sparse files (4G, as in OpenZFS)
#   -g GIB      size of the sparse image for everything that is written (24)
#   -o FOLDER   directory for results.tsv and a log for each test (target/zts/report)
#
# The suite destroys every pool that it sees, removes files below mountpoints, and creates users. So
# it runs in a disposable root (scripts/zts-inside.sh), with the daemon: its own mount and process
# namespaces, an overlay over /, and a /dev with loop devices and no disk.
#
# Needs root, loop devices, FUSE and overlayfs. ZTS_TOOLS names a directory with zfs-test and the
# programs that it calls; without it, the script downloads them. POOLHOUSE names the program;
# without it, the script builds it.
#
# The last lines have a stable format, separated by tabs:
#   GROUP <name> total= pass= fail= skip= killed= setup=ok|FAIL|none
#   TOTAL total= pass= fail= skip= killed= groups= setup_failed=
# If the setup of a group fails, its tests count as failed. The exit status is 0 if the suite ran,
# whatever its results.
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

# Each line has a group, a test, and whether the group's tests run as an ordinary user. The run
# files are INI files with Python lists.
python3 - "$suite/runfiles" "$@" >"$report/chosen" <<'PY' || exit 2
import ast, configparser, fnmatch, sys
folder, wanted = sys.argv[1], sys.argv[2:]
groups = {}
for name in ("common", "linux"):
    run = configparser.RawConfigParser()
    run.read(f"{folder}/{name}.run")
    for section in run.sections():
        group = groups.setdefault(section.split(":")[0].removeprefix("tests/functional/"), {"tests": []})
        # An empty user means the user that started the suite, who must not be root.
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

# Loop devices are global: a second run would find the pools of this one.
exec 9>/run/lock/poolhouse-zts.lock
flock -n 9 || { echo 'another run goes on' >&2; exit 1; }
rm -rf "$report"/{logs,results.tsv,daemon.log}
room_at=$(mktemp -d "${TMPDIR:-/var/tmp}/poolhouse-zts.XXXXXX")
cleanup() {
  # The daemon ended with its namespace. Loop devices are global, so detach those on the image.
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

# Prints the counts of each group.
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
