# `make demo` and `make test` are enough to try Poolhouse. The other targets are for contributors;
# see docs/internals/testing.md.
.PHONY: demo check pages test flaky fixtures oracle bench bench-peers bench-afs fuzz crash soak soak-afs judge suites clients zts afs demo-afs install lint book

# Opens a bundled pool, mounts it and shows what to try next. Ctrl-C cleans up.
demo:
	@scripts/needs.sh rust cc mount tar zstd
	@scripts/demo.sh

# The checks before a change is shown to others: format, clippy, and the unit tests of the crates
# that changed since CHECK_SINCE.
CHECK_SINCE ?= HEAD
check:
	@scripts/needs.sh rust cc
	@scripts/check.sh $(CHECK_SINCE)

# Runs every fast test with the bundled fixtures, and lists the failed ones at the end. TEST_ARGS
# can be `--retry` or a part of test names; scripts/test.sh explains it.
TEST_ARGS ?=
test:
	@scripts/needs.sh rust cc mount
	@scripts/test.sh $(TEST_ARGS)

# Runs every test FLAKY_ROUNDS times, with two at a time for each core. Lists those that don't
# always pass.
FLAKY_ROUNDS ?= 10
flaky:
	@scripts/needs.sh rust cc mount
	@scripts/test.sh --rounds $(FLAKY_ROUNDS) --jobs $$((2 * $$(nproc)))

# The links between pages, the tables of results against their data, and the dashboards and alerts
# against the metrics.
pages:
	@scripts/needs.sh python3
	@scripts/check-links.py
	@scripts/results.py --check
	@scripts/check-grafana.py

# Runs the tests with the whole set of fixtures: make fixtures FIXTURES=DIR
fixtures:
	@test -d "$(FIXTURES)" || { echo 'usage: make fixtures FIXTURES=DIR' >&2; exit 2; }
	@scripts/needs.sh rust cc mount
	@FIXTURES="$(abspath $(FIXTURES))" scripts/test.sh $(TEST_ARGS)

# Compares with OpenZFS's zdb, on fresh ztest pools and OpenZFS's own old test pools.
oracle:
	@scripts/needs.sh rust cc bzip2
	@scripts/oracle.sh $(ORACLE_ARGS)

# Prints JSON. docs/internals/performance.md explains the figures and BENCH_POOLS.
bench:
	@scripts/needs.sh rust cc mount tar zstd
	@scripts/bench.sh $(BENCH_ARGS)

# Measures this engine and OpenZFS's own in user space, in turns. Prints a table, and updates
# docs/results/peers.md. scripts/bench-peers.sh explains ZFS_SRC, BENCH_MEMORY, BENCH_DISK and
# PEERS_ARGS (--rounds, --scale, groups of workloads).
bench-peers:
	@scripts/needs.sh rust cc mount fio python3
	@scripts/bench-peers.sh $(PEERS_ARGS)

# Measures the AFS server beside OpenAFS's, in turns, in a cell in namespaces; needs root and Debian's
# packages of OpenAFS. scripts/bench-afs.sh explains BENCH_ARGS.
bench-afs:
	@scripts/needs.sh rust cc python3
	@scripts/bench-afs.sh $(BENCH_ARGS)

# Fuzzes every target, for FUZZ_SECONDS in total: make fuzz FUZZ_SECONDS=3600
FUZZ_SECONDS ?= 60
fuzz:
	@scripts/needs.sh rust cxx
	@scripts/fuzz.sh $(FUZZ_SECONDS) $(FUZZ_TARGETS)

# Crashes pools at CRASH_POINTS points of recorded workloads. CRASH_OF selects commits, datasets,
# devices, receives or afs. With ZDB=PROGRAM, OpenZFS's zdb checks some of the results.
CRASH_POINTS ?= 10000
SEED ?= 1
crash:
	@scripts/needs.sh rust cc
	cargo run --release -q -p poolhouse-sim --example crash -- $(CRASH_POINTS) $(SEED) $(CRASH_OF)

# Runs pools under seeded operations and kills for SOAK_MINUTES, and compares them with a model.
# With ZDB=PROGRAM, zdb checks the pool at the end of each life.
SOAK_MINUTES ?= 30
soak:
	@scripts/needs.sh rust cc
	cargo run --release -q -p poolhouse-sim --example soak -- $(SOAK_MINUTES) $(SEED)

# Runs a cell of three servers, ours and OpenAFS's, under seeded steps and kills of ours for
# SOAK_MINUTES, and compares all volumes with a model; needs root and Debian's packages of OpenAFS. With
# AFS=--daemon, the daemon serves. scripts/soak-afs.sh explains STEPS and ZDB.
soak-afs:
	@scripts/needs.sh rust cc python3
	@scripts/soak-afs.sh $(AFS) $(SOAK_MINUTES) $(SEED)

# Makes pools of every shape with the commands and through a mount, and checks them with zdb. KERNEL
# names a command that gets the images of a pool, to check it with OpenZFS's kernel module.
judge:
	@scripts/needs.sh rust cc mount
	@scripts/judge.sh $(JUDGE_SHAPES)

# Runs foreign programs, which test file systems or rely on them, on mounts. Programs without an end
# run for SUITE_SECONDS. With ZDB=PROGRAM, zdb checks the pools afterwards. docs/results has the
# results.
suites:
	@scripts/needs.sh rust cc mount
	@scripts/suites.sh $(SUITES)

# Runs foreign programs that call `zpool` and `zfs`, unchanged, with ours first on PATH.
# docs/results/programs.md has the results.
clients:
	@scripts/needs.sh rust cc mount
	@scripts/clients.sh $(CLIENTS)

# Has OpenAFS's programs judge the AFS server, in a cell in namespaces; needs root and Debian's
# packages of OpenAFS: make afs AFS="verbs mixed", or AFS=--all for the long checks too. With
# AFS=--daemon, the daemon serves.
afs:
	@scripts/needs.sh rust cc
	@scripts/afs.sh $(AFS)

# Installs OpenAFS's database servers and client, brings up a cell of one machine with Poolhouse as
# its file server, and shows what to try next; needs root on Debian.
demo-afs:
	@scripts/needs.sh rust cc
	@scripts/afs/demo.sh

# Runs groups of OpenZFS's own test suite, in a disposable root; needs root:
#   make zts ZTS=cli_root/zfs_get ZTS_ARGS='-t 60'
# docs/results/zfs-test-suite.md has the results.
zts:
	@scripts/needs.sh rust cc mount
	@scripts/zts.sh $(ZTS_ARGS) $(ZTS)

# Installs the program, its other names, completions and systemd units. docs/guide/service.md
# explains how they work together.
PREFIX ?= /usr/local
install:
	@scripts/needs.sh rust cc
	cargo build --release -p poolhouse-program
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" scripts/install.sh "$${CARGO_TARGET_DIR:-target}/release/poolhouse"

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

# Builds the site of docs/ in target/book, and checks its links. Needs mdBook
# (https://rust-lang.github.io/mdBook) and Python 3.
book:
	mdbook build
	@scripts/check-links.py target/book
