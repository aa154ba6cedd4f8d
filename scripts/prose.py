#!/usr/bin/env python3
"""Measures the project's prose, as JSON.

usage: scripts/prose.py [--files | --over] [--only PREFIX]... [COMMIT]

Measured apart: pages (*.md), documentation comments (`///`, `//!`), other comments of *.rs.
Of each: words in a sentence and in a paragraph. Of pages also words in a table cell. Of comment
lines in *.rs and in scripts: columns. Each as count, median, 95th percentile, maximum, and how
many are above the limit.

  --files        The same for each file that has something above a limit, most first.
  --over         A line for each thing above a limit: FILE:LINE: what it is, and how it begins.
  --only PREFIX  Only files whose names begin so.
  COMMIT         The tree of that commit, in place of the files here.

A sentence ends at a full stop, question mark or exclamation mark before a space, or with its
paragraph. A paragraph is a run of lines, or an item of a list. Code blocks, tables, headings and
addresses are no prose; code within a line is one word. An item of a list that has no verb to be
expected (fewer than five words, no full stop) is no sentence.
"""
import argparse
import collections
import json
import re
import subprocess

SENTENCE_MAX = 25
PARAGRAPH_MAX = 100
COLUMNS_MAX = 100
ITEM_WORDS = 5

Text = collections.namedtuple("Text", "line kind text")  # kind: paragraph, item, cell
Over = collections.namedtuple("Over", "line what value text")

ITEM = re.compile(r"([-*+]|\d+\.)\s+")
# A full stop after these ends no sentence.
SHORT = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx)\.$")


def files(commit, prefixes):
    """The names and texts of pages, sources and scripts."""
    command = ["git", "ls-tree", "-r", "--name-only", commit] if commit else ["git", "ls-files"]
    names = subprocess.run(command, check=True, capture_output=True, text=True)
    for name in names.stdout.splitlines():
        if not kind_of(name) or (prefixes and not name.startswith(tuple(prefixes))):
            continue
        if commit:
            shown = subprocess.run(["git", "show", f"{commit}:{name}"], check=True, capture_output=True)
            yield name, shown.stdout.decode(errors="replace")
        else:
            try:
                with open(name, encoding="utf-8", errors="replace") as file:
                    yield name, file.read()
            except FileNotFoundError:
                continue


def kind_of(name):
    if name.endswith(".md"):
        return "page"
    if name.endswith(".rs"):
        return "source"
    if name.endswith((".sh", ".py", ".toml")) or name.rsplit("/", 1)[-1] in ("Makefile", "Containerfile", "run"):
        return "script"
    return None


def markdown(lines):
    """The texts of Markdown, given as (number, line)."""
    run, code, kind = [], False, "paragraph"

    def ended():
        if run:
            yield Text(run[0][0], kind, " ".join(line for _, line in run))
        run.clear()

    for number, line in lines:
        line = line.strip().lstrip(">").strip()
        if line.startswith(("```", "~~~")):
            code = not code
            yield from ended()
            continue
        if code:
            continue
        item = ITEM.match(line)
        if not line or line.startswith(("#", "|", "<")) or item:
            yield from ended()
            kind = "paragraph"
        if line.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line.strip("|")):
                if cell.strip() and not re.fullmatch(r":?-+:?", cell.strip()):
                    yield Text(number, "cell", cell.strip())
        elif item:
            kind = "item"
            run.append((number, line[item.end():]))
        elif line and not line.startswith(("#", "<")):
            run.append((number, line))
    yield from ended()


def comments(text):
    """The comments of a source, as {kind: [(number, line)]}; a blank line ends each block."""
    found = {"doc_comments": [], "comments": []}
    before = None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        mark = re.match(r"(///(?!/)|//!|//)", line)
        kind = mark and ("comments" if mark[1] == "//" else "doc_comments")
        if before and (kind != before[0] or mark[1] != before[1]):
            found[before[0]].append((number, ""))
        if kind:
            found[kind].append((number, line[mark.end():]))
        before = (kind, mark[1]) if kind else None
    return found


def words(text):
    """The words of a text; a piece of code is one word, an address none."""
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return [word for word in text.split() if re.search(r"\w", word)]


def sentences(text):
    """The sentences of a paragraph."""
    text = re.sub(r"`[^`]*`", "`code`", text)
    whole = ""
    for part in re.split(r"(?<=[.!?])[)\"'*_]*\s+", text):
        whole = f"{whole} {part}".strip()
        if SHORT.search(whole):
            continue
        if words(whole):
            yield whole
        whole = ""
    if words(whole):
        yield whole


class Measured:
    """Values by what they are (`pages.sentence_words`), and those above a limit."""

    LIMITS = {"sentence_words": SENTENCE_MAX, "paragraph_words": PARAGRAPH_MAX, "cell_words": PARAGRAPH_MAX,
              "columns": COLUMNS_MAX}

    def __init__(self):
        self.values = collections.defaultdict(list)
        self.over = []

    def add(self, of, what, value, line, text):
        self.values[of, what].append(value)
        if value > self.LIMITS[what]:
            self.over.append(Over(line, f"{of}.{what}", value, text))

    def texts(self, of, texts):
        for text in texts:
            count = len(words(text.text))
            if text.kind == "cell":
                self.add(of, "cell_words", count, text.line, text.text)
                continue
            self.add(of, "paragraph_words", count, text.line, text.text)
            if text.kind == "item" and count < ITEM_WORDS and not re.search(r"[.!?]$", text.text):
                continue
            for sentence in sentences(text.text):
                self.add(of, "sentence_words", len(words(sentence)), text.line, sentence)

    def file(self, name, text):
        lines = list(enumerate(text.splitlines(), 1))
        if kind_of(name) == "page":
            self.texts("pages", markdown(lines))
        elif kind_of(name) == "source":
            for of, found in comments(text).items():
                self.texts(of, markdown(found))
            self.columns("sources", ((n, line) for n, line in lines if line.lstrip().startswith("//")))
        else:
            self.columns("scripts", ((n, line) for n, line in lines if re.match(r"\s*#(?!!)", line)))

    def columns(self, of, lines):
        for number, line in lines:
            self.add(of, "columns", len(line.rstrip()), number, line.strip())

    def summary(self):
        told = {}
        for (of, what), values in sorted(self.values.items()):
            told.setdefault(of, {})[what] = summary(values, self.LIMITS[what])
        return told


def summary(values, limit):
    values = sorted(values)

    def at(share):
        return values[min(len(values) - 1, int(len(values) * share))]

    return {"count": len(values), "median": at(0.5), "p95": at(0.95), "max": values[-1],
            f"over_{limit}": sum(value > limit for value in values)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1], add_help=True)
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--over", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("commit", nargs="?")
    asked = parser.parse_args()
    whole, each = Measured(), {}
    for name, text in files(asked.commit, asked.only):
        whole.file(name, text)
        if asked.files or asked.over:
            each[name] = Measured()
            each[name].file(name, text)
    if asked.over:
        for name, one in each.items():
            for over in one.over:
                print(f"{name}:{over.line}: {over.what} {over.value}: {over.text[:80]}")
    elif asked.files:
        worst = sorted((name for name in each if each[name].over), key=lambda name: -len(each[name].over))
        print(json.dumps({name: each[name].summary() for name in worst}, indent=2))
    else:
        print(json.dumps(whole.summary(), indent=2))


if __name__ == "__main__":
    main()
