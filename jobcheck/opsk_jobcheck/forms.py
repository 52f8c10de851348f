"""Which numbers have been found to be free in scripts of one form? What was said of one then holds for the next.

See `free_numbers`: workers find out, and this process, which has only their answers, asks them no more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from opsk_jobcheck.readers.numbered import Free, Numbered, text_digest

MOST_FORMS, MOST_FREE = 256, 4
"""Forms, and sets of free numbers of one form, that are remembered."""


@dataclass(slots=True)
class Forms:
    """Free numbers by the form of the script, the latest first; of a form its hash is kept."""

    _free: OrderedDict[bytes, tuple[Free, ...]] = field(default_factory=OrderedDict)

    def note(self, text: str, free: Free) -> str | None:
        """Remember which numbers of a script are free; return it with these blank, ``None`` where none is."""
        numbered = Numbered.of(text) if free else None
        if numbered is None:
            return None
        name = text_digest(numbered.form)
        others = (other for other in self._free.pop(name, ()) if other != free)
        self._free[name] = (free, *others)[:MOST_FREE]
        if len(self._free) > MOST_FORMS:
            self._free.popitem(last=False)
        return numbered.blanked(free)

    def blanked(self, text: str) -> Iterator[str]:
        """Return a script with those numbers blank that were free in another of its form."""
        numbered = Numbered.of(text) if self._free else None
        if numbered is not None:
            for free in self._free.get(text_digest(numbered.form), ()):
                yield numbered.blanked(free)

    def clear(self) -> None:
        """Forget all."""
        self._free.clear()
