"""What ``nvidia-smi -q`` prints, as far as tests need it: the head, and blocks of GPUs."""

from __future__ import annotations

UUID = "GPU-11111111-2222-3333-4444-555555555555"
HEAD = """
==============NVSMI LOG==============

Timestamp                                 : Fri Jul  3 22:22:26 2026
Driver Version                            : 590.48.01
CUDA Version                              : 13.1

Attached GPUs                             : {attached}
"""


def block(lines: str, pci: str = "00000000:1A:00.0") -> str:
    """Return a GPU with these lines."""
    return f"GPU {pci}\n" + "".join(f"    {line}\n" for line in lines.strip("\n").split("\n"))


IDENTITY = f"""
Product Name                          : NVIDIA H100 80GB HBM3
Product Architecture                  : Hopper
GPU UUID                              : {UUID}
Minor Number                          : 3
"""
