"""Builds the launcher inputs of a placement: host file, rankfile, node ranks, and the settings that go with them.

Only settings that follow from the cabling are suggested, each with its reason and source; the choice of algorithm and
protocol is left to NCCL, which measures what no topology shows. These are not set on purpose: ``NCCL_NET_GDR_LEVEL``
and ``NCCL_IB_SPLIT_DATA_ON_QPS`` (NCCL's own default fits), ``NCCL_IB_QPS_PER_CONNECTION`` (pays only where routes are
static and flows collide, which one run measures better), ``NCCL_SOCKET_IFNAME`` (no dump of the fabric shows it).
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from opsk.errors import InputError
from opsk.fabric.fabric import Fabric
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.rails import Rails
from opsk.frameworks.options import Setting
from opsk.hostlist import fold
from opsk.planning.placement.node_order import unit_of_nodes
from opsk.planning.placement.placement import Placement
from opsk.planning.placement.rank_map import HOST_NAME, NodeRanks, RankMap
from opsk.slurm.topology.release import BLOCK_SINCE, Release, format_release

_KERNEL_NAME = re.compile(r"(?:mlx\d+_\d+|ibp[0-9a-z]+|hfi1_\d+|rocep[0-9a-z]+)(?::\d+)?")
"""Names that the kernel gives to devices; NCCL does not know the ``HCA-1`` of a node description."""

_NCCL_GUIDE = "NCCL user guide, environment variables"
_SWITCHES_WAIT = "5:00"
"""Slurm's default for SchedulerParameters=max_switch_wait is 300 s, and a longer wait than that limit is cut to it."""
_LESS = 0.95
"""A node with less than this share of the others' bandwidth is one that the others wait for."""
_SAFE_NAME = re.compile(r"[A-Za-z0-9._\-]{1,255}")
__all__ = ["JobLaunch", "Setting", "Torchrun", "build_launch", "rank_map"]
_RANK_FILE_NOTE = (
    "use the rank file for a step inside the job, never for sbatch itself: SLURM_HOSTFILE=FILE srun "
    "--distribution=arbitrary, one task a GPU; it sets SLURM_PROCID and SLURM_LOCALID, not SLURM_NODEID: take the rank "
    "from SLURM_PROCID, and MASTER_ADDR from the file's first line"
)
_MPI_NOTE = (
    "Open MPI takes the MPI rankfile instead (4: mpirun --rankfile FILE; 5: mpirun --map-by rankfile:file=FILE); it "
    "binds each rank to the one logical core that its slot names: widen slot to a range like 0-11 for more"
)
_TORCHRUN_NOTE = (
    "torchrun takes --node-rank and --master-addr from the torchrun table, with --rdzv-backend=static: SLURM_NODEID "
    "stays in Slurm's own order, and a c10d rendezvous numbers the nodes itself"
)
_NO_TORCHRUN_NOTE = "torchrun cannot bring about this order, since it numbers ranks node by node: start with srun"
_GPU_ORDER_NOTE = (
    "on the nodes in gpu_order HCAs are cabled otherwise: there local rank i takes the i-th GPU of the list, by "
    "CUDA_VISIBLE_DEVICES of a task that sees all GPUs of its node"
)


def nccl_settings(
    placement: Placement, rails: Rails, *, devices_known: bool = True, sharp: Collection[str] = ()
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return the NCCL settings that are certain, and why others are left out.

    Parameters
    ----------
    devices_known
        False when HCAs' names are not the site's own.
    sharp
        Guids of the switches with a SHARP aggregation node.
    """
    devices = [tuple(hca.device for hca in rails.attachments.get(node, ())) for node in placement.nodes]
    by_rail = [tuple(hca.rail for hca in rails.attachments.get(node, ())) for node in placement.nodes]
    if len(placement.nodes) < 2 or not any(devices):
        return (), ()
    env: list[Setting] = []
    notes: list[str] = []
    same_devices = len(set(devices)) == 1
    if not same_devices:
        notes.append(
            "NCCL_IB_HCA is left out: the nodes' HCAs do not have the same names" + _name_odd_nodes(placement, devices)
        )
    elif not all(_KERNEL_NAME.fullmatch(device) for device in devices[0]):
        shown = ", ".join(devices[0][:3])
        notes.append(f"NCCL_IB_HCA is left out: the fabric calls the HCAs {shown}, ..., not as the nodes' kernels do")
    elif devices_known:
        order = sorted(range(len(devices[0])), key=lambda index: (_rail_key(by_rail[0][index]), index))
        env.append(
            Setting(
                name="NCCL_IB_HCA",
                value="=" + ",".join(devices[0][index] for index in order),
                why="the HCAs on the compute fabric in rail order; others (storage) are not for NCCL",
                source=f"{_NCCL_GUIDE}: = asks for exact names",
            )
        )
    one_rail_each = len(by_rail[0]) > 1 and len(set(by_rail[0])) == len(by_rail[0]) and None not in by_rail[0]
    if one_rail_each and len(set(by_rail)) == 1:
        env.append(
            Setting(
                name="NCCL_CROSS_NIC",
                value="0",
                why="every HCA is on a rail of its own on every node: a ring that changes NIC changes rail",
                source=f"{_NCCL_GUIDE}: 0 keeps a ring on the same NIC, for networks with a switch per NIC (rails)",
            )
        )
    elif one_rail_each and same_devices:
        notes.append(
            "NCCL_CROSS_NIC is left alone: the same HCA is not on the same rail" + _name_odd_nodes(placement, by_rail)
        )
    return tuple(env), (*notes, *_build_sharp_note(placement, sharp))


def sharp_switches(fabric: Fabric) -> frozenset[str]:
    """Return the guids of the switches with a SHARP aggregation node: those can add up what passes through them."""
    ends = ((cable.a_guid, cable.b_guid) for cable in fabric.cables)
    pairs = [pair for near, far in ends for pair in ((near, far), (far, near))]
    return frozenset(
        switch
        for node, switch in pairs
        if switch in fabric.switches and node in fabric.hcas and fabric.hcas[node].sharp
    )


def _build_sharp_note(placement: Placement, sharp: Collection[str]) -> tuple[str, ...]:
    """Return a note where the switches could reduce; the cabling does not show whether they are configured to."""
    leaves = {rank.leaf for rank in placement.ranks}
    if None in leaves or not leaves <= set(sharp):
        return ()
    return (
        "every leaf of the job has a SHARP aggregation node: NCCL_COLLNET_ENABLE=1 may pay where the nodes have "
        "NVIDIA's NCCL SHARP plugin and the subnet a running aggregation manager; the cabling shows neither, so it is "
        "not set",
    )


def _rail_key(rail: int | None) -> int:
    """Sort HCAs without rail last."""
    return rail if rail is not None else 1 << 30


def _name_odd_nodes(placement: Placement, rows: Sequence[tuple[object, ...]]) -> str:
    """Name the nodes that differ from most."""
    usual = Counter(rows).most_common(1)[0][0]
    odd = [node for node, row in zip(placement.nodes, rows, strict=True) if row != usual]
    return f" ({', '.join(odd[:4])}{', ...' if len(odd) > 4 else ''})"


def build_slurm_flags(
    placement: Placement, rails: Rails, *, domains: Sequence[HbDomain] = (), release: Release | None = None
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return flags for ``sbatch`` with their reasons, and notes on what no flag can do.

    Parameters
    ----------
    domains
        HB domains; those of several nodes are the blocks of ``topology/block``.
    release
        Release of Slurm in use, when it is known; flags that it does not have are left out.
    """
    if len(placement.nodes) < 2:
        return (), ()
    segment, notes = _build_segment(placement, domains, release)
    exclude, more = _build_exclude(placement, rails)
    return (*_build_switches(placement, rails), *segment, *exclude), (*notes, *more)


def count_replica_nodes(placement: Placement) -> int:
    """Return the number of nodes of one replica of the model: the most that ranks of one ``dp_rank`` use."""
    nodes: defaultdict[int, set[str]] = defaultdict(set)
    for rank in placement.ranks:
        nodes[rank.dp_rank].add(rank.node)
    return max((len(nodes_of_replica) for nodes_of_replica in nodes.values()), default=0)


def _build_switches(placement: Placement, rails: Rails) -> tuple[Setting, ...]:
    """Return ``--switches`` where the job fits under the leaves of one unit and the fabric has several."""
    sizes = Counter(unit_of_nodes(rails, tuple(rails.attachments)).values())
    if len(sizes) < 2 or max(sizes.values()) < len(placement.nodes):
        return ()
    group = max(sizes.values())
    return (
        Setting(
            name="--switches",
            value=f"1@{_SWITCHES_WAIT}",
            why=f"{len(placement.nodes)} nodes fit under one leaf group of {group}; waits 5 minutes at most",
            source="sbatch(1) --switches; needs topology/tree with one switch a leaf group (opsk fabric --write tree)",
        ),
    )


def _build_segment(
    placement: Placement, domains: Sequence[HbDomain], release: Release | None
) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return ``--segment``: how many nodes must lie in one HB domain, so that a replica is not torn apart."""
    sizes = Counter(len(domain.nodes) for domain in domains if len(domain.nodes) > 1)
    group, count = count_replica_nodes(placement), len(placement.nodes)
    if not sizes or group < 2 or (release is not None and release < BLOCK_SINCE):
        return (), ()
    block = max(sizes, key=lambda size: (sizes[size], size))
    whole = [size for size in range(group, min(block, count) + 1) if count % size == 0 and size % group == 0]
    common = math.gcd(group, count)
    parts = [size for size in range(2, min(block, common) + 1) if common % size == 0]
    if whole:
        size, why = whole[0], f"a replica of the model lies on {group} nodes and stays in one block of {block}"
    elif parts:
        size = parts[-1]
        why = (
            f"a replica of the model lies on {group} nodes, more than a block of {block} holds beside others: in parts"
        )
    else:
        return (), (
            f"--segment is left out: no number of nodes divides both the {count} of the job and the {group} of a "
            f"replica of the model and fits a block of {block}",
        )
    setting = Setting(
        name="--segment",
        value=str(size),
        why=f"{why}; Slurm may spread the segments, and starts sooner than for one block in all",
        source=f"sbatch(1) --segment; needs topology/block, Slurm {format_release(BLOCK_SINCE)} or later "
        "(opsk fabric --write block)",
    )
    note = (
        "--exclusive=topo would keep other jobs out of the blocks as well (Slurm 24.05 or later): nothing else runs on "
        "their NVLink and leaves then, and their unused nodes stay idle"
    )
    return (setting,), (note,)


def _build_exclude(placement: Placement, rails: Rails) -> tuple[tuple[Setting, ...], tuple[str, ...]]:
    """Return ``--exclude`` for nodes that would slow all others down, where enough others are there."""
    candidates = [*placement.nodes, *placement.spare_nodes]
    rate = {
        node: sum(hca.bytes_per_s for hca in rails.attachments[node])
        for node in candidates
        if node in rails.attachments
    }
    usual = Counter(rate.values()).most_common(1)[0][0] if rate else 0.0
    slow = [node for node, node_rate in rate.items() if node_rate < _LESS * usual and _SAFE_NAME.fullmatch(node)]
    if not slow:
        return (), ()
    least = min(rate[node] for node in slow) / usual
    listed = f"{', '.join(slow[:4])}{', ...' if len(slow) > 4 else ''}"
    what = f"{listed}: links for {least:.0%} of the bandwidth that the other nodes have at the least, and all wait"
    if len(rate) - len(slow) < len(placement.nodes):
        used = [node for node in slow if node in placement.nodes]
        return (), ((f"{what}; no candidates are left to take their place",) if used else ())
    return (
        Setting(
            name="--exclude",
            value=fold(slow),
            why=f"{what}; {len(rate) - len(slow)} other candidates are enough",
            source="sbatch(1) --exclude; safe with block topologies, where --nodelist is not",
        ),
    ), ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Torchrun:
    """Arguments of ``torchrun`` on each node: ``--node-rank`` by node, ``--master-addr`` and ``--nproc-per-node``."""

    master_addr: str
    node_rank: Mapping[str, int]
    nproc_per_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLaunch:
    """The inputs of launchers.

    Parameters
    ----------
    rank_file
        One host per rank and line, for ``SLURM_HOSTFILE`` and ``srun --distribution=arbitrary`` of a **step**; not
        needed where `Placement.needs_rank_file` is false. On the allocation itself 26.05 may refuse it (block, ring).
    mpi_rank_file
        ``rank N=host slot=S`` for each rank: ``mpirun --rankfile FILE`` (Open MPI 4), ``mpirun --map-by
        rankfile:file=FILE`` (5). S is a logical core, one for each rank of a node.
    torchrun
        ``None`` where ranks do not fill nodes one after the other, as ``torchrun`` numbers them.
    gpu_order
        ``CUDA_VISIBLE_DEVICES`` by node, where local ranks do not take the GPUs in their own order.
    nccl_env, slurm_flags
        Settings of the job's environment, and flags for ``sbatch``.
    notes
        Caveats, and what was left out and why.
    """

    rank_file: str
    mpi_rank_file: str = ""
    torchrun: Torchrun | None = None
    gpu_order: Mapping[str, str] = field(default_factory=dict)
    nccl_env: tuple[Setting, ...] = ()
    slurm_flags: tuple[Setting, ...] = ()
    notes: tuple[str, ...] = ()


def build_launch(
    placement: Placement,
    rails: Rails,
    *,
    devices_known: bool = True,
    domains: Sequence[HbDomain] = (),
    release: Release | None = None,
    sharp: Collection[str] = (),
) -> JobLaunch:
    """Return what a launcher needs for this placement.

    Parameters
    ----------
    devices_known
        False when HCAs' names are not the site's own.
    domains, release
        HB domains of several nodes, and the release of Slurm, for ``--segment``.
    sharp
        Guids of the switches that can reduce; see `opsk.planning.placement.launch.sharp_switches`.
    """
    env, notes = nccl_settings(placement, rails, devices_known=devices_known, sharp=sharp)
    flags, flag_notes = build_slurm_flags(placement, rails, domains=domains, release=release)
    torchrun = _build_torchrun(placement)
    if placement.needs_rank_file:
        notes = (_RANK_FILE_NOTE, _MPI_NOTE, _TORCHRUN_NOTE if torchrun else _NO_TORCHRUN_NOTE, *notes)
    if placement.gpu_order:
        notes = (*notes, _GPU_ORDER_NOTE)
    return JobLaunch(
        rank_file="".join(f"{_clean_host(rank.node)}\n" for rank in placement.ranks),
        mpi_rank_file="".join(
            f"rank {rank.rank}={_clean_host(rank.node)} slot={rank.local_rank}\n" for rank in placement.ranks
        ),
        torchrun=torchrun,
        gpu_order={node: ",".join(map(str, gpus)) for node, gpus in placement.gpu_order.items()},
        nccl_env=env,
        slurm_flags=flags,
        notes=(*notes, *flag_notes),
    )


def rank_map(placement: Placement, job: int) -> RankMap:
    """Return the map of a placement.

    Raises
    ------
    InputError
        A node's name is none that a launcher or a shell could take as one word.
    """
    ranks: dict[str, list[tuple[int, int]]] = {}
    for rank in sorted(placement.ranks, key=lambda rank: rank.rank):
        ranks.setdefault(rank.node, []).append((rank.local_rank, rank.rank))
    odd = [node for node in ranks if not HOST_NAME.fullmatch(node)]
    if odd:
        raise InputError(f"{odd[0][:60]!r} is not a host name", hint="Slurm's names are letters, digits, . _ and -")
    nodes = [
        NodeRanks(
            node=node,
            ranks=tuple(rank for _, rank in sorted(pairs)),
            gpus=tuple(placement.gpu_order.get(node, ())),
        )
        for node, pairs in ranks.items()
    ]
    return RankMap(job=job, nodes=tuple(nodes))


def _build_torchrun(placement: Placement) -> Torchrun | None:
    """Return node ranks, where ranks fill nodes one after the other, each with as many."""
    node_rank: dict[str, int] = {}
    for rank in placement.ranks:
        node_rank.setdefault(rank.node, len(node_rank))
    if not node_rank or len(placement.ranks) % len(node_rank):
        return None
    ranks_per_node = len(placement.ranks) // len(node_rank)
    if any(rank.rank != node_rank[rank.node] * ranks_per_node + rank.local_rank for rank in placement.ranks):
        return None
    return Torchrun(
        master_addr=_clean_host(placement.ranks[0].node),
        node_rank={_clean_host(node): number for node, number in node_rank.items()},
        nproc_per_node=ranks_per_node,
    )


def _clean_host(name: str) -> str:
    """Return a host's name so that it stays one word of one line, whatever a dump calls it."""
    return re.sub(r"[^A-Za-z0-9._\-]", "_", name)
