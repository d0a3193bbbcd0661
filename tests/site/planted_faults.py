"""The checks of this folder notice faults: one at a time is planted in a copy of the documents, and each must be found.

    planted_faults.py ROOT WORK      prints how many were found, or which was not and exits 1
"""

import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "..", "..", "tools", "lib")

# check, file, what is replaced (nothing: appended), by what, what the check must say
FAULTS = [
    ("markdown", "docs/cpp_guide.md", "(appending.md)", "(nowhere.md)", "link to nowhere.md, which does not exist"),
    ("markdown", "docs/c_guide.md", "#versions", "#verses", "has no such heading"),
    ("markdown", "docs/stranded.md", "", "# Nobody links here\n", "docs/stranded.md: docs/README.md does not lead here"),
    ("messages", "docs/troubleshooting.md", "| `capacity=...` |", "| `capacitance=...` |", "quotes `capacitance=...`"),
    ("messages", "docs/troubleshooting.md", "`head_dims_are_even`", "", "leaves out the rule head_dims_are_even"),
    ("messages", "docs/troubleshooting.md", "`not_prepared`", "", "leaves out the status not_prepared"),
    ("messages", "docs/troubleshooting.md", "| `places=...`, ", "| ", "says what docs/troubleshooting.md has not: 'places="),
    ("steps", "docs/quickstart.md", "", "\n```sh\ntrue\n```\n", "these commands belong to no part"),
    ("prints", "docs/page.md", "", "<!-- run: a -->\n```sh\nfalse; true\n```\n", "exit status 1"),
    ("prints", "docs/page.md", "", "<!-- run: a -->\n```sh\necho one\n```\n<!-- prints: a -->\n```text\ntwo\n```\n", "should print\ntwo"),
    ("site", "site/a.html", "", '<a href="b.html#there"></a><math></math>', "has no such anchor"),
    ("site", "site/a.html", "", '<a href="c.html"></a><math></math>', "c.html, which is not there"),
    ("site", "site/a.html", "", '<script src="https://example.org/a.js"></script><math></math>', "from the network"),
    ("site", "site/a.html", "", '<a href="https://exam ple"></a><math></math>', "which is no address"),
]


def run(check, tree, file):
    path = os.path.join(tree, file)
    command = {"markdown": [os.path.join(HERE, "markdown_links.py"), tree],
               "messages": [os.path.join(HERE, "messages.py"), tree],
               "steps": [os.path.join(LIB, "document_steps.py"), path, "--work", os.path.join(tree, "work"), "--part", "cpp"],
               "prints": [os.path.join(LIB, "document_steps.py"), path, "--work", os.path.join(tree, "work")],
               "site": [os.path.join(LIB, "check_site.py"), os.path.join(tree, "site")]}[check]
    return subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stand_in_for_linked_files(root, tree):
    """What documents link to in folders that are not copied is there, empty."""
    for page in [os.path.join(at, name) for at, _, files in os.walk(tree) for name in files if name.endswith(".md")]:
        with open(page, encoding="utf-8") as file:
            targets = re.findall(r"\]\(([^)#\s]+)", file.read())
        for target in targets:
            to = os.path.normpath(os.path.join(os.path.dirname(page), target))
            linked = os.path.join(root, os.path.relpath(to, tree))
            if to.startswith(tree) and os.path.exists(linked) and not os.path.exists(to):
                os.makedirs(to if os.path.isdir(linked) else os.path.dirname(to), exist_ok=True)
                if not os.path.isdir(linked):
                    open(to, "w", encoding="utf-8").close()


def copy(root, tree):
    shutil.rmtree(tree, ignore_errors=True)
    for folder, kinds in (("docs", (".md", ".svg")), ("runtime", (".h", ".hpp", ".cpp")), ("compiler", (".hpp", ".cpp")),
                          ("python/src", (".hpp", ".cpp")), ("python/splitkv", (".py",))):
        for at, _, files in os.walk(os.path.join(root, folder)):
            for name in files:
                if name.endswith(kinds):
                    to = os.path.join(tree, os.path.relpath(at, root), name)
                    os.makedirs(os.path.dirname(to), exist_ok=True)
                    shutil.copy(os.path.join(at, name), to)
    for name in os.listdir(root):
        if name.endswith(".md"):
            shutil.copy(os.path.join(root, name), tree)
    stand_in_for_linked_files(root, tree)
    os.makedirs(os.path.join(tree, "site"))
    with open(os.path.join(tree, "site", "b.html"), "w", encoding="utf-8") as page:
        page.write("<p id='here'></p>")


def plant(tree, file, old, new):
    """What was there before, or None."""
    path, before = os.path.join(tree, file), None
    if os.path.exists(path):
        with open(path, encoding="utf-8") as source:
            before = source.read()
    if old and (before is None or old not in before):
        raise SystemExit(f"{file} has no {old!r}: nothing was planted")
    with open(path, "w", encoding="utf-8") as target:
        target.write(before.replace(old, new) if old else (before or "") + new)
    return before


def main():
    root, tree = sys.argv[1], os.path.abspath(sys.argv[2])
    os.makedirs(tree, exist_ok=True)
    copy(root, tree)
    for check in ("markdown", "messages"):
        clean = run(check, tree, "")
        if clean.returncode:
            raise SystemExit(f"before anything was planted {check} says\n{clean.stdout}")
    for check, file, old, new, said in FAULTS:
        before = plant(tree, file, old, new)
        done = run(check, tree, file)
        if done.returncode == 0 or said not in done.stdout:
            raise SystemExit(f"not noticed: {new!r} in {file}; {check} said\n{done.stdout}")
        os.remove(os.path.join(tree, file))
        if before is not None:
            with open(os.path.join(tree, file), "w", encoding="utf-8") as target:
                target.write(before)
    print(f"{len(FAULTS)} faults planted in documents were noticed")


if __name__ == "__main__":
    main()
