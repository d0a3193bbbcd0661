"""Relative links and anchors among the Markdown files of the tree, and that docs/README.md leads to every page.

    markdown_links.py ROOT      prints what was checked, or the faults and exits 1
"""

import os
import re
import subprocess
import sys
from urllib.parse import unquote

FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ \t]*$", re.M | re.S)
INDENTED = re.compile(r"(?:\A|\n\n)((?:(?: {4,}|\t).*\n|\n)+)")
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t]*#*[ \t]*$", re.M)


def pages_of(root):
    """Tracked and new files, as git sees them; without git all but build folders."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if listed.returncode == 0 and listed.stdout:
        found = listed.stdout.split("\n")
    else:
        every = [os.path.relpath(os.path.join(folder, file), root) for folder, _, files in os.walk(root) for file in files]
        found = [page for page in every if page.endswith(".md") and not page.startswith("build")]
    return sorted(page for page in set(found) if page and os.path.isfile(os.path.join(root, page)))


def anchor(heading):
    """As GitHub makes it: lower case, no punctuation, blanks become hyphens."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    heading = re.sub(r"[`*]", "", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def anchors_of(text):
    seen = {}
    for heading in HEADING.findall(text):
        name = anchor(heading)
        seen[name] = seen.get(name, -1) + 1
        yield name if seen[name] == 0 else f"{name}-{seen[name]}"
    yield from re.findall(r'<a (?:id|name)="([^"]+)"', text)


def prose(text):
    text = FENCE.sub("", text)
    text = INDENTED.sub("\n\n", text)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "`code`", text)


def main():
    root = sys.argv[1]
    texts = {}
    for page in pages_of(root):
        with open(os.path.join(root, page), encoding="utf-8") as file:
            texts[page] = file.read()
    anchors = {page: set(anchors_of(FENCE.sub("", text))) for page, text in texts.items()}
    faults, links, leads = [], 0, {page: set() for page in texts}
    for page, text in texts.items():
        for target in LINK.findall(prose(text)):
            if re.match(r"^[a-z]+:", target):
                continue
            links += 1
            path, _, fragment = target.partition("#")
            file = os.path.normpath(os.path.join(os.path.dirname(page), unquote(path))) if path else page
            if not os.path.exists(os.path.join(root, file)):
                faults.append(f"{page}: link to {target}, which does not exist")
            elif fragment and file in anchors and fragment not in anchors[file]:
                faults.append(f"{page}: link to {target}, but {file} has no such heading")
            leads[page].add(file)
    reached, todo = set(), ["docs/README.md"]
    while todo:
        page = todo.pop()
        if page in leads and page not in reached:
            reached.add(page)
            todo.extend(leads[page])
    faults += [f"{page}: docs/README.md does not lead here" for page in texts
               if page.startswith("docs/") and page not in reached]
    for fault in faults:
        print(fault)
    if faults or not links:
        return 1
    print(f"{links} links among {len(texts)} Markdown files checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
