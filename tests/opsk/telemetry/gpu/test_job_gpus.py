"""Is the GPU that Slurm means by a number found, whichever of the four orders differ?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.gpu.job_gpus import (
    GresDevice,
    list_uuids_in_slurm_order,
    map_mig_parents,
    parse_gres_conf,
    resolve,
    resolve_mig_names,
)
from opsk.telemetry.gpu.samples import GpuReading, LostGpu
from tests.fakes.gpus import gpu_uuid, h100, reading, with_mig

CROSSED = reading(*(h100(index, minor=(index + 2) % 4) for index in range(4)))
"""NVML's 0, 1, 2, 3 are /dev/nvidia2, 3, 0, 1, as on boards whose processor numbers the buses the other way."""


def uuids(*indices: int) -> tuple[str, ...]:
    return tuple(gpu_uuid(index) for index in indices)


def test_without_gres_conf_the_order_is_nvmls() -> None:
    assert list_uuids_in_slurm_order(None, CROSSED) == uuids(0, 1, 2, 3)


def test_files_are_minors_in_the_order_written() -> None:
    assert list_uuids_in_slurm_order(parse_gres_conf("Name=gpu Type=h100 File=/dev/nvidia[0-3]"), CROSSED) == uuids(
        2, 3, 0, 1
    )
    text = "Name=gpu File=/dev/nvidia3\nName=gpu File=/dev/nvidia[1,0]\nName=gpu File=/dev/nvidia2\n"
    assert list_uuids_in_slurm_order(parse_gres_conf(text), CROSSED) == uuids(1, 3, 2, 0)


def test_autodetect_by_nvml_orders_by_address_whatever_is_written() -> None:
    assert list_uuids_in_slurm_order(parse_gres_conf("AutoDetect=nvml"), CROSSED) == uuids(0, 1, 2, 3)
    text = "AutoDetect=nvml\nName=gpu File=/dev/nvidia[0-1]\n"
    assert list_uuids_in_slurm_order(parse_gres_conf(text), CROSSED) == uuids(2, 3)
    assert list_uuids_in_slurm_order(
        parse_gres_conf("AutoDetect=NVML\nName=gpu File=/dev/nvidia[2,0]"), CROSSED
    ) == uuids(0, 2)


def test_autodetect_without_nvml_orders_by_minor() -> None:
    assert list_uuids_in_slurm_order(parse_gres_conf("AutoDetect=nvidia"), CROSSED) == uuids(2, 3, 0, 1)


def test_a_lost_gpu_keeps_its_place() -> None:
    """GPU 1 is gone from the bus, and NVML numbers the others anew."""
    left = (h100(0), replace(h100(2), index=1), replace(h100(3), index=2))
    lost = LostGpu(uuid=gpu_uuid(1), index=1, pci=h100(1).pci, minor=1, why="lost")
    after = GpuReading(read_at_s=0.0, gpus=left, lost=(lost,))
    for text in ("AutoDetect=nvml", "AutoDetect=nvidia", "Name=gpu File=/dev/nvidia[0-3]"):
        assert list_uuids_in_slurm_order(parse_gres_conf(text), after) == uuids(0, 1, 2, 3)


def test_a_gpu_that_is_not_there_leaves_a_hole() -> None:
    assert list_uuids_in_slurm_order(parse_gres_conf("Name=gpu File=/dev/nvidia[0-4]"), CROSSED) == (
        *uuids(2, 3, 0, 1),
        None,
    )


def test_instances_stand_in_the_place_of_their_gpu() -> None:
    cut = with_mig(h100(1))
    seen = reading(h100(0), cut, h100(2))
    first, second = (instance.uuid for instance in cut.mig)
    assert list_uuids_in_slurm_order(parse_gres_conf("AutoDetect=nvml"), seen) == (
        gpu_uuid(0),
        first,
        second,
        gpu_uuid(2),
    )
    assert map_mig_parents(seen) == {first: gpu_uuid(1), second: gpu_uuid(1)}


def test_a_gpu_in_mig_mode_without_instances_is_not_given_out() -> None:
    seen = reading(h100(0), replace(h100(1), mig_mode=True), h100(2))
    assert list_uuids_in_slurm_order(None, seen) == uuids(0, 2)


def test_capabilities_are_instances_by_the_rule_of_the_driver() -> None:
    """GPU 1, GPU instance 7, its first compute instance: 3 + 135 + 7 * 9 + 1 = 202; instance 8: 211."""
    cut = with_mig(h100(1))
    conf = parse_gres_conf("Name=gpu Type=1g.10gb File=/dev/nvidia-caps/nvidia-cap[211,202]")
    assert conf.devices == (GresDevice(minor=1, gi=8, ci=0), GresDevice(minor=1, gi=7, ci=0))
    assert list_uuids_in_slurm_order(conf, reading(h100(0), cut)) == (cut.mig[1].uuid, cut.mig[0].uuid)


def test_the_drivers_own_list_of_capabilities_comes_first() -> None:
    listed = "config 1\nmonitor 2\ngpu5/gi3/access 202\ngpu5/gi3/ci1/access 211\n"
    conf = parse_gres_conf("Name=gpu File=/dev/nvidia-caps/nvidia-cap[202,211]", mig_minors=listed)
    assert conf.devices == (GresDevice(minor=5, gi=3, ci=0), GresDevice(minor=5, gi=3, ci=1))


def test_several_files_of_one_device_are_one() -> None:
    text = "Name=gpu MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap201,/dev/nvidia-caps/nvidia-cap202"
    assert parse_gres_conf(text).devices == (GresDevice(minor=1, gi=7, ci=0),)


def test_files_of_amd_are_cards_or_render_nodes() -> None:
    """Card 0 is the console's, which has no render node: renderD128 is card 1."""
    seen = reading(*(h100(index, minor=index + 1) for index in range(2)))
    assert list_uuids_in_slurm_order(parse_gres_conf("Name=gpu File=/dev/dri/renderD[129,128]"), seen) == uuids(1, 0)
    assert list_uuids_in_slurm_order(parse_gres_conf("Name=gpu File=/dev/dri/card1"), seen) == uuids(0)


def test_lines_for_other_nodes_and_other_resources_are_left_out() -> None:
    text = (
        "# Name=gpu File=/dev/nvidia9\n"
        "NodeName=n[0-3] AutoDetect=off\n"
        "NodeName=n[0-3] Name=gpu Type=a File=/dev/nvidia[0-1] \\\n   Cores=0-3\n"
        "nodename=n[4-7] name=gpu file=/dev/nvidia[4-7]\n"
        "Name=shard Count=8 File=/dev/nvidia0\nName=mps Count=200\nName=nic File=/dev/nvidia3\n"
        "NodeName=n[[ Name=gpu File=/dev/nvidia8\n"
    )
    assert [device.minor for device in parse_gres_conf(text, "n2").devices] == [0, 1]
    assert [device.minor for device in parse_gres_conf(text, "n5").devices] == [4, 5, 6, 7]


def test_what_the_prolog_was_told_by_name_needs_no_order() -> None:
    cut = with_mig(h100(0))
    older = f"MIG-{gpu_uuid(0)}/8/0"
    assert resolve(("MIG-a", "MIG-b"), (0, 1), ()) == ("MIG-a", "MIG-b")
    assert resolve_mig_names((older, None), reading(cut)) == (cut.mig[1].uuid, None)
    assert resolve(("0", "7"), (), uuids(3, 2)) == (gpu_uuid(3), None)


@given(st.text(max_size=200))
def test_no_text_is_too_strange(text: str) -> None:
    known = {gpu.uuid for gpu in CROSSED.gpus} | {None}
    assert set(list_uuids_in_slurm_order(parse_gres_conf(text), CROSSED)) <= known
    assert set(list_uuids_in_slurm_order(parse_gres_conf(f"Name=gpu File={text}", text, text), CROSSED)) <= known


@given(st.permutations(range(8)))
def test_every_gpu_has_one_number(order: list[int]) -> None:
    seen = reading(*(h100(index, minor=order[index]) for index in range(8)))
    for text in ("AutoDetect=nvml", "AutoDetect=nvidia", "Name=gpu File=/dev/nvidia[0-7]"):
        assert sorted(map(str, list_uuids_in_slurm_order(parse_gres_conf(text), seen))) == sorted(uuids(*range(8)))


@pytest.mark.parametrize("span", ["[0-99999999]", "[9-0]", "[", "]", "[a-b]", "[0-", ",,,"])
def test_a_broken_list_of_files_fills_no_memory(span: str) -> None:
    assert len(parse_gres_conf(f"Name=gpu File=/dev/nvidia{span}").devices) <= 4096


def test_numbers_that_no_kernel_and_no_slurm_give_are_left_out() -> None:
    long = "9" * 5000
    conf = parse_gres_conf(f"Name=gpu File=/dev/nvidia[{long}-{long}]\nName=gpu File=/dev/nvidia[{'0' * 60_000}-9]\n")
    assert conf.devices == ()
    assert parse_gres_conf("Name=gpu File=/dev/nvidia-cap3\n", None, f"gpu{long}/gi1/access {long}\n").devices
    assert resolve((long,), (), ("GPU-a",)) == ()


@pytest.mark.parametrize("piece", ["a", " ", "a ", "=", '"', "a=", 'a="', "[", ",", "Name=gpu "])
def test_a_long_hostile_line_comes_to_an_end(piece: str) -> None:
    assert parse_gres_conf(piece * 60_000).detect is None
