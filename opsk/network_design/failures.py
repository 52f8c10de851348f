"""Compares the options after a failure on a rail-only and on a rail-optimised network.

The rail-only paper (arXiv 2307.12169, section IV.C) discusses four cases in words: a link or a rail switch; a server; a
GPU whose HB domain has an idle one; a GPU in an HB domain that is full. Here each is a small job on a small fabric of
either kind, given to the same engine as `opsk remap`, without any expected result. Forwarding over NVLink to a GPU on
the right rail, which a rail-only network has for all-to-alls, is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.hardware.spec import ClusterSpec, NodeSpec
from opsk.network_design.point import Wiring
from opsk.planning.placement.step_model import as_cabled, step_model
from opsk.planning.remap.failure import Failure
from opsk.planning.remap.remap import remap
from opsk.planning.remap.situation import Hosts, Situation, prepare
from opsk.planning.remap.values import OptionKind, Terms
from opsk.planning.routing.fabric_routes import build_routes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Sharding

_SPINES = 4
_SHOWN = 3
SERVER_GPUS, TRAY_GPUS = 8, 4
"""GPUs of a server that is an HB domain (DGX), and of a tray of which two are one (GB200, scaled down)."""


def _gpt(name: str, layers: int, hidden: int, heads: int) -> ModelShape:
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocab=51_200,
        seq=2_048,
        gated_mlp=False,
        tied_embeddings=True,
        learned_positions=True,
    )


_SMALL, _LARGE = _gpt("GPT-18.4B", 40, 6_144, 48), _gpt("GPT-76.1B", 60, 10_240, 80)
"""Of Narayanan et al. 2021, table 1: 48 heads go over six GPUs of a server, and 76 billion parameters need eight."""
_ACCUMULATED = 16
"""Micro-batches of a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One option of `opsk remap`: its kind, its title, and its cost."""

    kind: OptionKind
    title: str
    downtime_s: float
    loss: float
    lost_s: float
    needs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One failure on one network.

    Parameters
    ----------
    case
        The paper's name of the case: ``link``, ``rail switch``, ``server``, ``GPU, one idle in its HB domain``, ...
    wiring, optical
        The network, and whether optical circuit switches stand between NICs and leaves.
    hb_domain
        GPUs of an HB domain in this small cluster.
    failed
        The failed component, in the form of ``opsk remap --failed``.
    affected
        Number of ranks that lost their GPU or NIC.
    choices
        Options, the least expected loss first.
    refused
        Options that are not available, by kind, and why.
    text
        The paper's statement on the case.
    """

    case: str
    wiring: Wiring
    optical: bool
    hb_domain: int
    failed: str
    affected: int
    choices: tuple[Choice, ...]
    refused: Mapping[str, str]
    text: str

    @property
    def best(self) -> Choice | None:
        """Return the option with the least expected loss."""
        return self.choices[0] if self.choices else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A small cluster and its job: ``used`` GPUs of each node, and spare nodes."""

    gpus_per_node: int
    nodes_per_domain: int
    domains: int
    used: int
    spare_nodes: int
    tp: int
    pp: int
    model: ModelShape


_IDLE = _Shape(
    gpus_per_node=SERVER_GPUS, nodes_per_domain=1, domains=4, used=6, spare_nodes=0, tp=6, pp=1, model=_SMALL
)
_FULL = _Shape(
    gpus_per_node=SERVER_GPUS, nodes_per_domain=1, domains=4, used=8, spare_nodes=1, tp=8, pp=4, model=_LARGE
)
_FULL_RACK = _Shape(
    gpus_per_node=TRAY_GPUS, nodes_per_domain=2, domains=4, used=4, spare_nodes=2, tp=8, pp=4, model=_LARGE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """A case of the paper: its cluster, its failure, and the paper's statement."""

    name: str
    shape: _Shape
    failure: Callable[[Situation], Failure]
    text: str


def outcomes(
    node: NodeSpec,
    *,
    precision: Precision = Precision.BF16,
    efficiency: Efficiency = DEFAULT,
    terms: Terms | None = None,
) -> Iterator[Outcome]:
    """Yield every case on both networks, and on rail-only with optical switches where a GPU failed.

    Parameters
    ----------
    node
        Provides the GPUs; sizes are those of the small clusters, links are 400 Gbit/s.
    precision
        Number format of the jobs, which the GPUs must have.
    """
    terms = terms or Terms()
    for case in _CASES:
        for wiring in (Wiring.RAIL_OPTIMIZED, Wiring.RAIL_ONLY):
            situation = build_situation(case.shape, wiring, node, precision, efficiency)
            for is_optical in (False, True):
                if not is_optical or (wiring is Wiring.RAIL_ONLY and case.failure is _gpu):
                    yield _outcome(case, wiring, situation, replace(terms, optical=is_optical))


def _outcome(case: _Case, wiring: Wiring, situation: Situation, terms: Terms) -> Outcome:
    """Compute the options of a case."""
    failure = case.failure(situation)
    answer = remap(situation, failure, terms)
    return Outcome(
        case=case.name,
        wiring=wiring,
        optical=terms.optical,
        hb_domain=case.shape.gpus_per_node * case.shape.nodes_per_domain,
        failed=", ".join(failure.reported),
        affected=len(answer.damage.ranks),
        choices=tuple(
            Choice(
                kind=option.kind,
                title=option.title,
                downtime_s=option.downtime_s,
                loss=option.predicted.loss,
                lost_s=option.lost_s,
                needs=option.needs,
            )
            for option in answer.options
        ),
        refused={str(entry.kind): entry.why for entry in answer.refused},
        text=case.text,
    )


def build_situation(
    shape: _Shape, wiring: Wiring, node: NodeSpec, precision: Precision, efficiency: Efficiency
) -> Situation:
    """Return a job that runs on a small cluster of this wiring, its spare nodes idle."""
    gpus_per_node, count = shape.gpus_per_node, shape.nodes_per_domain * shape.domains + shape.spare_nodes
    names = [f"n{index}" for index in range(count)]
    fabric = rail_optimized_fabric(
        nodes=count,
        hcas=gpus_per_node,
        leaves=gpus_per_node * shape.nodes_per_domain,
        spines=_SPINES if wiring is Wiring.RAIL_OPTIMIZED else 0,
        # one rail for each GPU of a domain: trays of one place in their domain share leaves
        names=sorted(names, key=lambda name: int(name[1:]) % shape.nodes_per_domain),
    )
    rails = find_rails(fabric)
    used = names[: count - shape.spare_nodes]
    ranks = shape.used * len(used)
    dp = ranks // (shape.tp * shape.pp)
    plan = Plan(
        tp=shape.tp,
        pp=shape.pp,
        dp=dp,
        micro_batch=1,
        global_batch=dp * _ACCUMULATED,
        sharding=Sharding.ZERO1 if dp > 1 else Sharding.NONE,
        sequence_parallel=True,
        precision=precision,
    )
    cluster = as_cabled(
        ClusterSpec(
            name="design",
            node=replace(
                node, gpus=gpus_per_node, nics=gpus_per_node, hb_domain_gpus=gpus_per_node * shape.nodes_per_domain
            ),
            nodes=count,
            fabric=str(wiring),
        ),
        rails,
    )
    domains = {name: f"hb{index // shape.nodes_per_domain}" for index, name in enumerate(names)}
    return prepare(
        shape.model,
        plan,
        rails,
        [(used[rank // shape.used], rank % shape.used) for rank in range(ranks)],
        Hosts(
            node_gpus=gpus_per_node,
            spares=names[len(used) :],
            batch_host=used[1],
            hb_domains=domains if shape.nodes_per_domain > 1 else None,
        ),
        routes=build_routes(fabric, rails),
        step=step_model(shape.model, plan, cluster, efficiency),
        cluster=cluster,
        efficiency=efficiency,
    )


def _link(situation: Situation) -> Failure:
    """Return the loss of the link of one NIC."""
    entry = situation.rails.attachments[situation.job.nodes[0]][0]
    return Failure(
        reported=(f"nic:{entry.node}/{entry.device}",),
        hcas=frozenset({(entry.guid, entry.leaf)}),
        drain=frozenset({entry.node}),
    )


def _switch(situation: Situation) -> Failure:
    """Return the loss of the rail switch of the first rail."""
    lost = situation.rails.attachments[situation.job.nodes[0]][0].leaf
    hcas = {(hca.guid, hca.leaf) for row in situation.rails.attachments.values() for hca in row if hca.leaf == lost}
    return Failure(reported=(f"leaf:{situation.rails.leaves[lost].description}",), hcas=frozenset(hcas))


def _server(situation: Situation) -> Failure:
    """Return the loss of the first node."""
    name = situation.job.nodes[0]
    return Failure(reported=(f"node:{name}",), nodes=frozenset({name}), drain=frozenset({name}))


def _gpu(situation: Situation) -> Failure:
    """Return the loss of the first GPU of the first node."""
    name = situation.job.nodes[0]
    return Failure(reported=(f"gpu:{name}/0",), gpus=frozenset({(name, 0)}), drain=frozenset({name}))


_CASES: Sequence[_Case] = (
    _Case(
        name="link of a NIC",
        shape=_FULL,
        failure=_link,
        text="both networks lose the GPUs behind the link: equal",
    ),
    _Case(
        name="rail switch",
        shape=_FULL,
        failure=_switch,
        text="both networks lose the GPUs behind the switch: equal; rail-only has fewer switches that can fail",
    ),
    _Case(
        name="server that is an HB domain",
        shape=_FULL,
        failure=_server,
        text="the work moves to another server, whose rails are the same: equal",
    ),
    _Case(
        name="GPU, one idle in its HB domain",
        shape=_IDLE,
        failure=_gpu,
        text="rail-optimised: the idle GPU takes over; rail-only: its rail is another, unless optical switches move it",
    ),
    _Case(
        name="GPU, HB domain full, small domain",
        shape=_FULL,
        failure=_gpu,
        text="the whole domain's work moves to a new domain: equal; a GPU of another domain would slow the domain down",
    ),
    _Case(
        name="GPU, HB domain full, domain of several nodes",
        shape=_FULL_RACK,
        failure=_gpu,
        text="as for one idle: optical switches would exchange a few GPUs; else the whole domain moves",
    ),
)
