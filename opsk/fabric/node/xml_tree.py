"""Parses XML files as far as they are well-formed, without entities of the file and without external references.

The parser is expat; entities declared in the file are refused, since they can grow a kilobyte into gigabytes, and no
tool that is read here writes any. A ``DOCTYPE`` without them (``nvsmi_device_v12.dtd``, ``hwloc2.dtd``) is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from opsk.errors import InputError

ROOTS = ("system", "graphs", "topology", "nvidia_smi_log")
_ROOT = re.compile(rf"<({'|'.join(ROOTS)})(?=[\s>/])")
_ENTITY = re.compile(r"<!ENTITY\b", re.IGNORECASE)
MAX_DEPTH = 200
"""Deeper than any machine's tree; what is deeper is left out."""

MAX_ELEMENTS = 2_000_000


@dataclass(slots=True, kw_only=True)
class Element:
    """One element: ``text`` is its text outside of its children; ``whole`` is unset where the file was cut."""

    tag: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    children: list[Element] = field(default_factory=list)
    text: str = ""
    line: int = 0
    whole: bool = True

    def get(self, name: str) -> str | None:
        """Return an attribute."""
        return self.attributes.get(name)

    def all(self, *tags: str) -> Iterator[Element]:
        """Return all elements below with one of the tags, in the order of the file."""
        pending = list(reversed(self.children))
        while pending:
            element = pending.pop()
            if element.tag in tags:
                yield element
            pending.extend(reversed(element.children))

    def child(self, *tags: str) -> Element | None:
        """Return the first child whose tag, less case and underscores, is one of ``tags``."""
        return next((entry for entry in self.children if _plain(entry.tag) in tags), None)

    def text_at(self, *path: str) -> str | None:
        """Return the text of a descendant by the plain tags on the way; ``None`` when it is not there or empty."""
        element: Element | None = self
        for tag in path:
            element = element.child(tag) if element is not None else None
        return (element.text.strip() or None) if element is not None else None


def root_tag(text: str) -> str | None:
    """Return the tag of the first root that is known here; ``None`` when there is none."""
    match = _ROOT.search(text)
    return match[1] if match else None


def read_xml(text: str, *, source: str) -> tuple[Element, list[str]]:
    """Return the root element and the problems; the text before and after it is ignored.

    Raises
    ------
    InputError
        When no known root is there, or the file declares entities.
    """
    match = _ROOT.search(text)
    if match is None:
        raise InputError(
            f"{source}: no XML element {', '.join(ROOTS)} in it", hint="give an XML file as its tool wrote"
        )
    start = match.start()
    if _ENTITY.search(text, 0, start):
        raise InputError(
            f"{source}: declares XML entities, which no tool that is read here does", hint="remove the <!ENTITY> lines"
        )
    builder = _Builder(first_line=text.count("\n", 0, start))
    problem = builder.feed(text[start:], source)
    if builder.root is None:
        raise InputError(f"{source}: {problem or 'no XML element in it'}", hint="copy the file again")
    return builder.root, [problem] if problem else []


class _Builder:
    """Builds the tree of the first root element."""

    def __init__(self, first_line: int) -> None:
        self.root: Element | None = None
        self._open: list[Element] = []
        self._first_line = first_line
        self._depth = 0
        self._elements = 0
        self._too_deep = False
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def feed(self, text: str, source: str) -> str | None:
        """Parse; return what stopped it before the end of the root element, if anything did."""
        try:
            self._parser.Parse(text.encode("utf-8", "replace"), True)
        except _Done:
            pass
        except expat.ExpatError as error:
            line = self._first_line + error.lineno
            for element in self._open:
                element.whole = False
            why = expat.errors.messages.get(error.code, "unknown")
            return f"{source}:{line}: damaged or cut XML ({why}), what follows is not read"
        return f"{source}: nested deeper than {MAX_DEPTH} elements, the rest is left out" if self._too_deep else None

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > MAX_DEPTH or self._elements > MAX_ELEMENTS:
            self._too_deep = True
            return
        line = self._first_line + self._parser.CurrentLineNumber
        element = Element(tag=tag, attributes=attributes, line=line)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if self._open and self._depth < len(self._open):
            self._open.pop()
        if self._depth == 0:
            raise _Done

    def _characters(self, text: str) -> None:
        if self._open and self._depth == len(self._open):
            self._open[-1].text += text


class _Done(Exception):  # noqa: N818
    """The root element is closed: what follows it in a captured file is not ours."""


def _plain(tag: str) -> str:
    return tag.replace("_", "").lower()
