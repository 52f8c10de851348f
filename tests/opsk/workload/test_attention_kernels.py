"""Names of attention in tables and scripts, and the kernels that they stand for."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Attention
from opsk.workload.software_defaults import find_kernel


@pytest.mark.parametrize(
    ("name", "generation", "month", "kernel"),
    [
        ("flash3", "hopper", "2024-09", Attention.FLASH3),
        ("flash", "ampere", "2023-05", Attention.FLASH1),  # FlashAttention-2 is of July 2023
        ("flash", "ampere", "2023-09", Attention.FLASH2),
        ("sdpa", "ampere", "2023-09", Attention.FLASH1),  # PyTorch 2.2 of January 2024 brought FlashAttention-2
        ("sdpa", "hopper", "2025-06", Attention.FLASH2),
        ("sdpa", "hopper", "2026-06", Attention.CUDNN),  # PyTorch 2.11
        ("sdpa", "ampere", "2026-06", Attention.FLASH2),
        ("te", "ampere", "2025-01", Attention.FLASH2),
        ("te", "hopper", "2024-05", Attention.CUDNN),  # Transformer Engine 1.2 of December 2023
        ("te", "hopper", "2023-10", Attention.FLASH2),
        ("te", "blackwell", "2025-01", Attention.CUDNN),
        ("te", "cdna3", "2025-01", Attention.AITER),
        ("sdpa", "cdna3", "2025-01", Attention.TRITON),  # AOTriton
        ("xformers", "volta", "2023-01", Attention.FLASH1),
        ("flex", "hopper", "2025-01", Attention.TRITON),
    ],
)
def test_a_name_stands_for_the_kernel_of_its_time(name: str, generation: str, month: str, kernel: Attention) -> None:
    assert find_kernel(name, generation=generation, month=month) is kernel
