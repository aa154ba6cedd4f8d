#!/usr/bin/env python3
"""The loads `release` and `release-nothing` of scripts/bench-afs.sh: how long the calls of `vos release`
take in the volume servers.

The example `afs_verbs` makes the calls, without the start of a program, without the cell's databases,
and without the 5 s that `vos` sleeps with two read-only sites and more. The first site is the server of
the read-write volume. Each other site is a server of its own on a host of its own, of the same kind.

`release`: of some changed files among many. Ours sends blocks, or dumps. The script starts our servers
anew between the two. Runs add up in the file OUT.runs, and the step `table` makes the table of them.
`release-nothing`: of many volumes that did not change, with two sites.
"""
import json
import os
import time

import bench
import verbs

# How many times as fast as the peer, and the most milliseconds.
GOAL, NOTHING_GOAL = 50, 10
# The first numbers of volumes.
RELEASE, NOTHING = 700_000_000, 710_000_000
# From so many files on, the figures go to a table of their own.
MILLION = 1_000_000
PEER = "dafileserver and davolserver"


def change(args, address, volume):
    """A client stores some of the files."""
    got = bench.on_host(1, args.load_client, address, volume, "change", 1, args.changes, args.size, args.list)
    counts = bench.COUNTS.search(got.stdout)
    if not counts or int(counts[2]) != args.changes or int(counts[7]) not in (0, bench.VBUSY):
        raise SystemExit(f"change on {address} failed: {got.stdout}{got.stderr}")


def prepare(args, servers):
    for sites in args.sites:
        volume = RELEASE + 2 * sites
        for addresses in servers.values():
            got = bench.on_host(1, "vos", "restore", addresses[0], "a", f"made.{volume}", "-id", volume, "-file",
                                args.dump, "-localauth")
            if got.returncode:
                raise SystemExit(f"vos restore failed: {got.stdout}{got.stderr}")
            # Volumes of both kinds have the same number, and the database has no use for it here.
            bench.on_host(1, "vos", "delentry", "-id", volume, "-localauth")
            verbs.run(args, addresses[0], "sites", volume, 1, *addresses[1:sites])


def measure(args, servers, runs):
    for sites in args.sites:
        volume = RELEASE + 2 * sites
        # The first release after a restart is not measured.
        for number in range(args.rounds + 1):
            for addresses in servers.values():
                change(args, addresses[0], volume)
            # A dump has what changed within 2 s before the last release, too.
            time.sleep(3)
            for kind, addresses in servers.items():
                took = verbs.run(args, addresses[0], "release", volume, 1, *addresses[1:sites])["release"]
                if number:
                    runs.append({"mode": args.mode, "kind": kind, "sites": sites, "wall": took})


def table(args, runs):
    rows = []
    for mode in ("blocks", "dumps"):
        for sites in args.sites:
            def of(kind):
                return [run["wall"] for run in runs if (run["mode"], run["kind"], run["sites"]) == (mode, kind, sites)]
            if not of("ours"):
                continue
            rows.append([mode, args.files, sites, *bench.beside(of("ours"), of("peer"), ratio=GOAL)])
    about = bench.about(args.command, PEER, f"medians of {args.rounds} for each row, in turns")
    about["Volumes"] = f"{args.files} files of {args.size} bytes; {args.changes} change before each release"
    page, record = "afs-release.md", args.record
    if args.files >= MILLION and record:
        # A second table of the page.
        page, record = None, record.replace("afs-release", "afs-release-million")
    bench.publish([args.out, record], page, "Releases of changed volumes beside OpenAFS's", about,
                  {"releases": (["Ours sends", "Files", "Sites", *(f"{one}, ms" if one in ("Ours", "Peer") else one
                                                         for one in bench.BESIDE)], rows)},
                  bench.verdict(rows, args.command))


def nothing(args, servers):
    found = {kind: [] for kind in servers}
    for addresses in servers.values():
        for what in ("fill", "sites"):
            verbs.run(args, addresses[0], what, NOTHING, args.volumes, *addresses[1:2])
    for _ in range(args.rounds):
        for kind, addresses in servers.items():
            took = verbs.run(args, addresses[0], "release", NOTHING, args.volumes, addresses[1])
            found[kind].append(took["release"])
    rows = [[args.volumes, *bench.beside(found["ours"], found["peer"], most=NOTHING_GOAL)]]
    about = bench.about(args.command, PEER, f"medians of {args.rounds}, in turns; each is a median of all volumes")
    columns = ["Volumes", *(f"{one}, ms" if one in ("Ours", "Peer") else one for one in bench.BESIDE)]
    bench.publish([args.out, args.record], "afs-release-nothing.md", "Releases of unchanged volumes beside OpenAFS's",
                  about, {"releases": (columns, rows)}, bench.verdict(rows, args.command))


def main():
    parser = bench.arguments("--program", "--keys", "--step")
    parser.add_argument("--servers", action="append", default=[], metavar="KIND=ADDRESS,...")
    parser.add_argument("--mode", choices=["blocks", "dumps"])
    parser.add_argument("--load-client")
    parser.add_argument("--dump", help="the dump of a volume of so many files, which anonymous users may change")
    parser.add_argument("--list", help="the list of its files")
    parser.add_argument("--files", type=int)
    parser.add_argument("--size", type=int)
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--sites", type=lambda text: [int(one) for one in text.split(",")])
    parser.add_argument("--volumes", type=int)
    args = parser.parse_args()
    servers = {kind: addresses.split(",") for kind, addresses in (one.split("=") for one in args.servers)}
    path = args.out + ".runs"
    runs = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            runs = json.load(file)
    if args.step == "nothing":
        nothing(args, servers)
    elif args.step == "prepare":
        prepare(args, servers)
    elif args.step == "table":
        table(args, runs)
    else:
        measure(args, servers, runs)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(runs, file, indent=1)


if __name__ == "__main__":
    main()
