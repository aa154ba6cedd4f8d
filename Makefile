# `make demo` and `make test` are all a newcomer needs; the rest is for those who work on it. See docs/internals/testing.md.
.PHONY: demo check test flaky fixtures oracle bench bench-peers fuzz crash soak judge suites clients zts install lint book

# Opens a bundled pool, mounts it, says what to try next; Ctrl-C cleans up.
demo:
	@scripts/needs.sh rust cc mount tar zstd
	@scripts/demo.sh

# What a change is held to before it is shown to anybody: format, clippy, and the unit tests of the crates that
# it changes, since CHECK_SINCE.
CHECK_SINCE ?= HEAD
check:
	@scripts/needs.sh rust cc
	@scripts/check.sh $(CHECK_SINCE)

# Every fast test, with the bundled fixtures: all of them run, and what failed is named at the end.
# scripts/test.sh says what may stand in TEST_ARGS: `--retry`, or a part of the names of tests.
TEST_ARGS ?=
test:
	@scripts/needs.sh rust cc mount
	@scripts/test.sh $(TEST_ARGS)

# Every test FLAKY_ROUNDS times, twice as many at a time as there are cores: names those that don't always pass.
FLAKY_ROUNDS ?= 10
flaky:
	@scripts/needs.sh rust cc mount
	@scripts/test.sh --rounds $(FLAKY_ROUNDS) --jobs $$((2 * $$(nproc)))

# The fixture tests with the whole set: make fixtures FIXTURES=DIR
fixtures:
	@test -d "$(FIXTURES)" || { echo 'usage: make fixtures FIXTURES=DIR' >&2; exit 2; }
	@scripts/needs.sh rust cc mount
	@FIXTURES="$(abspath $(FIXTURES))" scripts/test.sh $(TEST_ARGS)

# Fresh ztest pools and OpenZFS's own old test pools, with zdb as the second truth.
oracle:
	@scripts/needs.sh rust cc bzip2
	@scripts/oracle.sh $(ORACLE_ARGS)

# Prints JSON; docs/internals/performance.md says what the figures mean, and what BENCH_POOLS is.
bench:
	@scripts/needs.sh rust cc mount tar zstd
	@scripts/bench.sh $(BENCH_ARGS)

# Measures this engine and OpenZFS's own in user space, in turns. Prints a table, and brings
# docs/results/peers.md up to date. scripts/bench-peers.sh explains ZFS_SRC, BENCH_MEMORY,
# BENCH_DISK and PEERS_ARGS (--rounds, --scale, groups of workloads).
bench-peers:
	@scripts/needs.sh rust cc mount fio python3
	@scripts/bench-peers.sh $(PEERS_ARGS)

# Fuzzes every target, FUZZ_SECONDS in all: make fuzz FUZZ_SECONDS=3600
FUZZ_SECONDS ?= 60
fuzz:
	@scripts/needs.sh rust cxx
	@scripts/fuzz.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# Crashes pools at CRASH_POINTS places of recorded workloads, with CRASH_OF=commits, datasets or devices of these alone; with ZDB=PROGRAM, OpenZFS's zdb
# judges some of what is left.
CRASH_POINTS ?= 10000
SEED ?= 1
crash:
	@scripts/needs.sh rust cc
	cargo run --release -q -p poolhouse-sim --example crash -- $(CRASH_POINTS) $(SEED) $(CRASH_OF)

# Lets pools live under seeded operations and kills for SOAK_MINUTES, held to a model; with ZDB=PROGRAM, zdb judges what each life leaves.
SOAK_MINUTES ?= 30
soak:
	@scripts/needs.sh rust cc
	cargo run --release -q -p poolhouse-sim --example soak -- $(SOAK_MINUTES) $(SEED)

# Pools of every shape made by the commands and through a mount, judged by zdb, and by OpenZFS's kernel module where KERNEL names a
# command that is given the images of a pool.
judge:
	@scripts/needs.sh rust cc mount
	@scripts/judge.sh $(JUDGE_SHAPES)

# Programs that others wrote to try file systems, or that rely on them, on mounts; with ZDB=PROGRAM, zdb judges what they leave.
# docs/results has the results. What has no end works for SUITE_SECONDS.
suites:
	@scripts/needs.sh rust cc mount
	@scripts/suites.sh $(SUITES)

# Programs that others wrote to call `zpool` and `zfs`, unchanged, with ours first on PATH; docs/results/programs.md has the results.
clients:
	@scripts/needs.sh rust cc mount
	@scripts/clients.sh $(CLIENTS)

# Groups of OpenZFS's own test suite, in a root that is thrown away: make zts ZTS=cli_root/zfs_get ZTS_ARGS='-t 60'. Needs root.
# docs/results/zfs-test-suite.md has the results.
zts:
	@scripts/needs.sh rust cc mount
	@scripts/zts.sh $(ZTS_ARGS) $(ZTS)

# Installs the program, its other names, completions and systemd units; docs/guide/service.md says how they work together.
PREFIX ?= /usr/local
install:
	@scripts/needs.sh rust cc
	cargo build --release -p poolhouse-program
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh "$${CARGO_TARGET_DIR:-target}/release/poolhouse"

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

# The site of docs/ in target/book, with its links checked. Needs mdBook (https://rust-lang.github.io/mdBook) and Python 3.
book:
	mdbook build
	@scripts/check-links.py target/book
