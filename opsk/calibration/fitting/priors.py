"""Defines the priors of the parameters that published benchmarks and documentation determine.

From published micro-benchmarks and documentation of kernels and libraries, not from runs that a fit uses. A width is
one standard deviation on the parameter's scale (of a logit for fractions, of a logarithm for sizes and times, of the
value itself for overlaps).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.calibration.fitting.parameters import Prior, Scale

PRODUCTS = "large products under load, benchmarks/published/variants.csv"
KERNELS = "benchmarks of attention kernels, benchmarks/published/attention_fits.csv, within 12 %"
STREAM = "copies and streams, benchmarks/published/gpus.md: median 0.83 to 0.88"
NCCL = "nccl-tests, benchmarks/published/links.csv"
SMALL = "nccl-tests of 1 MiB over the hops of a ring, benchmarks/published/links.csv"
TILES = "half the rate at about one tile of 128 x 256, NVIDIA's Matrix Multiplication Background guide"
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


PRIORS: Mapping[str, Prior] = MappingProxyType(
    {
        # what large products sustain on the usual GPU of a generation (benchmarks/published/variants.csv), within 8 %
        "gpu.matmul_fraction": _fraction(0.65, 0.30, PRODUCTS),
        "gpu.ampere.matmul_fraction": _fraction(0.80, 0.40, PRODUCTS),
        "gpu.ada.matmul_fraction": _fraction(0.59, 0.20, PRODUCTS),
        "gpu.hopper.matmul_fraction": _fraction(0.70, 0.27, PRODUCTS),
        "gpu.blackwell.matmul_fraction": _fraction(0.61, 0.20, PRODUCTS),
        "gpu.blackwell-ultra.matmul_fraction": _fraction(0.67, 0.24, PRODUCTS),
        "gpu.blackwell-rtx.matmul_fraction": _fraction(0.79, 0.38, PRODUCTS),
        "gpu.cdna2.matmul_fraction": _fraction(0.62, 0.20, PRODUCTS),
        "gpu.cdna3.matmul_fraction": _fraction(0.54, 0.17, PRODUCTS),
        "gpu.cdna4.matmul_fraction": _fraction(0.57, 0.19, PRODUCTS),
        "gpu.turing.matmul_fraction": _fraction(0.45, 0.15, PRODUCTS),
        "gpu.volta.matmul_fraction": _fraction(0.72, 0.30, PRODUCTS),
        "gpu.fp8_fraction": _fraction(0.60, 0.25, PRODUCTS),
        "gpu.ada.fp8_fraction": _fraction(0.54, 0.20, PRODUCTS),
        "gpu.hopper.fp8_fraction": _fraction(0.66, 0.24, PRODUCTS),
        "gpu.blackwell.fp8_fraction": _fraction(0.57, 0.19, PRODUCTS),
        "gpu.blackwell-ultra.fp8_fraction": _fraction(0.64, 0.22, PRODUCTS),
        "gpu.blackwell-rtx.fp8_fraction": _fraction(0.78, 0.36, PRODUCTS),
        "gpu.cdna3.fp8_fraction": _fraction(0.49, 0.16, PRODUCTS),
        "gpu.cdna4.fp8_fraction": _fraction(0.49, 0.16, PRODUCTS),
        "gpu.fp4_fraction": _fraction(0.42, 0.25, PRODUCTS),
        "gpu.blackwell.fp4_fraction": _fraction(0.45, 0.20, PRODUCTS),
        "gpu.blackwell-ultra.fp4_fraction": _fraction(0.38, 0.20, PRODUCTS),
        # tiles of 128 x 256 and the fill of the pipeline: a dimension of about one tile halves the rate
        "gpu.matmul_size": _amount(120.0, 0.4, TILES),
        # kernels in training against their own benchmarks
        "gpu.attention_factor": _amount(1.0, 0.12, KERNELS),
        # stream-like kernels reach 80 to 92 % of the memory's peak
        "gpu.hbm_fraction": _fraction(0.82, 0.44, STREAM),
        # modules of a framework read and write a little more than the fused kernels counted here; Megatron's are those
        "software.elementwise_factor": _amount(1.2, 0.25, PASSES),
        "software.megatron.elementwise_factor": _amount(1.0, 0.2, PASSES),
        "software.compiled_fraction": _fraction(0.70, 0.67, COMPILED),
        "software.kernel_gap_s": _amount(3e-6, 0.4, "gaps of 0.6 to 5 us, benchmarks/published/host.md"),
        "software.step_overhead_s": _amount(0.02, 0.7, OPTIMIZERS),
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
        "software.straggler_fraction": _overlap(0.005, 0.004, SLOWEST, high=0.1),
        # nccl-tests: all_reduce busbw of 8 A100 about 230 of 300 GB/s, of 8 H100 about 360 of 450; rails 85 to 97 %
        "links.hb_fraction": _fraction(0.78, 0.36, NCCL),
        "links.nic_fraction": _fraction(0.92, 0.75, NCCL),
        "links.hb_hop_s": _amount(3e-6, 0.4, SMALL),
        "links.nic_hop_s": _amount(1.2e-5, 0.5, SMALL),
    }
)
"""Prior of a ``section.field``, or of a ``section.member.field``."""
