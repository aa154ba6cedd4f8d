#!/usr/bin/env python3
"""The load `first-use` of scripts/bench-afs.sh: the first use of many volumes by 64 clients at once.

The script starts both servers anew before each round, so that no volume is attached. Then 64
connections of one program request the status of the root of each volume once. Runs add up in the
file OUT.runs, and --table makes the table of them.
"""
import json
import os

import bench

# The first number of the volumes: each number but one is that of a volume.
FIRST = 600_000_000
CLIENTS = 64
# How many times as fast as the peer.
GOAL = 3


def measure(args, server):
    """One run: milliseconds from the first call to the last reply, and CPU time of each first use."""
    before = server.cpu()
    got = bench.on_host(1, args.load_client, server.address, FIRST, "first", CLIENTS, args.volumes, "-localauth")
    used = server.cpu() - before
    counts = bench.COUNTS.search(got.stdout)
    # OpenAFS's file server turns away some of many clients at once. They try again.
    if not counts or int(counts[2]) != args.volumes or int(counts[7]) not in (0, bench.VBUSY):
        raise SystemExit(f"first-use on {server.name} failed: {got.stdout}{got.stderr}")
    return {"server": server.name, "volumes": args.volumes, "wall": float(counts[3]) * 1e3,
            "cpu": used / args.volumes * 1e6, "slowest": float(counts[5]), "busy": int(counts[6])}


def main():
    parser = bench.arguments("--load-client")
    parser.add_argument("--volumes", type=int, required=True)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    path = args.out + ".runs"
    runs = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            runs = json.load(file)
    if not args.table:
        runs += [measure(args, server) for server in args.server]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(runs, file, indent=1)
        return

    def of(name, what):
        return [run[what] for run in runs if run["server"] == name]

    rows = []
    for what, title, goal in (("wall", "all first uses, ms", GOAL), ("cpu", "CPU time of each, µs", None),
                              ("slowest", "the slowest, ms", None)):
        rows.append([args.volumes, title, *bench.beside(of("ours", what), of("peer", what), ratio=goal)])
    about = bench.about(args.command, "dafileserver", f"medians of {args.rounds}, in turns, each after a start")
    about["Calls that the peer answered with VBUSY"] = f"{sum(of('peer', 'busy'))}; Poolhouse: {sum(of('ours', 'busy'))}"
    bench.publish([args.out, args.record], "afs-first-use.md", "First use of many volumes beside OpenAFS's", about,
                  {"uses": (["Volumes", "What", *bench.BESIDE], rows)}, bench.verdict(rows, args.command))


if __name__ == "__main__":
    main()
