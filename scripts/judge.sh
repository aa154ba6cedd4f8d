#!/usr/bin/env bash
# Usage: scripts/judge.sh [SHAPE ...]
# Makes a pool of each shape with the commands and through a mount, as a user would. Then OpenZFS
# checks it:
#   - its zdb (ZDB, or the one that `make oracle` unpacked);
#   - KERNEL, a command that gets the images of one pool. It imports, mounts and scrubs the pool
#     with OpenZFS's kernel module, and exits with 0 if all is well.
# The shape `afs` has volumes of AFS (scripts/judge-afs.sh, which explains KERNEL_SCRIPT).
# POOLHOUSE names the program; without it, the script builds it. In the pools of shape `encrypted`
# the passphrase is `poolhouse`.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/target/oracle/root
if [ -z "${ZDB:-}" ] && [ -x "$tools/sbin/zdb" ]; then
  ZDB=$tools/sbin/zdb
  libs=$(echo "$tools"/lib/*-linux-gnu)
fi
theirs() { LD_LIBRARY_PATH=${libs:-${LD_LIBRARY_PATH:-}} "$ZDB" "$@"; }
if [ -z "${POOLHOUSE:-}" ]; then
  cargo build -q --release -p poolhouse-program
  POOLHOUSE=${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse
fi
export POOLHOUSE

room=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-judge.XXXXXX")
mkdir "$room/bin" "$room/mnt"
mkdir -m 700 "$room/run"
export POOLHOUSE_RUN_DIR=$room/run
for name in zpool zfs; do ln -s "$(realpath "$POOLHOUSE")" "$room/bin/$name"; done
export PATH=$room/bin:$PATH
cleanup() {
  zpool export -af >/dev/null 2>&1 || true
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT

images() { # COUNT: makes so many sparse files, and lists them in the variable d
  local i
  d=()
  for i in $(seq 0 $(($1 - 1))); do
    truncate -s 200M "$dir/d$i"
    d+=("$dir/d$i")
  done
}

make_pool() { # SHAPE
  local options=(-m "$room/mnt" -o ashift=12)
  case $1 in
    disk) images 1 && zpool create "${options[@]}" judge "${d[0]}" ;;
    stripe) images 3 && zpool create "${options[@]}" -O compression=lz4 judge "${d[@]}" ;;
    mirror) images 2 && zpool create "${options[@]}" -O checksum=blake3 judge mirror "${d[@]}" ;;
    raidz1) images 3 && zpool create "${options[@]}" -O compression=zstd judge raidz "${d[@]}" ;;
    raidz2) images 5 && zpool create "${options[@]}" -O checksum=sha512 judge raidz2 "${d[@]}" ;;
    raidz3) images 6 && zpool create "${options[@]}" -O compression=gzip-1 judge raidz3 "${d[@]}" ;;
    draid) images 6 && zpool create "${options[@]}" judge draid2:3d:1s:6c "${d[@]}" ;;
    classes) images 4 && zpool create -f "${options[@]}" judge "${d[0]}" special "${d[1]}" dedup "${d[2]}" log "${d[3]}" ;;
    dedup) images 2 && zpool create "${options[@]}" -O dedup=on judge "${d[@]}" ;;
    added) images 4 && zpool create "${options[@]}" judge mirror "${d[0]}" "${d[1]}" && zpool add judge mirror "${d[2]}" "${d[3]}" ;;
    encrypted) images 2 && zpool create "${options[@]}" judge mirror "${d[@]}" ;;
    offlined | missed) images 3 && zpool create "${options[@]}" judge raidz "${d[@]}" ;;
    replaced) images 3 && zpool create "${options[@]}" judge mirror "${d[0]}" "${d[1]}" ;;
    spared) images 7 && zpool create "${options[@]}" judge draid2:3d:6c:1s "${d[@]:0:6}" ;;
    healed) images 5 && zpool create "${options[@]}" judge raidz2 "${d[@]}" ;;
    *) echo "there is no shape $1" >&2 && return 2 ;;
  esac
}

fill() { # SHAPE: adds file systems with files of this project, snapshots, a clone, a volume
  local home=judge/home
  if [ "$1" = encrypted ]; then
    printf poolhouse | zfs create -o encryption=on -o keyformat=passphrase -o keylocation=prompt "$home"
  else
    zfs create "$home"
  fi
  cp -a crates docs scripts "$room/mnt/home/"
  zfs snapshot "$home@one"
  rm -r "$room/mnt/home/docs"
  mkdir "$room/mnt/home/made"
  dd if=/dev/urandom of="$room/mnt/home/made/noise" bs=1M count=8 status=none
  ln -s made/noise "$room/mnt/home/link"
  truncate -s 3M "$room/mnt/home/made/sparse"
  if [ "$1" = dedup ]; then cp -a "$room/mnt/home/crates" "$room/mnt/home/again"; fi
  zfs create -o recordsize=16K -o xattr=sa "$home/below"
  cp -a crates/zpl "$room/mnt/home/below/"
  zfs snapshot -r "$home@two"
  zfs clone "$home@one" judge/clone 2>/dev/null || zfs clone -o mountpoint=none "$home@one" judge/clone
  zfs create -V 16M -o volblocksize=16K judge/volume
  zfs destroy "$home@one" 2>/dev/null && return 1 # must fail: the snapshot has a clone
  zfs bookmark "$home@two" "$home#mark"
}

befalls() { # SHAPE: operations on the devices before the pool is filled
  case $1 in
    offlined) zpool offline judge "${d[1]}" ;;
    # The device is online again after the export, and lacks what was written until then.
    missed) zpool offline -t judge "${d[1]}" ;;
  esac
}

mended() { # SHAPE: operations on the devices afterwards
  case $1 in
    offlined) zpool online judge "${d[1]}" && zpool wait -t resilver judge ;;
    replaced) zpool replace -s -w judge "${d[1]}" "${d[2]}" && rm "${d[1]}" ;;
    spared)
      zpool offline judge "${d[1]}"
      zpool replace -w judge "${d[1]}" draid2-0-0
      cp -a docs "$room/mnt/home/spared"
      zpool replace -w judge "${d[1]}" "${d[6]}"
      rm "${d[1]}"
      ;;
    healed)
      zpool export judge
      for i in 1 3; do dd if=/dev/urandom of="${d[i]}" bs=1M seek=8 count=150 conv=notrunc status=none; done
      zpool import -d "$dir" judge
      zpool scrub -w judge
      zpool status -v judge | grep -q 'No known data errors'
      ;;
  esac
}

sums() { (cd "$room/mnt" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

[ $# -gt 0 ] || set -- disk stripe mirror raidz1 raidz2 raidz3 draid classes dedup added encrypted offlined missed replaced spared healed afs
bad=0
for shape in "$@"; do
  if [ "$shape" = afs ]; then
    echo "$shape"
    scripts/judge-afs.sh || bad=$((bad + 1))
    continue
  fi
  dir=$room/$shape
  mkdir "$dir"
  echo "$shape"
  make_pool "$shape"
  befalls "$shape"
  fill "$shape"
  mended "$shape"
  before=$(sums)
  zpool export judge
  if [ -n "${ZDB:-}" ]; then
    if theirs -e -p "$dir" -bcc judge >"$room/zdb" 2>&1 && grep -q 'No leaks' "$room/zdb" && theirs -e -p "$dir" -d judge >>"$room/zdb" 2>&1; then
      echo "  zdb: no leak, no bad checksum"
    else
      bad=$((bad + 1))
      tail -n 15 "$room/zdb"
    fi
  fi
  if [ -n "${KERNEL:-}" ]; then
    # shellcheck disable=SC2086 # a command and its options
    if $KERNEL "$dir"/d* >"$room/kernel" 2>&1; then
      echo "  kernel: imported, mounted, scrubbed"
    elif [ "$shape" = missed ] && grep -q 'with 0 errors' "$room/kernel" && grep -q 'No known data errors' "$room/kernel" && ! grep -q FAILED "$room/kernel"; then
      # The kernel module counts errors of reads before it has loaded the device's DTL.
      echo "  kernel: imported, mounted, scrubbed, and put right what it read before it knew what was missed"
    else
      bad=$((bad + 1))
      tail -n 30 "$room/kernel"
    fi
  fi
  zpool import -f -d "$dir" judge
  if [ "$shape" = encrypted ]; then
    printf poolhouse | zfs load-key judge/home
    zfs mount -a
  fi
  if [ "$(sums)" = "$before" ]; then
    echo "  read back: $(wc -l <<<"$before") files"
  else
    bad=$((bad + 1))
    echo "  read back: DIFFERENT"
    diff <(echo "$before") <(sums) | head
  fi
  zpool destroy judge
  rm -r "$dir"
done
[ "$bad" -eq 0 ]
