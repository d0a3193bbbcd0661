"""What docs/troubleshooting.md quotes is what the library says, and what the library says is there.

    messages.py ROOT [--list]      prints how many messages were compared, or the faults and exits 1

A quotation is code that begins a row of a table; "..." stands for what the message fills in. Each must occur in the sources. The
other way round each text of the sources that ends a refusal ("would fit", "would work") must be quoted, or begin as a
row that ends with "..." says; and so must the name of every rule and every status.
"""

import glob
import os
import re
import sys

SOURCES = ["runtime/**/*.cpp", "runtime/**/*.hpp", "compiler/*.cpp", "compiler/*.hpp", "python/src/*.cpp", "python/src/*.hpp",
           "python/splitkv/*.py"]
NEIGHBOURS = re.compile(r'(?:f?"(?:[^"\\\n]|\\.)*"\s*)+')
PIECE = re.compile(r'f?"((?:[^"\\\n]|\\.)*)"')


def literals(root):
    """Literals of the sources, neighbours joined, with {} where something is filled in."""
    for pattern in SOURCES:
        for path in sorted(glob.glob(os.path.join(root, pattern), recursive=True)):
            with open(path, encoding="utf-8") as file:  # without remarks and docstrings
                text = re.sub(r'^\s*(?://|#(?!\s*include)).*$|""".*?"""', "", file.read(), flags=re.M)
            for match in NEIGHBOURS.finditer(text):
                joined = "".join(PIECE.findall(match.group(0))).replace('\\"', '"').replace("\\n", " ")
                yield os.path.relpath(path, root), re.sub(r"\{[^{}]*\}", "{}", joined)


def quotations(root):
    """Codes that begin a row of a table."""
    with open(os.path.join(root, "docs", "troubleshooting.md"), encoding="utf-8") as page:
        text = page.read()
    rows = re.findall(r"^\| (`[^|]*) \|", text, re.M)
    return text, [quote.replace("\\|", "|") for row in rows for quote in re.findall(r"`([^`]+)`", row)]


def says(text, parts):
    """Whether the parts stand in the text, in their order."""
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


def tells(parts):
    """Whether a quotation has words of its own, so that not any refusal is like it."""
    return any(len(part.replace("would fit", "").replace("would work", "")) >= 6 for part in parts)


def rules(root):
    for path in glob.glob(os.path.join(root, "compiler", "verifier_*.cpp")):
        with open(path, encoding="utf-8") as file:
            yield from re.findall(r"^\s+\{\"([a-z0-9_]+)\",\s+\1\}", file.read(), re.M)


def main():
    root = sys.argv[1]
    said = sorted(set(literals(root)))
    page, quoted = quotations(root)
    known = {quote: quote.split("...") for quote in quoted}
    faults = [f"docs/troubleshooting.md quotes `{quote}`, which no source says" for quote in quoted
              if not any(says(text, known[quote]) for _, text in said)]
    starts = [quote[:-3] for quote in quoted if quote.endswith("...")]
    # What begins with the semicolon is the end of a text that begins elsewhere.
    refusals = [(path, text) for path, text in said if re.search(r"; .*would (fit|work)", text) and not text.startswith(";")]
    for path, text in refusals:
        if not any(text.startswith(start) for start in starts) and not any(
                says(text, parts) if tells(parts) else text.replace("{}", "...") == quote for quote, parts in known.items()):
            faults.append(f"{path} says what docs/troubleshooting.md has not: {text[:160]!r}")
    names = sorted(set(rules(root)))
    faults += [f"docs/troubleshooting.md leaves out the rule {name}" for name in names if f"`{name}`" not in page]
    with open(os.path.join(root, "runtime", "splitkv.h"), encoding="utf-8") as header:
        statuses = re.findall(r"^  SPLITKV_([A-Z_]+)\s*=\s*\d", header.read().split("} splitkv_status;")[0], re.M)
    faults += [f"docs/troubleshooting.md leaves out the status {name.lower()}" for name in statuses
               if name != "OK" and f"`{name.lower()}`" not in page]
    if "--list" in sys.argv:
        for path, text in refusals:
            print(path, repr(text))
    for fault in faults:
        print(fault)
    if faults or len(quoted) < 20 or len(refusals) < 100 or len(names) < 50:
        print(f"{len(faults)} faults; {len(quoted)} quotations, {len(refusals)} refusals in the sources, {len(names)} rules")
        return 1
    print(f"{len(quoted)} messages of troubleshooting.md are said, {len(refusals)} refusals and {len(names)} rules are in it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
