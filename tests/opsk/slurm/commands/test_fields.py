"""Counts, times and GPU texts as the four releases write them; the inputs are lines of tests/data/slurm."""

from datetime import UTC, datetime

import pytest

from opsk.slurm.commands import fields


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu=2,mem=100M,node=1,billing=2,gres/gpu=3,gres/gpu:h100=3", (3, "h100")),
        ("gres:gpu:8", (8, None)),
        ("gres/gpu:8", (8, None)),
        ("gres:gpu:h100:2", (2, "h100")),
        ("gres/gpu:h100:2", (2, "h100")),
        ("gres/gpu=2,cpu=4", (2, None)),
        ("gpu:h100:8(S:0-1)", (8, "h100")),
        ("gpu:h100:5(IDX:0-2,5-6)", (5, "h100")),
        ("gpu:h100:0(IDX:N/A)", (0, "h100")),
        ("gpu:a100:4,gpu:v100:2", (6, None)),
        ("gpu:1g.5gb:7", (7, "1g.5gb")),
        ("gpu:(null):2(IDX:0-1)", (2, None)),
        ("gres/gpumem=4,cpu=1", (0, None)),
        ("gpu", (1, None)),
        ("N/A", (0, None)),
        ("", (0, None)),
    ],
)
def test_gpus_are_read_from_every_spelling(text: str, expected: tuple[int, str | None]) -> None:
    assert fields.parse_gpus(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu:h100:3(IDX:0-1,5)", (0, 1, 5)),
        ("gpu:h100:1(IDX:0)", (0,)),
        ("gpu:(null):2(IDX:0,3)", (0, 3)),
        ("gpu:0(IDX:N/A)", ()),
        ("gpu:h100:3(IDX:0-999999999)", ()),
        ("gpu:h100:3(IDX:--)", ()),
        ("", ()),
    ],
)
def test_gpu_indices_are_read_and_damage_gives_none(text: str, expected: tuple[int, ...]) -> None:
    assert fields.parse_gpu_indices(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1-00:00:00", 86400), ("1:39:31", 5971), ("0:05", 5), ("UNLIMITED", None), ("INVALID", None), ("", None)],
)
def test_durations_are_seconds(text: str, expected: int | None) -> None:
    assert fields.parse_duration_s(text) == expected


def test_times_are_read_as_seconds_since_1970() -> None:
    assert fields.parse_time("0") == datetime(1970, 1, 1, tzinfo=UTC)


def test_times_in_iso_form_carry_a_zone() -> None:
    read = fields.parse_time("2026-11-20T23:51:09")
    assert read is not None
    assert read.tzinfo is not None


@pytest.mark.parametrize("text", ["N/A", "Unknown", "", "99999999999999999999"])
def test_no_time_is_none(text: str) -> None:
    assert fields.parse_time(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3:0", (3, 0)), ("0:125", (0, 125)), ("768", (3, 0)), ("10", (0, 10)), ("0", (0, 0)), ("x", (None, None))],
)
def test_exit_status_of_both_spellings(text: str, expected: tuple[int | None, int | None]) -> None:
    """768 = 3 << 8: exit 3 in job 11 of the 22.05 capture, where 24.11 and later print ``3:0``."""
    assert fields.parse_exit_status(text) == expected
