"""Maps the name of an attention implementation to the kernel that it runs on a chip generation in a month."""

from __future__ import annotations

from opsk.workload.plan import Attention

_NAMED = {
    "auto": Attention.AUTO,
    "aiter": Attention.AITER,
    "flash1": Attention.FLASH1,
    "xformers": Attention.FLASH1,
    "flash2": Attention.FLASH2,
    "flash3": Attention.FLASH3,
    "flash4": Attention.FLASH4,
    "cudnn": Attention.CUDNN,
    "triton": Attention.TRITON,
    "flex": Attention.TRITON,
}
_FLASH2_SINCE = "2023-08"
"""FlashAttention-2 is of July 2023 (arXiv 2307.08691)."""
_SDPA_FLASH2_SINCE = "2024-02"
"""PyTorch 2.2 added it to scaled_dot_product_attention."""
_SDPA_CUDNN_SINCE = "2026-04"
"""PyTorch 2.11 ships a cuDNN that it prefers (pytorch pull requests 162073, 171627)."""
_TE_CUDNN_SINCE = {"hopper": "2024-01"}
"""Transformer Engine uses cuDNN on Hopper since 1.2 (December 2023), on later generations always."""
_LATER = ("blackwell", "blackwell-ultra", "blackwell-rtx")


def find_kernel(name: str, *, generation: str, month: str) -> Attention:
    """Return the kernel that a name selects.

    Parameters
    ----------
    name
        As in the column ``attention_kernel`` of a table of runs: ``flash`` is FlashAttention of any version, ``te``
        what Transformer Engine chooses, ``sdpa`` what PyTorch chooses.
    generation
        Chip generation as in the hardware catalogue.
    month
        When it ran, ``YYYY-MM``.
    """
    if name in _NAMED:
        return _NAMED[name]
    if generation.startswith("cdna"):
        return Attention.TRITON if name == "sdpa" else Attention.AITER
    if name == "te":
        takes_cudnn = generation in _LATER or month >= _TE_CUDNN_SINCE.get(generation, "9999")
        return Attention.CUDNN if takes_cudnn else find_kernel("flash", generation=generation, month=month)
    if name == "sdpa" and generation in ("hopper", *_LATER) and month >= _SDPA_CUDNN_SINCE:
        return Attention.CUDNN
    since = _SDPA_FLASH2_SINCE if name == "sdpa" else _FLASH2_SINCE
    return Attention.FLASH2 if month >= since else Attention.FLASH1
