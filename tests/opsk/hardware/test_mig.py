"""Instances of MIG are parts of GPUs, with the memory and the slices of the profiles in NVIDIA's user guide."""

from __future__ import annotations

import pytest

from opsk.errors import InputError
from opsk.hardware.catalog import gpu, names, resolve_gpu
from opsk.hardware.mig import divide, parse_profile
from opsk.units import GIB


@pytest.mark.parametrize(
    ("asked", "whole", "memory_gib"),
    [
        # Multi-Instance GPU User Guide: nvidia-smi mig -lgip of A100 40GB and 80GB, and of A30
        ("a100_1g.5gb", "a100-sxm-40gb", 4.75),
        ("a100_3g.20gb", "a100-sxm-40gb", 19.62),
        ("nvidia_a100-sxm4-80gb_1g.10gb", "a100-sxm-80gb", 9.5),
        ("a100_2g.20gb", "a100-sxm-80gb", 19.5),
        ("a100-3g.40gb", "a100-sxm-80gb", 39.25),
        ("nvidia_h100_80gb_hbm3_1g.20gb", "h100-sxm", 19.62),
        ("a30_2g.12gb", "a30", 11.81),
    ],
)
def test_an_instance_has_the_memory_of_its_profile(asked: str, whole: str, memory_gib: float) -> None:
    spec, _ = resolve_gpu(asked)
    assert spec.name.startswith(f"{whole}-mig-")
    assert spec.capacity_bytes / GIB == pytest.approx(memory_gib, rel=0.05)
    assert spec.hb_bytes_per_s == 0


@pytest.mark.parametrize("asked", ["1g.10gb", "mig-1g.10gb", "1g.10gb.me"])
def test_a_profile_alone_may_be_of_several_gpus(asked: str) -> None:
    spec, others = resolve_gpu(asked)
    found = {spec.name, *others}
    assert {"a100-sxm-80gb-mig-1g.10gb", "h100-sxm-mig-1g.10gb"} <= found
    assert not any(name.startswith(("h200", "v100", "l40s", "mi300x")) for name in found)
    assert all(gpu(name).name == name for name in found)


@pytest.mark.parametrize("asked", ["9g.10gb", "v100_1g.5gb", "a100_5g.40gb", "h100_1g.7gb"])
def test_what_no_gpu_has_is_refused(asked: str) -> None:
    with pytest.raises(InputError, match=r"no part of a GPU \(MIG\)"):
        resolve_gpu(asked)


def test_parts_are_less_than_the_whole() -> None:
    for name in names("gpu"):
        whole = gpu(name)
        for text in ("1g.5gb", "1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "1g.18gb", "3g.71gb", "1g.23gb", "2g.48gb"):
            profile = parse_profile(text)
            assert profile is not None
            part = divide(whole, profile)
            if part is not None:
                assert part.capacity_bytes < 0.6 * whole.capacity_bytes
                assert part.peak_flop_per_s["bf16"] < 0.6 * whole.peak_flop_per_s["bf16"]


@pytest.mark.parametrize("name", ["h100", "nvidia_h100_80gb_hbm3", "rtx4090", "", "100g.b"])
def test_a_whole_gpu_has_no_profile(name: str) -> None:
    assert parse_profile(name) is None
