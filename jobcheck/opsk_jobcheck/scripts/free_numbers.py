"""Finds the numbers of a script that can change without changing what is read from it.

Examples are a seed, or the number in a folder's name. That two scripts were read with the same result only selects
the candidates. A number is free if the script is read with the same result with *an unknown number* in its place,
because that result holds for every number.
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
from opsk_jobcheck.scripts.bash.lexer import MARK_CLOSE, MARK_OPEN

MAX_CHARS, MAX_NUMBERS = 16 * KIB, 256
"""Scripts that are longer, or have more numbers, are skipped."""
Free = tuple[int, ...]
"""Which numbers of a script may be any, counted from 0, in order."""
MASK = "\0"
"""Stands for any number; no script that is processed holds it."""

_NUMBER = re.compile(r"([0-9][0-9]*(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)")
"""The first digit is separate: a pattern that begins with one character class matches twice as fast."""
_OFFSET_CHANGING = re.compile(f"[{MARK_OPEN}{MARK_CLOSE}\r\0\ufeff]")
"""With any of these, offsets in the submitted text differ from those in the text as read."""
_OFFSET_CHANGING_ASCII = "\r\0"
_BEFORE = re.compile(r"(?:^|[\s=\"'/,:-]|[=\"'/,:-][A-Za-z_][A-Za-z_0-9]*)\Z")
"""What may stand before a free number on its line: never part of a variable's, function's or descriptor's name."""
_AFTER = frozenset({"", *" \t\n\"'/,:;|)}-_", *ascii_letters})
_COMMENT = re.compile(r"[ \t]*#")
_PLAIN_COMMENT = re.compile(r"[ \t]*#+[ \t](?!.*(?:SBATCH|OPSK|PBS|BSUB|COBALT))")
"""A comment without directives."""


def _changes_offsets(text: str) -> bool:
    """Return whether a text holds such characters."""
    return (
        any(sign in text for sign in _OFFSET_CHANGING_ASCII)
        if text.isascii()
        else _OFFSET_CHANGING.search(text) is not None
    )


def text_digest(text: str) -> bytes:
    """Return the digest that identifies a text.

    BLAKE2 is part of Python: for a script, the call to OpenSSL for SHA-256 takes longer than the computation.
    """
    return blake2b(text.encode("utf-8", errors="surrogatepass"), digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class Numbered:
    """A script cut at its numbers: ``pieces`` alternate between text and number, text first and last."""

    pieces: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Numbered | None:
        """Return a script's pieces; ``None`` if it has no number, is too long, or has characters that shift offsets."""
        if len(text) > MAX_CHARS or _changes_offsets(text):
            return None
        pieces = tuple(_NUMBER.split(text))
        return cls(pieces) if 1 < len(pieces) <= 2 * MAX_NUMBERS else None

    @property
    def numbers(self) -> tuple[str, ...]:
        """Its numbers, in order."""
        return self.pieces[1::2]

    @property
    def template(self) -> str:
        """The script with every number masked: equal for scripts that are the same but for their numbers."""
        return MASK.join(self.pieces[0::2])

    def mask(self, free: Free) -> str:
        """Return the script with some of its numbers masked."""
        pieces = list(self.pieces)
        for index in free:
            pieces[2 * index + 1] = MASK
        return "".join(pieces)

    def spans(self, free: Free) -> tuple[tuple[int, int], ...]:
        """Return the start and end offsets of some of the numbers, in order."""
        offset, result = 0, list[tuple[int, int]]()
        for index, piece in enumerate(self.pieces):
            if index % 2 and index // 2 in free:
                result.append((offset, offset + len(piece)))
            offset += len(piece)
        return tuple(result)

    def find_differing(self, numbers: Sequence[str]) -> Free:
        """Return which numbers differ from those of another script of the same form."""
        return tuple(
            [index for index, (number, other) in enumerate(zip(self.numbers, numbers, strict=True)) if number != other]
        )

    def may_be_any(self, index: int) -> bool:
        """Return whether another number here changes a word at most: no name, no redirection, no directive."""
        before, after = "".join(self.pieces[: 2 * index + 1]), self.pieces[2 * index + 2]
        start = before.rpartition("\n")[2]
        if before.endswith("\\\n") or _BEFORE.search(start) is None or after[:1] not in _AFTER:
            return False
        line = start + "".join(self.pieces[2 * index + 1 :]).partition("\n")[0]
        return _COMMENT.match(start) is None or _PLAIN_COMMENT.match(line) is not None


MAX_TEMPLATES, MAX_SEEN, MAX_RESULTS, MAX_FREE = 128, 16, 64, 4
"""Limits of stored templates and, for each, of scripts, of results and of sets of free numbers."""
MAX_REREADS, MAX_FAILURES = 2, 3
"""Limits of repeated readings of one script, and of failed tests of one set of numbers."""

Read = Callable[[tuple[tuple[int, int], ...]], Workload]
"""Reads a script with numbers that are not known at these places."""


@dataclass(slots=True)
class _Template:
    """The state of scripts that differ only in their numbers, read in the same ``context``.

    ``seen`` holds their numbers and the hash of the result; ``free`` the sets that were free in one of them, the latest
    last; ``results`` whether a set is free, by the hash of the masked script; ``failures`` how often a set was not.
    """

    context: object
    seen: list[tuple[tuple[str, ...], int]] = field(default_factory=list)
    free: list[Free] = field(default_factory=list)
    results: dict[bytes, bool] = field(default_factory=dict)
    failures: Counter[Free] = field(default_factory=Counter)


class FreeNumbers:
    """Finds the free numbers of the scripts that one process reads; not thread-safe."""

    def __init__(self) -> None:
        self._templates: OrderedDict[bytes, _Template] = OrderedDict()

    def find(self, numbered: Numbered, context: object, workload: Workload, read: Read) -> Free:
        """Return which numbers of a script are free; none where that is not known yet.

        The first script of a sweep has no result; the second with the same result is read once or twice more.

        Parameters
        ----------
        context
            Everything else that was read: the request to Slurm, and the files. A template has one at a time.
        workload
            What was read.
        """
        template = self._get_template(text_digest(numbered.template), context)
        digest = hash(workload)
        similar = [numbers for numbers, result in template.seen if result == digest]
        result = _find_first_free(template, numbered, similar, lambda free: read(numbered.spans(free)) == workload)
        if result:
            template.free = [*(free for free in template.free if free != result), result][-MAX_FREE:]
        template.seen = [*template.seen, (numbered.numbers, digest)][-MAX_SEEN:]
        return result

    def _get_template(self, name: bytes, context: object) -> _Template:
        """Return the state of a template; the least recently used one is dropped."""
        template = self._templates.pop(name, None)
        if template is None or template.context != context:
            template = _Template(context)
        self._templates[name] = template
        if len(self._templates) > MAX_TEMPLATES:
            self._templates.popitem(last=False)
        return template


def _find_first_free(
    template: _Template, numbered: Numbered, similar: Iterable[tuple[str, ...]], is_free: Callable[[Free], bool]
) -> Free:
    """Return the largest set that is free: of those that were free in another script, and of differences from one.

    A recipe that occurs for the first time is not read again: it may be the only one.
    """
    differing = set(map(numbered.find_differing, similar)) - {()}
    rereads_left = MAX_REREADS
    for free in sorted({*template.free, *differing}, key=lambda free: (-len(free), free)):
        masked = text_digest(numbered.mask(free))
        if masked not in template.results:
            is_met_before = any(set(other) <= set(free) for other in differing)
            if (
                not is_met_before
                or not rereads_left
                or template.failures[free] >= MAX_FAILURES
                or not all(map(numbered.may_be_any, free))
            ):
                continue
            rereads_left -= 1
            _record_result(template, free, masked, is_free=is_free(free))
        if template.results[masked]:
            return free
    return ()


def _record_result(template: _Template, free: Free, masked: bytes, *, is_free: bool) -> None:
    """Store whether numbers of a script are free."""
    if not is_free:
        template.failures[free] += 1
    if len(template.failures) > MAX_RESULTS:
        del template.failures[next(iter(template.failures))]
    if len(template.results) >= MAX_RESULTS:
        del template.results[next(iter(template.results))]
    template.results[masked] = is_free
