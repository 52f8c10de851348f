"""Which entry of a catalogue does a name mean? Spellings of people, Slurm, drivers and scripts all find it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from opsk.errors import InputError
from opsk.hardware.catalog_format import MAX_SHOWN

_VENDOR_WORDS = re.compile(r"nvidia|tesla|instinct|amd|corporation")
_SEPARATORS = re.compile(r"[\s_\-./+:]+")
_GIGABYTES = re.compile(r"(\d)\s*gi?b")


class Named(Protocol):
    """What every entry has: a name and other spellings of it."""

    @property
    def name(self) -> str:
        """Catalogue name."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other spellings."""


Spec = TypeVar("Spec", bound=Named)


def key_of(name: str) -> str:
    """Return what is compared of a name: no case, no separators, no vendor words, ``80GB`` as ``80g``.

    Examples
    --------
    >>> key_of("NVIDIA A100-SXM4-80GB"), key_of("a100_80g")
    ('a100sxm480g', 'a10080g')
    """
    lowered = _VENDOR_WORDS.sub("", name.casefold())
    return _SEPARATORS.sub("", _GIGABYTES.sub(r"\1g", lowered))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf(Generic[Spec]):
    """All entries of one kind.

    Parameters
    ----------
    kind
        ``GPU``, ``NIC``, ``node type`` or ``cluster``, as errors call it.
    specs
        Catalogue name to entry.
    keys
        Key of every name and alias to the catalogue name; see `key_of`.
    ambiguous
        Key of a name that may mean several entries to their catalogue names, the one to take first.
    """

    kind: str
    specs: Mapping[str, Spec]
    keys: Mapping[str, str]
    ambiguous: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def resolve(self, name: str) -> tuple[Spec, tuple[str, ...]]:
        """Return the entry that ``name`` means, and the names of the other entries that it may mean as well.

        Raises
        ------
        InputError
            Repeats the name, names the closest entries and says what to do.
        """
        key = key_of(name)
        if key in self.keys:
            return self.specs[self.keys[key]], ()
        if key in self.ambiguous:
            first, *others = self.ambiguous[key]
            return self.specs[first], tuple(others)
        raise InputError(f"unknown {self.kind} {name[:MAX_SHOWN]!r}", hint=self._hint(key))

    def _hint(self, key: str) -> str:
        """Say which entries come close and how to add one."""
        spellings = (*self.keys, *self.ambiguous)
        near = dict.fromkeys(
            candidate
            for spelling in difflib.get_close_matches(key, spellings, n=5, cutoff=0.5)
            for candidate in ((self.keys[spelling],) if spelling in self.keys else self.ambiguous[spelling])
        )
        named = f"closest: {', '.join(list(near)[:3])}" if near else f"known: {', '.join(self.specs)}"
        return f"{named}; or describe it in a cluster TOML (docs/howto/add-a-cluster.md)"


def conflicts(specs: Iterable[Named], ambiguous: Mapping[str, Sequence[str]]) -> list[str]:
    """Return one line for each spelling that two entries claim and each ambiguous name that points nowhere."""
    owners: dict[str, str] = {}
    wrong = []
    known = set()
    for spec in specs:
        known.add(spec.name)
        for spelling in (spec.name, *spec.aliases):
            owner = owners.setdefault(key_of(spelling), spec.name)
            if owner != spec.name:
                wrong.append(f"{spec.name}: {spelling!r} already means {owner}")
    for spelling, candidates in ambiguous.items():
        if key_of(spelling) in owners:
            wrong.append(f"ambiguous.{spelling}: already means {owners[key_of(spelling)]}")
        wrong += [f"ambiguous.{spelling}: there is no {name}" for name in candidates if name not in known]
    return wrong


def fill(kind: str, specs: Sequence[Spec], ambiguous: Mapping[str, Sequence[str]]) -> Shelf[Spec]:
    """Return the shelf that holds ``specs``; see `conflicts` for what it must not be given."""
    return Shelf(
        kind=kind,
        specs={spec.name: spec for spec in specs},
        keys={key_of(spelling): spec.name for spec in specs for spelling in (spec.name, *spec.aliases)},
        ambiguous={key_of(spelling): tuple(names) for spelling, names in ambiguous.items()},
    )
