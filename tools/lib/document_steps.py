"""Does what a document tells its reader to do, and holds what comes out against what the document says.

    document_steps.py PAGE.md --work DIR [--part NAME]... [--clone DIR]

A comment in front of a fenced block says what the block is:

    <!-- file: PATH -->              a file to write, below the work folder
    <!-- run: PART -->               commands, run by bash in the work folder
    <!-- run: PART in the clone -->  the same in the folder of --clone
    <!-- prints: PART -->            lines that the commands of PART so far must have printed

Parts are done in the order of the page; without --part all of them. Every block of commands (```sh) of a page must have
such a comment. Commands see the environment of the caller (SPLITKV_PREFIX: where the library is installed).
"""

import argparse
import os
import re
import subprocess
import sys
import time

BLOCK = re.compile(r"(?:^<!-- (file|run|prints): ([^\n]+?) -->\n+)?^```([a-z+]*)\n(.*?)^```$", re.M | re.S)


class Wrong(Exception):
    pass


def blocks(page):
    """Kind, name and body of each block that a comment names."""
    found = []
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for kind, what, language, body in BLOCK.findall(text):
        if language == "sh" and kind != "run":
            raise Wrong(f"{page}: these commands belong to no part: {body.splitlines()[0]}")
        if kind:
            found.append((kind, what, body))
    return found


def run(commands, folder):
    script = "set -euo pipefail\n" + commands
    done = subprocess.run(["bash", "-c", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Wrong(f"exit status {done.returncode} of\n{commands}\n{done.stdout}")
    return done.stdout


def do(page, work, wanted, clone):
    """The seconds that each part took."""
    took, output, checked = {}, {}, set()
    for kind, what, body in blocks(page):
        part, _, place = what.partition(" in ")
        if kind == "file":
            path = os.path.join(work, what)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(body)
        elif wanted and part not in wanted:
            continue
        elif kind == "run":
            begin = time.monotonic()
            if place and not clone:
                raise Wrong(f"part {part} runs in the clone: --clone is needed")
            output[part] = output.get(part, "") + run(body, clone if place else work)
            took[part] = took.get(part, 0) + time.monotonic() - begin
        else:
            checked.add(part)
            for line in body.splitlines():
                if line not in output.get(part, "").splitlines():
                    raise Wrong(f"part {part} should print\n{line}\nand printed\n{output.get(part, '')}")
    missing = [part for part in wanted if part not in took]
    if missing or not took:
        raise Wrong(f"{page} has no part {' or '.join(missing)}")
    return took, checked


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("page")
    arguments.add_argument("--work", required=True)
    arguments.add_argument("--part", action="append", default=[])
    arguments.add_argument("--clone")
    given = arguments.parse_args()
    os.makedirs(given.work, exist_ok=True)
    try:
        took, checked = do(given.page, given.work, given.part, given.clone)
    except Wrong as wrong:
        print(wrong)
        return 1
    for part, seconds in took.items():
        held = ", and printed what the page says" if part in checked else ""
        print(f"{os.path.basename(given.page)}: {part} took {seconds / 60:.2f} minutes{held}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
