"""Lists the priors of the efficiency parameters, with their sources.

Priors come from published micro-benchmarks and documentation of kernels and libraries, not from runs that a fit uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.calibration.fitting.parameters import Prior, Scale
from opsk.costmodel.machine import FP4_SIZE, FP8_SIZE

PRODUCTS = "large products under load, benchmarks/published/variants.csv"
SYSTOLIC = "large products on systolic arrays, TPU and Gaudi 2: 80 to 99 % of the peak in reports, recalled"
KERNELS = "benchmarks of attention kernels, benchmarks/published/attention_fits.csv, within 12 %"
STREAM = "copies and streams, benchmarks/published/gpus.md: median 0.83 to 0.88"
NCCL = "nccl-tests, benchmarks/published/links.csv"
SMALL = "nccl-tests of 1 MiB over the hops of a ring, benchmarks/published/links.csv"
SIZES = "products of 512 rows and more, benchmarks/published/product_fits.csv"
OLD = "Megatron before Core and the first ZeRO-3 start nothing before the computation beside it ends"
ANY = "any share, from none to all"
PREFETCH = "the next is fetched beside the layer at work (Zhao et al. 2023, arXiv 2304.11277, section 3.3)"
RING = "chunks travel beside attention (Liu et al. 2023, arXiv 2310.01889, section 3)"
PASSES = "data that frameworks move over the least (Ivanov et al. 2021, arXiv 2007.00072: up to 1.3 times)"
COMPILED = "training 1.41 times as fast when compiled (Ansel et al. 2024, PyTorch 2, ASPLOS)"
OPTIMIZERS = "host time of optimizer steps, 6 to 187 ms, benchmarks/published/host.md"
SLOWEST = "one machine of 200 is a tenth slower (Jiang et al. 2024, MegaScale, arXiv 2402.15627)"
"""Sources of priors, as written to an efficiency file."""


def _fraction(centre: float, width: float, source: str) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LOGIT, source=source)


def _amount(centre: float, width: float, source: str) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LOG, source=source)


def _overlap(centre: float, width: float, source: str, *, high: float = 1.0) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LINEAR, low=0.0, high=high, source=source)


_SIZES: Mapping[str, float] = MappingProxyType({"cdna3": 700.0, "cdna4": 700.0})
"""Size of a dimension that halves the rate of a product where it is far from the usual one [elements].

Fits to MI300X and MI355X find 480 to 1,300, in 16 and 8 bits alike, of single and of grouped products; those to
NVIDIA's GPUs 0 to 210 in 16 bits. Ten products of DeepSeek's sizes on MI325X reach 0.47 of the peak, the largest ones
0.64 (``variants.csv``).
"""
LARGE_SIDE = 8192.0
"""Side of the products whose median is what large products sustain: 4k to 16k each."""
_LARGE_PRODUCTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "": (0.65, 0.30),
        "ampere": (0.80, 0.40),
        "ada": (0.59, 0.20),
        "hopper": (0.70, 0.27),
        "blackwell": (0.61, 0.20),
        "blackwell-ultra": (0.67, 0.24),
        "blackwell-rtx": (0.79, 0.38),
        "cdna2": (0.62, 0.20),
        "cdna3": (0.54, 0.17),
        "cdna4": (0.57, 0.19),
        "turing": (0.45, 0.15),
        "volta": (0.72, 0.30),
        "pascal": (0.80, 0.40),
    }
)
"""Share of the peak that large products sustain on a generation, and its width on the logit."""
_LARGE_FP8_PRODUCTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "": (0.60, 0.25),
        "ada": (0.54, 0.20),
        "hopper": (0.66, 0.24),
        "blackwell": (0.57, 0.19),
        "blackwell-ultra": (0.64, 0.22),
        "blackwell-rtx": (0.78, 0.36),
        "cdna3": (0.49, 0.16),
        "cdna4": (0.49, 0.16),
    }
)
_LARGE_FP4_PRODUCTS: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"": (0.42, 0.25), "blackwell": (0.51, 0.20), "blackwell-ultra": (0.42, 0.20)}
)


def _products(field: str, shares: Mapping[str, tuple[float, float]], size: float) -> dict[str, Prior]:
    """Return the priors of what an endless product reaches: large ones lose a little at each of their three sides.

    In 16 bits on NVIDIA's GPUs that loss, 4 %, is not added: there the share that large products sustain, whose
    measurements differ by as much, stands for endless ones.
    """
    priors = {}
    for name, (share, width) in shares.items():
        lost = 3.0 * max(_SIZES.get(name, size), size) / LARGE_SIDE
        key = f"gpu.{name}.{field}" if name else f"gpu.{field}"
        priors[key] = _fraction(round(share * (1.0 + lost), 3), width, PRODUCTS)
    return priors


PRIORS: Mapping[str, Prior] = MappingProxyType(
    {
        # what large products sustain on the usual GPU of a generation (benchmarks/published/variants.csv), within 8 %
        **_products("matmul_fraction", _LARGE_PRODUCTS, 0.0),
        "gpu.tpu.matmul_fraction": _fraction(0.85, 0.30, SYSTOLIC),
        "gpu.gaudi.matmul_fraction": _fraction(0.85, 0.30, SYSTOLIC),
        **_products("fp8_fraction", _LARGE_FP8_PRODUCTS, FP8_SIZE),
        **_products("fp4_fraction", _LARGE_FP4_PRODUCTS, FP4_SIZE),
        # a dimension of that size halves the rate
        **{f"gpu.{name}.matmul_size": _amount(size, 0.4, SIZES) for name, size in _SIZES.items()},
        "gpu.matmul_size": _amount(120.0, 0.4, SIZES),
        # kernels in training against their own benchmarks
        "gpu.attention_factor": _amount(1.0, 0.12, KERNELS),
        # stream-like kernels reach 80 to 92 % of the memory's peak
        "gpu.hbm_fraction": _fraction(0.82, 0.44, STREAM),
        # modules of a framework read and write a little more than the fused kernels counted here; Megatron's are those
        "software.elementwise_factor": _amount(1.2, 0.1, PASSES),
        "software.megatron.elementwise_factor": _amount(1.0, 0.2, PASSES),
        "software.compiled_fraction": _fraction(0.70, 0.67, COMPILED),
        "software.kernel_gap_s": _amount(3e-6, 0.4, "gaps of 0.6 to 5 us, benchmarks/published/host.md"),
        "software.step_overhead_s": _amount(0.02, 0.7, OPTIMIZERS),
        # the optimizers of these benchmarks are PyTorch's own; the others have one kernel for many tensors
        "software.pytorch.step_overhead_s": _amount(0.036, 0.7, OPTIMIZERS),
        # Megatron before Core overlapped neither gradients nor messages; DeepSpeed's first ZeRO-3 little
        "software.dp_overlap": _overlap(0.5, 0.3, ANY),
        "software.megatron.dp_overlap": _overlap(0.05, 0.1, OLD),
        "software.pp_overlap": _overlap(0.3, 0.3, ANY),
        "software.megatron.pp_overlap": _overlap(0.05, 0.1, OLD),
        "software.fsdp_overlap": _overlap(0.8, 0.2, PREFETCH),
        "software.deepspeed.fsdp_overlap": _overlap(0.3, 0.3, OLD),
        "software.tp_overlap": _overlap(0.5, 0.3, ANY),
        "software.cp_overlap": _overlap(0.8, 0.2, RING),
        "software.ep_overlap": _overlap(0.3, 0.3, ANY),
        # of the parameters, only how much programs with a trainer and those without one are off tells it
        "software.trainer_fraction": _overlap(0.0, 0.2, ANY, high=0.5),
        "software.straggler_fraction": _overlap(0.005, 0.004, SLOWEST, high=0.1),
        # nccl-tests: all_reduce busbw of 8 A100 about 230 of 300 GB/s, of 8 H100 about 360 of 450; rails 85 to 97 %
        "links.hb_fraction": _fraction(0.78, 0.36, NCCL),
        "links.nic_fraction": _fraction(0.92, 0.75, NCCL),
        "links.hb_hop_s": _amount(3e-6, 0.4, SMALL),
        "links.nic_hop_s": _amount(1.2e-5, 0.5, SMALL),
    }
)
"""Prior of a ``section.field``, or of a ``section.member.field``."""
