"""Small fabrics whose cables and traffic can be followed by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from opsk.fabric.rails import Attachment, Leaf, Rails
from opsk.workload.model import ModelShape

HCA_BYTES_PER_S = 50e9
RailsMaker = Callable[..., Rails]


@pytest.fixture(scope="session")
def model() -> ModelShape:
    """Small, dense, untied: four layers of 1024."""
    return ModelShape(
        layers=4, hidden=1024, ffn=4096, heads=16, kv_heads=16, head_dim=64, vocab=1024, seq=128, tied_embeddings=False
    )


@pytest.fixture(scope="session")
def rails_of() -> RailsMaker:
    """Return a maker of clean rail-optimised cabling; see ``make_rails``."""
    return make_rails


def make_rails(
    units: Sequence[Sequence[str]],
    hcas: int = 8,
    *,
    uplinks: int = 4,
    swapped: Mapping[str, tuple[int, int]] | None = None,
    missing: Mapping[str, int] | None = None,
) -> Rails:
    """Cable HCA k of every node to leaf ``u<unit>r<k>``, but for nodes with two HCAs swapped or one missing."""
    attachments: dict[str, tuple[Attachment, ...]] = {}
    members: dict[str, list[str]] = {}
    for unit, nodes in enumerate(units):
        for node in nodes:
            rail_of = list(range(hcas))
            if swapped and node in swapped:
                one, other = swapped[node]
                rail_of[one], rail_of[other] = other, one
            lost = missing.get(node) if missing else None
            attachments[node] = tuple(
                Attachment(
                    node=node,
                    device=f"mlx5_{index}",
                    guid=f"{node}-{index}",
                    leaf=f"u{unit}r{rail}",
                    rail=rail,
                    bytes_per_s=HCA_BYTES_PER_S,
                )
                for index, rail in enumerate(rail_of)
                if index != lost
            )
            for entry in attachments[node]:
                members.setdefault(entry.leaf, []).append(node)
    leaves = {
        guid: Leaf(
            guid=guid,
            description=guid,
            rail=int(guid.split("r")[1]),
            unit=int(guid.split("r")[0][1:]),
            nodes=tuple(nodes),
            hca_links=len(nodes),
            uplinks=uplinks,
        )
        for guid, nodes in members.items()
    }
    return Rails(
        leaves=leaves,
        attachments=attachments,
        leaf_distance={(one, other): 0 if one == other else 2 for one in leaves for other in leaves},
        rail_count=hcas,
    )
