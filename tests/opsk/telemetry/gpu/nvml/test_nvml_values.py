"""Are NVML's small encodings read right: value types, blanks, health masks, versions, NVLink generations?"""

from __future__ import annotations

import ctypes
import struct
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.gpu.nvml.caller import GpuLostError, NvmlCaller, SessionLostError, clean_text, drop_blank
from opsk.telemetry.gpu.nvml.device import format_profile
from opsk.telemetry.gpu.nvml.fields import (
    FieldReader,
    build_ecc,
    build_power,
    build_retired_pages,
    build_row_remap,
    build_violations,
    get_recovery_action,
)
from opsk.telemetry.gpu.nvml.links import NvLinkReader, parse_configuration, parse_fabric, parse_health
from opsk.telemetry.gpu.samples import Unreadable


class Records:
    """A pynvml that answers fields from a table: (value type, return code, eight bytes)."""

    def __init__(self, answers: dict[tuple[int, int], tuple[int, int, bytes]], **functions: Any) -> None:
        self.asked: list[list[tuple[int, int]]] = []
        self._answers = answers
        self.__dict__.update(functions)

    def nvmlDeviceGetFieldValues(self, _handle: object, fields: list[tuple[int, int]]) -> bytes:  # noqa: N802
        self.asked.append(list(fields))
        return b"".join(
            struct.pack("=IIqqiI8s", *field, 0, 0, *self._answers.get(field, (0, 3, bytes(8)))) for field in fields
        )


def u64(value: int) -> tuple[int, int, bytes]:
    return 3, 0, struct.pack("=Q", value)


def error(code: int) -> tuple[int, int, bytes]:
    return 0, code, bytes(8)


@pytest.mark.parametrize(
    ("kind", "raw", "expected"),
    [
        (0, struct.pack("=d", 1.5), 1.5),
        (1, struct.pack("=II", 7, 0xDEADBEEF), 7),
        (2, struct.pack("=Q", 2**40), 2**40),
        (3, struct.pack("=Q", 2**63), 2**63),
        (4, struct.pack("=q", -5), -5),
        (5, struct.pack("=iI", -8, 0xDEADBEEF), -8),
        (6, struct.pack("=HHI", 9, 1, 2), 9),
        (17, bytes(8), None),
    ],
)
def test_every_value_type_is_read_from_its_part_of_the_union(kind: int, raw: bytes, expected: float | None) -> None:
    reader = FieldReader(NvmlCaller(Records({(83, 0): (kind, 0, raw)})), [(83, 0)])
    assert reader.read(None).get((83, 0)) == expected


def test_the_real_record_has_the_layout_that_is_read() -> None:
    record = pynvml.c_nvmlFieldValue_t
    assert ctypes.sizeof(record) == struct.calcsize("=IIqqiIQ")
    assert [getattr(record, name).offset for name, _ in record._fields_] == [0, 4, 8, 16, 24, 28, 32]


def test_the_real_record_of_a_counter_has_the_layout_that_is_read() -> None:
    record = pynvml.c_nvmlGpmMetric_t
    assert ctypes.sizeof(record) == struct.calcsize("=IidQQQ")
    assert [getattr(record, name).offset for name in ("metricId", "nvmlReturn", "value")] == [0, 4, 8]


def test_what_is_not_supported_is_asked_once() -> None:
    nvml = Records({(83, 0): u64(1), (186, 0): error(3), (185, 0): error(2), (82, 0): error(999)})
    ask = NvmlCaller(nvml, "GPU-a")
    reader = FieldReader(ask, [(83, 0), (186, 0), (185, 0), (82, 0)])
    for _ in range(2):
        assert reader.read(None) == {(83, 0): 1}
    assert nvml.asked[1] == [(83, 0), (82, 0)]
    assert ask.failures() == (Unreadable(gpu="GPU-a", what="field 82", error="unknown"),) * 2
    reader.ask_all_again()
    reader.read(None)
    assert len(nvml.asked[2]) == 4


def test_a_field_that_says_lost_ends_the_gpu_and_one_that_says_uninitialized_the_session() -> None:
    with pytest.raises(GpuLostError):
        FieldReader(NvmlCaller(Records({(83, 0): error(15)})), [(83, 0)]).read(None)
    with pytest.raises(SessionLostError):
        FieldReader(NvmlCaller(Records({(83, 0): error(1)})), [(83, 0)]).read(None)


@pytest.mark.parametrize(
    "blank",
    [
        0xFFFFFFFF,
        2**64 - 1,
        -1,
        9223372036854775792,
        9223372036854775794,
        2147483632,
        2147483635,
        140737488355328.0,
        140737488355331.0,
        float("nan"),
        float("inf"),
        float("-inf"),
        None,
    ],
)
def test_blanks_are_no_numbers(blank: float | None) -> None:
    assert drop_blank(blank) is None


@pytest.mark.parametrize("value", [0, 1, 0.0, 99.9, 2**40, 9223372036854775791, 2147483631, 1.3e14])
def test_numbers_are_no_blanks(value: float) -> None:
    assert drop_blank(value) == value


def test_texts_that_say_nothing_are_absent() -> None:
    assert [clean_text(value) for value in ("", "N/A", " [N/A] ", "Unknown", None, 7)] == [None] * 6
    assert clean_text(b"GPU-\xff ") == "GPU-�"


def test_fields_become_si_values() -> None:
    values: dict[tuple[int, int], float] = {
        (186, 0): 350_500,
        (185, 0): 349_000,
        (83, 0): 12_345,
        (74, 0): 2_500_000_000,
    }
    assert (build_power(values).instant_w, build_power(values).average_w, build_power(values).energy_j) == (
        350.5,
        349.0,
        12.345,
    )
    assert build_violations(values) == {"sw_power_cap": 2.5}


def test_ecc_counts_keep_kind_span_and_location() -> None:
    # nvml.h: 12 is the double-bit volatile count of device memory, 24 the single-bit aggregate of the register file.
    found = {(row.kind, row.span, row.location): row.count for row in build_ecc({(12, 0): 4, (24, 0): 5})}
    assert found == {("uncorrected", "volatile", "dram"): 4, ("corrected", "aggregate", "register_file"): 5}


def test_gpus_have_remapped_rows_or_retired_pages() -> None:
    assert build_row_remap({}, {}) is None
    assert build_retired_pages({}) is None
    remap = build_row_remap({(142, 0): 0, (143, 0): 2, (144, 0): 1, (145, 0): 0}, {})
    assert remap is not None
    assert (remap.corrected, remap.uncorrected, remap.pending, remap.failure) == (0, 2, True, False)


def test_recovery_actions_are_words_and_unknown_ones_numbers() -> None:
    assert [get_recovery_action({(230, 0): value}) for value in (0, 1, 4, 9)] == [
        "none",
        "gpu_reset",
        "drain_and_reset",
        "action_9",
    ]
    assert get_recovery_action({}) is None


def test_nvlinks_before_hopper_have_fields_of_their_own_numbers() -> None:
    # Link 7 is the second of the second half: 97, 103, 109, 115 (nvml.h, CRC_FLIT, CRC_DATA, REPLAY, RECOVERY of L7).
    answers = {(91, 0): u64(12), (97, 0): u64(1), (103, 0): u64(2), (109, 0): u64(3), (115, 0): u64(4)}
    nvml = Records(answers, nvmlDeviceGetNvLinkState=lambda _handle, _link: 1)
    fields = FieldReader(NvmlCaller(nvml), [])
    links = NvLinkReader(NvmlCaller(nvml), None, fields, lambda: 0.0)
    link = links.links(fields.read(None))[7]
    assert (link.link, link.state) == (7, "active")
    assert link.errors == {"crc_flit": 1, "crc_data": 2, "replay": 3, "recovery": 4}
    assert link.received_bytes is None


def test_nvlink_5_counts_bytes_as_bytes() -> None:
    nvml = Records({(91, 0): u64(1), (165, 0): u64(1), (202, 0): u64(10), (204, 0): u64(20), (221, 0): u64(3)})
    fields = FieldReader(NvmlCaller(nvml), [])
    links = NvLinkReader(NvmlCaller(nvml), None, fields, lambda: 0.0)
    (link,) = links.links(fields.read(None))
    assert (link.transmitted_bytes, link.received_bytes, link.errors) == (10, 20, {"symbol": 3})


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (0, {}),
        (0b10, {"degraded_bandwidth": False}),
        (0b01, {"degraded_bandwidth": True}),
        (1 << 2 | 2 << 4, {"route_recovery": True, "route_unhealthy": False}),
        (1 << 12 | 2 << 14, {"partition_missing": False, "manager_disconnected": True}),
        (1 << 8, {"incorrect_configuration": False}),
        (3 << 8, {"incorrect_configuration": True}),
    ],
)
def test_health_masks_are_told_field_by_field(mask: int, expected: dict[str, bool]) -> None:
    assert parse_health(mask) == expected


def test_wrong_configurations_have_names() -> None:
    found = [parse_configuration(value << 8) for value in (0, 1, 3, 5, 15)]
    assert found == [None, None, "incorrect_chassis_serial", "insufficient_nvlinks", "configuration_15"]


@given(st.integers(0, 2**32 - 1))
def test_no_mask_is_too_odd(mask: int) -> None:
    assert set(parse_health(mask)) <= {
        "degraded_bandwidth",
        "route_recovery",
        "route_unhealthy",
        "access_timeout_recovery",
        "partition_missing",
        "manager_disconnected",
        "incorrect_configuration",
    }


def test_the_list_of_cliques_gives_the_one_for_pointers() -> None:
    clique = SimpleNamespace
    info = SimpleNamespace(
        state=3,
        status=0,
        clusterUuid=b"k" * 16,
        cliques=[clique(type=2, id=5), clique(type=0, id=6)],
        numCliques=2,
        healthMask=0,
        healthSummary=1,
    )
    fabric = parse_fabric(info)
    assert (fabric.clique, fabric.summary) == (6, "healthy")
    assert fabric.cluster_uuid == "6b6b6b6b-6b6b-6b6b-6b6b-6b6b6b6b6b6b"


def test_a_fabric_that_failed_says_with_what() -> None:
    info = SimpleNamespace(state=3, status=999, clusterUuid=bytes(16), cliqueId=0)
    assert (parse_fabric(info).status, parse_fabric(info).cluster_uuid) == ("unknown", None)


def test_profiles_are_named_from_slices_where_the_name_does_not_say() -> None:
    def attributes(slices: int, part: int, mebibytes: int) -> SimpleNamespace:
        return SimpleNamespace(gpuInstanceSliceCount=slices, computeInstanceSliceCount=part, memorySizeMB=mebibytes)

    # NVIDIA's tables: an H100's 1g.10gb has 9,856 MiB, a 3g.40gb 40,448 MiB.
    assert format_profile(attributes(1, 1, 9_856)) == "1g.10gb"
    assert format_profile(attributes(3, 1, 40_448)) == "1c.3g.40gb"
    assert format_profile(None) is None
