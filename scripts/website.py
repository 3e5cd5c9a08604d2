"""Build the documentation as a site with search, site/, from docs/ as it is.

    python scripts/website.py

A link that leads nowhere is an error, so is a page to which none leads, and a warning of the site
generator.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import partial
from html import escape
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, unquote

from pages import DOCS, FENCED, PROJECT, anchors, pages

SITE = PROJECT / "site"
STAGED = PROJECT / "outputs" / "website" / "docs"
"""The pages as the site generator reads them."""
SERVE = "python3 -m http.server --bind 127.0.0.1 --directory site 8000"

OUTSIDE_DOCS = ("CONTRIBUTING.md", "CHANGELOG.md")
"""They are pages of the site, too, there in small letters."""

LINK = re.compile(r"(?<!!)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\s]+)\)")
LINK_OR_PICTURE = re.compile(r"!?\[[^\]\n]*\]\((?P<target>[^)\s]+)\)")
CODE = re.compile(r"`[^`\n]+`(?!\])")
"""Code in a line, but that which is the whole text of a link."""
FIELDS = "json.html"
NEARLY_THE_SAME = 0.8  # of two titles, as difflib counts
WORD = re.compile(r"^\| (?P<word>(?!word )\w[^|\n]*) \| (?P<meaning>.+) \|$", re.MULTILINE)
"""A row of the table of words."""
SYMPTOM = re.compile(
    r"^\| (?P<symptom>\w[^|\n]*) \| \[[^\]\n]*\]\((?P<page>[^)\s]+)\)", re.MULTILINE
)
"""A row of the table of symptoms, with the first page that it names."""
WITH_SCHEME = re.compile(r"[a-z]+:")
NAVIGATION = PROJECT / "mkdocs.yml"

BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
OF_TERMINALS = ("", "console", "text")
"""Kinds of blocks with commands, what they print, and lists of files: all that is no code."""
OPTION = re.compile(r"(?<!\S)--?\w[\w-]*")
WITH_COMMENT = re.compile(r"(?P<command>[$\w.].*?) +# (?P<comment>.+)")
ROW_OF_TABLE = re.compile(r"\S {2,}\S")
"""What only lines of tables have, in what a command prints."""
MOST_HUNG = 60
"""Columns before the last one of a row that is wrapped below its beginning."""
USUAL_COLUMNS = 84
"""As many as a page has; a row that cannot be wrapped and has more is set in smaller type."""
PICTURE = re.compile(r"^(?P<picture>!\[[^\]\n]*\]\((?P<target>[^)\s]+)\))$", re.MULTILINE)


def main() -> int:
    """Build the site, unless a link leads nowhere; gives the exit code."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    broken = [*broken_links(), *lonely_pages()]
    if broken:
        print(*broken, sep="\n", file=sys.stderr)
        return 1
    stage_pages()
    shutil.rmtree(SITE, ignore_errors=True)
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--clean", "-f", "mkdocs.yml"]
    code = subprocess.run(build, cwd=PROJECT, check=False).returncode
    if code == 0:
        add_words_to_search()
        # Browsers run the search from a server only.
        print(f"To read it with its search: {SERVE}, then open http://127.0.0.1:8000")
    return code


# -- search ----------------------------------------------------------------------------------------


def add_words_to_search() -> None:
    """Make each word of the page of words, and each symptom, an entry of its own.

    Its name finds it first: Zensical 0.0.73 knows no weight of a page, and pages that name a word
    often come before it. The page of fields is found by their names, not by what they mean.
    """
    index = SITE / "search.json"
    content = json.loads(index.read_text(encoding="utf-8"))
    of_page = next(item for item in content["items"] if item["location"] == "words.html")
    for row in WORD.finditer((DOCS / "words.md").read_text(encoding="utf-8")):
        meaning = escape(LINK.sub(r"\g<text>", row["meaning"]), quote=False)
        text = re.sub("`([^`]+)`", r"<code>\1</code>", meaning).replace("*", "")
        content["items"].append(of_page | {"level": 2, "title": row["word"], "text": text})
    items = {item["location"]: item for item in content["items"]}
    for row in SYMPTOM.finditer((DOCS / "my_masks_changed.md").read_text(encoding="utf-8")):
        page, _, place = row["page"].partition("#")
        location = "#".join(filter(None, [page.removesuffix(".md") + ".html", place]))
        title = row["symptom"].replace("`", "")
        alike = SequenceMatcher(None, title.lower(), items[location]["title"].lower()).ratio()
        if alike < NEARLY_THE_SAME:
            # Found by its title alone: the text of the page has an entry.
            content["items"].append(items[location] | {"level": 2, "title": title, "text": ""})
    for item in content["items"]:
        if item["location"].startswith(FIELDS):
            item["title"] = f"Fields of JSON: {item['title']}"  # a long title comes later
            item["text"] = " ".join(re.findall("<code>.*?</code>", item["text"]))
    index.write_text(json.dumps(content), encoding="utf-8")


# -- links ---------------------------------------------------------------------------------------


def broken_links() -> Iterator[str]:
    """Links and pictures of the pages that lead nowhere, each in a line."""
    for page in [*pages(), *(PROJECT / name for name in OUTSIDE_DOCS)]:
        text = CODE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
        for match in LINK_OR_PICTURE.finditer(text):
            problem = problem_of(match["target"], page)
            if problem:
                yield f"{page.relative_to(PROJECT)}: {match['target']}: {problem}"


def lonely_pages() -> Iterator[str]:
    """Pages that the navigation of the site lacks, or to which no other page leads, in a line."""
    navigation = NAVIGATION.read_text(encoding="utf-8")
    linked = {
        (page.parent / unquote(match["target"].partition("#")[0])).resolve()
        for page in pages()
        for match in LINK.finditer(FENCED.sub("", page.read_text(encoding="utf-8")))
    }
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).as_posix()
        if not re.search(rf"[ :]{re.escape(name)}$", navigation, re.MULTILINE):
            yield f"{name}: the navigation in {NAVIGATION.name} lacks it"
        if page not in linked:
            yield f"{name}: no page leads to it"


def problem_of(target: str, page: Path) -> str | None:
    """Why a link of a page leads nowhere; None where it does not, or leaves the project."""
    if WITH_SCHEME.match(target):
        return None
    name, _, anchor = unquote(target).partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return "there is no such file"
    if anchor and path.suffix == ".md" and anchor not in anchors(path):
        return "that page has no such heading"
    return None


# -- pages as the site has them ------------------------------------------------------------------


def stage_pages() -> None:
    """Copy the pages to where the site is built from, with links as they are there."""
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.copytree(DOCS, STAGED, ignore=shutil.ignore_patterns("*.j2"))
    for page in DOCS.rglob("*.md"):
        stage_page(page, page.relative_to(DOCS))
    for name in OUTSIDE_DOCS:
        stage_page(PROJECT / name, Path(name.lower()))
    script = STAGED / "site.js"
    script.write_text(script.read_text(encoding="utf-8").replace("SERVE", SERVE), encoding="utf-8")


def stage_page(page: Path, name: Path) -> None:
    text = page.read_text(encoding="utf-8")
    staged = LINK.sub(partial(link_on_site, page=page, name=name), text)
    staged = PICTURE.sub(r"[\g<picture>](\g<target>)", staged)  # a click shows its full size
    staged = BLOCK.sub(block_on_site, staged)
    (STAGED / name).write_text(staged, encoding="utf-8")


def block_on_site(block: re.Match[str]) -> str:
    """A block of code or of a terminal; of one with prompts only what is typed is copied."""
    is_session = block["body"].startswith(">>> ")
    if not is_session and block["kind"] not in OF_TERMINALS:
        return block[0]
    copied = f' data-copy="{escape(typed(block["body"])).replace(chr(10), "&#10;")}"'
    if is_session:
        return f'<div{copied} markdown="1">\n\n```python\n{block["body"]}```\n\n</div>'
    return terminal_on_site(block, copied)


def typed(body: str) -> str:
    """What is typed of a session, without prompts, comments and what is answered.

    An empty line ends a statement of several lines, as Python's own prompt needs it.
    """
    given = body.splitlines()
    if body.startswith("$ "):
        return "\n".join(line[2:] for line in given if line.startswith("$ "))
    if not body.startswith(">>> "):
        commands = [line for line in given if not line.startswith("# ")]
        return "\n".join(WITH_COMMENT.sub(r"\g<command>", line) for line in commands)
    lines = []
    prompted = [line for line in given if re.match(r"(>>>|\.\.\.)( |$)", line)]
    for before, line in pairwise(["", *prompted]):
        if before.startswith("...") and line.startswith(">>>"):
            lines.append("")
        lines.append(line[4:])
    return "\n".join(lines)


def terminal_on_site(block: re.Match[str], copied: str) -> str:
    """Commands and their output, in which sentences are wrapped and tables keep their columns."""
    has_prompt = block["body"].startswith("$ ")
    lines = "".join(line_on_site(line, has_prompt) for line in block["body"].splitlines())
    stiff = [line for line in block["body"].splitlines() if _start_of_last_column(line) > MOST_HUNG]
    columns = max(map(len, stiff), default=0)
    style = f' style="--columns: {columns}"' if columns > USUAL_COLUMNS else ""
    return f'<pre class="terminal"{copied}{style}><code>{lines}</code></pre>'


def _start_of_last_column(line: str) -> int:
    """Where the last field of a row begins; 0 of what is no row."""
    indent = len(line) - len(line.lstrip(" "))
    return max((gap.end() - 1 for gap in ROW_OF_TABLE.finditer(line, indent)), default=0)


def line_on_site(line: str, has_prompt: bool) -> str:
    """A line in its kind; the comment of a command stands above it, not beside it."""
    text = line.lstrip(" ")
    if not has_prompt and line.startswith("# "):
        return as_kind("comment", line)
    with_comment = None if has_prompt else WITH_COMMENT.fullmatch(line)
    if with_comment:
        comment = as_kind("comment", f"# {with_comment['comment']}")
        return comment + as_kind("command", with_comment["command"])
    if ROW_OF_TABLE.search(text):
        start = _start_of_last_column(line)
        return as_kind("row", line, indent=start if start <= MOST_HUNG else 0)
    if line.startswith("$ " if has_prompt else "cellrepro "):
        return as_kind("command", text)
    return as_kind("said", text, indent=len(line) - len(text))


def as_kind(kind: str, text: str, indent: int = 0) -> str:
    style = f' style="--indent: {indent}ch"' if indent else ""
    shown = OPTION.sub(r"<b>\g<0></b>", escape(text, quote=False))
    return f'<span class="{kind}"{style}>{shown}\n</span>'


def link_on_site(link: re.Match[str], page: Path, name: Path) -> str:
    """A link of a page, as it is where the page is staged under a name.

    What leads out of docs/ leads to no page of the site: its text stands alone.
    """
    target, hash_, anchor = link["target"].partition("#")
    if WITH_SCHEME.match(target) or not target:
        return link[0]
    path = (page.parent / unquote(target)).resolve()
    if path.is_relative_to(DOCS) and path.is_file():
        on_site = path.relative_to(DOCS)
    elif path in [PROJECT / each for each in OUTSIDE_DOCS]:
        on_site = Path(path.name.lower())
    else:
        return link["text"]
    relative = Path(os.path.relpath(on_site, name.parent)).as_posix()
    return f"[{link['text']}]({quote(relative)}{hash_}{anchor})"


if __name__ == "__main__":
    sys.exit(main())
