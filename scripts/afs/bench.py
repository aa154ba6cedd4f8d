#!/usr/bin/env python3
"""The measurements of scripts/bench-afs.sh, which brings up the cell and the servers.

A figure is the CPU time that a server took while a client loaded it, over what the client counted:
microseconds for each call (for `create`, each pair of calls), milliseconds for each MiB. Servers take
turns in each round. Runs add up in the file OUT, and --table prints their medians.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CELL = os.path.join(HERE, "cell.sh")

# Name: title, unit, goal, arguments of the load client.
LOADS = {
    "null": ("no volume (GetCapabilities)", "µs", None, ["null", 4]),
    "status": ("FetchStatus", "µs", 10, ["status", 4]),
    "bulk": ("50 in one InlineBulkStatus", "µs", 25, ["bulk", 4]),
    "create": ("CreateFile and RemoveFile", "µs", 40, ["create", 4]),
    "small": ("the same, with 1 KiB stored", "µs", None, ["small", 4, 1024]),
    "write": ("StoreData64, 4 MiB a call", "ms/MiB", 3, ["write", 2, 4 << 20]),
    "read": ("FetchData64, 4 MiB a call, rxnull", "ms/MiB", 1.5, ["read", 2, 4 << 20]),
    "single": ("the same, by one client", "ms/MiB", None, ["read", 1, 4 << 20]),
    "clear": ("FetchData64, 1 MiB a call, rxkad clear", "ms/MiB", 2, ["read", 2, 1 << 20, "-localauth"]),
    "crypt": ("FetchData64, 1 MiB a call, rxkad crypt", "ms/MiB", 6, ["read", 2, 1 << 20, "-encrypt"]),
    "clients": ("FetchStatus, 64 clients at once", "µs", None, ["status", 64]),
}
COUNTS = re.compile(r"size=(\d+) sec=\d: (\d+) in ([\d.]+) s = .* mean ([\d.]+) ms max (\d+) ms, errors (\d+) \(last (-?\d+)\)")
VBUSY = 110


def on_host(host, *command):
    return subprocess.run([CELL, "run", str(host), *map(str, command)], capture_output=True, text=True)


class Server:
    def __init__(self, text):
        self.name, self.host, self.address, self.program = text.split("=")
        found = on_host(1, "vos", "examine", f"bench.{self.name}", "-localauth").stdout.split()
        if len(found) < 2:
            sys.exit(f"no volume bench.{self.name} on {self.address}")
        self.volume = found[1]

    def cpu(self, more=()):
        """Seconds of CPU time so far, with those of other programs of the server."""
        used = 0
        for program in (self.program, *more):
            path = os.path.join(os.environ["ZAFS_STATE"], f"h{self.host}", "run", f"{program}.pid")
            with open(path, encoding="ascii") as file:
                pid = file.read().strip()
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                used += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
        return used / os.sysconf("SC_CLK_TCK")


def measure(client, server, name, seconds, prefix=()):
    """One run: the figure, and the calls in a second."""
    operation, threads, *rest = LOADS[name][3]
    before = server.cpu()
    got = on_host(1, *prefix, client, server.address, server.volume, operation, threads, seconds, *rest)
    used = server.cpu() - before
    counts = COUNTS.search(got.stdout)
    errors = int(counts[6]) if counts else 0
    # OpenAFS's file server turns away some of many clients at once.
    if not counts or errors and not (server.name == "peer" and int(counts[7]) == VBUSY):
        sys.exit(f"{name} on {server.name} failed: {got.stdout}{got.stderr}")
    size, calls, took, slowest = int(counts[1]), int(counts[2]), float(counts[3]), int(counts[5])
    units = calls * size / (1 << 20) * 1e-3 if LOADS[name][1] == "ms/MiB" else calls * 1e-6
    return {"load": name, "server": server.name, "figure": used / units, "rate": calls / took,
            "slowest_ms": slowest, "errors": errors}


def table(runs):
    """Rows of medians, with lowest and highest of ours."""
    rows = []
    for name, (title, unit, goal, _) in LOADS.items():
        of = {}
        for run in runs:
            if run["load"] == name and "shards" not in run:
                of.setdefault(run["server"], []).append(run["figure"])
        if "ours" not in of:
            continue
        ours = statistics.median(of["ours"])
        row = [f"`{name}`", title, unit, ours, min(of["ours"]), max(of["ours"])]
        for other in ("peer", "base"):
            row.append(statistics.median(of[other]) if other in of else None)
        peer = row[6]
        row += [peer / ours if peer else None, goal, None if goal is None else "yes" if ours <= goal else "no"]
        rows.append(row)
    return rows


def scaling(runs):
    """Rows of our server on one core and on two, programs and clients alike."""
    of = {}
    for run in runs:
        if "shards" in run:
            of.setdefault(run["shards"], []).append(run)
    one = None
    rows = []
    for label, group in of.items():
        cores, shards = label.split(" --shards ")
        rate = statistics.median(run["rate"] for run in group)
        one = one or rate
        rows.append([len(cores.split(",")), int(shards), rate, rate / one,
                     statistics.median(run["figure"] for run in group)])
    return rows


def number(value):
    """A figure as JSON has it: three digits."""
    if not isinstance(value, float):
        return value
    return round(value) if value >= 100 else float(f"{value:.3g}")


def show(columns, rows):
    text = [columns] + [["" if one is None else str(number(one)) for one in row] for row in rows]
    widths = [max(len(row[at]) for row in text) for at in range(len(columns))]
    for row in text:
        print("  ".join(one.ljust(width) for one, width in zip(row, widths)).rstrip())


def record(path, found, columns, rows, shard_columns, shard_rows):
    missed = [row[0] for row in rows if row[-1] == "no"]
    goals = sum(row[-1] is not None for row in rows)
    busy = sum(run["errors"] for run in found["runs"])
    about = {
        "Date": found["date"],
        "Command": f"`{found['command']}`",
        "Machine": found["machine"],
        "Peer": "dafileserver 1.8.9 of Debian 12, with its default options",
        "Rounds": f"medians of {found['rounds']}, in turns; {found['seconds']} s each",
        "Calls that the peer answered with VBUSY": f"{busy}; Poolhouse: none",
    }
    tables = {"loads": {"about": about, "columns": columns, "rows": [list(map(number, row)) for row in rows]}}
    if shard_rows:
        tables["shards"] = {"columns": shard_columns, "rows": [list(map(number, row)) for row in shard_rows]}
    newest = {"date": found["date"], "result": f"{goals - len(missed)} of {goals} goals met"}
    data = {"page": "afs-speed.md", "what": "The AFS server beside OpenAFS's", "newest": newest, "tables": tables}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2, ensure_ascii=False)
        file.write("\n")


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    # The script notes the load when it begins.
    load = float(os.environ.get("BENCH_LOAD") or os.getloadavg()[0])
    return f"{os.cpu_count()} CPUs, {model[1] if model else 'unknown'}, load {load:.1f} at the start"


# The ends of the rows that `beside` makes.
BESIDE = ["Ours", "Lowest", "Highest", "Peer", "Ratio", "Goal", "Met"]


def beside(ours, peer, ratio=None, most=None):
    """The end of a row: medians of runs, how many times less ours took, and the goal: a least ratio, or
    the most that ours may take."""
    mine, theirs = statistics.median(ours), statistics.median(peer)
    times = theirs / mine if mine else None
    goal, met = None, None
    if ratio is not None:
        goal, met = f"{ratio} times", times is None or times >= ratio
    elif most is not None:
        goal, met = f"at most {most}", mine <= most
    return [mine, min(ours), max(ours), theirs, times, goal, None if met is None else "yes" if met else "no"]


def verdict(rows, command):
    """What the index says of a table whose last column says which goals are met."""
    if "--debug" in command:
        return "a trial with small sizes and a build for development"
    goals = [row[-1] for row in rows if row[-1]]
    return f"{goals.count('yes')} of {len(goals)} goals met"


def publish(paths, page, what, about, tables, result):
    """Writes the data of a page. `tables` has columns and rows by name; `about` goes to the first. Without
    a page, the tables are further ones of a page of other data."""
    made = {}
    for name, (columns, rows) in tables.items():
        show(columns, rows)
        made[name] = {"columns": columns, "rows": [list(map(number, row)) for row in rows]}
        if len(made) == 1:
            made[name] = {"about": about, **made[name]}
    data = {"page": page, "what": what, "newest": {"date": about["Date"], "result": result}, "tables": made}
    if not page:
        data = {"tables": made}
    for path in filter(None, paths):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, ensure_ascii=False)
            file.write("\n")


def about(command, peer, rounds):
    """What stands above a table. `peer`: its programs, if there is one."""
    of = {"Date": datetime.date.today().isoformat(), "Command": f"`{command}`", "Machine": machine(),
          "Rounds": rounds}
    if peer:
        of["Peer"] = f"{peer} 1.8.9 of Debian 12, with its default options"
    if "--debug" in command:
        of["Build"] = "for development, with small sizes: a trial of the load, not its figures"
    return of


def arguments(*more):
    """Arguments that the loads on volumes have in common."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--command", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", action="append", default=[], type=Server)
    for one in more:
        parser.add_argument(one, required=True)
    return parser


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--load-client")
    parser.add_argument("--out", required=True)
    parser.add_argument("--command", default="")
    parser.add_argument("--server", action="append", default=[], type=Server)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--shards", metavar="'CORES --shards N'")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("load", nargs="*", choices=[*LOADS, []])
    args = parser.parse_args()
    found = {"date": datetime.date.today().isoformat(), "command": args.command, "machine": machine(),
             "rounds": args.rounds, "seconds": args.seconds, "runs": []}
    if os.path.exists(args.out):
        with open(args.out, encoding="utf-8") as file:
            found = json.load(file)
    if args.table:
        columns = ["Load", "What", "Unit", "Ours", "Lowest", "Highest", "Peer", "Base", "Ratio", "Goal", "Met"]
        rows, shard_rows = table(found["runs"]), scaling(found["runs"])
        if all(row[7] is None for row in rows):
            columns, rows = columns[:7] + columns[8:], [row[:7] + row[8:] for row in rows]
        shard_columns = ["Cores", "Shards", "Calls in a second", "Of one core", "CPU µs for each call"]
        show(columns, rows)
        if shard_rows:
            show(shard_columns, shard_rows)
        if args.record:
            record(args.record, found, columns, rows, shard_columns, shard_rows)
        return
    for _ in range(1 if args.shards else args.rounds):
        for name in args.load:
            for server in args.server:
                if args.shards and server.name != "ours":
                    continue
                prefix = ["taskset", "-c", args.shards.split()[0]] if args.shards else []
                run = measure(args.load_client, server, name, args.seconds, prefix)
                if args.shards:
                    run["shards"] = args.shards
                found["runs"].append(run)
                with open(args.out, "w", encoding="utf-8") as file:
                    json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
