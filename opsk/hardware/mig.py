"""Describes instances of MIG: parts of one GPU with their own memory, as NVIDIA's profiles name them (``3g.40gb``).

Source: NVIDIA Multi-Instance GPU User Guide, tables of supported profiles (A30, A100, H100, H200, B200, RTX PRO 6000).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from opsk.hardware.spec import GpuSpec
from opsk.units import GIB

_PROFILE = re.compile(r"(?<![0-9])([1-9])g\.([0-9]{1,3})gb(\.\w{1,8})?(?![0-9a-z])", re.IGNORECASE)
_SEVENTHS: Mapping[int, tuple[int, ...]] = {1: (1, 2), 2: (2,), 3: (4,), 4: (4,), 7: (8,)}
"""Eighths of the memory by slices of the processors; the profile of one slice with twice the memory has two."""
_QUARTERS: Mapping[int, tuple[int, ...]] = {1: (1,), 2: (2,), 4: (4,)}
_DIVISIBLE: Mapping[str, tuple[int, int, Mapping[int, tuple[int, ...]]]] = {
    **dict.fromkeys(
        ("a100-", "a800-", "h100-", "h800-", "h200-", "h20", "gh200-", "b200-", "gb200", "b300-"), (7, 8, _SEVENTHS)
    ),
    **dict.fromkeys(("a30", "rtx-pro-6000"), (4, 4, _QUARTERS)),
}
"""GPUs that MIG divides, by how their names begin: slices of their processors and of their memory."""
SEPARATOR = "-mig-"
"""Between the names of a GPU and of a profile, in the name of an instance."""
MAX_DEVIATION = 0.12
"""Of a profile's memory from whole slices [slices]: names count decimal or binary gigabytes."""
RESERVED_BYTES = GIB * 2 // 5
"""What the driver keeps of an instance: 0.2 to 0.4 GiB of A100's, by the guide's table of their memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profile: slices of the processors, and the memory in its name [GB]; ``gpu`` is the GPU's name before it."""

    slices: int
    memory_gb: int
    gpu: str = ""

    @property
    def name(self) -> str:
        """NVIDIA's name."""
        return f"{self.slices}g.{self.memory_gb}gb"


def parse_profile(name: str) -> Profile | None:
    """Return the profile in a GRES type or a name; ``None`` where it is that of a whole GPU.

    Examples
    --------
    >>> parse_profile("nvidia_a100_80gb_3g.40gb")
    Profile(slices=3, memory_gb=40, gpu='nvidia_a100_80gb')
    """
    match = _PROFILE.search(name)
    if match is None:
        return None
    before = re.sub(r"(?i)(^|[-_ ])mig$", "", name[: match.start()].rstrip("-_. "))
    return Profile(slices=int(match[1]), memory_gb=int(match[2]), gpu=before.rstrip("-_. "))


def divide(gpu: GpuSpec, profile: Profile) -> GpuSpec | None:
    """Return an instance of a GPU; ``None`` where it has no such profile.

    Products have the instance's share of the peak, and memory its share of the bandwidth. Instances are not joined by
    NVLink: the guide excludes transfers between them.
    """
    kind = next((kind for start, kind in _DIVISIBLE.items() if gpu.name.startswith(start)), None)
    if kind is None:
        return None
    slices, parts, table = kind
    share = profile.memory_gb * parts * GIB / gpu.memory_bytes
    part = next((part for part in table.get(profile.slices, ()) if abs(share - part) <= MAX_DEVIATION * part), None)
    if part is None:
        return None
    work = profile.slices / slices
    return replace(
        gpu,
        name=f"{gpu.name}{SEPARATOR}{profile.name}",
        memory_bytes=gpu.memory_bytes * part // parts,
        usable_bytes=gpu.capacity_bytes * part // parts - RESERVED_BYTES,
        hbm_bytes_per_s=gpu.hbm_bytes_per_s * part / parts,
        peak_flop_per_s={name: work * rate for name, rate in gpu.peak_flop_per_s.items()},
        hb_bytes_per_s=0.0,
        tdp_w=work * gpu.tdp_w,
        aliases=(),
    )
