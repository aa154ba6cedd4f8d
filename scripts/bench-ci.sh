#!/usr/bin/env bash
# Usage: scripts/bench-ci.sh [poolhouse|ext4|folder ...]
# A CI job as a benchmark. It unpacks a source tree, builds it, makes four copies, changes a file in
# each, builds and checks the copies in parallel, and destroys everything.
#
# On Poolhouse, a user without root runs it. The copies are clones, nested in the mount of their
# parent. On ext4 (a loop device, as root) and in a plain directory, `cp -a` makes the copies.
#
# The places take turns. The script prints a table with the seconds of each phase, as medians of all
# rounds. target/bench-ci.json gets a line of JSON for each round.
#   POOLHOUSE                the program; without it, the script builds it
#   ROUNDS (3)               number of rounds
#   CI_FILES, CI_FUNCTIONS   size of the program (40 files of 40 functions)
#   CI_ROOM (/var/tmp)       directory for everything
# Needs root, cc, make, git, fusermount3.
set -euo pipefail
cd "$(dirname "$0")/.."
phases=(unpack build copy test destroy)
now() { echo "${EPOCHREALTIME/./}"; }

# PLACE FOLDER SOURCE: runs one job in a directory of the measured file system. Prints the
# microseconds of each phase.
if [ "${1:-}" = job ]; then
  place=$2 at=$3 source=$4
  umask 022
  cd "$at"
  begun=$(now)
  took=()
  phase() { local end; end=$(now); took+=($((end - begun))); begun=$end; }
  make=(make -s -j2)
  mkdir -p job && tar -xf "$source" -C job
  phase
  "${make[@]}" -C job/program check
  phase
  case $place in
    poolhouse)
      zfs snapshot ci/job@built
      for i in 1 2 3 4; do zfs clone ci/job@built ci/copy$i; done
      ;;
    *) for i in 1 2 3 4; do cp -a job copy$i; done ;;
  esac
  phase
  pids=()
  for i in 1 2 3 4; do
    (echo "int changed$i;" >>copy$i/program/part$i.c && "${make[@]}" -C copy$i/program check) &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  phase
  # A change in one copy must not appear in the others.
  for i in 1 2 3 4; do
    [ "$(grep -l '^int changed' copy$i/program/part*.c)" = "copy$i/program/part$i.c" ] && ! grep -q '^int changed' job/program/part$i.c ||
      { echo "copy $i is not what it should be" >&2; exit 1; }
  done
  begun=$(now)
  case $place in
    poolhouse) zfs destroy -R ci/job@built && zfs destroy ci/job ;;
    *) rm -rf job copy[1-4] ;;
  esac
  phase
  echo "${took[*]}"
  exit
fi

if [ "${1:-}" = inside ]; then # ROOM: runs as an ordinary user
  room=$2
  # The user's daemon ends when no pool is left. So this ends it in every case.
  trap 'zpool destroy -f ci >/dev/null 2>&1 || :' EXIT
  zpool create -m "$room/own/mnt" ci "$room/own/image" && zfs create ci/job
  [ "$(grep -c ' fuse.poolhouse ' /proc/self/mounts)" = 1 ] || { echo 'not nested' >&2; exit 1; }
  "$room/bin/bench-ci.sh" job poolhouse "$room/own/mnt" "$room/source.tar"
  exit
fi

[ "$(id -u)" = 0 ] || { echo 'missing: root' >&2; exit 77; }
for need in cc make git setpriv unshare fusermount3 mkfs.ext4 losetup; do
  command -v $need >/dev/null || { echo "missing: $need" >&2; exit 77; }
done
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program
  POOLHOUSE=${CARGO_TARGET_DIR:-target}/release/poolhouse
fi
room=$(mktemp -d "${CI_ROOM:-/var/tmp}/poolhouse-ci.XXXXXX")
cleanup() {
  mountpoint -q "$room/ext4" && umount "$room/ext4"
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
chmod 755 "$room"
mkdir "$room/bin" "$room/tree" "$room/nodes" "$room/ext4"
for name in poolhouse zpool zfs; do cp "$POOLHOUSE" "$room/bin/$name" && chmod 755 "$room/bin/$name"; done
cp scripts/bench-ci.sh "$room/bin/"
export PATH=$room/bin:$PATH
# The sources of this repository, and a program that takes a while to build.
git archive HEAD crates docs scripts | tar -x -C "$room/tree"
scripts/c-project.sh "$room/tree/program" "${CI_FILES:-40}" "${CI_FUNCTIONS:-40}"
tar -C "$room/tree" -cf "$room/source.tar" --owner=0 --group=0 .
echo "$(find "$room/tree" -type f | wc -l) files, $(($(stat -c %s "$room/source.tar") >> 20)) MiB" >&2
rm -rf "$room/tree"

measure() { # PLACE
  sync
  case $1 in
    poolhouse)
      mkdir "$room/own" && truncate -s 8G "$room/own/image" && chown -R 65534:65534 "$room/own"
      # shellcheck disable=SC2016 # for the inner shell
      unshare --mount bash -c 'mount --make-rprivate / && mount -t tmpfs -o mode=755 none "$1/nodes" && mknod -m 666 "$1/nodes/fuse" c 10 229 &&
        mount --bind "$1/nodes/fuse" /dev/fuse &&
        { cut -d" " -f2,3 /proc/self/mounts | grep " fuse.poolhouse$" | cut -d" " -f1 | xargs -r -n1 umount -l; true; } &&
        exec setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_RUNTIME_DIR -u TMPDIR HOME="$1/own" POOLHOUSE_RUN_DIR="$1/own/run" \
          "$1/bin/bench-ci.sh" inside "$1"' bash "$room"
      rm -rf --one-file-system "$room/own"
      ;;
    ext4)
      truncate -s 8G "$room/image" && mkfs.ext4 -q "$room/image" && mount -o loop "$room/image" "$room/ext4"
      "$room/bin/bench-ci.sh" job ext4 "$room/ext4" "$room/source.tar"
      umount "$room/ext4" && rm "$room/image"
      ;;
    folder)
      mkdir "$room/folder" && "$room/bin/bench-ci.sh" job folder "$room/folder" "$room/source.tar"
      rm -rf "$room/folder"
      ;;
    *) echo "there is no place $1" >&2; return 2 ;;
  esac
}

places=("$@")
[ ${#places[@]} -gt 0 ] || places=(poolhouse ext4 folder)
mkdir -p target
json=target/bench-ci.json
: >"$json"
for round in $(seq "${ROUNDS:-3}"); do
  for at in $(seq "${#places[@]}"); do
    place=${places[(at + round) % ${#places[@]}]}
    read -ra took <<<"$(measure "$place")"
    [ ${#took[@]} = ${#phases[@]} ] || { echo "$place did not end" >&2; exit 1; }
    line="{\"round\":$round,\"place\":\"$place\",\"load\":$(cut -d' ' -f1 /proc/loadavg)"
    for one in "${!phases[@]}"; do line+=",\"${phases[one]}_us\":${took[one]}"; done
    echo "$line}" | tee -a "$json" >&2
  done
done
echo "| | ${phases[*]} |" | sed 's/ \([a-z]\)/ | \1/2g'
echo '|---|---|---|---|---|---|'
for place in "${places[@]}"; do
  row="| $place"
  for phase in "${phases[@]}"; do
    row+=" | $(grep "\"place\":\"$place\"" "$json" | sed "s/.*\"${phase}_us\":\([0-9]*\).*/\1/" | sort -n |
      awk '{ all[NR] = $1 } END { printf "%.2f", (all[int((NR + 1) / 2)] + all[int((NR + 2) / 2)]) / 2e6 }')"
  done
  echo "$row |"
done
