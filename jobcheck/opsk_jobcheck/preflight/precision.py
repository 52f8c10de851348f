"""Checks number formats and attention kernels that a GPU does not have.

Sources: CUDA C++ Programming Guide, "Arithmetic Instructions" (bf16 from compute capability 8.0 on, fp8 from 8.9 on);
README of FlashAttention (version 1 from Turing on, version 2 on Ampere, Ada and Hopper, version 3 on Hopper); AMD's
white papers on CDNA 2 and 3.
"""

from __future__ import annotations

from opsk.workload.workload import Evidence
from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding, report
from opsk_jobcheck.scripts.run_facts import ATTENTION

_BEFORE_AMPERE = frozenset({"pascal", "volta", "turing"})
_LACKING = {"bf16": _BEFORE_AMPERE, "fp8": _BEFORE_AMPERE | {"ampere", "cdna2"}}
"""Generations of GPUs that lack a format."""
_INSTEAD = {"bf16": "use fp16 with loss scaling", "fp8": "use bf16"}
_BLACKWELL = frozenset({"blackwell", "blackwell-ultra", "blackwell-rtx"})
_KERNELS = {
    "flash_attention": ("FlashAttention", frozenset({"pascal", "volta"})),
    **dict.fromkeys(("flash_attention_2", "fa2"), ("FlashAttention-2", _BEFORE_AMPERE)),
    **dict.fromkeys(
        ("flash_attention_3", "fa3"),
        ("FlashAttention-3", _BEFORE_AMPERE | _BLACKWELL | {"ampere", "ada", "cdna2", "cdna3"}),
    ),
}
"""What settings call an attention kernel: its name, and the generations that it does not support."""


def check_format(facts: JobFacts) -> PreflightFinding | None:
    """Return that the job computes in a format that its GPU does not have."""
    entry, gpu = _find_precision(facts), facts.gpu
    precision = facts.workload.plan.precision
    if entry is None or gpu is None or precision is None:
        return None
    name = precision.peak_format
    if gpu.architecture not in _LACKING.get(name, ()):
        return None
    gpu_name = gpu.name.partition("-")[0].upper()
    what = f"{entry.text[:60]}: {gpu_name} has no {name} in hardware, so the program refuses it or is slow"
    return report(entry, what, f"{_INSTEAD[name]}, or ask for another GPU")


def _find_precision(facts: JobFacts) -> Evidence | None:
    """Return where the number format is stated."""
    return next((entry for entry in facts.workload.evidence if entry.field == "plan.precision"), None)


def check_attention(facts: JobFacts) -> PreflightFinding | None:
    """Return that the job asks for an attention kernel that does not run on its GPU."""
    entry, gpu = facts.stated.get(ATTENTION), facts.gpu
    if entry is None or gpu is None:
        return None
    name, lacking = _KERNELS.get(str(entry.value).lower(), ("", frozenset()))
    if gpu.architecture not in lacking:
        return None
    gpu_name = gpu.name.partition("-")[0].upper()
    return report(entry, f"{entry.text[:60]}: {name} does not run on {gpu_name}", "use PyTorch's own attention (sdpa)")
