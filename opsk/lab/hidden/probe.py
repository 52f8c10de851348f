"""Computes the document of a probe of a site with hidden efficiencies, in the format of `opsk.probe.program`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from random import Random
from typing import Any

from opsk.hardware.spec import ClusterSpec
from opsk.lab.hidden.site import HiddenSite
from opsk.probe.comparison import compare
from opsk.probe.document import ProbeDocument, Training, parse_probe
from opsk.probe.steps import VARIANTS, describe_step
from opsk.units import GIB, MIB
from opsk.workload.plan import Sharding, Software

NODES = 2
NOISE_LOG_SIGMA = 0.015
"""How far a measurement of a kernel lies from its usual time."""
_DEVICE_NAMES = {
    "h100-sxm": "NVIDIA H100 80GB HBM3", "a100-sxm-80gb": "NVIDIA A100-SXM4-80GB",
}  # fmt: skip
"""By the catalogue's name, what PyTorch calls the GPU."""
_SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
_PRODUCTS = (
    *((size, size, size) for size in _SQUARES), *((rows, 4096, 4096) for rows in (128, 512, 2048, 8192)),
    (4096, 4096, 11008), (4096, 8192, 28672), (8192, 512, 8192), (8192, 8192, 1024),
)  # fmt: skip
ATTENTION_TOKENS, ATTENTION_WIDTH = 16_384, 2_048
"""Tokens and summed widths of heads that the program's attention has, whatever length and head."""
BOTH_FLOP = 3.5
"""FLOP of forward and backward over those of forward: seven products against two."""
_COLLECTIVE_BYTES = (MIB // 2, 4 * MIB, 32 * MIB, 256 * MIB, GIB)
_SMALL = {"layers": 12, "hidden": 2048, "ffn": 5632, "heads": 16, "vocab": 32000, "seq": 2048}
"""The small model of the program."""


def measure_probe(site: HiddenSite, cluster: ClusterSpec) -> ProbeDocument:
    """Return what a probe of two nodes of a partition would write; parts that no reader compares are left out."""
    random = Random(f"probe/{site.seed}/{cluster.name}")
    ranks = NODES * cluster.node.gpus
    values: dict[str, Any] = {
        "format": "opsk-probe", "version": 1, "measured_at": "2026-05-01T10:00:00Z", "took_s": 480.0,
        "machine": {
            "device": "cuda", "gpu": _DEVICE_NAMES[cluster.node.gpu.name], "ranks": ranks, "nodes": NODES,
            "gpus_per_node": cluster.node.gpus, "torch": "2.13.0",
        },
        "launch": [{"gap_s": site.efficiencies[cluster.name].software[Software.PYTORCH].kernel_gap_s}],
        "memory": [_build_row(size_bytes=size * MIB, bytes_per_s=1.0) for size in (64, 256, 1024, 4096)],
        "matmul": [
            _build_row(precision=name, m=m, k=k, n=n, flop_per_s=1.0)
            for name in ("bf16", "fp16", *(["fp8"] if "fp8" in cluster.node.gpu.peak_flop_per_s else []))
            for m, k, n in (_PRODUCTS if name != "fp8" else [(size, size, size) for size in _SQUARES[2:]])
        ],
        "attention": [
            {
                "kernel": "flash", "length": length, "head": head, "forward_s": 1.0, "both_s": 1.0, "spread": 0.01,
                "forward_flop_per_s": 1.0, "both_flop_per_s": 1.0,
            }
            for length in (1024, 2048, 4096, 8192, 16384)
            for head in (64, 128)
        ],
        "collectives": [
            _build_row(collective=name, scope=scope, ranks=size, nodes=nodes, size_bytes=size_bytes)
            for scope, size, nodes in (("all", ranks, NODES), ("node", cluster.node.gpus, 1), ("rail", NODES, NODES))
            for size_bytes in _COLLECTIVE_BYTES
            for name in ("all_reduce", "all_gather", "reduce_scatter")
        ],
        "training": [*_measure_training(site, cluster, random)],
    }  # fmt: skip
    _fill_in(values, site, cluster, random)
    return parse_probe(json.dumps(values), origin="the lab's probe")


def _build_row(**row: Any) -> dict[str, Any]:
    return {**row, "time_s": 1.0, "spread": 0.01}


def _fill_in(values: dict[str, Any], site: HiddenSite, cluster: ClusterSpec, random: Random) -> None:
    """Replace rates and times by those of the hidden machine, each with its noise.

    `compare` states what efficiencies expect of each row, in the order of the rows of a part.
    """
    unit = parse_probe(json.dumps(values), origin="the lab's probe")
    expected = compare(unit, cluster, site.efficiency(cluster, NODES))
    for part in ("memory", "matmul", "collectives"):
        rates = [item.expected for item in expected if item.part == part]
        for row, rate in zip(values[part], rates, strict=True):
            measured = rate * _draw_noise(random)
            work = 2.0 * row["m"] * row["k"] * row["n"] if part == "matmul" else row["size_bytes"]
            row["time_s"] = work / measured
            if part != "collectives":
                row["flop_per_s" if part == "matmul" else "bytes_per_s"] = measured
    attention = iter([item.expected for item in expected if item.part == "attention"])
    for row in values["attention"]:
        flop = 2.0 * ATTENTION_TOKENS * row["length"] * ATTENTION_WIDTH
        rate = next(attention) * _draw_noise(random)
        row |= {"both_flop_per_s": rate, "both_s": BOTH_FLOP * flop / rate}
        row |= {"forward_flop_per_s": rate, "forward_s": flop / rate}  # compared with nothing


def _measure_training(site: HiddenSite, cluster: ClusterSpec, random: Random) -> Iterator[dict[str, Any]]:
    """Yield steps of the program's small model."""
    for variant, (_, sharding) in VARIANTS.items():
        ranks = NODES * cluster.node.gpus if sharding is Sharding.ZERO3 else 1
        for batch in (1, 2, 4):
            values: dict[str, Any] = {"variant": variant, "micro_batch": batch, "ranks": ranks, **_SMALL}
            described = describe_step(Training(**values, step_s=1.0))
            assert described is not None
            yield {**values, "step_s": site.step_s(*described, cluster) * _draw_noise(random)}


def _draw_noise(random: Random) -> float:
    return math.exp(random.gauss(0.0, NOISE_LOG_SIGMA))
