"""What is known of the parameters before any run is seen, beyond what the kind of a number allows?

From published micro-benchmarks and documentation of kernels and libraries, not from the runs that a fit sees; where a
value is from memory, it says so. A width is one standard deviation on the parameter's scale (of a logit for fractions,
of a logarithm for sizes and times, of the value itself for overlaps).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opsk.calibration.parameters import Prior, Scale

JUDGED = "judgement; no source"
CUBLAS = "published micro-benchmarks of cuBLAS, none named"
HIPBLAS = "published micro-benchmarks of hipBLASLt, none named"
FLASH = "FlashAttention, arXiv 2205.14135, 2307.08691 and 2407.08608"
STREAM = "published micro-benchmarks of stream-like kernels, none named"
NCCL = "bus bandwidth of large messages in nccl-tests, no run named"
TILES = "tiles of 128 x 256 and the fill of the pipeline; judgement"
OLD = "how Megatron before Core and the first ZeRO-3 work; judgement"
"""Where priors are from, as an efficiency file says it."""


def _fraction(centre: float, width: float, source: str = JUDGED) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LOGIT, source=source)


def _amount(centre: float, width: float, source: str = JUDGED) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LOG, source=source)


def _overlap(centre: float, width: float, source: str = JUDGED, *, high: float = 1.0) -> Prior:
    return Prior(centre=centre, width=width, scale=Scale.LINEAR, low=0.0, high=high, source=source)


PRIORS: Mapping[str, Prior] = MappingProxyType(
    {
        # large products in cuBLAS: 250 to 270 of 312 TFLOP/s on A100, 580 to 700 of 989 on H100, whose clocks fall at
        # the power limit with real data; Blackwell much like it; FP8 lower still, since quantisation comes on top
        "gpu.matmul_fraction": _fraction(0.66, 0.35, CUBLAS),
        "gpu.ampere.matmul_fraction": _fraction(0.80, 0.30, CUBLAS),
        "gpu.hopper.matmul_fraction": _fraction(0.64, 0.25, CUBLAS),
        "gpu.blackwell.matmul_fraction": _fraction(0.68, 0.30, CUBLAS),
        "gpu.blackwell-ultra.matmul_fraction": _fraction(0.68, 0.30, CUBLAS),
        # hipBLASLt on MI300X: 550 to 700 of 1,307; a GCD of MI250X about 110 to 140 of 191; V100 about 90 of 125
        "gpu.cdna3.matmul_fraction": _fraction(0.48, 0.25, HIPBLAS),
        "gpu.cdna2.matmul_fraction": _fraction(0.62, 0.30, HIPBLAS),
        "gpu.volta.matmul_fraction": _fraction(0.70, 0.30, CUBLAS),
        "gpu.ada.matmul_fraction": _fraction(0.70, 0.30),
        "gpu.fp8_fraction": _fraction(0.60, 0.35, CUBLAS),
        "gpu.fp4_fraction": _fraction(0.45, 0.35),
        # tiles of 128 x 256 and the fill of the pipeline: a dimension of about one tile halves the rate
        "gpu.matmul_size": _amount(120.0, 0.4, TILES),
        # FlashAttention 1 reaches 0.3 to 0.5 and 2 up to 0.7 of an A100's peak (arXiv 2205.14135, 2307.08691), 2 to
        # 0.4 and 3 to 0.75 of an H100's (arXiv 2407.08608); backward passes less
        "gpu.attention_fraction": _fraction(0.45, 0.30, FLASH),
        "gpu.ampere.attention_fraction": _fraction(0.42, 0.26, FLASH),
        "gpu.hopper.attention_fraction": _fraction(0.48, 0.29, FLASH),
        "gpu.blackwell.attention_fraction": _fraction(0.50, 0.30),
        "gpu.blackwell-ultra.attention_fraction": _fraction(0.50, 0.30),
        "gpu.cdna3.attention_fraction": _fraction(0.33, 0.30),
        "gpu.cdna2.attention_fraction": _fraction(0.35, 0.30),
        "gpu.attention_size": _amount(12.0, 0.4),
        # stream-like kernels reach 80 to 92 % of the memory's peak
        "gpu.hbm_fraction": _fraction(0.82, 0.44, STREAM),
        # modules of a framework read and write a little more than the fused kernels counted here; Megatron's are those
        "software.elementwise_factor": _amount(1.2, 0.25),
        "software.megatron.elementwise_factor": _amount(1.0, 0.2),
        "software.compiled_fraction": _fraction(0.70, 0.67),
        "software.kernel_gap_s": _amount(5e-6, 0.4),
        "software.step_overhead_s": _amount(0.02, 0.7),
        # Megatron before Core overlapped neither gradients nor messages; DeepSpeed's first ZeRO-3 little
        "software.dp_overlap": _overlap(0.5, 0.3),
        "software.megatron.dp_overlap": _overlap(0.05, 0.1, OLD),
        "software.pp_overlap": _overlap(0.3, 0.3),
        "software.megatron.pp_overlap": _overlap(0.05, 0.1, OLD),
        "software.fsdp_overlap": _overlap(0.8, 0.2),
        "software.deepspeed.fsdp_overlap": _overlap(0.3, 0.3, OLD),
        "software.tp_overlap": _overlap(0.5, 0.3),
        "software.cp_overlap": _overlap(0.8, 0.2),
        "software.ep_overlap": _overlap(0.3, 0.3),
        "software.straggler_fraction": _overlap(0.005, 0.004, high=0.1),
        "software.expert_fraction": _fraction(0.60, 0.62),
        "software.fused_expert_fraction": _fraction(0.75, 0.7),
        "software.moe_gap_s": _amount(1e-4, 0.7),
        # nccl-tests: all_reduce busbw of 8 A100 about 230 of 300 GB/s, of 8 H100 about 360 of 450; rails 85 to 97 %
        "links.hb_fraction": _fraction(0.78, 0.36, NCCL),
        "links.nic_fraction": _fraction(0.92, 0.75, NCCL),
        "links.hb_hop_s": _amount(3e-6, 0.4),
        "links.nic_hop_s": _amount(1.2e-5, 0.5),
    }
)
"""Prior of a ``section.field``, or of a ``section.member.field``."""
