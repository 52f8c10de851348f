"""Looks up GPUs, NICs, node types and clusters in the catalogue that ships with opsk, and parses a site's cluster file.

The numbers are in ``catalog/*.toml``, each with its source; how to add one is in ``docs/howto/add-a-gpu.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from opsk.errors import ConfigError, InputError
from opsk.hardware.catalog_format import (
    MAX_SHOWN,
    CatalogFile,
    ClusterEntry,
    Entry,
    GpuEntry,
    NicEntry,
    NodeEntry,
    format_violations,
    omit_values,
    parse_toml,
)
from opsk.hardware.catalog_index import CatalogIndex, Named, build_index, cite, find_conflicts
from opsk.hardware.mig import Profile, divide, parse_profile
from opsk.hardware.spec import ClusterSpec, GpuSpec, NicSpec, NodeSpec
from opsk.hardware.spec_builder import Builder
from opsk.units import MIB

Kind = Literal["gpu", "nic", "node", "cluster"]
Spec = TypeVar("Spec", bound=Named)

ENTRY_KINDS: Mapping[type[Entry], Kind] = {GpuEntry: "gpu", NicEntry: "nic", NodeEntry: "node", ClusterEntry: "cluster"}

MAX_CLUSTER_TOML_BYTES = MIB
"""Size above which a cluster file is refused unread; a real one has a few kilobytes."""


def gpu(name: str) -> GpuSpec:
    """Return the GPU that ``name`` means: a catalogue name, a Slurm GRES type or a driver's name, in any case.

    Use `resolve_gpu` where the caller must know whether the name is ambiguous.

    Raises
    ------
    InputError
        Names the closest GPUs.

    Examples
    --------
    >>> gpu("NVIDIA H100 80GB HBM3").name
    'h100-sxm'
    """
    return resolve_gpu(name)[0]


def resolve_gpu(name: str) -> tuple[GpuSpec, tuple[str, ...]]:
    """Return the GPU that ``name`` means and the names of the other GPUs that it may mean as well, likeliest first.

    Raises
    ------
    InputError
        Names the closest GPUs; or the name is that of an instance of MIG that no GPU has.

    Examples
    --------
    >>> spec, others = resolve_gpu("a100")
    >>> spec.name, others[0]
    ('a100-sxm-80gb', 'a100-sxm-40gb')
    """
    profile = parse_profile(name)
    return _gpus().resolve(name) if profile is None else _resolve_instance(name, profile)


def _resolve_instance(name: str, profile: Profile) -> tuple[GpuSpec, tuple[str, ...]]:
    """Return the instance of MIG that a name means, and the names of those of other GPUs that it may mean."""
    if profile.gpu:
        whole, others = _gpus().resolve(profile.gpu)
        candidates = [whole, *map(gpu, others)]
    else:
        candidates = [gpu(known) for known in names("gpu")]
    instances = [part for whole in candidates if (part := divide(whole, profile)) is not None]
    if not instances:
        raise InputError(f"{name[:60]} is no part of a GPU (MIG) that opsk knows")
    return instances[0], tuple(part.name for part in instances[1:])


def nic(name: str) -> NicSpec:
    """Return the NIC port that ``name`` means (``hdr``, ``NDR200``, ``efa-100``).

    Raises
    ------
    InputError
        Names the closest NICs.
    """
    return _nics().resolve(name)[0]


def node(name: str) -> NodeSpec:
    """Return the node type that ``name`` means (``dgx-h100``, ``Standard_ND96isr_H100_v5``).

    Raises
    ------
    InputError
        Names the closest node types.
    """
    return _nodes().resolve(name)[0]


def cluster(name: str) -> ClusterSpec:
    """Return the cluster of the catalogue that ``name`` means.

    Raises
    ------
    InputError
        Names the closest clusters.
    """
    return _clusters().resolve(name)[0]


def names(kind: Kind) -> tuple[str, ...]:
    """Return the catalogue names of one kind, in the order of the file."""
    indexes: dict[Kind, Callable[[], CatalogIndex[Any]]] = {
        "gpu": _gpus,
        "nic": _nics,
        "node": _nodes,
        "cluster": _clusters,
    }
    return tuple(indexes[kind]().specs)


def parse_cluster(text: str, *, origin: str) -> ClusterSpec:
    """Read a site's cluster file.

    The file describes one cluster. ``like`` names a catalogue cluster to start from; ``node``, ``gpu`` and ``nic`` are
    catalogue names, or tables that state what differs. Values that the file states have ``origin`` as their source.

    Parameters
    ----------
    text
        TOML, in the units that vendors print: GB/s, TFLOP/s and Gbit/s, one direction, dense.
    origin
        Name of the file, for messages and sources.

    Raises
    ------
    ConfigError
        Names ``origin`` and everything that is wrong in it.

    Examples
    --------
    >>> site = parse_cluster('''
    ... name = "vega"
    ... nodes = 24
    ... fabric = "rail-optimized"
    ... [node]
    ... like = "dgx-h100"
    ... name = "xe9680"
    ... nics = 4
    ... [node.gpu]
    ... tdp_w = 650
    ... ''', origin="/etc/opsk/vega.toml")
    >>> site.gpus, site.node.nic_bytes_per_s_per_gpu, site.node.gpu.tdp_w
    (192, 25000000000.0, 650.0)
    """
    if len(text) > MAX_CLUSTER_TOML_BYTES:
        raise ConfigError(f"{origin}: larger than {MAX_CLUSTER_TOML_BYTES} bytes", hint="is this a cluster TOML?")
    tables = parse_toml(text, origin=origin)
    entry, wrong = _read_cluster(tables)
    spec = None
    if entry is not None:
        lookups: dict[str, Any] = {"gpu": _resolve_unambiguous_gpu, "nic": nic, "node": node, "cluster": cluster}
        builder = Builder(origin=origin, **lookups, partial=bool(wrong), wrong=wrong)
        if "name" not in tables:
            wrong.append("name: missing")
        spec = builder.build_cluster(entry, "")
    if spec is None or wrong:
        raise ConfigError(f"{origin}: {'; '.join(wrong)}", hint="see docs/howto/add-a-cluster.md")
    return spec


def _read_cluster(tables: dict[str, Any]) -> tuple[ClusterEntry | None, list[str]]:
    """Return the valid part of a cluster file without wrong values, and one message for each of these."""
    try:
        return ClusterEntry.model_validate(tables), []
    except ValidationError as error:
        broken = format_violations(error)
    wrong = list(broken.values())
    try:
        return ClusterEntry.model_validate(omit_values(tables, broken)), wrong
    except ValidationError:
        return None, wrong


def _resolve_unambiguous_gpu(name: str) -> GpuSpec:
    """Return the GPU that ``name`` means; a cluster file must not use an ambiguous name."""
    spec, others = resolve_gpu(name)
    if others:
        raise InputError(f"GPU {name[:MAX_SHOWN]!r} may be several", hint=f"write {', '.join((spec.name, *others))}")
    return spec


@cache
def _gpus() -> CatalogIndex[GpuSpec]:
    return _load("gpus", "GPU", GpuEntry, Builder.build_gpu)


@cache
def _nics() -> CatalogIndex[NicSpec]:
    return _load("nics", "NIC", NicEntry, Builder.build_nic)


@cache
def _nodes() -> CatalogIndex[NodeSpec]:
    return _load("nodes", "node type", NodeEntry, Builder.build_node)


@cache
def _clusters() -> CatalogIndex[ClusterSpec]:
    return _load("clusters", "cluster", ClusterEntry, Builder.build_cluster)


def _load(
    file: str, kind: str, entry_type: type[Entry], build: Callable[[Builder, Any, str], Spec | None]
) -> CatalogIndex[Spec]:
    """Read one catalogue file; an entry may refer to an entry above it."""
    text = files("opsk.hardware").joinpath("catalog", f"{file}.toml").read_text(encoding="utf-8")
    return load_catalog(text, origin=f"catalog/{file}.toml", kind=kind, entry_type=entry_type, build=build)


def load_catalog(
    text: str,
    *,
    origin: str,
    kind: str,
    entry_type: type[Entry],
    build: Callable[[Builder, Any, str], Spec | None],
) -> CatalogIndex[Spec]:
    """Return the index of the entries of a catalogue file.

    Raises
    ------
    ConfigError
        Lists all that is wrong with the file: fields, sources, aliases.
    """
    try:
        catalog = CatalogFile.model_validate(parse_toml(text, origin=origin))
    except ValidationError as error:
        raise ConfigError(f"{origin}: {'; '.join(format_violations(error).values())}") from error
    wrong: list[str] = []
    specs: dict[str, Spec] = {}

    def find_above(name: str) -> Any:
        return build_index(kind, list(specs.values()), {}).resolve(name)[0]

    lookups: dict[str, Any] = {
        "gpu": gpu,
        "nic": nic,
        "node": node,
        "cluster": cluster,
        ENTRY_KINDS[entry_type]: find_above,
    }
    builder = Builder(origin=origin, wrong=wrong, **lookups)
    for name, table in catalog.entries.items():
        try:
            entry = entry_type.model_validate({"name": name, **table})
        except ValidationError as error:
            wrong += [f"{name}.{line}" for line in format_violations(error).values()]
            continue
        cited, faults = cite(entry, catalog.bibliography)
        wrong += [f"{name}.{fault}" for fault in faults]
        spec = build(builder, cited, name)
        if spec is not None:
            specs[name] = spec
    wrong += find_conflicts(specs.values(), catalog.ambiguous)
    if wrong:
        raise ConfigError(f"{origin}: {'; '.join(wrong)}")
    return build_index(kind, list(specs.values()), catalog.ambiguous)
