"""Hooks of MkDocs for docs/mkdocs.yml: the navigation out of docs/README.md, formulas as MathML, tables as GitHub reads them."""

import html
import os
import re

from latex2mathml.converter import convert

LINK = re.compile(r"^- \[([^\]]+)\]\(([^)#]+\.md)\)")


def on_config(config):
    """Sections are the second-level headings of docs/README.md, pages the first link of each item below them."""
    nav = [{"SplitKV": "README.md"}]
    with open(os.path.join(config["docs_dir"], "docs", "README.md"), encoding="utf-8") as index:
        for line in index:
            link = LINK.match(line)
            if line.startswith("## "):
                nav.append({line[3:].strip(): []})
            elif link and isinstance(list(nav[-1].values())[0], list):
                list(nav[-1].values())[0].append(os.path.normpath(os.path.join("docs", link.group(2))))
    nav.append({"All documents": "docs/README.md"})
    config["nav"] = nav
    return config


def on_page_markdown(markdown, page, **_):
    """Links to what is in the tree but not on the site (folders, pages of examples) become their text."""
    folder = os.path.dirname(page.file.src_uri)

    def kept(match):
        path = os.path.normpath(os.path.join(folder, match.group(2).split("#")[0]))
        on_site = os.path.isfile(os.path.join(os.environ["SPLITKV_SITE_SOURCE"], path))
        in_tree = os.path.exists(os.path.join(os.environ["SPLITKV_SITE_TREE"], path))
        return match.group(1) if in_tree and not on_site else match.group(0)

    return re.sub(r"(?<!!)\[([^\[\]]+)\]\(([^()\s#:][^()\s:]*)\)", kept, markdown)


def formula(match):
    display, source = match.group(1) == "div", html.unescape(match.group(2))
    source = re.sub(r"^\s*\\[\[(]|\\[\])]\s*$", "", source)
    tag = re.search(r"\\tag\{([^}]*)\}", source)
    source = re.sub(r"\\tag\{[^}]*\}", "", source).strip()
    source = re.sub(r"\\texttt\{([^}]*)\}", lambda name: name.group(0).replace("\\_", "_"), source)
    math = convert(source, display="block" if display else "inline")
    number = f'<span class="number">({tag.group(1)})</span>' if tag else ""
    return f'<div class="formula">{math}{number}</div>' if display else math


def on_page_content(content, **_):
    content = re.sub(r'<(div|span) class="arithmatex">(.*?)</\1>', formula, content, flags=re.S)
    # A bar inside of code in a table is written \| for GitHub; here it needs no backslash.
    return re.sub(r"<td[^>]*>.*?</td>", lambda cell: cell.group(0).replace("\\|", "|"), content, flags=re.S)
