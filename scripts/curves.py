#!/usr/bin/env python3
"""Draws curves of the tables of docs/results/data/*.json, as SVG beside them. scripts/results.py calls
it, and checks that they are up to date.

Both axes are divided by powers of ten. A curve is a column of a table, of the rows with some values.
"""
import math

# Curves by file: title, the axes, and each line: its name, the table, the column, and values of its rows.
CURVES = {
    "afs-start-by-volumes.svg": (
        "Start until all volumes are served", "Volumes", "ms", "Volumes",
        [("Poolhouse", "afs-start.start", "Ours", {"What": "start, ms"}),
         ("OpenAFS", "afs-start.start", "Peer", {"What": "start, ms"}),
         ("OpenAFS, tuned", "afs-start.start", "Peer, tuned", {"What": "start, ms"})]),
    "afs-memory-by-volumes.svg": (
        "Memory at the end of the start", "Volumes", "MB", "Volumes",
        [("Poolhouse", "afs-start.start", "Ours", {"What": "memory, MB"}),
         ("OpenAFS", "afs-start.start", "Peer", {"What": "memory, MB"}),
         ("OpenAFS, tuned", "afs-start.start", "Peer, tuned", {"What": "memory, MB"})]),
    "afs-verbs-by-volumes.svg": (
        "Verbs of vos in Poolhouse", "Volumes", "ms", "Volumes",
        [(verb, "afs-volumes.verbs", "Ours, ms", {"Verb": f"`{verb}`"})
         for verb in ("vos create", "vos remove", "vos listvol", "vos listvol -fast")]),
    "afs-verbs-by-volumes-peer.svg": (
        "Verbs of vos in OpenAFS", "Volumes", "ms", "Volumes",
        [(verb, "afs-volumes.verbs", "Peer, ms", {"Verb": f"`{verb}`"})
         for verb in ("vos create", "vos remove", "vos listvol", "vos listvol -fast")]),
    "afs-release-by-files.svg": (
        "Release of 100 changed files to two sites", "Files of the volume", "ms", "Files",
        [(name, table, column, {"Ours sends": "blocks", "Sites": "2"})
         for name, column in (("Poolhouse", "Ours, ms"), ("OpenAFS", "Peer, ms"))
         for table in ("afs-release.releases", "afs-release-million.releases")]),
}

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BELOW = 720, 420, 80, 40, 170, 50
# The colours of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00"]


def points(tables, table, column, where):
    """The rows of a line, as values by column."""
    one = tables.get(table)
    if not one:
        return []
    found = []
    for row in one["rows"]:
        values = dict(zip(one["columns"], row))
        if all(str(values[name]) == value for name, value in where.items()) and values[column] is not None:
            found.append(values)
    return found


def text(x, y, anchor, words, more=""):
    words = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{words}</text>\n'


def powers(values):
    return range(math.floor(math.log10(min(values))), max(math.ceil(math.log10(max(values))), 0) + 1)


def draw(tables):
    """The SVG of each file."""
    return {name: svg(tables, *curve) for name, curve in CURVES.items()}


def svg(tables, title, across, up, x_column, lines):
    drawn = {}
    for name, table, column, where in lines:
        for values in points(tables, table, column, where):
            x, y = float(values[x_column]), float(values[column])
            if x > 0 and y > 0:
                drawn.setdefault(name, []).append((x, y))
    xs = powers([x for line in drawn.values() for x, _ in line] or [1])
    ys = powers([y for line in drawn.values() for _, y in line] or [1])
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BELOW

    def at(x, y):
        return (LEFT + (math.log10(x) - xs[0]) / max(xs[-1] - xs[0], 1) * wide,
                TOP + tall - (math.log10(y) - ys[0]) / max(ys[-1] - ys[0], 1) * tall)

    out = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="13">\n<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n')
    out += text(LEFT, TOP - 16, "start", title, ' font-size="16"')
    for power in xs:
        x, bottom = at(10.0 ** power, 10.0 ** ys[0])
        out += f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom:.1f}" stroke="#ddd"/>\n'
        out += text(x, bottom + 18, "middle", f"{10.0 ** power:,.0f}" if power >= 0 else f"{10.0 ** power:g}")
    for power in ys:
        left, y = at(10.0 ** xs[0], 10.0 ** power)
        out += f'<line x1="{left:.1f}" y1="{y:.1f}" x2="{LEFT + wide}" y2="{y:.1f}" stroke="#ddd"/>\n'
        out += text(left - 8, y + 4, "end", f"{10.0 ** power:,.0f}" if power >= 0 else f"{10.0 ** power:g}")
    out += text(LEFT + wide / 2, HEIGHT - 10, "middle", across) + text(LEFT - 8, TOP - 16, "end", up)
    for index, (name, line) in enumerate(drawn.items()):
        colour, line = COLOURS[index % len(COLOURS)], [at(*point) for point in sorted(line)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in line)
        out += f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>\n'
        out += "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>\n' for x, y in line)
        out += f'<circle cx="{LEFT + wide + 16}" cy="{TOP + 8 + 20 * index}" r="5" fill="{colour}"/>\n'
        out += text(LEFT + wide + 26, TOP + 12 + 20 * index, "start", name)
    return out + "</svg>\n"
