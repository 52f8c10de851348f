"""Which value stands under which headings of ``nvidia-smi -q``? Indentation makes the tree; drivers move its branches.

Keys are compared without case and runs of blanks, so that ``Ecc Mode`` and ``ECC Mode`` are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_LONGEST_LINE = 1000
_LINE = re.compile(r"(?P<indent>[ \t]*)(?P<key>(?:[^:]|:(?=\S)){1,120}?)(?:\s*:\s(?P<value>.*)|\s*:)?")
_TAB = 8


@dataclass(slots=True)
class Section:
    """A heading with what stands under it; headings may come several times."""

    name: str = ""
    title: str = ""
    text: str | None = None
    parts: list[Section] = field(default_factory=list)

    def first(self, *path: str) -> Section | None:
        """Return the first section at a path of names."""
        found: Section | None = self
        for name in path:
            found = next((part for part in found.parts if part.name == name), None) if found is not None else None
        return found

    def value(self, *path: str) -> str | None:
        """Return the text at a path of names; ``None`` when there is none."""
        found = self.first(*path)
        return found.text if found is not None else None

    def every(self, name: str) -> Iterator[Section]:
        """Give all sections of a name."""
        return (part for part in self.parts if part.name == name)

    def any_value(self, *paths: tuple[str, ...]) -> str | None:
        """Return the text at the first of several paths that has one."""
        return next((text for path in paths if (text := self.value(*path)) is not None), None)

    def all_values(self) -> Iterator[tuple[str, str]]:
        """Give every text below, with the title of what it is of."""
        for part in self.parts:
            if part.text is not None:
                yield part.title, part.text
            yield from part.all_values()


def key_of(text: str) -> str:
    """Return what is compared of a key."""
    return " ".join(text.casefold().split())


def read_tree(lines: Iterable[str]) -> Section:
    """Return the tree of indented ``key : value`` lines."""
    root = Section()
    above: list[tuple[int, Section]] = [(-1, root)]
    for line in lines:
        found = _LINE.fullmatch(line[:_LONGEST_LINE].rstrip())
        if found is None or not found["key"].strip():
            continue
        depth = len(found["indent"].expandtabs(_TAB))
        while len(above) > 1 and above[-1][0] >= depth:
            above.pop()
        title, text = found["key"].strip(), found["value"]
        section = Section(name=key_of(title), title=title, text=None if text is None else text.strip())
        above[-1][1].parts.append(section)
        above.append((depth, section))
    return root
