"""Small jobs on small fabrics, ready for failures that can be followed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.hb_domains import find_hb_domains
from opsk.fabric.rails import Rails, find_rails
from opsk.planning.placement.step_model import COMMUNICATION_ONLY
from opsk.planning.remap.failure import Failure, KnownParts
from opsk.planning.remap.situation import Hosts, Situation, prepare
from opsk.planning.routing.fabric_routes import build_routes
from opsk.slurm.records import JobRecord
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MODEL = ModelShape(
    layers=4, hidden=1024, ffn=4096, heads=16, kv_heads=16, head_dim=64, vocab=1024, seq=128, tied_embeddings=False
)


def names(first: int, last: int) -> list[str]:
    """Return ``n<first>`` to ``n<last>``."""
    return [f"n{number}" for number in range(first, last + 1)]


def fabric_of(nodes: int = 8, hcas: int = 4, units: int = 2, spines: int = 2) -> tuple[Fabric, Rails]:
    """Return a clean rail-optimised fabric of several units and its rails."""
    fabric = rail_optimized_fabric(nodes=nodes, hcas=hcas, leaves=hcas * units, spines=spines)
    return fabric, find_rails(fabric)


def situation_of(
    plan: Plan,
    used: Sequence[str],
    *,
    spares: Sequence[str] = (),
    free: Sequence[str] = (),
    each: int = 4,
    node_gpus: int = 4,
    hcas: int = 4,
    nodes: int = 8,
    units: int = 2,
    domains: Mapping[str, str] | None = None,
    model: ModelShape = MODEL,
    seats: Sequence[tuple[str, int]] | None = None,
    held: Mapping[str, Sequence[int]] | None = None,
) -> tuple[Situation, Fabric]:
    """Return a job whose ranks fill ``used`` node after node, ``each`` on a node."""
    fabric, rails = fabric_of(nodes, hcas, units)
    found = prepare(
        model,
        plan,
        rails,
        seats or [(used[rank // each], rank % each) for rank in range(plan.gpus)],
        Hosts(
            node_gpus=node_gpus,
            spares=spares,
            free=free,
            batch_host=used[0],
            hb_domains=domains,
            held_gpus=held,
        ),
        routes=build_routes(fabric, rails),
        step=COMMUNICATION_ONLY,
    )
    return found, fabric


def machine_of(situation: Situation, fabric: Fabric, domains: Mapping[str, Sequence[str]] | None = None) -> KnownParts:
    """Return where names of this job are looked up."""
    found, _ = find_hb_domains(situation.rails.attachments, domains)
    return KnownParts(
        fabric=fabric,
        rails=situation.rails,
        domains=found,
        nodes=situation.job.nodes,
        node_gpus=situation.node_gpus,
    )


def dead_gpu(node: str, gpu: int) -> Failure:
    """Return the loss of one GPU."""
    return Failure(reported=(f"gpu:{node}/{gpu}",), gpus=frozenset({(node, gpu)}), drain=frozenset({node}))


def dead_node(*nodes: str) -> Failure:
    """Return the loss of whole nodes."""
    return Failure(reported=tuple(f"node:{node}" for node in nodes), nodes=frozenset(nodes), drain=frozenset(nodes))


def dead_hca(situation: Situation, node: str, place: int) -> Failure:
    """Return the loss of one HCA of a node."""
    entry = situation.rails.attachments[node][place]
    return Failure(
        reported=(f"nic:{node}/{entry.device}",),
        hcas=frozenset({(entry.guid, entry.leaf)}),
        drain=frozenset({node}),
    )


def dead_leaf(situation: Situation, leaf: str) -> Failure:
    """Return the loss of a leaf, by guid."""
    lost = {
        (entry.guid, entry.leaf) for row in situation.rails.attachments.values() for entry in row if entry.leaf == leaf
    }
    return Failure(reported=(f"leaf:{leaf}",), hcas=frozenset(lost))


def dead_domain(situation: Situation, name: str) -> Failure:
    """Return the loss of all GPUs of an HB domain."""
    nodes = [node for node, domain in situation.domain_of.items() if domain == name]
    gpus = {(node, gpu) for node in nodes for gpu in range(situation.node_gpus)}
    return Failure(reported=(f"hb:{name}",), gpus=frozenset(gpus), domains=frozenset({name}), drain=frozenset(nodes))


JOB = JobRecord(
    id=4711, label="4711", user="ann", name="train", state="RUNNING", partition="gpu", nodes=tuple(names(0, 4)),
    node_count=5, gpus=40, gpus_per_node=8, gpu_indices={node: tuple(range(8)) for node in names(0, 4)},
)  # fmt: skip


class Recorder:
    """Takes commands in the place of Slurm; refuses those with ``refuse`` in them."""

    def __init__(self, refuse: str = "no such word", states: Sequence[str] = ("PENDING",)) -> None:
        self.ran: list[tuple[str, ...]] = []
        self._refuse = refuse
        self._states = list(states)

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        if argv[0] == "squeue":
            return 0, (self._states.pop(0) if len(self._states) > 1 else self._states[0]) + "\n"
        self.ran.append(tuple(argv))
        return (1, "slurm_update error: Access denied") if any(self._refuse in word for word in argv) else (0, "")
