"""Checks a site that is built: every link and anchor of every page is there, nothing is loaded from the network, and
external links are well formed (they are not fetched).

    check_site.py DIR      prints "N pages of the site, M links checked", or the faults and exits 1
"""

import os
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}
EXTERNAL = re.compile(r"^https?://[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?(/[^\s]*)?$", re.I)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.anchors, self.formulas = [], [], set(), 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        of = dict(attributes)
        self.anchors.update(value for name, value in attributes if value and (name == "id" or (tag == "a" and name == "name")))
        self.formulas += tag == "math"
        if tag == "a" and of.get("href"):
            self.links.append(of["href"])
        for name, value in attributes:
            canonical = tag == "link" and of.get("rel") in ("canonical", "next", "prev")
            if (tag, name) in LOADED and value and not canonical:
                self.loaded.append(value)


def read_pages(root):
    pages = {}
    for folder, _, files in os.walk(root):
        for file in files:
            if file.endswith(".html"):
                path = os.path.relpath(os.path.join(folder, file), root)
                with open(os.path.join(root, path), encoding="utf-8") as page:
                    pages[path] = Page(page.read())
    return pages


def faults_of(path, page, pages, root):
    for target in page.links + page.loaded:
        parts = urlsplit(target)
        if parts.scheme in ("http", "https"):
            if target in page.loaded:
                yield f"loads {target} from the network"
            elif not EXTERNAL.match(target):
                yield f"links to {target}, which is no address"
            continue
        if parts.scheme or target.startswith("//"):
            if parts.scheme not in ("mailto", "javascript", "data"):
                yield f"links to {target}, of an unknown kind"
            continue
        file = os.path.normpath(os.path.join(os.path.dirname(path), unquote(parts.path))) if parts.path else path
        if os.path.isdir(os.path.join(root, file)):
            file = os.path.normpath(os.path.join(file, "index.html"))
        if not os.path.exists(os.path.join(root, file)):
            yield f"links to {target}, which is not there"
        elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
            yield f"links to {target}, but {file} has no such anchor"


def main():
    root = sys.argv[1]
    pages = read_pages(root)
    pages.pop("404.html", None)
    faults = [f"{path}: {fault}" for path, page in sorted(pages.items()) for fault in faults_of(path, page, pages, root)]
    for fault in faults:
        print(fault)
    links = sum(len(page.links) + len(page.loaded) for page in pages.values())
    if faults or not pages or not links or not sum(page.formulas for page in pages.values()):
        print(f"{len(faults)} faults in {len(pages)} pages, {links} links")
        return 1
    print(f"{len(pages)} pages of the site, {links} links checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
