"""Indexes the entries of a catalogue by name and alias, and replaces keys of sources by their text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from opsk.errors import InputError
from opsk.hardware.catalog_format import MAX_SHOWN, NOT_CITED, Entry

_VENDOR_WORDS = re.compile(r"nvidia|tesla|instinct|amd|corporation")
_SEPARATORS = re.compile(r"[\s_\-./+:]+")
_GIGABYTES = re.compile(r"(\d)\s*gi?b")

_MEMORY = re.compile(r"m(\d{2,3})$")
"""Memory as some sites write it behind the model: ``a100m40``. Others write a number alone: ``a100-80``."""


class Named(Protocol):
    """An entry with a name and aliases."""

    @property
    def name(self) -> str:
        """Catalogue name."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other spellings."""


Spec = TypeVar("Spec", bound=Named)


def normalise_key(name: str) -> str:
    """Return the key by which names are compared: no case, separators or vendor words, ``80GB`` as ``80g``.

    Examples
    --------
    >>> normalise_key("NVIDIA A100-SXM4-80GB"), normalise_key("a100_80g")
    ('a100sxm480g', 'a10080g')
    """
    lowered = _VENDOR_WORDS.sub("", name.casefold())
    return _SEPARATORS.sub("", _GIGABYTES.sub(r"\1g", lowered))


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogIndex(Generic[Spec]):
    """All entries of one kind.

    Parameters
    ----------
    kind
        ``GPU``, ``NIC``, ``node type`` or ``cluster``, for error messages.
    specs
        Catalogue name to entry.
    keys
        Key of every name and alias to the catalogue name; see `normalise_key`.
    ambiguous
        Key of an ambiguous name to the catalogue names of its entries, the preferred one first.
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
            Quotes the name, lists the closest entries and gives a remedy.
        """
        key = normalise_key(name)
        for form in (key, f"{key}g", _MEMORY.sub(r"\1g", key)):
            if form in self.keys:
                return self.specs[self.keys[form]], ()
            if form in self.ambiguous:
                first, *others = self.ambiguous[form]
                return self.specs[first], tuple(others)
        raise InputError(f"unknown {self.kind} {name[:MAX_SHOWN]!r}", hint=self._hint(key))

    def _hint(self, key: str) -> str:
        """Return the closest entries and how to add one."""
        index_keys = (*self.keys, *self.ambiguous)
        similar = dict.fromkeys(
            candidate
            for index_key in difflib.get_close_matches(key, index_keys, n=5, cutoff=0.5)
            for candidate in ((self.keys[index_key],) if index_key in self.keys else self.ambiguous[index_key])
        )
        suggestion = f"closest: {', '.join(list(similar)[:3])}" if similar else f"known: {', '.join(self.specs)}"
        return f"{suggestion}; or describe it in a cluster TOML (docs/howto/add-a-cluster.md)"


def find_conflicts(specs: Iterable[Named], ambiguous: Mapping[str, Sequence[str]]) -> list[str]:
    """Return one line for each alias of two entries and each ambiguous name without an entry."""
    owners: dict[str, str] = {}
    wrong = []
    defined = set()
    for spec in specs:
        defined.add(spec.name)
        for alias in (spec.name, *spec.aliases):
            owner = owners.setdefault(normalise_key(alias), spec.name)
            if owner != spec.name:
                wrong.append(f"{spec.name}: {alias!r} already means {owner}")
    for alias, candidates in ambiguous.items():
        if normalise_key(alias) in owners:
            wrong.append(f"ambiguous.{alias}: already means {owners[normalise_key(alias)]}")
        wrong += [f"ambiguous.{alias}: there is no {name}" for name in candidates if name not in defined]
    return wrong


def build_index(kind: str, specs: Sequence[Spec], ambiguous: Mapping[str, Sequence[str]]) -> CatalogIndex[Spec]:
    """Return the index of ``specs``, which must be free of the conflicts that `find_conflicts` reports."""
    return CatalogIndex(
        kind=kind,
        specs={spec.name: spec for spec in specs},
        keys={normalise_key(alias): spec.name for spec in specs for alias in (spec.name, *spec.aliases)},
        ambiguous={normalise_key(alias): tuple(names) for alias, names in ambiguous.items()},
    )


def cite(entry: Entry, bibliography: Mapping[str, str]) -> tuple[Entry, list[str]]:
    """Return ``entry`` with its citations resolved, and one line for each field without a valid one."""
    stated = {name for name in type(entry).model_fields if getattr(entry, name) is not None} - NOT_CITED
    faults = [f"sources.{name}: there is no such value here" for name in entry.sources if name not in stated]
    faults += [f"sources: nothing is cited for {name}" for name in sorted(stated - set(entry.sources))]
    written: dict[str, str] = {}
    for name, citation in entry.sources.items():
        work, _, remark = citation.partition(": ")
        if work not in bibliography:
            faults.append(f"sources.{name}: there is no work {work!r} in the bibliography")
            continue
        written[name] = f"{bibliography[work]} [{remark}]" if remark else bibliography[work]
    changed: dict[str, Any] = {"sources": written}
    for name in stated:
        part = getattr(entry, name)
        if isinstance(part, Entry):
            changed[name], inner = cite(part, bibliography)
            faults += [f"{name}.{fault}" for fault in inner]
    return entry.model_copy(update=changed), faults
