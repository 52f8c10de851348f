"""Is the site whole: every page is in it, links lead somewhere, it reads as on a forge, nothing comes from outside?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt

from tests.fakes.browser import Browser, browser, chromium_or_skip

LOADING = {
    ("script", "src"),
    ("link", "href"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
}
COUNTED = ("h1", "h2", "h3", "h4", "li", "pre", "table", "tr", "td", "th", "img", "strong", "blockquote")


@dataclass
class Page(HTMLParser):
    """What one page links to, loads and is made of; only its article counts for the latter."""

    article_only: bool = True
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    text: list[str] = field(default_factory=list)
    _inside: int = 0
    _permalink: bool = False

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.ids |= {named[name] for name in ("id", "name") if name in named}
        for name, value in named.items():
            if (tag, name) in LOADING and named.get("rel") not in ("canonical", "prev", "next"):
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)
        self._inside += tag == "article"
        self._permalink = "headerlink" in named.get("class", "")
        if self._inside or not self.article_only:
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside -= tag == "article"
        self._permalink = False

    def handle_data(self, data: str) -> None:
        if (self._inside or not self.article_only) and not self._permalink:
            self.text.append(data)


def parsed(text: str, *, article_only: bool = True) -> Page:
    page = Page(article_only=article_only)
    page.feed(text)
    page.close()
    return page


@pytest.fixture(scope="module")
def site(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` builds it: strictly."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=root, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: parsed(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_page_of_the_docs_is_there_and_no_program_is(root: Path, site: Path) -> None:
    for page in (root / "docs").rglob("*.md"):
        assert (site / page.relative_to(root / "docs").with_suffix(".html")).is_file()
    kinds = {path.suffix for path in site.rglob("*") if path.is_file()}
    assert kinds <= {".html", ".css", ".js", ".svg", ".png", ".map", ".json", ".xml", ".gz"}


def test_every_link_leads_to_a_page_and_a_place_in_it(site: Path, pages: dict[Path, Page]) -> None:
    lost = []
    for path, page in pages.items():
        if path.name == "404.html":  # it is served in place of any page: its links begin at the top
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            is_there = target.is_file() and site in target.parents
            anchor = unquote(parts.fragment)
            if not is_there or (anchor and target in pages and anchor not in pages[target].ids):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert lost == []


def test_nothing_is_loaded_from_outside(site: Path, pages: dict[Path, Page]) -> None:
    outside = [f"{path.relative_to(site)}: {load}" for path, page in pages.items() for load in page.loads
               if urlsplit(load).scheme not in ("", "data") or load.startswith("//")]  # fmt: skip
    assert outside == []
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")), style
    for picture in site.rglob("*.svg"):
        assert not re.search(r"(href|src)=['\"]https?:|url\(['\"]?https?:|@import", picture.read_text()), picture


def sources(root: Path) -> list[Path]:
    return sorted((root / "docs").rglob("*.md"))


def test_a_page_is_made_of_the_same_parts_as_on_a_forge(root: Path, pages: dict[Path, Page], site: Path) -> None:
    """Two Markdowns differ in what ends a list or begins a table; what people see in the repository is CommonMark."""
    forge = MarkdownIt("commonmark", {"html": True}).enable("table")
    differ = []
    for source in sources(root):
        expected = parsed(forge.render(source.read_text(encoding="utf-8")), article_only=False)
        found = pages[site / source.relative_to(root / "docs").with_suffix(".html")]
        name = source.relative_to(root)
        counts = {tag: (expected.counts[tag], found.counts[tag]) for tag in COUNTED}
        differ += [f"{name}: {wanted} {tag}, shown {seen}" for tag, (wanted, seen) in counts.items() if wanted != seen]
        shown, written = ("".join("".join(each.text).split()) for each in (found, expected))
        if not differ and shown != written:
            at = next((index for index, pair in enumerate(zip(shown, written, strict=False)) if len(set(pair)) > 1), -1)
            differ.append(f"{name}: {written[at - 30 : at + 50]!r}, shown {shown[at - 30 : at + 50]!r}")
    assert not differ, "\n".join(differ)


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Browser]:
    with browser(chromium_or_skip(), tmp_path / "profile") as found:
        yield found


def test_a_real_browser_shows_it_finds_in_it_and_asks_nobody_else(served: str, window: Browser, tmp_path: Path) -> None:
    window.look(dark=True)
    for page in (
        "",
        "tutorial/lab.html",
        "reference/cli.html",
        "explanation/cost-model.html",
        "project/changelog.html",
    ):
        window.open(f"{served}/{page}")
        assert window.value("document.querySelectorAll('article h1').length") == 1
        broken = "[...document.images].filter(image => !image.complete || image.naturalWidth === 0).length"
        window.until(f"({broken}) === 0")
    assert window.value("document.body.dataset.mdColorScheme") == "slate"
    window.open(f"{served}/?q=signature")
    window.until("document.querySelectorAll('.md-search-result__item a').length > 0")
    found = window.value("[...document.querySelectorAll('.md-search-result__item a')].map(a => a.pathname).join()")
    assert "add-a-signature" in found
    window.picture(tmp_path / "search.png")
    assert (tmp_path / "search.png").stat().st_size > 20_000  # an empty page of this size is below 10 kB
    assert window.complaints == []
    assert [url for url in window.requested if not url.startswith((served, "data:", "blob:" + served))] == []


def test_rows_of_a_table_have_as_many_cells_as_its_head(root: Path) -> None:
    """A cell too many is dropped without a word."""
    uneven = []
    for source in [*sources(root), root / "README.md", *root.glob("*/README.md")]:
        cells = 0
        for number, line in enumerate(source.read_text(encoding="utf-8").splitlines(), 1):
            found = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
            if found and cells and found != cells:
                uneven.append(f"{source.relative_to(root)}:{number}")
            cells = cells or found if found else 0
    assert uneven == []
