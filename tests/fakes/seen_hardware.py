"""A small cluster as exporters and Slurm show it: nodes of four GPUs and two ports, one leaf a rail, one job on all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opsk.diagnosis.events.observations import GpuSeen, JobSeen, NodeSeen, Observations, PortSeen

GPUS, RAILS, LINKS = 4, 2, 18
RATE = 50e9


def looked(at_s: float, nodes: int = 4, *, domains: Sequence[str] = ()) -> Observations:
    """Return nodes ``n0``, ... that are well; ``domains`` are the HB domains of each, where they span nodes."""
    names = [f"n{number}" for number in range(nodes)]
    return Observations(
        at_s=at_s,
        nodes=tuple(
            NodeSeen(name=name, gpus=GPUS, domain=domains[at] if domains else "") for at, name in enumerate(names)
        ),
        gpus=tuple(
            GpuSeen(
                node=name, index=gpu, uuid=f"GPU-{name}-{gpu}", recovery="none", links_active=LINKS, uncorrected=0
            )
            for name in names
            for gpu in range(GPUS)
        ),
        ports=tuple(
            PortSeen(
                node=name, device=f"mlx5_{rail}", is_up=True, rate_bytes_per_s=RATE, downs=0, leaf=f"leaf{rail}",
                rail=rail, role="compute",
            )
            for name in names
            for rail in range(RAILS)
        ),
        jobs=(JobSeen(id=7, nodes=tuple(names)),),
    )  # fmt: skip


def with_gpu(seen: Observations, node: str, index: int, **changes: object) -> Observations:
    """Return the same with one GPU changed."""
    gpus = tuple(
        replace(gpu, **changes) if (gpu.node, gpu.index) == (node, index) else gpu  # type: ignore[arg-type]
        for gpu in seen.gpus
    )
    return replace(seen, gpus=gpus)


def with_port(seen: Observations, node: str, device: str, **changes: object) -> Observations:
    """Return the same with one port changed."""
    ports = tuple(
        replace(port, **changes) if (port.node, port.device) == (node, device) else port  # type: ignore[arg-type]
        for port in seen.ports
    )
    return replace(seen, ports=ports)


def with_node(seen: Observations, name: str, **changes: object) -> Observations:
    """Return the same with one node changed."""
    nodes = tuple(
        replace(node, **changes) if node.name == name else node  # type: ignore[arg-type]
        for node in seen.nodes
    )
    return replace(seen, nodes=nodes)


def without_exporter(seen: Observations, name: str) -> Observations:
    """Return the same with a node whose exporter does not answer."""
    return replace(
        with_node(seen, name, is_read=False),
        gpus=tuple(gpu for gpu in seen.gpus if gpu.node != name),
        ports=tuple(port for port in seen.ports if port.node != name),
    )
