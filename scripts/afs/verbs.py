#!/usr/bin/env python3
"""The load `volumes` of scripts/bench-afs.sh: how long verbs of vos take in the volume servers, with
more and more volumes.

The example `afs_verbs` makes the calls of each verb, without the start of a program and without the
cell's databases. The servers take turns in each round. All volumes are attached, since they were made
since the start. What each server stores differs: OpenAFS's syncs nothing to disk.
"""
import argparse
import datetime
import json
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
# The first number of the volumes that stay, and of those that come and go.
STAY, COME = 600_000_000, 500_000_000
# How many of each verb a round measures.
TIMES = 10


def run(args, address, what, first, count, *sites):
    """The median of each verb in milliseconds."""
    got = bench.on_host(1, args.program, address, args.keys, what, first, count, *sites)
    if got.returncode:
        raise SystemExit(f"{what} on {address} failed: {got.stdout}{got.stderr}")
    return {verb: float(median) for verb, median, *_ in map(str.split, got.stdout.splitlines())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--keys", required=True)
    parser.add_argument("--server", action="append", default=[], type=bench.Server)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--volumes", default="0,1000,4000")
    parser.add_argument("--command", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("--record")
    args = parser.parse_args()
    about = {"Date": datetime.date.today().isoformat(), "Command": f"`{args.command}`", "Machine": bench.machine()}
    found, there = {}, 0
    for volumes in map(int, args.volumes.split(",")):
        for server in args.server:
            if volumes > there:
                run(args, server.address, "fill", STAY + 2 * there, volumes - there)
        there = volumes
        for _ in range(args.rounds):
            for server in args.server:
                times = run(args, server.address, "rounds", COME, TIMES)
                if volumes:
                    times |= run(args, server.address, "list", COME, TIMES)
                for verb, time in times.items():
                    found.setdefault((verb, volumes), {}).setdefault(server.name, []).append(time)
    columns = ["Verb", "Volumes", "Ours, ms", "Lowest", "Highest", "Peer, ms", "Goal", "Met"]
    rows = []
    for verb, (title, goal) in VERBS.items():
        for (one, volumes), of in found.items():
            if one == verb:
                ours, peer = (statistics.median(of[name]) for name in ("ours", "peer"))
                met = None if goal is None else "yes" if ours <= goal else "no"
                rows.append([title, volumes, ours, min(of["ours"]), max(of["ours"]), peer, goal, met])
    bench.show(columns, rows)
    about["Peer"] = "davolserver 1.8.9 of Debian 12, with its default options"
    about["Rounds"] = f"medians of {args.rounds}, in turns; each is a median of {TIMES}"
    goals = [row[-1] for row in rows if row[-1]]
    newest = {"date": about["Date"], "result": f"{goals.count('yes')} of {len(goals)} goals met"}
    tables = {"verbs": {"about": about, "columns": columns, "rows": [list(map(bench.number, row)) for row in rows]}}
    data = {"page": "afs-volumes.md", "what": "Verbs of vos beside OpenAFS's volume server", "newest": newest,
            "tables": tables}
    for path in filter(None, [args.out, args.record]):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, ensure_ascii=False)
            file.write("\n")


if __name__ == "__main__":
    main()
