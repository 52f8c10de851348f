"""Which numbers of a script may be others, and the same is read? A seed, a length, the number in a folder's name.

Nothing is concluded from scripts that happened to be read alike: that only says where to look. A number is free where
the script is read the same with *a number that is not known* in its place, for what is read with that holds whatever
the number is.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from string import ascii_letters

from opsk.units import KIB
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.bash.source import MARK_CLOSE, MARK_OPEN

LONGEST_CHARS, MOST_NUMBERS = 16 * KIB, 256
"""Of a script that is longer, or has more numbers, nothing is looked for."""
Free = tuple[int, ...]
"""Which numbers of a script may be any, counted from 0, in order."""
BLANK = "\0"
"""Stands for a number that may be any; no script that is looked at holds it."""

_NUMBER = re.compile(r"([0-9][0-9]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")
"""The first digit stands by itself, for what begins with a class of characters is found twice as fast."""
_STRANGE = re.compile(f"[{MARK_OPEN}{MARK_CLOSE}\r\0\ufeff]")
"""With any of these, offsets in the text as submitted are not those in the text as read."""
_STRANGE_ASCII = "\r\0"
_BEFORE = re.compile(r"(?:^|[\s=\"'/,:-]|[=\"'/,:-][A-Za-z_][A-Za-z_0-9]*)\Z")
"""What may stand before a free number on its line: never part of a variable's, function's or descriptor's name."""
_BEHIND = frozenset({"", *" \t\n\"'/,:;|)}-_", *ascii_letters})
_REMARK = re.compile(r"[ \t]*#")
_PLAIN_REMARK = re.compile(r"[ \t]*#+[ \t](?!.*(?:SBATCH|OPSK|PBS|BSUB|COBALT))")
"""A remark that nobody but people reads."""


def _is_strange(text: str) -> bool:
    """Tell whether a text holds such signs."""
    return any(sign in text for sign in _STRANGE_ASCII) if text.isascii() else _STRANGE.search(text) is not None


def text_digest(text: str) -> bytes:
    """Return what a text is remembered by.

    BLAKE2 is Python's own: to ask OpenSSL for SHA-256 takes longer than to work it out for a script.
    """
    return blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class Numbered:
    """A script cut at its numbers: ``pieces`` alternate between text and number, text first and last."""

    pieces: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Numbered | None:
        """Return a script's pieces; ``None`` where it has no number, is too long, or holds signs that are read away."""
        if len(text) > LONGEST_CHARS or _is_strange(text):
            return None
        pieces = tuple(_NUMBER.split(text))
        return cls(pieces) if 1 < len(pieces) <= 2 * MOST_NUMBERS else None

    @property
    def numbers(self) -> tuple[str, ...]:
        """Its numbers, in order."""
        return self.pieces[1::2]

    @property
    def form(self) -> str:
        """The script with every number blank: equal for scripts that are the same but for their numbers."""
        return BLANK.join(self.pieces[0::2])

    def blanked(self, free: Free) -> str:
        """Return the script with some of its numbers blank."""
        pieces = list(self.pieces)
        for index in free:
            pieces[2 * index + 1] = BLANK
        return "".join(pieces)

    def spans(self, free: Free) -> tuple[tuple[int, int], ...]:
        """Return from where to where some of the numbers stand, in order."""
        at, found = 0, list[tuple[int, int]]()
        for index, piece in enumerate(self.pieces):
            if index % 2 and index // 2 in free:
                found.append((at, at + len(piece)))
            at += len(piece)
        return tuple(found)

    def differing(self, numbers: Sequence[str]) -> Free:
        """Return which numbers differ from those of another script of the same form."""
        return tuple(
            [index for index, (one, other) in enumerate(zip(self.numbers, numbers, strict=True)) if one != other]
        )

    def may_be_any(self, index: int) -> bool:
        """Tell whether another number here changes a word at most: no name, no redirection, no directive."""
        before, behind = "".join(self.pieces[: 2 * index + 1]), self.pieces[2 * index + 2]
        start = before.rpartition("\n")[2]
        if before.endswith("\\\n") or _BEFORE.search(start) is None or behind[:1] not in _BEHIND:
            return False
        line = start + "".join(self.pieces[2 * index + 1 :]).partition("\n")[0]
        return _REMARK.match(start) is None or _PLAIN_REMARK.match(line) is not None


MOST_FORMS, MOST_SEEN, MOST_SHOWN, MOST_FREE = 128, 16, 64, 4
"""Forms that are remembered; of each, scripts, what was shown of them, and sets of numbers that were free in one."""
MOST_AGAIN, MOST_VAIN = 2, 3
"""How often one script is read again, and how often a set of numbers may turn out not to be free."""

Read = Callable[[tuple[tuple[int, int], ...]], Workload]
"""Reads a script with numbers that are not known at these places."""


@dataclass(slots=True)
class _Form:
    """What is remembered of scripts that are the same but for their numbers, and read in the same ``context``.

    ``seen`` holds their numbers and the hash of what was read; ``free`` what was free in one of them, the latest last;
    ``shown`` whether numbers are free, by the hash of the script with these blank; ``vain`` how often a set was not.
    """

    context: object
    seen: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    free: list[Free] = field(default_factory=list)
    shown: dict[bytes, bool] = field(default_factory=dict)
    vain: Counter[Free] = field(default_factory=Counter)


class FreeNumbers:
    """What one process has found out about the scripts that it has read; not for several threads."""

    def __init__(self) -> None:
        self._forms: OrderedDict[bytes, _Form] = OrderedDict()

    def of(self, numbered: Numbered, context: object, workload: Workload, read: Read) -> Free:
        """Return which numbers of a script are free; none where that is not known yet.

        The first script of a sweep shows nothing; the second that is read the same takes one more reading, or two.

        Parameters
        ----------
        context
            All that was read beside the script: what was asked of Slurm, and the files. A form has one at a time.
        workload
            What was read.
        """
        form = self._form(text_digest(numbered.form), context)
        digest = hash(workload)
        alike = [numbers for numbers, found in form.seen if found == digest]
        found = _first_free(form, numbered, alike, lambda free: read(numbered.spans(free)) == workload)
        if found:
            form.free = [*(free for free in form.free if free != found), found][-MOST_FREE:]
        form.seen = [*form.seen, (numbered.numbers, digest)][-MOST_SEEN:]
        return found

    def _form(self, name: bytes, context: object) -> _Form:
        """Return what is remembered of a form; the one that was not met for longest is forgotten."""
        form = self._forms.pop(name, None)
        if form is None or form.context != context:
            form = _Form(context)
        self._forms[name] = form
        if len(self._forms) > MOST_FORMS:
            self._forms.popitem(last=False)
        return form


def _first_free(
    form: _Form, numbered: Numbered, alike: Iterable[tuple[str, ...]], is_free: Callable[[Free], bool]
) -> Free:
    """Return the largest set that is free: of those that were in another script, and of what differs from one.

    A recipe that is met for the first time is not read once more: it may be the last.
    """
    differing = set(map(numbered.differing, alike)) - {()}
    left = MOST_AGAIN
    for free in sorted({*form.free, *differing}, key=lambda free: (-len(free), free)):
        blanked = text_digest(numbered.blanked(free))
        if blanked not in form.shown:
            is_met_before = any(set(others) <= set(free) for others in differing)
            if not is_met_before or not left or form.vain[free] >= MOST_VAIN or not all(map(numbered.may_be_any, free)):
                continue
            left -= 1
            _show(form, free, blanked, is_free=is_free(free))
        if form.shown[blanked]:
            return free
    return ()


def _show(form: _Form, free: Free, blanked: bytes, *, is_free: bool) -> None:
    """Remember whether numbers of a script are free."""
    if not is_free:
        form.vain[free] += 1
    if len(form.vain) > MOST_SHOWN:
        del form.vain[next(iter(form.vain))]
    if len(form.shown) >= MOST_SHOWN:
        del form.shown[next(iter(form.shown))]
    form.shown[blanked] = is_free
