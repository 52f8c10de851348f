"""Builds hardware specs from file entries; an entry's values override those of the entry that ``like`` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from opsk.errors import InputError
from opsk.hardware.catalog_format import (
    CLUSTER_FIELDS,
    GPU_FIELDS,
    NIC_FIELDS,
    NODE_FIELDS,
    NOT_CITED,
    OPTIONAL_FIELDS,
    ClusterEntry,
    Conversion,
    Entry,
    GpuEntry,
    NicEntry,
    NodeEntry,
)
from opsk.hardware.spec import ClusterSpec, GpuSpec, NicSpec, NodeSpec

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """Builds specs from entries and collects every error in ``wrong``.

    ``gpu``, ``nic``, ``node`` and ``cluster`` look a catalogue name up and raise `InputError` for an unknown one.
    ``origin`` is the source of every value that names none of its own. ``partial`` is set when fields with wrong values
    were removed: missing fields are then not reported.
    """

    origin: str
    gpu: Callable[[str], GpuSpec]
    nic: Callable[[str], NicSpec]
    node: Callable[[str], NodeSpec]
    cluster: Callable[[str], ClusterSpec]
    partial: bool = False
    wrong: list[str] = field(default_factory=list)

    def build_gpu(self, entry: str | GpuEntry, place: str, base: GpuSpec | None = None) -> GpuSpec | None:
        """Return the GPU that ``entry`` names or describes; ``None`` after adding to ``wrong``."""
        if isinstance(entry, str):
            return self._look_up(self.gpu, entry, place)
        values = self._values(entry, GPU_FIELDS, self._base(self.gpu, entry, place, base), place)
        if values is None:
            return None
        if entry.memory_mib is not None and entry.usable_mib is None:
            values["usable_bytes"] = None
            values["sources"].pop("usable_bytes", None)
        return GpuSpec(**values)

    def build_nic(self, entry: str | NicEntry, place: str, base: NicSpec | None = None) -> NicSpec | None:
        """Return the NIC that ``entry`` names or describes; ``None`` after adding to ``wrong``."""
        if isinstance(entry, str):
            return self._look_up(self.nic, entry, place)
        values = self._values(entry, NIC_FIELDS, self._base(self.nic, entry, place, base), place)
        return None if values is None else NicSpec(**values)

    def build_node(self, entry: str | NodeEntry, place: str, base: NodeSpec | None = None) -> NodeSpec | None:
        """Return the node type that ``entry`` names or describes; ``None`` after adding to ``wrong``."""
        if isinstance(entry, str):
            return self._look_up(self.node, entry, place)
        start = self._base(self.node, entry, place, base)
        parts: dict[str, GpuSpec | NicSpec | None] = {}
        if entry.gpu is not None:
            parts["gpu"] = self.build_gpu(entry.gpu, _join(place, "gpu"), None if start is None else start.gpu)
        if entry.nic is not None:
            parts["nic"] = self.build_nic(entry.nic, _join(place, "nic"), None if start is None else start.nic)
        if entry.storage_nic is not None:
            base_nic = None if start is None else start.storage_nic
            parts["storage_nic"] = self.build_nic(entry.storage_nic, _join(place, "storage_nic"), base_nic)
        values = self._values(entry, NODE_FIELDS, start, place, parts=parts, needed=("gpu", "nic"))
        return None if values is None else NodeSpec(**values)

    def build_cluster(self, entry: ClusterEntry, place: str) -> ClusterSpec | None:
        """Return the cluster that ``entry`` describes; ``None`` after adding to ``wrong``."""
        start = self._base(self.cluster, entry, place, None)
        parts: dict[str, NodeSpec | None] = {}
        if entry.node is not None:
            parts["node"] = self.build_node(entry.node, _join(place, "node"), None if start is None else start.node)
        values = self._values(entry, CLUSTER_FIELDS, start, place, parts=parts, needed=("node",))
        return None if values is None else ClusterSpec(**values)

    def _look_up(self, find: Callable[[str], T], name: str, place: str) -> T | None:
        """Return the result of ``find``, or ``None`` after adding the error to ``wrong``."""
        try:
            return find(name)
        except InputError as error:
            self.wrong.append(f"{place}: {error.message} ({error.hint})")
            return None

    def _base(self, find: Callable[[str], T], entry: Entry, place: str, around: T | None) -> T | None:
        """Return the base of an entry: what it names in ``like``, else the part of the enclosing spec."""
        return around if entry.like is None else self._look_up(find, entry.like, _join(place, "like"))

    def _values(
        self,
        entry: Entry,
        conversions: Mapping[str, Conversion],
        base: GpuSpec | NicSpec | NodeSpec | ClusterSpec | None,
        place: str,
        *,
        parts: Mapping[str, Any] | None = None,
        needed: tuple[str, ...] = (),
    ) -> dict[str, Any] | None:
        """Return the fields of the spec: those of ``base``, those that the entry states, its sources and its name."""
        stated = {name: value for name in conversions if (value := getattr(entry, name)) is not None}
        parts = parts or {}
        if base is None and not self._complete(entry, {*stated, *parts}, (*needed, *conversions), place):
            return None
        if any(part is None for part in parts.values()):
            return None
        values = {item.name: getattr(base, item.name) for item in fields(base)} if base is not None else {}
        sources = dict(values.get("sources", {}))
        for name, value in stated.items():
            target, convert = conversions[name]
            values[target] = convert(value)
            if name not in NOT_CITED:
                sources[target] = entry.sources.get(name, self.origin)
        for name, part in parts.items():
            values[name] = part
            sources[name] = entry.sources.get(name, self.origin)
        name = entry.name or values.get("name") or place
        return {**values, "name": name, "aliases": entry.aliases or (), "sources": sources}

    def _complete(self, entry: Entry, stated: set[str], fields_of_kind: tuple[str, ...], place: str) -> bool:
        """Return whether an entry without a base states all required fields; add missing ones to ``wrong``."""
        if entry.like is not None:
            return False
        missing = [name for name in fields_of_kind if name not in stated and name not in OPTIONAL_FIELDS]
        if missing and not self.partial:
            hint = "state it, or name an entry that has it in like"
            self.wrong.append(f"{place}: {', '.join(missing)} missing ({hint})".removeprefix(": "))
        return not missing


def _join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
