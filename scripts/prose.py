#!/usr/bin/env python3
"""How the project's prose reads, as JSON: scripts/prose.py [COMMIT]

Of the pages (*.md): words of a sentence and of a paragraph. Of the comments in *.rs: columns of a
line. Each as median, 95th percentile and maximum, and how many are over the house's limits (100
words of a paragraph, 100 columns of a comment). With COMMIT, of the tree at that commit.

A paragraph is a run of lines of text, an item of a list, or a cell of a table. A sentence ends with
a full stop, question mark, exclamation mark, colon or semicolon before a space, or with its
paragraph. Code blocks, headings and addresses count for nothing.
"""
import json
import re
import subprocess
import sys

PARAGRAPH_MAX = 100
COMMENT_MAX = 100


def files(commit):
    """The names and texts of all pages and sources."""
    if commit:
        names = subprocess.run(["git", "ls-tree", "-r", "--name-only", commit], check=True, capture_output=True, text=True)
    else:
        names = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    for name in names.stdout.splitlines():
        if not name.endswith((".md", ".rs")):
            continue
        if commit:
            shown = subprocess.run(["git", "show", f"{commit}:{name}"], check=True, capture_output=True)
            yield name, shown.stdout.decode(errors="replace")
        else:
            with open(name, encoding="utf-8", errors="replace") as file:
                yield name, file.read()


def paragraphs(text):
    """The paragraphs of a page, as plain text."""
    run, code = [], False
    for line in text.splitlines():
        line = line.strip()
        if line.startswith(("```", "~~~")):
            code = not code
            line = ""
        elif code:
            continue
        starts_anew = re.match(r"([-*+]|\d+\.)\s+", line)
        if not line or line.startswith(("#", "|", "<")) or starts_anew:
            if run:
                yield " ".join(run)
            run = []
        if line.startswith("|"):
            cells = (cell.strip() for cell in line.strip("|").split("|"))
            yield from (cell for cell in cells if cell and not re.fullmatch(r":?-+:?", cell))
        elif line and not line.startswith(("#", "<")):
            run.append(line[starts_anew.end():] if starts_anew else line)
    if run:
        yield " ".join(run)


def words(text):
    """The words of a text; a piece of code is one word, an address none."""
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return [word for word in text.split() if re.search(r"\w", word)]


def sentences(text):
    text = re.sub(r"`[^`]*`", "code", text)
    return (part for part in re.split(r"(?<=[.!?:;])\s+", text) if words(part))


def summary(values, limit=None):
    values = sorted(values)
    if not values:
        return None
    at = lambda share: values[min(len(values) - 1, int(len(values) * share))]
    told = {"count": len(values), "median": at(0.5), "p95": at(0.95), "max": values[-1]}
    if limit:
        told["over_" + str(limit)] = sum(value > limit for value in values)
    return told


def main():
    commit = sys.argv[1] if len(sys.argv) > 1 else None
    sentence, paragraph, comment = [], [], []
    for name, text in files(commit):
        if name.endswith(".md"):
            for part in paragraphs(text):
                paragraph.append(len(words(part)))
                sentence.extend(len(words(one)) for one in sentences(part))
        else:
            lines = (line.rstrip() for line in text.splitlines())
            comment.extend(len(line) for line in lines if line.lstrip().startswith("//"))
    print(json.dumps({
        "sentence_words": summary(sentence),
        "paragraph_words": summary(paragraph, PARAGRAPH_MAX),
        "comment_columns": summary(comment, COMMENT_MAX),
    }, indent=2))


if __name__ == "__main__":
    main()
