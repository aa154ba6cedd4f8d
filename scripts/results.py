#!/usr/bin/env python3
"""Fills the tables of docs/results/*.md from docs/results/data/*.json.

usage: scripts/results.py [--check]

With --check nothing is written: the exit status is 1 if a page is not up to date, or if a table is
on no page.

A page has a table between two lines: `<!-- table: FILE.NAME -->` and `<!-- end -->`. It is the table
NAME of data/FILE.json, which looks like this:

  {"page": "crash.md", "what": "Crashes", "newest": {"date": "2026-11-25", "result": "..."},
   "tables": {"NAME": {"about": {"Command": "..."}, "columns": ["Date", ...], "rows": [[...], ...]}}}

`about` becomes a list, `columns` and `rows` a table; either may be absent. A value that is null
becomes an empty cell. `page`, `what` and `newest` become a line of the index in README.md. A file
that only adds tables to a page of another has none of these three.

scripts/curves.py draws some tables as SVG beside them.

`make bench-peers` writes peers.json and peers-run.json, in a form of their own.
"""
import glob
import json
import os
import re
import sys

import curves

HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "results")
BLOCK = re.compile(r"<!-- table: (\S+) -->\n(.*?)<!-- end -->", re.DOTALL)


# The goals of figures in peers.json and peers-run.json, set before any measurement: upper limits.
GOALS = {
    "cached-read.t1.cpu_us": 1.5,
    "cached-read-by-reference.t1.cpu_us": 0.4,
    "fsync-storm-disk.t64.cpu_us": 35,
    "fsync-storm-disk.t64.lock_wait_percent": 2,
    "free-1000000.one_cpu_us": 5,
}


class Number(str):
    """A number as its file has it: 0.60 keeps its zero."""


def load(name):
    with open(os.path.join(HOME, "data", name), encoding="utf-8") as file:
        return json.load(file, parse_float=Number, parse_int=Number)


def cell(value):
    if value is None:
        return ""
    if isinstance(value, Number):
        whole, point, rest = value.partition(".")
        return (f"{int(whole):,}" if len(whole) > 3 else whole) + point + rest
    return value.replace("|", "\\|")


def row(cells):
    return "| " + " | ".join(cells) + " |\n"


def render(table):
    """A table as Markdown."""
    text = "".join(f"- {name}: {cell(value)}\n" for name, value in table.get("about", {}).items())
    if "columns" not in table:
        return text
    columns, rows = table["columns"], table["rows"]
    for one in rows:
        if len(one) != len(columns):
            sys.exit(f"{len(one)} values in a table of {len(columns)} columns: {one}")
    numbers = [all(isinstance(one[at], (Number, type(None))) for one in rows) for at in range(len(columns))]
    text += "\n" if text else ""
    text += row(columns) + "|" + "".join("---:|" if number else "---|" for number in numbers) + "\n"
    return text + "".join(row(map(cell, one)) for one in rows)


def rounded(value):
    """A figure as people read it."""
    digits = 0 if abs(value) >= 1000 else 1 if abs(value) >= 10 else 3
    return Number(f"{value:.{digits}f}")


def peers():
    """The file of tables that peers.json and peers-run.json make up."""
    run = load("peers-run.json")
    ours = {name: float(value) for name, value in run["ours"]["figures"].items()}
    theirs = run["theirs"]["figures"]
    rows, met = [], 0
    for one in load("peers.json"):
        a, b, goal = float(one["ours"]), float(one["peer"]), float(one["goal_ratio"])
        good, bad = (a, b) if one["better"] == "lower" else (b, a)
        ratio = bad / good if good else None
        reached = ratio is None or ratio >= goal
        met += reached
        rows.append([f"`{one['workload']}`", rounded(a), rounded(b), one["unit"],
                     ratio and Number(f"{ratio:.2f}"), Number(f"{goal:g}"), "yes" if reached else "no"])
    cpus = int(run["machine"]["cpus"])
    scaling = []
    for name in sorted(ours):
        title = name.removesuffix(".t1.ops_s")
        pace = [ours.get(f"{title}.t{threads}.ops_s") for threads in (1, cpus, 2 * cpus)]
        if title != name and title.startswith("cached-read") and all(pace):
            scaling.append([f"`{title}`", Number(f"{pace[1] / pace[0] / cpus * 100:.0f}"),
                            Number(f"{pace[2] / pace[1] * 100:.0f}")])
    alone = {name: value for name, value in ours.items() if name not in theirs}
    locks = {}
    for name in [name for name in alone if ".lock_wait_percent." in name]:
        storm, lock = name.split(".lock_wait_percent.")
        locks.setdefault(storm, {})[lock] = alone.pop(name)
    sums = {f"{storm}.lock_wait_percent": sum(one.values()) for storm, one in locks.items()}
    limits = [[f"`{name}`", rounded({**ours, **sums}[name]), Number(f"{most:g}"),
               "yes" if {**ours, **sums}[name] <= most else "no"]
              for name, most in GOALS.items() if name in ours or name in sums]
    sites = sorted({lock for one in locks.values() for lock in one})
    about = {
        "Date": run["date"],
        "Command": f"`{run['command']}`",
        "Machine": f"{run['machine']['cpu']}, {cpus} CPUs, load {run['machine']['load']} at the start",
        "Peer": run["peer"],
        "Rounds": f"medians of {run['rounds']}, in turns",
        "Result": f"{met} of {len(rows)} rows reach their goal",
    }
    failed = [[one["workload"], one["whose"], one["why"]] for one in run["failed"]]
    return {
        "page": "peers.md", "what": "The engine beside libzpool, mounts beside zfs-fuse",
        "newest": {"date": run["date"], "result": about["Result"]},
        "tables": {
            "about": {"about": about},
            "rows": {"columns": ["Figure", "Poolhouse", "Peer", "Unit", "Ratio", "Goal", "Met"], "rows": rows},
            "limits": {"columns": ["Figure", "Poolhouse", "At most", "Met"], "rows": limits},
            "scaling": {"columns": ["Workload", "One thread per CPU, %", "Two threads per CPU, %"], "rows": scaling},
            "alone": {"columns": ["Figure", "Value"],
                      "rows": [[f"`{name}`", rounded(value)] for name, value in sorted(alone.items())]},
            "locks": {"columns": ["Workload", *(f"`{site}`" for site in sites)],
                      "rows": [[f"`{storm}`", *(rounded(one[site]) if site in one else None for site in sites)]
                               for storm, one in sorted(locks.items())]},
            "failed": {"columns": ["Workload", "Side", "Why it was not measured"], "rows": failed},
        },
    }


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    found = {"peers": peers()}
    for path in sorted(glob.glob(os.path.join(HOME, "data", "*.json"))):
        name = os.path.basename(path)
        if name not in ("peers.json", "peers-run.json"):
            found[name.removesuffix(".json")] = load(name)
    index = sorted(([f"[{one['what']}]({one['page']})", one["newest"]["date"], one["newest"]["result"]]
                    for one in found.values() if "page" in one), key=lambda one: one[0].lower())
    found["index"] = {"tables": {"pages": {"columns": ["What", "Newest run", "Result"], "rows": index}}}
    tables = {f"{name}.{table}": render(value) for name, one in found.items() for table, value in one["tables"].items()}
    used, stale = set(), []
    drawn = {f"{name}.{table}": value for name, one in found.items() for table, value in one["tables"].items()}
    for name, svg in curves.draw(drawn).items():
        path = os.path.join(HOME, "data", name)
        old = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                old = file.read()
        if svg != old:
            stale.append(name)
            if not check:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(svg)

    def filled(match):
        used.add(match[1])
        if match[1] not in tables:
            sys.exit(f"there is no table {match[1]}")
        return f"<!-- table: {match[1]} -->\n\n{tables[match[1]]}\n<!-- end -->"

    for page in sorted(glob.glob(os.path.join(HOME, "*.md"))):
        with open(page, encoding="utf-8") as file:
            text = file.read()
        new = BLOCK.sub(filled, text)
        if new != text:
            stale.append(os.path.basename(page))
            if not check:
                with open(page, "w", encoding="utf-8") as file:
                    file.write(new)
    problems = [f"{name} is on no page" for name in sorted(tables.keys() - used)]
    if check:
        problems += [f"{name} is not up to date: run scripts/results.py" for name in stale]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
