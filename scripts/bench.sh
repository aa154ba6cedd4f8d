#!/usr/bin/env bash
# Usage: scripts/bench.sh [poolhouse-bench arguments]
# Runs the benchmarks on the pools in BENCH_POOLS: directories, each with the devices of one pool.
# Without it, they run on two bundled pools, which are too small for meaningful figures. Compares
# with OpenZFS's tools, if `make oracle` has unpacked them.
set -euo pipefail
cd "$(dirname "$0")/.."
pools=${BENCH_POOLS:-}
if [ -z "$pools" ]; then
  pools=$PWD/target/bench
  for name in single-lz4 raidz3-7; do
    [ -d "$pools/$name" ] && continue
    rm -rf "$pools/$name.part"
    mkdir -p "$pools/$name.part"
    tar --zstd -xSf "fixtures/$name/images.tar.zst" -C "$pools/$name.part"
    mv "$pools/$name.part" "$pools/$name"
  done
fi
tools=$PWD/target/oracle/root
if [ -z "${BENCH_TOOLS:-}" ] && [ -x "$tools/sbin/zdb" ]; then export BENCH_TOOLS=$tools; fi
cargo build -q --release -p poolhouse-bench -p poolhouse-program
export BENCH_MOUNTS=${BENCH_MOUNTS:-$PWD/scripts/bench-mount.sh}
export POOLHOUSE=${POOLHOUSE:-${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse}
folders=()
for folder in "$pools"/*/; do folders+=("${folder%/}"); done
exec "${CARGO_TARGET_DIR:-$PWD/target}/release/poolhouse-bench" "$@" "${folders[@]}"
