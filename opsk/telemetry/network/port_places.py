"""Finds the place of each HCA port of a fabric, which the rails file of a site lists."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import HcaLink, find_hca_links
from opsk.fabric.rails import Attachment, Rails
from opsk.telemetry.network.rails_file import PortPlace


def build_port_places(fabric: Fabric, rails: Rails) -> Iterator[PortPlace]:
    """Yield the place of each cabled HCA port."""
    attached: dict[str, list[Attachment]] = {}
    for attachments in rails.attachments.values():
        for each in attachments:
            attached.setdefault(each.guid, []).append(each)
    for link in find_hca_links(fabric):
        if not re.fullmatch(r"[0-9a-f]{1,16}", link.hca):
            continue
        node = fabric.hcas[link.hca].node
        leaf = rails.leaves.get(link.switch)
        attachment = _find_attachment(attached.get(link.hca, []), link)
        role = "" if node is None else rails.host_roles.get(node, "")
        if role == "compute" and attachment is None and leaf is not None:
            # A compute node's port outside the compute fabric has the role of its leaf.
            role = leaf.role
        yield PortPlace(
            guid=link.hca.zfill(16),
            port=link.hca_port,
            node=node or "",
            rail=None if attachment is None else attachment.rail,
            leaf=fabric.switches[link.switch].description,
            switch=link.switch,
            switch_port=link.switch_port,
            role=role,
        )


def _find_attachment(attachments: list[Attachment], link: HcaLink) -> Attachment | None:
    """Return the rail attachment of one port; of two ports of one HCA on one leaf, the one with that number."""
    candidates = [attachment for attachment in attachments if attachment.leaf == link.switch]
    if len(candidates) > 1:
        candidates = [each for each in candidates if each.device.endswith(f":{link.hca_port}") == (link.hca_port > 1)]
    return candidates[0] if candidates else None
