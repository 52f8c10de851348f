"""How much of the machine's peak does training software reach? The few constants of the cost model, in one place.

They are properties of kernels and links, the same for every model, plan and run. The shipped values were chosen by
hand: about a dozen settings were compared on published step times, dense GPT training on A100 (kor, nar1) first, with
the medians of other A100 sources in sight, and on BLOOM's memory. So those runs are no independent test of them.
``SOURCES`` says which range is plausible, from memory, and where the choice departs from it;
``docs/explanation/cost-model.md`` shows the error row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "matmul_fraction": "cuBLAS reaches 250-270 of 312 TFLOP/s on large products on A100; chosen lower",
        "attention_fraction": "chosen between FlashAttention 1 (0.3-0.4) and 2 (0.5-0.7, arXiv 2307.08691) on A100",
        "hbm_fraction": "stream-like kernels reach 80-90 % of the memory's peak; chosen lower for small kernels",
        "hb_fraction": "nccl-tests all_reduce busbw on 8 A100 (about 230 of 300 GB/s) and 8 H100 (about 360 of 450)",
        "nic_fraction": "nccl-tests all_reduce busbw over HDR and NDR rails, 85-95 % of the data rate",
        "hb_hop_s": "NCCL ring step over NVLink with the Simple protocol",
        "nic_hop_s": "NCCL ring step over InfiniBand with the Simple protocol",
        "kernel_gap_s": "idle time between two kernels of one CUDA stream, eager execution",
        "memory_log_sigma": "root mean square of ln(measured / predicted): 57 BLOOM fp16 rows of device memory 0.11",
        "time_log_sigma": "the same of step times on A100: 139 FSDP rows 0.15, 54 ZeRO-1 rows 0.12, 19 Megatron 0.04",
    }
)
"""Parameter to where its value comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Efficiency parameters; fractions are of the catalogue's peak, 0 to 1.

    Parameters
    ----------
    matmul_fraction
        Arithmetic peak that a matrix product reaches when it is not held up by memory.
    attention_fraction
        Arithmetic peak that fused (flash) attention reaches.
    hbm_fraction
        Memory bandwidth that reads and writes reach.
    hb_fraction, nic_fraction
        Link bandwidth that collectives reach inside an HB domain and over the fabric.
    hb_hop_s, nic_hop_s
        Latency of one step of a ring inside an HB domain and over the fabric [s].
    kernel_gap_s
        Time lost at the start of each kernel [s].
    tp_overlap, cp_overlap, dp_overlap, fsdp_overlap
        Share of the computation beside which communication of that axis can be hidden; 0 hides nothing.
    step_overhead_s
        Time of one step that no other term explains: data, loss scaling, gradient norm, logging [s].
    context_bytes
        CUDA context, loaded kernels, cuBLAS workspace of one process [bytes].
    communicator_bytes
        NCCL buffers of one communicator [bytes].
    slack_fraction
        What the caching allocator holds beyond what is live, as a share of the temporary memory.
    memory_log_sigma, time_log_sigma
        Standard deviation of ln(measured / predicted).
    fit
        On what the values were checked, or which runs they were fitted to.
    """

    matmul_fraction: float = 0.75
    attention_fraction: float = 0.40
    hbm_fraction: float = 0.75
    hb_fraction: float = 0.75
    nic_fraction: float = 0.85
    hb_hop_s: float = 3e-6
    nic_hop_s: float = 8e-6
    kernel_gap_s: float = 5e-6
    tp_overlap: float = 0.0
    cp_overlap: float = 0.8
    dp_overlap: float = 0.0
    fsdp_overlap: float = 0.8
    step_overhead_s: float = 0.02
    context_bytes: float = 900e6
    communicator_bytes: float = 400e6
    slack_fraction: float = 0.10
    memory_log_sigma: float = 0.11
    time_log_sigma: float = 0.15
    fit: str = "chosen by hand on published step times (kor, nar1, with lfa, ievo, bloomp in sight)"


DEFAULT = Efficiency()
"""The shipped efficiencies."""
