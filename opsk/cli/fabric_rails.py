"""What does ``opsk fabric --rails-file`` write? Where each HCA port is cabled to, for the exporter on its node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

from opsk.telemetry.rails_file import PortPlace, write_rails
from opsk.text import escape
from opsk.topology.fabric import Fabric
from opsk.topology.graph import HcaLink, hca_links
from opsk.topology.rails import Attachment, Rails

rails_file_option = click.option(
    "--rails-file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write the rail, leaf and switch port of each HCA port to FILE, for opsk exporter on the nodes.",
)


def save_rails(path: Path, fabric: Fabric, rails: Rails) -> None:
    """Write the rails file of a fabric, and say on stderr how many ports it tells about."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    count = write_rails(path, port_places(fabric, rails), source=fabric.source, generated=now)
    click.echo(f"opsk: {escape(str(path))}: rail, leaf and switch port of {count} HCA ports", err=True)


def port_places(fabric: Fabric, rails: Rails) -> Iterator[PortPlace]:
    """Return where each cabled port of each HCA leads."""
    attached: dict[str, list[Attachment]] = {}
    for attachments in rails.attachments.values():
        for each in attachments:
            attached.setdefault(each.guid, []).append(each)
    for link in hca_links(fabric):
        if not re.fullmatch(r"[0-9a-f]{1,16}", link.hca):
            continue
        node = fabric.hcas[link.hca].node
        leaf = rails.leaves.get(link.switch)
        attachment = _attachment(attached.get(link.hca, []), link)
        role = "" if node is None else rails.host_roles.get(node, "")
        if role == "compute" and attachment is None and leaf is not None:
            # A compute node's port beside the compute fabric is for what its leaf is for.
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


def _attachment(attachments: list[Attachment], link: HcaLink) -> Attachment | None:
    """Return what the rails say of one port; of two ports of one HCA on one leaf, the one with that number."""
    here = [attachment for attachment in attachments if attachment.leaf == link.switch]
    if len(here) > 1:
        here = [each for each in here if each.device.endswith(f":{link.hca_port}") == (link.hca_port > 1)]
    return here[0] if here else None
