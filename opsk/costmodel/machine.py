"""Computes the rates that a cluster's GPUs and links reach, and the power that GPUs, hosts and network draw.

Published measurements of power agree on the order and the extremes, and less on the values between: see
`STATE_FRACTIONS`. Rates of attention kernels are data, ``attention.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency, GpuEfficiency
from opsk.costmodel.network_cost import clos_network, network_power_w, rail_only_network
from opsk.costmodel.table import ATTENTIONS, PRECISIONS, SOFTWARE, FloatColumn, IntColumn
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec, GpuSpec, NodeSpec
from opsk.workload.plan import Attention, Precision, Software

IDEAL_GENERATION = "ideal"
"""A chip whose attention is as fast as its products, whatever the size: for closed forms."""
_MEGATRON = (Software.MEGATRON, Software.MEGATRON_CORE)
_OTHER_GENERATION = "ampere"
"""Generation whose kernels are used for a chip that the table does not have."""


HOST_FRACTION = 0.6
"""Host power while training, over what the node's rating leaves beside its GPUs' limits [ratio].

A node of 8 H100 rated 10.2 kW draws 8.4 kW with its GPUs near their limit of 5.6 kW: (8.4 - 5.6) / (10.2 - 5.6) = 0.61
(Latif et al. 2024, arXiv 2412.08602). It holds processors, memory, fans, NICs, NVSwitches and losses of power supplies.
"""
UNKNOWN_HOST_FRACTION = 0.5
"""Host power over the limit of its GPUs where the node's rating is not known [ratio]: between the 0.49 of a DGX H100
(10.2 kW) and the 0.62 of a DGX A100 (6.5 kW) by ``HOST_FRACTION``; nodes cooled by liquid need less."""
SWITCH_PORTS = 64
"""Ports of one switch (400 Gbit/s generation); older switches have 36 or 40."""
_SOURCE_BYTES_PER_S = 50e9
"""Link rate that the watts of `opsk.costmodel.network_cost.PartPrices` are of: 400 Gbit/s, one direction [bytes/s]."""
_MAX_ENDPOINTS = 2 * (SWITCH_PORTS // 2) ** 5
"""Endpoints of five tiers of such switches; larger networks are not built."""
HB_CHANNELS, PCIE_CHANNELS = 24.0, 4.0
"""Channels that NCCL opens for a communicator over NVLink (its logs on A100 and H100) and over PCIe; from memory."""
NO_LINK_BYTES_PER_S = 1.0
"""Rate of a missing link: so slow that no plan that needs it is chosen, and still a finite number."""
USUAL_SHARES: Mapping[str, Mapping[str, float]] = {
    "pascal": {"16-bit": 0.80},
    "volta": {"16-bit": 0.72},
    "turing": {"16-bit": 0.45},
    "ampere": {"16-bit": 0.80},
    "ada": {"16-bit": 0.59, "fp8": 0.54},
    "hopper": {"16-bit": 0.70, "fp8": 0.66},
    "blackwell": {"16-bit": 0.61, "fp8": 0.57, "fp4": 0.51},
    "blackwell-ultra": {"16-bit": 0.67, "fp8": 0.64, "fp4": 0.42},
    "blackwell-rtx": {"16-bit": 0.79, "fp8": 0.78, "fp4": 0.70},
    "cdna2": {"16-bit": 0.62},
    "cdna3": {"16-bit": 0.54, "fp8": 0.49},
    "cdna4": {"16-bit": 0.57, "fp8": 0.49, "fp4": 0.46},
}
"""Sustained shares of the usual GPU of each generation, as the catalogue has them: P100, V100, T4, A100 SXM, L40S, H100
SXM, B200, B300, RTX PRO 6000, MI250X, MI300X, MI355X. A generation's fractions are mostly fitted to these GPUs."""
FP32_FRACTION = 0.9
"""Share of the fp32 peak that a large product reaches outside of tensor cores, whose units stay below the power limit:
75 of 80 TFLOP/s on GB200 (a guide to Google's A4X), 52 of 67 on H100 with the casts and the loss around it (trl pull
request 6858: four products of 4,096 x 2,048 x 248,320 in 319 ms)."""
_IS_FP32 = np.array([precision.peak_format == "fp32" for precision in PRECISIONS])
_IS_FP8 = np.array([precision.peak_format == "fp8" for precision in PRECISIONS])
_IS_FP4 = np.array([precision.peak_format == "fp4" for precision in PRECISIONS])
FP8_SIZE, FP4_SIZE = 450.0, 1100.0
"""Size of a product's dimension that halves its rate in FP8 and FP4, where it is not larger in 16 bits [elements].

Filling and emptying tiles takes as long, while the arithmetic between takes half or a quarter of the time. Medians of
fits to 5,700 to 6,000 products each that are within 6 % in FP8 and 8 % in FP4 (benchmarks/published/product_fits.csv);
those in 16 bits find 120."""
_FORMATS = tuple(precision.peak_format for precision in PRECISIONS)
_PLAIN_FORMATS = tuple(name if name in ("fp32", "tf32", "fp16") else "bf16" for name in _FORMATS)
"""Attention and the head stay in 16 bits in the FP8 recipes (Transformer Engine's default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Rates of one GPU and its links, of shape () or (plans,).

    ``peak_flop_per_s`` is the catalogue's dense peak (for MFU); ``matmul_`` and ``plain_flop_per_s`` are the reached
    rates of endless projections, and of products that stay in 16 bits (``fp32_``: in fp32), and ``matmul_`` and
    ``plain_size`` the size of a dimension that halves either; ``attention_flop_per_s`` is that of fused
    attention if its kernels were as fast as products, and ``generation`` the chip generation whose kernels run
    (`opsk.costmodel.time.layer_time`). ``launch_factor`` is `GpuSpec.launch_factor`.
    ``host_w`` and ``network_w`` are the power of one GPU's share of its host and of the compute network.
    ``nccl_channels`` are those of a communicator. ``is_rail_only`` and ``reduces_in_network`` are 1.0 for a fabric
    without spines between rails, and for one whose switches reduce. ``capacity_bytes`` is what processes can be given
    of the GPU's memory.
    """

    peak_flop_per_s: FloatColumn
    matmul_flop_per_s: FloatColumn
    attention_flop_per_s: FloatColumn
    plain_flop_per_s: FloatColumn
    matmul_size: FloatColumn
    plain_size: FloatColumn
    fp32_flop_per_s: FloatColumn
    generation: IntColumn
    launch_factor: FloatColumn
    hbm_bytes_per_s: FloatColumn
    hb_gpus: FloatColumn
    hb_bytes_per_s: FloatColumn
    nic_bytes_per_s: FloatColumn
    hb_hop_s: FloatColumn
    nic_hop_s: FloatColumn
    node_gpus: FloatColumn
    nics: FloatColumn
    nccl_channels: FloatColumn
    is_rail_only: FloatColumn
    reduces_in_network: FloatColumn
    pcie_bytes_per_s: FloatColumn
    tdp_w: FloatColumn
    host_w: FloatColumn
    network_w: FloatColumn
    capacity_bytes: FloatColumn


def build_machine(cluster: ClusterSpec, precision: IntColumn, efficiency: Efficiency) -> Machine:
    """Return the reached rates of a cluster for a column of precisions.

    GPUs without NVLink or Infinity Fabric communicate over PCIe inside their node.

    Raises
    ------
    InputError
        The GPU has no peak for a number format that a plan uses.
    """
    cached = _get_cached_rates(cluster, efficiency)
    if isinstance(precision, np.ndarray):
        _validate_peaks(cluster.node.gpu, set(precision.tolist()))
        return _assemble_machine(cached.rates[:, precision], cached.numbers)
    code = int(precision)
    if code not in cached.machines:
        _validate_peaks(cluster.node.gpu, {code})
        cached.machines[code] = _assemble_machine(cached.rates[:, code].tolist(), cached.numbers)
    return cached.machines[code]


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedRates:
    """The cached values of a cluster: ``rates`` by precision, ``numbers``, and ``machines`` of single precisions.

    ``owners`` are the objects that they were computed from.
    """

    rates: FloatColumn
    numbers: Sequence[float]
    owners: tuple[object, ...]
    machines: dict[int, Machine] = field(default_factory=dict)


def _get_cached_rates(cluster: ClusterSpec, efficiency: Efficiency) -> _CachedRates:
    """Return rates and numbers of a cluster, cached by the identity of the objects.

    Specs hold mappings and cannot be hashed, so identity is the key; an entry keeps its objects alive, so that their
    identities are not reused.
    """
    reached = efficiency.for_gpu(cluster.node.gpu.architecture)
    key = (id(cluster), id(reached), id(efficiency.links))
    cached = _CACHE.get(key)
    if cached is None:
        if len(_CACHE) >= MAX_CACHED:
            _CACHE.clear()
        rates, numbers = _rates(cluster.node.gpu, efficiency), _numbers(cluster, efficiency)
        cached = _CACHE[key] = _CachedRates(rates=rates, numbers=numbers, owners=(cluster, reached, efficiency.links))
    return cached


MAX_CACHED = 64
"""Clusters whose rates are cached; a service uses one, a search a few."""
_CACHE: dict[tuple[int, int, int], _CachedRates] = {}


def build_machines(clusters: Sequence[ClusterSpec], precision: IntColumn, efficiency: Efficiency) -> Machine:
    """Return the same for plans that have a cluster each.

    Raises
    ------
    InputError
        A GPU has no peak for the number format of its plan.
    """
    kinds = {id(cluster): index for index, cluster in reversed(list(enumerate(clusters)))}
    order = np.unique([kinds[id(cluster)] for cluster in clusters])
    spec_index = np.searchsorted(order, [kinds[id(cluster)] for cluster in clusters])
    gpus = [clusters[index].node.gpu for index in order]
    for rank, gpu in enumerate(gpus):
        _validate_peaks(gpu, set(precision[spec_index == rank].tolist()))
    by_gpu = {id(gpu): _rates(gpu, efficiency) for gpu in {id(gpu): gpu for gpu in gpus}.values()}
    rates = np.stack([by_gpu[id(gpu)] for gpu in gpus], axis=1)
    numbers = np.array([_numbers(clusters[index], efficiency) for index in order]).T
    return _assemble_machine(rates[:, spec_index, precision], numbers[:, spec_index])


def _assemble_machine(rates: Iterable[Any], numbers: Iterable[Any]) -> Machine:
    """Return the machine with the rates that depend on the number format, and those that do not."""
    return Machine(**dict(zip(_RATES, rates, strict=True)), **dict(zip(_NUMBERS, numbers, strict=True)))


_RATES = ("peak_flop_per_s", "matmul_flop_per_s", "attention_flop_per_s", "plain_flop_per_s", "matmul_size")
_NUMBERS = (
    *(
        "plain_size",
        "fp32_flop_per_s",
        "generation",
        "launch_factor",
        "hbm_bytes_per_s",
        "hb_gpus",
        "hb_bytes_per_s",
        "nic_bytes_per_s",
        "hb_hop_s",
        "nic_hop_s",
    ),
    *(
        "node_gpus",
        "nics",
        "nccl_channels",
        "is_rail_only",
        "reduces_in_network",
        "pcie_bytes_per_s",
        "tdp_w",
        "host_w",
        "network_w",
        "capacity_bytes",
    ),
)


def _rates(gpu: GpuSpec, efficiency: Efficiency) -> FloatColumn:
    """Return ``_RATES`` of a GPU for every precision, shape (5, precisions)."""
    reached = efficiency.for_gpu(gpu.architecture)
    peak, plain = _peaks(gpu, _FORMATS), _peaks(gpu, _PLAIN_FORMATS)
    plain = plain * np.where(
        _IS_FP32, _fp32_fraction(gpu, reached), reached.matmul_fraction * _relative_shares(gpu, _PLAIN_FORMATS)
    )
    products = peak * np.where(
        _IS_FP32, _fp32_fraction(gpu, reached), _fractions(reached) * _relative_shares(gpu, _FORMATS)
    )
    return np.stack([peak, products, plain * reached.attention_factor, plain, _sizes(reached)])


def _fp32_fraction(gpu: GpuSpec, reached: GpuEfficiency) -> float:
    """Return the fraction of the fp32 peak that a large product reaches; AMD's is that of matrix cores."""
    return reached.matmul_fraction if gpu.architecture.startswith("cdna") else FP32_FRACTION


def _relative_shares(gpu: GpuSpec, formats: tuple[str, ...]) -> FloatColumn:
    """Return the sustained share of every format over that of the generation's usual GPU."""
    usual = USUAL_SHARES.get(gpu.architecture, {})
    shares = [(_sustained_share(gpu, _kind(name)), usual.get(_kind(name))) for name in formats]
    return np.array([share / other if share and other else 1.0 for share, other in shares])


def _sustained_share(gpu: GpuSpec, kind: str) -> float | None:
    """Return the sustained share of a kind of formats; ``None`` where the catalogue has none."""
    names = ("bf16", "fp16") if kind == "16-bit" else (kind,)
    return next((gpu.sustained_share[name] for name in names if name in gpu.sustained_share), None)


def _kind(number_format: str) -> str:
    """Return the kind of a format: formats of 16 bits and more share one."""
    return number_format if number_format in ("fp8", "fp4") else "16-bit"


def _fractions(reached: GpuEfficiency) -> FloatColumn:
    """Return the fraction of its peak that a large product reaches, for every precision."""
    return np.where(_IS_FP8, reached.fp8_fraction, np.where(_IS_FP4, reached.fp4_fraction, reached.matmul_fraction))


def _sizes(reached: GpuEfficiency) -> FloatColumn:
    """Return the size of a product's dimension that halves its rate, for every precision; 0 where none does."""
    size = reached.matmul_size
    least = np.where(_IS_FP8, FP8_SIZE, np.where(_IS_FP4, FP4_SIZE, 0.0))
    return np.maximum(least, size) if size else np.zeros(least.shape)


def _numbers(cluster: ClusterSpec, efficiency: Efficiency) -> list[float]:
    """Return ``_NUMBERS`` of a cluster."""
    node, gpu, links = cluster.node, cluster.node.gpu, efficiency.links
    reached = efficiency.for_gpu(gpu.architecture)
    has_hb = gpu.hb_bytes_per_s > 0
    inside = gpu.hb_bytes_per_s if has_hb else gpu.pcie_bytes_per_s
    outside = node.nic_bytes_per_s_per_gpu / max(cluster.oversubscription, 1.0)
    return [
        reached.matmul_size,
        gpu.peak_flop_per_s.get("fp32", 0.0) * _fp32_fraction(gpu, reached),
        find_generation(gpu.architecture),
        gpu.launch_factor,
        gpu.hbm_bytes_per_s * reached.hbm_fraction,
        float(node.hb_domain_gpus if has_hb else node.gpus),
        max(inside * links.hb_fraction, NO_LINK_BYTES_PER_S),
        max(outside * links.nic_fraction, NO_LINK_BYTES_PER_S),
        links.hb_hop_s,
        links.nic_hop_s,
        float(node.gpus),
        float(node.nics),
        HB_CHANNELS if has_hb else PCIE_CHANNELS,
        float(cluster.fabric == "rail-only"),
        float(cluster.in_network_reduction),
        gpu.pcie_bytes_per_s,
        gpu.tdp_w,
        host_w(node),
        network_w(cluster),
        float(gpu.capacity_bytes),
    ]


def _peaks(gpu: GpuSpec, formats: tuple[str, ...]) -> FloatColumn:
    """Return the dense peak of every format, 0 where the GPU has none [FLOP/s]."""
    return np.array([gpu.peak_flop_per_s.get(name, 0.0) for name in formats])


def _validate_peaks(gpu: GpuSpec, precisions: set[int]) -> None:
    """Check that the catalogue has a peak for each number format."""
    used = {PRECISIONS[index] for index in precisions}
    missing = sorted({name.peak_format for name in used} - gpu.peak_flop_per_s.keys())
    if missing or (used - {Precision.FP32, Precision.TF32, Precision.FP16} and "bf16" not in gpu.peak_flop_per_s):
        available = ", ".join(sorted(gpu.peak_flop_per_s))
        required = ", ".join(missing or ["bf16"])
        raise InputError(f"{gpu.name} has no {required} peak in the catalogue", hint=f"it has {available}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFractions:
    """Power of a GPU in a state over its board limit [ratio].

    Parameters
    ----------
    computing
        Large matrix products: tensor cores busy, clocks reduced by the power limit.
    memory_bound
        Norms, activation functions, dropout, optimizer: memory busy, tensor cores not.
    communicating
        A collective that nothing hides: copy kernels, links and some memory traffic.
    waiting
        A kernel that spins for another rank, in the pipeline's bubble or for a straggler: high clocks, no work.
    idle
        No kernel at all, with a context and full clocks.
    """

    computing: float = 1.0
    memory_bound: float = 0.6
    communicating: float = 0.6
    waiting: float = 0.25
    idle: float = 0.15


STATE_FRACTIONS = StateFractions()
"""Chosen by hand from published measurements, not fitted:

- ends: GPUs that train OLMo draw between 15 % (all wait for a checkpoint) and 85 % (mean while training) of the 700 W
  of an H100 (Morrison et al. 2025, arXiv 2503.05804); peaks of A100 in training reach the limit (Patel et al. 2023,
  arXiv 2308.12908, POLCA; from memory);
- ``communicating``: from 128 to 2,048 H100 the throughput of FSDP falls by 37.22 % to communication and the power of a
  GPU by 5.87 % (Fernandez et al. 2024, arXiv 2411.13055): 1 - 0.0587 / 0.3722 = 0.84 of computing. A100 fall to 50 % of
  the limit and less (POLCA, from memory). The value lies between;
- ``waiting``: GPT-1T on Summit and Crusher, where the network sets the pace, 66 of 300 W and 151 of 560 W: 22 and 27 %
  (Yin et al. 2023, doi 10.1007/s11227-023-05479-7, in a reader's note);
- ``memory_bound``: from memory of stream-like kernels on A100 and H100, 55 to 65 %.
"""


def host_w(node: NodeSpec) -> float:
    """Return the power of one GPU's share of its host while training [W].

    A DGX H100: 0.6 x (10,200 - 8 x 700) / 8 = 345 W.
    """
    gpus_w = node.gpus * node.gpu.tdp_w
    if node.power_w is None:
        return UNKNOWN_HOST_FRACTION * node.gpu.tdp_w
    return HOST_FRACTION * max(node.power_w - gpus_w, 0.0) / node.gpus


def network_w(cluster: ClusterSpec) -> float:
    """Return the power of one GPU's share of the compute network's switches and transceivers [W].

    Their power hardly depends on the load, so a job is charged for its NICs' share of the whole network, also where it
    stays inside a node. 127 nodes with 8 NICs of 400 Gbit/s: 48 switches and 4,064 transceivers, 91.9 kW, 90 W a GPU.

    Source: 18 W a switch port and 9 W a transceiver of 400 Gbit/s (rail-only paper, arXiv 2307.12169, section V.E);
    other rates are taken to need power in proportion, which holds for HDR and XDR parts within some 20 % (from memory).
    Left out: oversubscription, dragonflies (counted as fat trees), storage and management networks.
    """
    node = cluster.node
    endpoints = min(cluster.nodes * node.nics, _MAX_ENDPOINTS)
    if endpoints < 1 or cluster.nodes == 1:
        return 0.0
    if cluster.fabric == "rail-only" and endpoints % node.nics == 0:
        parts = rail_only_network(endpoints=endpoints, rails=node.nics, radix=SWITCH_PORTS)
    else:
        parts = clos_network(endpoints=endpoints, radix=SWITCH_PORTS)
    rate = node.nic.bytes_per_s / _SOURCE_BYTES_PER_S
    return rate * network_power_w(parts) / endpoints * node.nics / node.gpus


@lru_cache(maxsize=1)
def generations() -> tuple[str, ...]:
    """Return the chip generations that the table has, in the order of `Machine.generation`."""
    return tuple(_load_kernels()["generations"])


def find_generation(architecture: str) -> int:
    """Return the code of a chip generation, or of the default one where the table does not have it."""
    names = generations()
    return names.index(architecture if architecture in names else _OTHER_GENERATION)


@lru_cache(maxsize=1)
def _load_kernels() -> Mapping[str, Any]:
    return tomllib.loads(files("opsk.costmodel.efficiency").joinpath("attention.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def load_kernel_rates() -> FloatColumn:
    """Return rates over those of products, shape (9, generations, kernels, software).

    Forward at three widths, backward at three widths, tokens of half the rate forward and backward, multiprocessors.
    """
    rates = np.empty((9, len(generations()), len(ATTENTIONS), len(SOFTWARE)))
    for index, generation in enumerate(_load_kernels()["generations"].values()):
        for code, kernel in enumerate(ATTENTIONS):
            for family, software in enumerate(SOFTWARE):
                rates[:, index, code, family] = _kernel_row(generation, kernel, software)
    return rates


def _kernel_row(generation: Mapping[str, Any], kernel: Attention, software: Software) -> list[float]:
    """Return the rates of a kernel, or of the generation's default kernel where it does not have that one."""
    kernels = generation["kernels"]
    usual = generation.get("engine", generation["usual"]) if software in _MEGATRON else generation["usual"]
    name = kernel.value if kernel.value in kernels else usual
    rates, share = kernels[name], generation["product_share"]
    lengths = [rates["forward_tokens"], rates["backward_tokens"]]
    return [*(rate / share for rate in (*rates["forward"], *rates["backward"])), *lengths, generation["units"]]
