#!/usr/bin/env python3
"""The loads `volumes` and `many` of scripts/bench-afs.sh: how long verbs of vos take in the volume
servers, with more and more volumes.

The example `afs_verbs` makes the calls of each verb, without the start of a program and without the
cell's databases. The servers take turns in each round. All volumes are attached, since they were made
since the start. What each server stores differs: OpenAFS's syncs nothing to disk.
"""
import statistics

import bench

# Verb: what it does, goal in milliseconds.
VERBS = {
    "create": ("`vos create`", 5),
    "backup": ("`vos backup`, the first", 10),
    "backup-again": ("`vos backup`, again", 10),
    "remove-backup": ("`vos remove` of the backup volume", 20),
    "remove": ("`vos remove`", 20),
    "list": ("`vos listvol`", None),
    "list-fast": ("`vos listvol -fast`", None),
}
# Goals in milliseconds with so many volumes.
MANY_GOALS = {("list", 100_000): 1000, ("list-fast", 100_000): 200}
PAGES = {
    "afs-volumes.md": "Verbs of vos beside OpenAFS's volume server",
    "afs-many.md": "Verbs of vos with many volumes beside OpenAFS's volume server",
}
# The first number of the volumes that stay, and of those that come and go.
STAY, COME = 600_000_000, 500_000_000


def run(args, address, what, first, count, *sites):
    """The median of each verb in milliseconds."""
    got = bench.on_host(1, args.program, address, args.keys, what, first, count, *sites)
    if got.returncode:
        raise SystemExit(f"{what} on {address} failed: {got.stdout}{got.stderr}")
    return {verb: float(median) for verb, median, *_ in map(str.split, got.stdout.splitlines())}


def main():
    parser = bench.arguments("--program", "--keys")
    parser.add_argument("--volumes", default="0,1000,4000")
    parser.add_argument("--times", type=int, default=10, help="how many of each verb a round measures")
    parser.add_argument("--list-times", type=int, help="the same of the lists (--times)")
    parser.add_argument("--page", choices=PAGES, default="afs-volumes.md")
    args = parser.parse_args()
    found, there = {}, 0
    for volumes in map(int, args.volumes.split(",")):
        for server in args.server:
            if volumes > there:
                run(args, server.address, "fill", STAY + 2 * there, volumes - there)
        there = volumes
        for _ in range(args.rounds):
            for server in args.server:
                times = run(args, server.address, "rounds", COME, args.times)
                if volumes:
                    times |= run(args, server.address, "list", COME, args.list_times or args.times)
                for verb, time in times.items():
                    found.setdefault((verb, volumes), {}).setdefault(server.name, []).append(time)
    columns = ["Verb", "Volumes", "Ours, ms", "Lowest", "Highest", "Peer, ms", "Goal", "Met"]
    rows = []
    for verb, (title, usual) in VERBS.items():
        for (one, volumes), of in found.items():
            if one == verb:
                goal = MANY_GOALS.get((verb, volumes), usual)
                ours, peer = (statistics.median(of[name]) for name in ("ours", "peer"))
                met = None if goal is None else "yes" if ours <= goal else "no"
                rows.append([title, volumes, ours, min(of["ours"]), max(of["ours"]), peer, goal, met])
    about = bench.about(args.command, "davolserver",
                        f"medians of {args.rounds}, in turns; each is a median of {args.times}"
                        + (f", of the lists {args.list_times}" if args.list_times else ""))
    bench.publish([args.out, args.record], args.page, PAGES[args.page], about, {"verbs": (columns, rows)},
                  bench.verdict(rows, args.command))


if __name__ == "__main__":
    main()
