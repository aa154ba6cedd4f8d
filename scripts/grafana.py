#!/usr/bin/env python3
"""Writes the dashboards grafana/*.json.

usage: scripts/grafana.py [--check]

With --check nothing is written: the exit status is 1 if a file is not what this script writes.

A dashboard is a list of rows of panels. Its panels have the same data source, the same variables
and the same style. Change them here, not in the files. scripts/check-grafana.py checks the
expressions.
"""
import json
import os
import sys

HOME = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "grafana")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24

# The selectors of all panels.
POOL = 'instance="$instance",pool=~"$pool"'
DATASET = POOL + ',dataset=~"$dataset",class=~"$class"'
DEVICE = POOL + ',vdev=~"$vdev"'
# Rates of what a pool has only once.
BY_POOL = "sum by (pool) "


def rate(metric, selector):
    return f"rate({metric}{{{selector}}}[$__rate_interval])"


def ratio(part, whole):
    """A part of a whole; nothing where the whole is 0."""
    return f"{part} / ({whole} > 0)"


def quantile(share, by, metric, selector):
    return f"histogram_quantile({share}, sum by (le, {by}) ({rate(metric + '_bucket', selector)}))"


class Panels:
    """Panels from left to right, in rows under headings."""

    def __init__(self):
        self.all = []
        self.x = self.y = self.height = 0

    def place(self, width, height):
        if self.x + width > WIDTH:
            self.x, self.y, self.height = 0, self.y + self.height, 0
        at = {"x": self.x, "y": self.y, "w": width, "h": height}
        self.x, self.height = self.x + width, max(self.height, height)
        return at

    def add(self, kind, title, about, targets, size, **more):
        panel = {
            "id": len(self.all) + 1,
            "type": kind,
            "title": title,
            "description": about,
            "datasource": SOURCE,
            "gridPos": self.place(*size),
            "targets": [
                {"refId": chr(ord("A") + n), "datasource": SOURCE, "editorMode": "code", **target}
                for n, target in enumerate(targets)
            ],
        }
        self.all.append({**panel, **more})

    def row(self, title):
        self.place(WIDTH + 1, 0)
        self.all.append({
            "id": len(self.all) + 1,
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": self.y, "w": WIDTH, "h": 1},
            "panels": [],
        })
        self.x, self.y, self.height = 0, self.y + 1, 0

    def graph(self, title, about, unit, *lines, width=12, height=8, stacked=False, least=0, most=None):
        """Lines over time: pairs of an expression and its legend."""
        targets = [{"expr": expr, "legendFormat": legend, "range": True} for expr, legend in lines]
        custom = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 25 if stacked else 8,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        }
        defaults = {"unit": unit, "custom": custom, "color": {"mode": "palette-classic"}}
        defaults |= {} if least is None else {"min": least}
        defaults |= {} if most is None else {"max": most}
        self.add(
            "timeseries", title, about, targets, (width, height),
            fieldConfig={"defaults": defaults, "overrides": []},
            options={
                "legend": {"displayMode": "table", "placement": "bottom", "showLegend": True,
                           "calcs": ["mean", "max"], "sortBy": "Max", "sortDesc": True},
                "tooltip": {"mode": "multi", "sort": "desc"},
            },
        )

    def stat(self, title, about, unit, expr, legend, steps=None, mappings=None, text="auto", width=4,
             overrides=None):
        """The present values, coloured by steps of value and colour."""
        levels = [{"value": at, "color": color} for at, color in (steps or [(None, "text")])]
        defaults = {
            "unit": unit,
            "mappings": mappings or [],
            "color": {"mode": "thresholds"},
            "thresholds": {"mode": "absolute", "steps": levels},
        }
        targets = [{"expr": expr, "legendFormat": legend, "instant": True, "range": False}]
        self.add(
            "stat", title, about, targets, (width, 5),
            fieldConfig={"defaults": defaults, "overrides": overrides or []},
            options={
                "colorMode": "background" if steps else "value",
                "graphMode": "none",
                "justifyMode": "auto",
                "orientation": "auto",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "textMode": text,
            },
        )

    def heat(self, title, about, metric, selector, width=12):
        """How many operations took how long, over time."""
        expr = f"sum by (le) (increase({metric}_bucket{{{selector}}}[$__rate_interval]))"
        targets = [{"expr": expr, "legendFormat": "{{le}}", "format": "heatmap", "range": True}]
        self.add(
            "heatmap", title, about, targets, (width, 8),
            fieldConfig={"defaults": {"custom": {"hideFrom": {"legend": False, "tooltip": False, "viz": False}}},
                         "overrides": []},
            options={
                "calculate": False,
                "cellGap": 1,
                "cellValues": {"unit": "short"},
                "color": {"mode": "scheme", "scheme": "Oranges", "fill": "dark-orange", "steps": 64,
                          "exponent": 0.5, "scale": "exponential", "reverse": False},
                "exemplars": {"color": "rgba(255,0,255,0.7)"},
                "filterValues": {"le": 1e-9},
                "legend": {"show": True},
                "rowsFrame": {"layout": "auto"},
                "tooltip": {"show": True, "yHistogram": True, "mode": "single"},
                "yAxis": {"axisPlacement": "left", "reverse": False, "unit": "s"},
            },
        )

    def table(self, title, about, columns, by, width=24, height=9):
        """One line for each combination of the labels `by`. A column is a name, a unit and an
        expression; the first one sorts the table."""
        targets = [{"expr": expr, "format": "table", "instant": True, "range": False}
                   for _, _, expr in columns]
        values = [f"Value #{chr(ord('A') + n)}" for n in range(len(columns))]
        if len(columns) == 1:
            values = ["Value"]
        overrides = [
            {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
            for name, unit, _ in columns
        ]
        names = dict(zip(values, (name for name, _, _ in columns)))
        order = {name: n for n, name in enumerate(by + values)}
        self.add(
            "table", title, about, targets, (width, height),
            fieldConfig={"defaults": {"custom": {"align": "auto", "filterable": True}}, "overrides": overrides},
            options={"showHeader": True, "sortBy": [{"displayName": columns[0][0], "desc": True}]},
            transformations=[
                {"id": "merge", "options": {}},
                {"id": "organize", "options": {"excludeByName": {"Time": True}, "indexByName": order,
                                               "renameByName": names}},
            ],
        )


def variable(name, query, label=None, several=True):
    return {
        "type": "query",
        "name": name,
        "label": label or name,
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "allValue": ".*" if several else None,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if several else {},
        "options": [],
        "hide": 0,
        "regex": "",
        "skipUrlSync": False,
    }


def most(name="top"):
    """How many lines a graph has."""
    values = ["5", "10", "20", "50"]
    options = [{"selected": value == "10", "text": value, "value": value} for value in values]
    return {
        "type": "custom",
        "name": name,
        "label": "rows",
        "query": ",".join(values),
        "current": options[1],
        "options": options,
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "skipUrlSync": False,
    }


def dashboard(name, title, about, variables, panels):
    source = {
        "type": "datasource",
        "name": "datasource",
        "label": "data source",
        "query": "prometheus",
        "current": {},
        "options": [],
        "refresh": 1,
        "regex": "",
        "multi": False,
        "includeAll": False,
        "hide": 0,
        "skipUrlSync": False,
    }
    common = [
        source,
        variable("instance", "label_values(poolhouse_pool_txg, instance)", several=False),
        variable("pool", 'label_values(poolhouse_pool_txg{instance="$instance"}, pool)'),
    ]
    links = [{"type": "dashboards", "title": "Poolhouse", "tags": ["poolhouse"], "asDropdown": False,
              "includeVars": True, "keepTime": True, "icon": "external link", "targetBlank": False,
              "tooltip": "", "url": ""}]
    return {
        "uid": f"poolhouse-{name}",
        "id": None,
        "title": title,
        "description": about,
        "tags": ["poolhouse", "zfs"],
        "schemaVersion": 38,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "",
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timepicker": {},
        "fiscalYearStartMonth": 0,
        "annotations": {"list": []},
        "links": links,
        "templating": {"list": common + variables},
        "panels": panels.all,
    }


GREEN_RED = [(None, "green"), (1, "red")]
NO_YES = [{"type": "value", "options": {"0": {"text": "no", "index": 0}, "1": {"text": "yes", "index": 1}}}]


def states(panels):
    panels.row("State")
    healthy = {"matcher": {"id": "byRegexp", "options": "/ online$/"},
               "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": "green"}}]}
    panels.stat("State", "As `zpool status` shows it.", "none",
                f'poolhouse_vdev_state{{{POOL},role="root"}}', "{{pool}} {{state}}",
                [(None, "red")], text="name", overrides=[healthy])
    panels.stat("Waits for its devices",
                "yes: the pool is suspended, or its devices don't answer. `zpool status` says why.", "none",
                f"poolhouse_pool_suspended{{{POOL}}} + poolhouse_pool_silent{{{POOL}}} > bool 0",
                "{{pool}}", GREEN_RED, NO_YES)
    panels.stat("Damaged objects", "Objects in the error log. `zpool status -v` lists their files.", "none",
                f"poolhouse_pool_known_errors{{{POOL}}}", "{{pool}}", GREEN_RED)
    panels.stat("Capacity", "Allocated space, without log devices. From 80 % on, writes become slower.",
                "percentunit",
                ratio(f'poolhouse_vdev_allocated_bytes{{{POOL},role="root"}}',
                      f'poolhouse_vdev_size_bytes{{{POOL},role="root"}}'),
                "{{pool}}", [(None, "green"), (0.8, "orange"), (0.9, "red")])
    weighted = (f'sum by (pool) (poolhouse_vdev_fragmentation_ratio{{{POOL},role="data"}}'
                f' * poolhouse_vdev_size_bytes{{{POOL},role="data"}})')
    weight = (f'sum by (pool) (poolhouse_vdev_size_bytes{{{POOL},role="data"}}'
              f' and poolhouse_vdev_fragmentation_ratio{{{POOL},role="data"}})')
    panels.stat("Fragmentation", "Of the free space, weighted by the sizes of the top-level vdevs.",
                "percentunit", ratio(weighted, weight), "{{pool}}")
    panels.stat("Since the last scan", "Time since the last scrub or resilver ended. Nothing: there was none,"
                " or one is under way.", "s",
                f"time() - poolhouse_scan_end_timestamp_seconds{{{POOL}}}", "{{pool}} {{scan}}",
                [(None, "green"), (35 * 86400, "orange")])
    panels.graph("Space", "Allocated space and size of the pool.", "bytes",
                 (f'poolhouse_vdev_allocated_bytes{{{POOL},role="root"}}', "{{pool}} allocated"),
                 (f'poolhouse_vdev_size_bytes{{{POOL},role="root"}}', "{{pool}} size"))
    errors = [f"sum by (pool) (increase(poolhouse_vdev_{kind}_errors_total{{{POOL},path!=\"\"}}[$__rate_interval]))"
              for kind in ("read", "write", "checksum")]
    panels.graph("Errors of devices", "Failed reads and writes, and wrong checksums. The dashboard of the"
                 " devices says which.", "short",
                 *((expr, "{{pool}} " + kind) for expr, kind in zip(errors, ("reads", "writes", "checksums"))))


def operations(panels):
    op = POOL + ',op=~"$op"'
    panels.row("Operations of users (those that reach the daemon: the kernel answers cached reads)")
    panels.graph("Operations", "Requests of the kernel and of NBD clients, by kind.", "ops",
                 (f"sum by (pool, op) ({rate('poolhouse_op_seconds_count', op)})", "{{pool}} {{op}}"))
    panels.graph("Bytes", "What succeeded operations read and wrote.", "Bps",
                 (f"sum by (pool, op) ({rate('poolhouse_op_bytes_total', op)})", "{{pool}} {{op}}"))
    panels.graph("Time: p50", "Half of the operations of a kind took at most so long.", "s",
                 (quantile(0.5, "pool, op", "poolhouse_op_seconds", op), "{{pool}} {{op}}"))
    panels.graph("Time: p99", "99 of 100 operations of a kind took at most so long."
                 " `poolhouse slower` lists the slowest.", "s",
                 (quantile(0.99, "pool, op", "poolhouse_op_seconds", op), "{{pool}} {{op}}"))
    panels.heat("Times", "How many operations took how long, of the selected kinds.", "poolhouse_op_seconds", op)
    panels.graph("Failed operations", "By kind and errno. Names that don't exist are no errors.", "ops",
                 (f"sum by (pool, op, errno) ({rate('poolhouse_op_errors_total', op)})",
                  "{{pool}} {{op}} {{errno}}"))


def commits(panels):
    panels.row("Commits: fsync, flushes and synchronous writes")
    panels.graph("Commits", "How many there were.", "ops",
                 (BY_POOL + f"({rate('poolhouse_zil_commit_seconds_count', POOL)})", "{{pool}}"), width=8)
    panels.graph("Time of a commit", "p50 and p99.", "s",
                 *((quantile(share, "pool", "poolhouse_zil_commit_seconds", POOL), "{{pool}} " + name)
                   for share, name in ((0.5, "p50"), (0.99, "p99"))), width=8)
    panels.heat("Times of commits", "How many commits took how long.", "poolhouse_zil_commit_seconds", POOL,
                width=8)


def groups(panels):
    panels.row("Transaction groups (`poolhouse txgs` has the newest)")
    took = f"sum by (pool, phase) ({rate('poolhouse_txg_seconds_total', POOL)})"
    closed = f"sum by (pool) ({rate('poolhouse_txg_closed_total', POOL)})"
    panels.graph("Mean time of a phase", "How long a group is open, waits, and is written.", "s",
                 (f"{took} / on (pool) group_left () ({closed} > 0)", "{{pool}} {{phase}}"), width=8)
    panels.graph("Groups by why they closed",
                 "age: `zfs_txg_timeout`. dirty, full: writers are fast. request: a program waits for one.",
                 "ops", (f"sum by (pool, why) ({rate('poolhouse_txg_closed_total', POOL)})", "{{pool}} {{why}}"),
                 width=8, stacked=True)
    panels.graph("The present sync", "How long it has been under way.", "s",
                 (f"poolhouse_txg_syncing_seconds{{{POOL}}}", "{{pool}}"), width=8)
    panels.graph("Dirty data", "From 60 % of the limit on, writers are delayed"
                 " (`zfs_delay_min_dirty_percent`).", "bytes",
                 (f"poolhouse_txg_dirty_bytes{{{POOL}}}", "{{pool}} dirty"),
                 (f"poolhouse_txg_dirty_max_bytes{{{POOL}}}", "{{pool}} limit"), width=8)
    panels.graph("Throttled writers", "Writers that wait because so much is dirty, on average at a time.",
                 "short", (BY_POOL + f"({rate('poolhouse_txg_throttled_seconds_total', POOL)})", "{{pool}}"),
                 width=8)
    host = 'instance="$instance"'
    panels.graph("Delayed changes, all pools", "What kept changes from joining a group.", "ops",
                 *((rate(f"poolhouse_dmu_tx_{name}_total", host), legend) for name, legend in (
                     ("dirty_delay", "much is dirty"), ("dirty_over_max", "too much is dirty"),
                     ("group", "group closes"), ("suspended", "suspended"), ("quota", "no space or quota"))),
                 width=8)


def scans(panels):
    panels.row("Scrub and resilver")
    running = f"(poolhouse_scan_running{{{POOL}}} == 1)"
    done = ratio(f"poolhouse_scan_issued_bytes{{{POOL}}}", f"poolhouse_scan_to_examine_bytes{{{POOL}}}")
    panels.graph("Progress", "Of what a scan has to read; only while it runs.", "percentunit",
                 (f"{done} and {running}", "{{pool}} {{scan}}"), width=8, most=1)
    panels.graph("Speed", "What a scan reads.", "Bps",
                 (f"clamp_min(deriv(poolhouse_scan_issued_bytes{{{POOL}}}[$__rate_interval]), 0)",
                  "{{pool}} {{scan}}"), width=8)
    panels.graph("Found", "What the last or current scan repaired, and the blocks that it could not.", "short",
                 (f"poolhouse_scan_repaired_bytes{{{POOL}}}", "{{pool}} {{scan}} repaired bytes"),
                 (f"poolhouse_scan_errors{{{POOL}}}", "{{pool}} {{scan}} errors"), width=8)


def cache(panels):
    host = 'instance="$instance"'
    arc = lambda name: rate(f"poolhouse_arcstats_{name}_total", host)
    panels.row("Cache of all pools, and locks of the daemon")
    lines = []
    for kind in ("demand_data", "demand_metadata", "prefetch_data", "prefetch_metadata"):
        all_of = " + ".join(arc(f"{kind}_{what}") for what in ("hits", "iohits", "misses"))
        lines.append((ratio(arc(f"{kind}_hits"), all_of), kind.replace("_", " ")))
    panels.graph("Hits", "The share of requests that the ARC answers without a device.", "percentunit", *lines,
                 width=8, most=1)
    panels.graph("Size", "Of the ARC, and what it aims for.", "bytes",
                 *((f"poolhouse_arcstats_{name}{{{host}}}", legend) for name, legend in (
                     ("size", "size"), ("c", "target"), ("c_max", "limit"), ("mru_size", "recent"),
                     ("mfu_size", "frequent"), ("l2_asize", "cache devices"))), width=8)
    panels.graph("Pressure", "Hits of blocks that were just evicted, blocks that waited for space, and hits of"
                 " cache devices.", "ops",
                 (arc("mru_ghost_hits"), "evicted recent"), (arc("mfu_ghost_hits"), "evicted frequent"),
                 (arc("l2_hits"), "cache devices: hits"), (arc("l2_misses"), "cache devices: misses"),
                 (rate("poolhouse_arc_sublists_room_waited_total", host), "waited for space"), width=8)
    panels.graph("Waits for locks", "Threads that wait for a lock, on average at a time.", "short",
                 (f"topk(10, sum by (site) ({rate('poolhouse_lock_wait_seconds_total', host)}))", "{{site}}"))
    panels.graph("Mean wait for a lock", "Only of waits: a lock that is free is not counted.", "s",
                 (ratio(f"sum by (site) ({rate('poolhouse_lock_wait_seconds_total', host)})",
                        f"sum by (site) ({rate('poolhouse_lock_waits_total', host)})"), "{{site}}"))


def pools():
    panels = Panels()
    for part in (states, operations, commits, groups, scans, cache):
        part(panels)
    op = variable("op", 'label_values(poolhouse_op_seconds_count{instance="$instance",pool=~"$pool"}, op)',
                  "operation")
    return dashboard("pools", "Poolhouse: pools", "State, operations, commits, transaction groups, scans and"
                     " the cache.", [op], panels)


def datasets():
    panels = Panels()

    def top(expr):
        return f"topk($top, {expr})"

    def by_dataset(metric):
        return f"sum by (pool, dataset) ({rate(metric, DATASET)})"

    def by_class(metric):
        return f"sum by (class) ({rate(metric, DATASET)})"

    ops, count, errors, took = (f"poolhouse_dataset_{name}_total" for name in ("ops", "bytes", "errors", "seconds"))
    panels.row("The busiest datasets")
    panels.graph("Operations", "Of users, those that reach the daemon.", "ops",
                 (top(by_dataset(ops)), "{{dataset}}"))
    panels.graph("Bytes", "What succeeded operations read and wrote.", "Bps",
                 (top(by_dataset(count)), "{{dataset}}"))
    panels.graph("Mean time of an operation", "`poolhouse top` has their p99.", "s",
                 (top(ratio(by_dataset(took), by_dataset(ops))), "{{dataset}}"))
    panels.graph("Operations under way", "On average at a time. 1: one thread of a program always waits.",
                 "short", (top(by_dataset(took)), "{{dataset}}"))
    panels.graph("Failed operations", "`poolhouse top -v ops` has their errnos.", "ops",
                 (top(f"{by_dataset(errors)} > 0"), "{{dataset}}"))
    panels.graph("Share of failed operations", "Of all operations on the dataset.", "percentunit",
                 (top(f"{ratio(by_dataset(errors), by_dataset(ops))} > 0"), "{{dataset}}"))
    panels.row("By class, of the selected datasets")
    panels.graph("Operations", "read, write, sync, lookup, names, attributes, other.", "ops",
                 (by_class(ops), "{{class}}"), width=8, stacked=True)
    panels.graph("Bytes", "What succeeded operations read and wrote.", "Bps", (by_class(count), "{{class}}"),
                 width=8, stacked=True)
    panels.graph("Mean time of an operation", "By class.", "s",
                 (ratio(by_class(took), by_class(ops)), "{{class}}"), width=8)
    panels.row("In the whole time of the dashboard")

    def whole(metric):
        return f"sum by (pool, dataset, class) (increase({metric}{{{DATASET}}}[$__range]))"

    panels.table("Datasets by class", "Sums, and the mean time of an operation.", [
        ("time", "s", whole(took)),
        ("operations", "short", whole(ops)),
        ("bytes", "bytes", whole(count)),
        ("errors", "short", whole(errors)),
        ("mean", "s", ratio(whole(took), whole(ops))),
    ], ["pool", "dataset", "class"], height=12)
    more = [
        variable("dataset", 'label_values(poolhouse_dataset_ops_total{instance="$instance",pool=~"$pool"}, dataset)'),
        variable("class", 'label_values(poolhouse_dataset_ops_total{instance="$instance",pool=~"$pool"}, class)'),
        most(),
    ]
    return dashboard("datasets", "Poolhouse: datasets", "What users do with file systems and volumes.", more, panels)


def devices():
    panels = Panels()

    def by_device(metric, more="op"):
        return f"sum by (pool, vdev, {more}) ({rate(metric, DEVICE)})"

    def by_class(metric):
        return f"sum by (class, op) ({rate(metric, DEVICE)})"

    leaf = DEVICE + ',path!=""'
    panels.row("State")
    panels.table("Devices", "State, and errors since `zpool clear`.", [
        ("checksum errors", "none", f"sum by (pool, vdev, path, role) (poolhouse_vdev_checksum_errors_total{{{leaf}}})"),
        ("read errors", "none", f"sum by (pool, vdev, path, role) (poolhouse_vdev_read_errors_total{{{leaf}}})"),
        ("write errors", "none", f"sum by (pool, vdev, path, role) (poolhouse_vdev_write_errors_total{{{leaf}}})"),
        ("slow", "none", f"sum by (pool, vdev, path, role) (poolhouse_vdev_slow_ios_total{{{leaf}}})"),
        ("repaired", "bytes", f"sum by (pool, vdev, path, role) (poolhouse_vdev_self_healed_bytes_total{{{leaf}}})"),
        ("healthy", "bool_yes_no", 'sum by (pool, vdev, path, role) ('
         f'poolhouse_vdev_state{{{leaf},state="online"}} or poolhouse_vdev_state{{{leaf}}} * 0)'),
    ], ["pool", "vdev", "path", "role"], width=16)
    panels.graph("Errors and slow operations", "Those that were added.", "short",
                 *((f"sum by (pool, vdev) (increase(poolhouse_vdev_{name}_total{{{leaf}}}[$__rate_interval])) > 0",
                    "{{vdev}} " + legend) for name, legend in (
                        ("read_errors", "reads"), ("write_errors", "writes"), ("checksum_errors", "checksums"),
                        ("slow_ios", "slow"))), width=8, height=9)
    panels.row("By device")
    panels.graph("Operations", "Failed ones included.", "iops",
                 (by_device("poolhouse_device_ops_total"), "{{vdev}} {{op}}"))
    panels.graph("Bytes", "What devices read, wrote and discarded.", "Bps",
                 (by_device("poolhouse_device_bytes_total"), "{{vdev}} {{op}}"))
    for share, name in ((0.5, "p50"), (0.99, "p99")):
        panels.graph(f"Time of the device: {name}", "From when the device gets an operation to when it ends it."
                     " Flushes are not counted.", "s",
                     (quantile(share, "pool, vdev, op", "poolhouse_device_seconds", DEVICE), "{{vdev}} {{op}}"))
    panels.graph("Busy", "Operations that the device has, on average at a time. Below 1 it is idle in between.",
                 "short", (by_device("poolhouse_device_seconds_sum"), "{{vdev}} {{op}}"))
    panels.graph("Now", "Operations that the device has, and those that wait for their turn.", "short",
                 (f"sum by (pool, vdev) (poolhouse_device_active{{{DEVICE}}})", "{{vdev}} has"),
                 (f"sum by (pool, vdev) (poolhouse_device_waiting{{{DEVICE}}})", "{{vdev}} waiting"))
    panels.row("By class of I/O, of the selected devices")
    panels.graph("Operations", "What the I/O is for: callers, the log, transaction groups, scans.", "iops",
                 (by_class("poolhouse_device_ops_total"), "{{class}} {{op}}"), stacked=True)
    panels.graph("Bytes", "What devices read, wrote and discarded.", "Bps",
                 (by_class("poolhouse_device_bytes_total"), "{{class}} {{op}}"), stacked=True)
    panels.graph("Time of the device: p50", "By class.", "s",
                 (quantile(0.5, "class, op", "poolhouse_device_seconds", DEVICE), "{{class}} {{op}}"), width=8)
    panels.graph("Time of the device: p99", "By class.", "s",
                 (quantile(0.99, "class, op", "poolhouse_device_seconds", DEVICE), "{{class}} {{op}}"), width=8)
    panels.graph("Wait for its turn: p99", "Background I/O yields to foreground I/O before the device gets it.", "s",
                 (quantile(0.99, "class, op", "poolhouse_device_wait_seconds", DEVICE), "{{class}} {{op}}"), width=8)
    panels.heat("Times", "How many operations of devices took how long, of the selected devices.",
                "poolhouse_device_seconds", DEVICE)
    panels.graph("Mean size of an operation", "Small ones cost more for each byte.", "bytes",
                 (ratio(by_class("poolhouse_device_bytes_total"), by_class("poolhouse_device_ops_total")),
                  "{{class}} {{op}}"))
    panels.row("Space of top-level vdevs")
    panels.graph("Allocated", "Of the size of a vdev.", "percentunit",
                 (ratio(f"poolhouse_vdev_allocated_bytes{{{DEVICE}}}", f"poolhouse_vdev_size_bytes{{{DEVICE}}}"),
                  "{{vdev}} {{role}}"), most=1)
    panels.graph("Fragmentation", "Of the free space, where it is known.", "percentunit",
                 (f"poolhouse_vdev_fragmentation_ratio{{{DEVICE}}}", "{{vdev}} {{role}}"), most=1)
    vdev = variable("vdev", 'label_values(poolhouse_vdev_state{instance="$instance",pool=~"$pool"}, vdev)', "device")
    return dashboard("devices", "Poolhouse: devices", "State, operations, times and errors of devices.", [vdev], panels)


def texts():
    """The dashboards as text, by the names of their files."""
    made = {"pools": pools(), "datasets": datasets(), "devices": devices()}
    return {f"{name}.json": json.dumps(one, indent=1, ensure_ascii=False) + "\n" for name, one in made.items()}


def main():
    stale = []
    for name, text in texts().items():
        path = os.path.join(HOME, name)
        if "--check" not in sys.argv[1:]:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        with open(path, encoding="utf-8") as file:
            stale += [name] if file.read() != text else []
    for name in stale:
        print(f"grafana/{name}: not up to date: run scripts/grafana.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
