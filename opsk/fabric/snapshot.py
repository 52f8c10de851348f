"""Writes and reads the canonical form of a fabric, which does not depend on how the fabric was dumped.

It holds the cables, the names and the HB domains, but not LIDs, line numbers, file names and findings, which change or
are computed again. Two dumps of one fabric give the same text, whatever the order of their blocks, and the same hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opsk.errors import InputError
from opsk.fabric.fabric import Cable, Fabric, Hca, Switch
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.link_speed import link_bytes_per_s

VERSION = 1
"""Increased when the format changes; older snapshots stay readable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A fabric at one time, with the HB domains of its nodes."""

    fabric: Fabric
    hb_domains: tuple[HbDomain, ...] = ()


def serialise_snapshot(fabric: Fabric, hb_domains: Iterable[HbDomain] = ()) -> bytes:
    """Return the canonical form: JSON, UTF-8, everything sorted; cables name their ends by place in the lists before.

    A domain that is one node by itself is left out: every node is at least that.
    """
    guids = [*sorted(fabric.switches), *sorted(fabric.hcas), *sorted(fabric.routers)]
    place = {guid: index for index, guid in enumerate(guids)}
    links = sorted({(cable.width, cable.speed) for cable in fabric.cables})
    link_place = {link: index for index, link in enumerate(links)}
    cables = sorted(
        (*_ends_in_order(cable, place), link_place[cable.width, cable.speed]) for cable in fabric.cables
    )  # fmt: skip
    document = {
        "version": VERSION,
        "switches": [
            [guid, fabric.switches[guid].description, fabric.switches[guid].ports] for guid in sorted(fabric.switches)
        ],
        "hcas": [_adapter(hca) for _, hca in sorted(fabric.hcas.items())],
        "routers": [_adapter(router) for _, router in sorted(fabric.routers.items())],
        "links": links,
        "cables": cables,
        "hb_domains": [
            [domain.name, domain.kind, domain.gpus, sorted(domain.nodes)]
            for domain in sorted(hb_domains, key=lambda domain: domain.name)
            if domain.nodes != (domain.name,) or domain.gpus is not None
        ],
    }
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode()


def compute_content_hash(content: bytes) -> str:
    """Return the hash of a canonical form: SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def read_snapshot(content: bytes, *, source: str) -> Snapshot:
    """Return the fabric and HB domains of a canonical form.

    Raises
    ------
    InputError
        When it is none, or of a version that this opsk does not know.
    """
    try:
        document = json.loads(content)
        version = document["version"]
        snapshot = _snapshot(document, source) if version == VERSION else None
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise InputError(f"{source}: no snapshot of a fabric: {error}", hint="store it again with --save") from error
    if snapshot is None:
        raise InputError(f"{source}: snapshot of version {version}, this opsk reads {VERSION}", hint="update opsk")
    return snapshot


def _snapshot(document: Mapping[str, Any], source: str) -> Snapshot:
    switches = {
        guid: Switch(guid=guid, description=description, ports=ports)
        for guid, description, ports in document["switches"]
    }
    hcas, routers = _hcas(document["hcas"]), _hcas(document["routers"])
    guids = [*switches, *hcas, *routers]
    links = [(int(width), str(speed)) for width, speed in document["links"]]
    rates = [link_bytes_per_s(*link) for link in links]
    cables = [
        Cable(
            a_guid=guids[a],
            a_port=a_port,
            b_guid=guids[b],
            b_port=b_port,
            width=links[link][0],
            speed=links[link][1],
            bytes_per_s=rates[link],
        )
        for a, a_port, b, b_port, link in document["cables"]
    ]
    cables.sort(key=lambda cable: (cable.a_guid, cable.a_port, cable.b_guid, cable.b_port))
    domains = tuple(
        HbDomain(name=name, kind=kind, gpus=gpus, nodes=tuple(nodes))
        for name, kind, gpus, nodes in document["hb_domains"]
    )
    fabric = Fabric(switches=switches, hcas=hcas, routers=routers, cables=tuple(cables), source=source)
    return Snapshot(fabric=fabric, hb_domains=domains)


def _ends_in_order(cable: Cable, place: Mapping[str, int]) -> tuple[int, int, int, int]:
    """Return both ends in the order that ``Cable`` promises, for any source of the value."""
    if (cable.b_guid, cable.b_port) < (cable.a_guid, cable.a_port):
        return place[cable.b_guid], cable.b_port, place[cable.a_guid], cable.a_port
    return place[cable.a_guid], cable.a_port, place[cable.b_guid], cable.b_port


def _adapter(hca: Hca) -> list[Any]:
    return [hca.guid, hca.description, hca.node, hca.device, int(hca.sharp)]


def _hcas(rows: Iterable[Any]) -> dict[str, Hca]:
    return {
        guid: Hca(guid=guid, description=description, node=node, device=device, sharp=bool(sharp))
        for guid, description, node, device, sharp in rows
    }
