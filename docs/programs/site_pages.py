"""Adds pages from outside ``docs`` to the site and resolves links to the rest of the repository.

A hook of mkdocs (``hooks`` in ``mkdocs.yml``). Pages are written for the repository, where a link may name any file.
Some of these files are pages of the site as well (``ELSEWHERE``); every other one that a page links to becomes a page
that shows it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "deploy/README.md": "howto/deploy.md",
    "exporters/README.md": "reference/exporters.md",
    "jobcheck/README.md": "project/jobcheck.md",
    "modulefiles/README.md": "howto/modulefiles.md",
    "opsk/lab/nvml/README.md": "reference/nvml-stand-in.md",
    "tui/README.md": "project/tui.md",
}
"""Files of the repository that are pages of the site under another name."""
FRONT = "index.md"
"""What the README is for the repository, this is for the site."""
WITH_CONTENTS = frozenset({"tutorial/lab.md"})
ALONE = WITH_CONTENTS | {FRONT}
"""Pages that are a chapter of their own: beside them is no list of others, but of what they contain."""
FILES = "files/"
"""Where pages lie that show a file of the repository."""
_LINK = re.compile(r"(?P<before>!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\()(?P<target>[^()\s]+)(?P<after>(?:\s\"[^\"]*\")?\))")
_CODE = re.compile(r"`[^`]*`")
_FENCE = re.compile(r"^ *(?P<marks>```+|~~~+)[^`]*$")
_HIGHLIGHTED = {".py": "python", ".yml": "yaml", ".json": "json", ".toml": "toml", ".sbatch": "bash", "": "text"}
_HIDDEN = "---\nsearch:\n  exclude: true\n---\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that lie elsewhere, and those that show what pages link to."""
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for path in sorted({path for file in files.documentation_pages() for path in _list_linked_files(file)}):
        added = File.generated(config, _find_page(path), content=_listing(path), inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(added)
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Let links lead to pages of the site."""
    at = page.file.src_uri
    if at in ALONE or at.startswith(FILES):
        page.meta["hide"] = ["navigation", *([] if at in WITH_CONTENTS else ["toc"])]
    source = _find_source(at)

    def redirect_link(link: re.Match[str]) -> str:
        path, mark, anchor = link["target"].partition("#")
        if not _is_relative(link["target"]) or not path:
            return link[0]
        target = posixpath.relpath(_on_site(_resolve_path(source, path)), posixpath.dirname(at) or ".")
        return f"{link['before']}{target}{mark}{anchor}{link['after']}"

    return "".join(line if is_code else _LINK.sub(redirect_link, _cells(line)) for line, is_code in lines(markdown))


def _cells(line: str) -> str:
    """Return a row of a table as the site's Markdown wants it: a bar within code is no end of a cell there."""
    return _CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line


def lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it is in a block of code."""
    fence = ""
    for line in markdown.splitlines(keepends=True):
        found = _FENCE.match(line)
        opens = found is not None and not fence
        yield line, bool(fence) or opens
        if opens and found is not None:
            fence = found["marks"]
        elif fence and line.strip() == fence:
            fence = ""


def links(markdown: str) -> Iterator[str]:
    """Yield the target of each link and picture of a page."""
    for line, is_code in lines(markdown):
        if not is_code:
            yield from (link["target"] for link in _LINK.finditer(line))


def _list_linked_files(file: File) -> Iterator[str]:
    """Yield the files of the repository, outside of docs, that a page links to and that are no pages."""
    for target in links(file.content_string):
        path = target.partition("#")[0]
        if path and _is_relative(target):
            resolved = _resolve_path(_find_source(file.src_uri), path)
            if not resolved.startswith("docs/") and resolved not in {*ELSEWHERE, "README.md"}:
                yield resolved


def _is_relative(target: str) -> bool:
    return not re.match(r"[a-z][a-z0-9+.-]*:|/", target)


def _find_source(page: str) -> str:
    """Return where a page lies in the repository."""
    return next((source for source, shown in ELSEWHERE.items() if shown == page), f"docs/{page}")


def _resolve_path(source: str, path: str) -> str:
    """Return the path in the repository that a link means.

    Raises
    ------
    PluginError
        There is no such file.
    """
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if found.startswith("..") or not (ROOT / found).exists():
        raise PluginError(f"{source} links to {path}, which is not there")
    return found


def _on_site(path: str) -> str:
    """Return where the site has a file of the repository."""
    if path == "README.md":
        return FRONT
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("docs/"):
        inside = path.removeprefix("docs/")
        return f"{inside}/index.md" if (ROOT / path).is_dir() else inside
    return _find_page(path)


def _find_page(path: str) -> str:
    return f"{FILES}{path}.md"


def _listing(path: str) -> str:
    """Return a page that shows a file, or all files of a folder."""
    shown = ROOT / path
    parts = sorted(each for each in shown.iterdir() if each.is_file()) if shown.is_dir() else [shown]
    blocks = "\n".join(
        f"{'## ' + part.name if shown.is_dir() else ''}\n\n~~~~ {_HIGHLIGHTED.get(part.suffix, 'text')}\n"
        f"{part.read_text(encoding='utf-8').rstrip()}\n~~~~\n"
        for part in parts
    )
    return f"{_HIDDEN}# {path}\n\n{blocks}"
