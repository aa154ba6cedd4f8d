#!/usr/bin/env bash
# Usage: scripts/afs/daemon.sh ADDRESS KEYFILEEXT CELL IMAGE
# Serves a pool on an image as AFS_SERVER of scripts/afs.sh: by the daemon, and its commands. It ends
# with its standard input. POOLHOUSE names the program. The key and the cell are those of
# /etc/openafs/server.
set -euo pipefail
address=$1 image=$4
export POOLHOUSE_RUN_DIR=$image.run
mkdir -p -m 700 "$POOLHOUSE_RUN_DIR" "$image.dev"
{
  for _ in $(seq 100); do [ ! -S "$POOLHOUSE_RUN_DIR/poolhouse.sock" ] || break; sleep 0.05; done
  if [ -e "$image" ]; then
    "$POOLHOUSE" zpool import -f -N -d "$image.dev" afs
  else
    truncate -s 8G "$image"
    ln -f "$image" "$image.dev/d0"
    "$POOLHOUSE" zpool create -m none afs "$image.dev/d0"
    "$POOLHOUSE" afs enable --create --partition a --address "$address" afs/vicepa
  fi
  "$POOLHOUSE" afs status
  cat >/dev/null
  # The daemon exports the pool.
  kill $$
} <&0 &
exec "$POOLHOUSE" serve
