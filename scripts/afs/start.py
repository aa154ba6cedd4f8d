#!/usr/bin/env python3
"""The load `start` of scripts/bench-afs.sh: how long a server with many volumes takes until it serves,
how long it takes to stop, and its memory.

The volumes are names: files `V*.vol` for OpenAFS's server, which looks at nothing else before the first
use of a volume, and entries of the list for ours (the example `afs_start`). The servers take turns in
each round. Ours also opens its pool in that time. It runs without a cell, and the peer in one.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import time

import bench

# Volumes, and the goal for the start in milliseconds.
SIZES = {10_000: None, 100_000: 100, 500_000: None, 1_500_000: 1000}
# The goal for the stop in milliseconds, and for the memory in MB with so many volumes.
STOP_GOAL, MEMORY_GOAL = 1000, {1_500_000: 100}
# The peer's default table has 2^10 chains. A start takes minutes with more volumes than this.
MOST_BY_DEFAULT = 500_000
FIRST = 536_870_912
PEERS = {"peer": [], "tuned": ["-vhashsize", "20"]}
LONGEST = 900


def on_peer(*command):
    subprocess.run([bench.CELL, *command], check=True, stdout=subprocess.DEVNULL)


def name_volumes(folder, count):
    """Makes the names of so many volumes."""
    there = len([name for name in os.listdir(folder) if name.endswith(".vol")])
    for number in range(there, count):
        os.close(os.open(f"{folder}/V{FIRST + number:010}.vol", os.O_WRONLY | os.O_CREAT, 0o600))


def run_peer(options):
    """Milliseconds of a start and of a stop, and the memory in MB at the end of the start."""
    state = os.path.join(os.environ["ZAFS_STATE"], "h1")
    on_peer("stop", "1", "dafileserver")
    log = f"{state}/log/FileLog"
    if os.path.exists(log):
        os.remove(log)
    begun = time.monotonic()
    starting = subprocess.Popen([bench.CELL, "start", "1", "dafileserver", *options])
    while not (os.path.exists(log) and "File Server started" in open(log, encoding="latin-1").read()):
        if time.monotonic() - begun > LONGEST:
            raise SystemExit(f"the peer does not start: {log}")
        time.sleep(0.005)
    took = time.monotonic() - begun
    starting.wait()
    with open(f"{state}/run/dafileserver.pid", encoding="ascii") as file:
        pid = int(file.read())
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        memory = int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) / 1e3
    begun = time.monotonic()
    os.kill(pid, 3)
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.005)
    return {"start": took * 1e3, "stop": (time.monotonic() - begun) * 1e3, "memory": memory}


def run_ours(program, image):
    got = subprocess.run([program, "time", image], check=True, capture_output=True, text=True).stdout
    found = {name: float(value) for name, value in re.findall(r"(.+) ([\d.]+)\n", got)}
    start = found["pool"] + found["partition"]
    return {"start": start, "stop": found["stop"] + found["export"], "memory": found["memory at start"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--images", required=True, help="a folder for pools")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--command", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("--record")
    args = parser.parse_args()
    about = {"Date": datetime.date.today().isoformat(), "Command": f"`{args.command}`", "Machine": bench.machine()}
    folder = os.path.join(os.environ["ZAFS_STATE"], "h1", "vicepa")
    rows = []
    for size, goal in SIZES.items():
        image = os.path.join(args.images, f"names-{size}")
        subprocess.run([args.program, "names", image, str(size)], check=True, stdout=subprocess.DEVNULL)
        name_volumes(folder, size)
        found = {}
        for round_number in range(args.rounds):
            for name, options in PEERS.items():
                by_default = name == "peer"
                # Its time grows with the square: once is enough, and then not at all.
                if by_default and (size > MOST_BY_DEFAULT or size == MOST_BY_DEFAULT and round_number):
                    continue
                found.setdefault(name, []).append(run_peer(options))
            found.setdefault("ours", []).append(run_ours(args.program, image))
        os.remove(image)

        def median(name, what):
            return statistics.median(run[what] for run in found[name]) if name in found else None

        figures = (("start", "start, ms", goal), ("stop", "stop, ms", STOP_GOAL),
                   ("memory", "memory, MB", MEMORY_GOAL.get(size)))
        for what, title, limit in figures:
            ours = median("ours", what)
            values = [run[what] for run in found["ours"]]
            met = None if limit is None else "yes" if ours <= limit else "no"
            rows.append([size, title, ours, min(values), max(values), median("peer", what), median("tuned", what),
                         limit, met])
    columns = ["Volumes", "What", "Ours", "Lowest", "Highest", "Peer", "Peer, tuned", "Goal", "Met"]
    bench.show(columns, rows)
    about["Peer"] = "dafileserver 1.8.9 of Debian 12, with its default options; tuned: `-vhashsize 20`"
    about["Rounds"] = f"medians of {args.rounds}, in turns; the peer by default with 500,000 volumes: one run"
    goals = [row[-1] for row in rows if row[-1]]
    newest = {"date": about["Date"], "result": f"{goals.count('yes')} of {len(goals)} goals met"}
    tables = {"start": {"about": about, "columns": columns, "rows": [list(map(bench.number, row)) for row in rows]}}
    data = {"page": "afs-start.md", "what": "Start with many volumes beside OpenAFS's", "newest": newest,
            "tables": tables}
    for path in filter(None, [args.out, args.record]):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, ensure_ascii=False)
            file.write("\n")


if __name__ == "__main__":
    main()
