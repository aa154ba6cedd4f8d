#!/usr/bin/env bash
# Usage: scripts/demo.sh
# Opens a bundled pool that OpenZFS wrote, mounts it and shows what to try next. Ctrl-C or Enter
# cleans up. With DEMO_NOWAIT=1 it lists the files once and ends.
set -euo pipefail
cd "$(dirname "$0")/.."
pool=single-lz4
echo "Building (the first time takes a few minutes) ..."
cargo build -q --release -p poolhouse-program
bin=${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse

room=$(mktemp -d "${TMPDIR:-/tmp}/poolhouse-demo.XXXXXX")
mnt=$room/mnt
mkdir "$mnt" "$room/bin" "$room/dev"
mkdir -m 700 "$room/run"
export POOLHOUSE_RUN_DIR=$room/run
cleanup() {
  trap - EXIT INT TERM HUP
  cd /
  echo
  echo "Cleaning up."
  "$bin" zpool export "$pool" >/dev/null 2>&1 || "$bin" zpool export -f "$pool" || true
  rm -rf --one-file-system "$room"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

tar --zstd -xSf "fixtures/$pool/images.tar.zst" -C "$room/dev"
for name in zpool zfs zdb; do ln -s "$bin" "$room/bin/$name"; done
export PATH=$room/bin:$PATH
show() {
  printf '\n$ %s\n' "$*"
  "$@"
}
show zpool import -d "$room/dev"
show zpool import -d "$room/dev" -o readonly=on -R "$mnt" "$pool"
show zpool status "$pool"
show zfs list -o name,used,refer,compressratio,compression "$pool" "$pool"/{comp-lz4,comp-zstd,rs-1M,snaps,clone}
root=$(zfs get -H -o value mountpoint "$pool")
show ls "$root/snaps" "$root/snaps/.zfs/snapshot"

cat <<EOF

The pool is mounted; every byte that you read was checked against its checksum. In another terminal try:

  export POOLHOUSE_RUN_DIR=$POOLHOUSE_RUN_DIR PATH=$room/bin:\$PATH
  ls -l $root
  diff -rq $root/snaps/.zfs/snapshot/one/links $root/snaps/links
  zfs get all $pool/snaps
  zdb -b -e -p $room/dev $pool
  $bin ls -l --peek -d $room/dev $pool/snaps@one:/

EOF
if [ -n "${DEMO_NOWAIT:-}" ]; then exit 0; fi
read -r -p "Enter or Ctrl-C ends the demo and cleans up. " || true
