"""Compares a measurement with what the cost model expects of the same GPU, shape by shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from opsk.costmodel.collectives.hierarchical import all_gather_s, all_reduce_s, build_group
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.machine import Machine, build_machine, load_kernel_rates
from opsk.costmodel.table import ATTENTIONS, PRECISIONS, SOFTWARE, FloatColumn
from opsk.costmodel.time.layer_time import FUSED_BACKWARD_FLOP
from opsk.errors import InputError
from opsk.hardware.catalog import cluster, gpu, names, node
from opsk.hardware.spec import ClusterSpec
from opsk.probe.document import Collective, ProbeDocument
from opsk.workload.plan import Attention, Precision, Software

MAX_RATIO = 4.0
"""A series that is farther from what the model expects says nothing of the GPU: a wrong unit, or a broken link."""
LARGE_BYTES = 1 << 26
"""From this size on a copy is limited by bandwidth, not by its start [bytes]."""
_KERNELS = {"flash": Attention.FLASH2, "cudnn": Attention.CUDNN}
"""Kernels of PyTorch's scaled_dot_product_attention: its flash backend is FlashAttention-2."""
_WIDTHS = {64: 0, 128: 1}
"""Places of head widths in `opsk.costmodel.machine.load_kernel_rates`."""
_FORMATS = {"bf16": Precision.BF16, "fp16": Precision.FP16, "fp32": Precision.FP32, "fp8": Precision.FP8}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One measured value with the expected one, in the same unit.

    Parameters
    ----------
    part
        ``matmul``, ``attention``, ``memory`` or ``collectives``.
    series, x
        The line and the place on it: a precision or kernel and a size.
    label
        What was measured, for people.
    unit
        Of both values: ``FLOP/s`` or ``bytes/s``.
    """

    part: str
    series: str
    x: float
    label: str
    unit: str
    measured: float
    expected: float

    @property
    def ratio(self) -> float:
        """Measured over expected."""
        return self.measured / self.expected


def find_probe_cluster(document: ProbeDocument, site: ClusterSpec | None = None) -> ClusterSpec:
    """Return the cluster whose GPU was measured: the site's, else one of the catalogue with the same GPU.

    Raises
    ------
    InputError
        The document is of processors, of a GPU that is not in the catalogue, or of another than the site's.
    """
    if document.machine.device != "cuda":
        raise InputError("measured on processors, which opsk has no model of", hint="run it on a node with GPUs")
    spec = gpu(document.machine.gpu)
    if site is not None:
        if site.node.gpu.name != spec.name:
            raise InputError(
                f"measured on {spec.name}, and {site.name} has {site.node.gpu.name}",
                hint=f"probe a node of {site.name}; the cluster is the one that opsk.toml, or --cluster, names",
            )
        return site
    clusters = [cluster(name) for name in names("cluster")]
    same = next((known for known in clusters if known.node.gpu.name == spec.name), None)
    if same is not None:
        return same
    host = next((known for known in map(node, names("node")) if known.gpu.name == spec.name), None)
    if host is None:
        raise InputError(
            f"no node of the catalogue has {spec.name}", hint="describe yours: docs/howto/add-a-cluster.md"
        )
    return replace(clusters[0], node=host)


def compare(document: ProbeDocument, spec: ClusterSpec, efficiency: Efficiency) -> tuple[Compared, ...]:
    """Return each measured value with the model's."""
    return (
        *_compare_products(document, spec, efficiency),
        *_compare_attention(document, spec, efficiency),
        *_compare_links(document, spec, efficiency),
    )


def summarise_ratios(rows: tuple[Compared, ...]) -> dict[tuple[str, str], float]:
    """Return the median of measured over expected, by part and series."""
    series = dict.fromkeys((row.part, row.series) for row in rows)
    return {key: median(row.ratio for row in rows if (row.part, row.series) == key) for key in series}


def find_implausible(rows: tuple[Compared, ...]) -> dict[tuple[str, str], float]:
    """Return the series that nothing should be fitted to, with the median of measured over expected of each."""
    return {key: ratio for key, ratio in summarise_ratios(rows).items() if not 1 / MAX_RATIO <= ratio <= MAX_RATIO}


def _build(spec: ClusterSpec, precision: Precision, efficiency: Efficiency) -> Machine:
    return build_machine(spec, np.array([PRECISIONS.index(precision)]), efficiency)


def _compare_products(document: ProbeDocument, spec: ClusterSpec, efficiency: Efficiency) -> Iterator[Compared]:
    for name, precision in _FORMATS.items():
        rows = [row for row in document.matmul if row.precision == name]
        if not rows or precision.peak_format not in spec.node.gpu.peak_flop_per_s:
            continue
        machine = _build(spec, precision, efficiency)
        rate, size = _first(machine.matmul_flop_per_s), _first(machine.matmul_size)
        for row in rows:
            expected = rate / (1.0 + size * (1.0 / row.m + 1.0 / row.k + 1.0 / row.n))
            yield Compared(
                part="matmul", series=name, x=float((row.m * row.k * row.n) ** (1 / 3)), unit="FLOP/s",
                label=f"{row.m} x {row.k} x {row.n}", measured=row.flop_per_s, expected=expected,
            )  # fmt: skip


def _compare_attention(document: ProbeDocument, spec: ClusterSpec, efficiency: Efficiency) -> Iterator[Compared]:
    """Yield the rates of attention with its backward by kernel, where the generation's table has the kernel.

    As `opsk.costmodel.time.layer_time.attention_s` has them, with all multiprocessors filled.
    """
    machine = _build(spec, Precision.BF16, efficiency)
    generation = int(np.ravel(machine.generation)[0])
    rates = load_kernel_rates()[:, generation, :, SOFTWARE.index(Software.PYTORCH)]
    for row in document.attention:
        kernel, width = _KERNELS.get(row.kernel), _WIDTHS.get(row.head)
        if kernel is None or width is None:
            continue
        shares = rates[:, ATTENTIONS.index(kernel)]
        is_missing = kernel is not Attention.FLASH2 and (shares == rates[:, ATTENTIONS.index(Attention.FLASH2)]).all()
        if is_missing:
            continue
        forward, backward = (
            shares[first + width] * row.length / (row.length + shares[length]) for first, length in ((0, 6), (3, 7))
        )
        peak = _first(machine.attention_flop_per_s)
        expected = peak * (1.0 + FUSED_BACKWARD_FLOP) / (1.0 / forward + FUSED_BACKWARD_FLOP / backward)
        yield Compared(
            part="attention", series=row.kernel, x=float(row.length), unit="FLOP/s",
            label=f"{row.length} tokens, head {row.head}", measured=row.both_flop_per_s, expected=expected,
        )  # fmt: skip


def _compare_links(document: ProbeDocument, spec: ClusterSpec, efficiency: Efficiency) -> Iterator[Compared]:
    machine = _build(spec, Precision.BF16, efficiency)
    for row in document.memory:
        if row.size_bytes >= LARGE_BYTES:
            yield Compared(
                part="memory", series="copy", x=float(row.size_bytes), unit="bytes/s", label=f"{row.size_bytes} bytes",
                measured=row.bytes_per_s, expected=_first(machine.hbm_bytes_per_s),
            )  # fmt: skip
    for collective in document.collectives:
        if collective.collective == "all_to_all" or collective.nodes > spec.nodes:
            continue
        size = float(collective.size_bytes)
        yield Compared(
            part="collectives", unit="bytes/s", x=size, measured=size / collective.time_s,
            series=f"{collective.collective} {collective.scope} {collective.ranks}", label=f"{size:.0f} bytes",
            expected=size / _expect_collective_s(collective, machine),
        )  # fmt: skip


def _expect_collective_s(row: Collective, machine: Machine) -> float:
    """Return the model's time of a collective [s]; ranks of one rail are a node's GPUs apart."""
    stride = _first(machine.node_gpus) if row.scope == "rail" else 1.0
    group = build_group(machine, stride=stride, size=np.array([float(row.ranks)]))
    size = np.array([float(row.size_bytes)])
    if row.collective == "all_reduce":
        return _first(all_reduce_s(machine, group, size, 1.0))
    return _first(all_gather_s(machine, group, size, 1.0))


def _first(column: FloatColumn) -> float:
    """Return the value of the only plan of a column."""
    return float(np.ravel(column)[0])
