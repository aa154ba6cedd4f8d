#!/usr/bin/env python3
"""Checks the links of all pages (*.md) that git knows: scripts/check-links.py [SITE]

- A relative link leads to a file or folder of the repository.
- A link with `#` leads to a heading of that page, by the name that GitHub and mdBook give it.
- A page in docs/ links to pages in docs/ alone, since the book has no other. It names other files
  as `path`.
- docs/SUMMARY.md lists every page in docs/ once.

- With SITE, a folder that mdBook wrote: a link of its pages leads to a file there.

Prints each fault, and exits with 1 if there is one. It does not ask for addresses on the web.
"""
import os
import re
import subprocess
import sys

LINK = re.compile(r"\]\(<?([^)\s>]+)>?[^)]*\)")


def prose(text):
    """The text without blocks of code; lines keep their numbers."""
    kept, code = [], False
    for line in text.splitlines():
        fence = line.lstrip().startswith(("```", "~~~"))
        if fence:
            code = not code
        kept.append("" if code or fence else line)
    return kept


def anchors(lines):
    """The names of the headings of a page."""
    names, seen = set(), {}
    for line in lines:
        heading = re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if not heading:
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
        name = re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))
        count = seen.get(name, 0)
        seen[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def faults_of_site(site):
    """Links of HTML pages that lead nowhere."""
    faults = []
    for folder, _, names in os.walk(site):
        for name in (name for name in names if name.endswith(".html")):
            page = os.path.join(folder, name)
            with open(page, encoding="utf-8") as file:
                links = set(re.findall(r'(?:href|src)="([^"#]+)', file.read()))
            for link in sorted(links):
                # print.html joins all pages, with their links unchanged.
                if name == "print.html" or re.match(r"[a-z][a-z+.-]*:", link):
                    continue
                start = site if link.startswith("/") else folder
                if not os.path.exists(os.path.join(start, link.lstrip("/"))):
                    faults.append(f"{page}: {link}: leads nowhere")
    return faults


def main():
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0")
    pages = {}
    for name in sorted(filter(None, names)):
        if os.path.exists(name):
            with open(name, encoding="utf-8") as file:
                pages[name] = prose(file.read())

    faults, links, listed_pages = [], 0, []
    for name, lines in pages.items():
        for number, line in enumerate(lines, 1):
            # A link in a code span is an example.
            for link in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z][a-z+.-]*:", link):
                    continue
                links += 1
                path, _, anchor = link.partition("#")
                target = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
                fault = None
                if not os.path.exists(target):
                    fault = "leads nowhere"
                elif name.startswith("docs/") and not target.startswith("docs/"):
                    fault = "leads out of docs/"
                elif anchor and target in pages and anchor not in anchors(pages[target]):
                    fault = "names no heading of that page"
                if fault:
                    faults.append(f"{name}:{number}: {link}: {fault}")
                if name == "docs/SUMMARY.md":
                    listed_pages.append(target)

    for name in pages:
        if name.startswith("docs/") and name != "docs/SUMMARY.md":
            count = listed_pages.count(name)
            if count != 1:
                faults.append(f"docs/SUMMARY.md: lists {name} {count} times, not once")

    if len(sys.argv) > 1:
        faults.extend(faults_of_site(sys.argv[1]))
    print("\n".join([*faults, f"{links} links in {len(pages)} pages, {len(faults)} faults"]))
    return 1 if faults else 0


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    sys.exit(main())
