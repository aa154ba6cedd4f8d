#!/usr/bin/env python3
"""The load `attach` of scripts/bench-afs.sh: three partitions of many volumes are attached at once, each
by a thread, and the time that these threads wait for locks.

The volumes are names, as for the load `start`. The example `afs_start` runs without a cell. Only locks
with statistics count (`observe::lock`).
"""
import os
import re
import statistics
import subprocess

import bench

# The most that threads may wait, in percent of their time.
GOAL = 2


def main():
    parser = bench.arguments("--program", "--images")
    parser.add_argument("--volumes", default="100000,500000")
    args = parser.parse_args()
    rows = []
    for volumes in map(int, args.volumes.split(",")):
        runs = []
        for _ in range(args.rounds):
            image = os.path.join(args.images, "attach")
            command = [args.program, "attach", image, str(volumes)]
            got = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            os.remove(image)
            found = {name: float(value) for name, value in re.findall(r"(.+) ([\d.]+)\n", got)}
            # Each partition has one complete volume with its backup volume, too.
            if found["volumes"] < 3 * volumes:
                raise SystemExit(f"three partitions with {volumes} names: {got}")
            runs.append(found)
        sites = {name for run in runs for name in run if name.startswith("waits for ")}
        total = [sum(run.get(name, 0) for name in sites) for run in runs]

        def row(what, values, goal=None):
            middle = statistics.median(values)
            met = None if goal is None else "yes" if middle <= goal else "no"
            rows.append([volumes, what, middle, min(values), max(values), goal, met])

        row("until all are attached, ms", [run["attach"] for run in runs])
        row("waits for locks, %", total, GOAL)
        for name in sorted(sites):
            row(name + ", %", [run.get(name, 0.0) for run in runs])
    about = bench.about(args.command, None, f"medians of {args.rounds}")
    columns = ["Volumes of each", "What", "Ours", "Lowest", "Highest", "At most", "Met"]
    bench.publish([args.out, args.record], "afs-attach.md", "Three partitions attached at once", about,
                  {"waits": (columns, rows)}, bench.verdict(rows, args.command))


if __name__ == "__main__":
    main()
