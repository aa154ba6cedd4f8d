#!/usr/bin/env python3
"""Checks the dashboards and alerts in grafana/ against the metrics that there are.

usage: scripts/check-grafana.py

crates/server/src/telemetry/metrics/page.txt is a page with each metric; a test holds it to what
the daemon prints. The checks:

- Each dashboard is what scripts/grafana.py writes. Ids and places of its panels don't collide.
- Each metric of an expression or a variable is on the page, with each label that is used with it.
  No rate or increase is taken of a gauge.
- Each alert has a summary and a description, with labels that the expression leaves. It names a
  command. alerts_test.yml has a case that fires it and one that doesn't.
- docs/reference/metrics.md lists each metric of the page, with its type, and no other.
- If Prometheus's promtool is installed: it accepts the page and the rules, and the tests pass.

Prints each fault, and exits with 1 if there is one. Needs no network and no daemon.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import grafana

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PAGE = "crates/server/src/telemetry/metrics/page.txt"
REFERENCE = "docs/reference/metrics.md"

# What Prometheus adds to each series, or has by itself.
TARGET = {"instance", "job"}
OWN = {"up": ("gauge", TARGET)}
# Labels in parentheses behind these words.
GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
SELECTED = re.compile(r"\b(poolhouse_\w+|up\b)\s*(\{[^{}]*\})?")
LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"')
# Functions for what only grows.
GROWS = re.compile(r"\b(rate|increase|irate)\(\s*$")


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as file:
        return file.read()


def metrics(page):
    """The types of a page, and the samples: type and labels by the names that PromQL has."""
    types, found, family = {}, {}, ""
    for line in page.splitlines():
        about = re.match(r"# TYPE (\S+) (\S+)", line)
        if about:
            family, kind = about.groups()
            types[family] = kind
        sample = re.match(r"(\w+)(?:\{(.*)\})? \S+$", line)
        if sample:
            labels = re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', sample.group(2) or "")
            found.setdefault(sample.group(1), (types[family], set()))[1].update(labels)
    return types, found


def families(types):
    """The names in the reference: a counter with the end of its samples."""
    return {name + ("_total" if kind == "counter" else ""): kind for name, kind in types.items()}


def faults_of(expr, known, legend=""):
    """Faults of an expression and of its legend."""
    labels, faults = set(TARGET), []
    for use in SELECTED.finditer(expr):
        name, selector = use.group(1), use.group(2) or ""
        if name not in known:
            faults.append(f"no metric {name}")
            continue
        kind, own = known[name]
        labels |= own
        for label in LABEL.findall(selector):
            if label not in own | TARGET:
                faults.append(f"{name} has no label {label}")
        rest = expr[use.end():].lstrip()
        within = GROWS.search(expr[: use.start()])
        if within and kind == "gauge":
            faults.append(f"{within.group(1)} of {name}, a {kind}")
        if within and not rest.startswith("["):
            faults.append(f"{within.group(1)} of {name} without a range")
    kept = [set(filter(None, re.split(r"[\s,]+", inner))) for word, inner in GROUPING.findall(expr)
            if word == "by"]
    for word, inner in GROUPING.findall(expr):
        for label in filter(None, re.split(r"[\s,]+", inner)):
            if label not in labels:
                faults.append(f"{word} ({label}): no metric of the expression has it")
    left = set.union(*kept) if kept else labels
    for label in re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", legend):
        if label not in left:
            faults.append(f"{{{{{label}}}}}: the expression has no such label")
    if not SELECTED.search(expr):
        faults.append("no metric at all")
    bare = re.sub(r'"[^"]*"', "", expr)
    faults += [f"'{expr}': '{a}' and '{b}' don't match" for a, b in ("()", "{}", "[]") if bare.count(a) != bare.count(b)]
    return faults


def faults_of_dashboard(name, board, known):
    faults, ids, places = [], set(), []
    variables = {one["name"] for one in board["templating"]["list"]}
    builtin = {"__rate_interval", "__range", "__interval"}
    for one in board["templating"]["list"]:
        if one["type"] == "query":
            values = re.fullmatch(r"label_values\((.*), (\w+)\)", one["definition"])
            if not values:
                faults.append(f"variable {one['name']}: not label_values(metric, label)")
                continue
            wrong = faults_of(values.group(1), known, "{{" + values.group(2) + "}}")
            faults += [f"variable {one['name']}: {fault}" for fault in wrong]
    for panel in board["panels"]:
        title = f"panel {panel['id']} '{panel['title']}'"
        at = panel["gridPos"]
        if panel["id"] in ids:
            faults.append(f"{title}: its id is used twice")
        ids.add(panel["id"])
        if at["x"] + at["w"] > grafana.WIDTH or any(
                at["x"] < other["x"] + other["w"] and other["x"] < at["x"] + at["w"]
                and at["y"] < other["y"] + other["h"] and other["y"] < at["y"] + at["h"] for other in places):
            faults.append(f"{title}: lies on another panel, or beside the dashboard")
        places.append(at)
        if panel["type"] == "row":
            continue
        if not panel.get("description"):
            faults.append(f"{title}: no description")
        if panel["datasource"].get("uid") != "${datasource}" or not panel["targets"]:
            faults.append(f"{title}: no data source, or no expression")
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"]))
            faults += [f"{title}: no variable ${one}" for one in sorted(used - variables - builtin)]
            wrong = faults_of(target["expr"], known, target.get("legendFormat", ""))
            faults += [f"{title}: {fault}" for fault in wrong]
    return [f"grafana/{name}: {fault}" for fault in faults]


def alerts(text):
    """The rules of alerts.yml: what stands behind each key. The file keeps to a part of YAML."""
    rules = []
    for block in re.split(r"^      - ", text, flags=re.M)[1:]:
        rule, lines = {}, block.splitlines()
        for n, line in enumerate(lines):
            pair = re.match(r"\s*(\w+):\s*(.*)$", line)
            if not pair:
                continue
            key, value = pair.groups()
            if value == "|":
                indent = len(line) - len(line.lstrip()) + (8 if n == 0 else 0)
                below = []
                for more in lines[n + 1:]:
                    if more.strip() and len(more) - len(more.lstrip()) <= indent:
                        break
                    below.append(more.strip())
                value = " ".join(below)
            rule[key] = value.strip('"')
        rules.append(rule)
    return rules


def faults_of_alerts(known):
    rules, faults = alerts(read("grafana/alerts.yml")), []
    names = [rule["alert"] for rule in rules]
    faults += [f"{name}: there are two" for name in sorted(set(names)) if names.count(name) > 1]
    cases = re.split(r"^  - ", read("grafana/alerts_test.yml"), flags=re.M)[1:]
    for rule in rules:
        name = rule["alert"]
        for part in ("expr", "severity", "summary", "description"):
            if not rule.get(part):
                faults.append(f"{name}: no {part}")
        text = f"{rule.get('summary', '')} {rule.get('description', '')}"
        faults += [f"{name}: {fault}" for fault in faults_of(rule.get("expr", ""), known, text)]
        subject = "instance" if name == "PoolhouseDown" else "pool"
        if f"$labels.{subject} " not in rule.get("summary", ""):
            faults.append(f"{name}: the summary does not name the {subject}")
        if "`" not in rule.get("description", ""):
            faults.append(f"{name}: the description names no command")
        own = [case for case in cases if re.search(rf"alertname: {name}$", case, flags=re.M)]
        if not any("exp_labels:" in case for case in own):
            faults.append(f"{name}: no test fires it")
        if not any("exp_alerts: []" in case for case in own):
            faults.append(f"{name}: no test in which it does not fire")
    tested = set(re.findall(r"alertname: (\w+)", "".join(cases)))
    faults += [f"{name}: a test of no alert" for name in sorted(tested - set(names))]
    return [f"grafana/alerts.yml: {fault}" for fault in faults], len(rules)


def faults_of_reference(types):
    """Rows of the reference are `| metrics | type | … |`."""
    listed = {}
    for line in read(REFERENCE).splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) < 3 or cells[1] not in ("counter", "gauge", "histogram"):
            continue
        listed |= {name: cells[1] for name in re.findall(r"`(poolhouse_\w+)`", cells[0])}
        # Kstats: `poolhouse_zil_*`, and the rest of each name in the last cell.
        start = re.fullmatch(r"`(poolhouse_\w+_)\*`", cells[0])
        if start:
            listed |= {start.group(1) + end: cells[1] for end in re.findall(r"`(\w+)`", cells[2])}
    there = families(types)
    faults = [f"{REFERENCE}: no {kind} {name}" for name, kind in sorted(there.items()) if listed.get(name) != kind]
    faults += [f"{REFERENCE}: {name} is not on the page" for name in sorted(set(listed) - set(there))]
    faults += [f"{PAGE}: {name}: the type is {kind}" for name, kind in sorted(types.items())
               if kind not in ("counter", "gauge", "histogram")]
    faults += [f"{PAGE}: {name}: a part of the name is there twice" for name in sorted(types)
               if re.search(r"_([a-z]+(?:_[a-z]+)*)_\1_", f"{name}_")]
    return faults


def plain(page):
    """The page in Prometheus's own text format, which promtool reads: in OpenMetrics, `# TYPE`
    leaves out the `_total` of a counter."""
    counters = set(re.findall(r"^# TYPE (\S+) counter$", page, flags=re.M))
    lines = []
    for line in page.splitlines():
        about = re.match(r"# (TYPE|HELP) (\S+) (.*)", line)
        if about:
            word, name, rest = about.groups()
            line = f"# {word} {name}{'_total' if name in counters else ''} {rest}"
        elif line.startswith("#"):
            continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def faults_of_promtool(page):
    if not shutil.which("promtool"):
        print("SKIPPED promtool: it is not installed (Debian: apt-get install prometheus)")
        return []
    faults = []

    def run(what, arguments, text=None):
        done = subprocess.run(["promtool", *arguments], cwd=ROOT, input=text, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            faults.append(f"promtool {what}: {done.stdout.strip()}")

    run("check metrics", ["check", "metrics"], plain(page))
    run("check rules", ["check", "rules", "grafana/alerts.yml"])
    run("test rules", ["test", "rules", "grafana/alerts_test.yml"])
    # The expressions of panels, as rules.
    with tempfile.TemporaryDirectory() as folder:
        rules = []
        for text in grafana.texts().values():
            for panel in json.loads(text)["panels"]:
                rules += [filled(target["expr"]) for target in panel.get("targets", [])]
        path = os.path.join(folder, "panels.yml")
        with open(path, "w", encoding="utf-8") as file:
            named = [{"record": f"panel:{n}", "expr": expr} for n, expr in enumerate(rules)]
            json.dump({"groups": [{"name": "panels", "rules": named}]}, file)
        run("check rules, panels", ["check", "rules", path])
    return faults


def filled(expr):
    """An expression with values for Grafana's variables."""
    for name, value in (("__rate_interval", "1m"), ("__range", "1h"), ("top", "10")):
        expr = re.sub(rf"\${name}\b", value, expr)
    return re.sub(r"\$\w+", ".*", expr)


def main():
    page = read(PAGE)
    types, known = metrics(page)
    known |= OWN
    faults = []
    count = 0
    uids = set()
    for name, text in grafana.texts().items():
        on_disk = read(f"grafana/{name}")
        if on_disk != text:
            faults.append(f"grafana/{name}: not up to date: run scripts/grafana.py")
        try:
            board = json.loads(on_disk)
        except ValueError as error:
            faults.append(f"grafana/{name}: {error}")
            continue
        if board["uid"] in uids:
            faults.append(f"grafana/{name}: its uid is used twice")
        uids.add(board["uid"])
        faults += faults_of_dashboard(name, board, known)
        count += sum(panel["type"] != "row" for panel in board["panels"])
    of_alerts, rules = faults_of_alerts(known)
    faults += of_alerts + faults_of_reference(types) + faults_of_promtool(page)
    for fault in faults:
        print(fault)
    print(f"{count} panels, {rules} alerts, {len(types)} metrics: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
