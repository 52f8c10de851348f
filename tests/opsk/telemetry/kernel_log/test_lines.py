"""Is the time of a line taken from whatever form its log has, and never made up?"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.kernel_log import Clock, KernelLine, LineReader

MESSAGE = "NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus."
UNIX_S = datetime(2025, 2, 14, 5, 3, 41, tzinfo=UTC).timestamp()


def read(line: str, **known: object) -> KernelLine:
    return LineReader(**known).read(line)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "line",
    [
        f"6,1234,98765432,-;{MESSAGE}",
        f"6,1234,98765432,c,caller=T42;{MESSAGE}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:1a:00.0",
        f"[   98.765432] {MESSAGE}",
        f"[   98.765432][  T42] {MESSAGE}",
        f"<6>[   98.765432] {MESSAGE}",
        f"kern  :info  : [   98.765432] {MESSAGE}",
        f"[   98.765432] node7 kernel: {MESSAGE}",
    ],
)
def test_time_since_boot_is_monotonic(line: str) -> None:
    found = read(line)
    assert (found.stamp.clock, found.stamp.monotonic_s) == (Clock.MONOTONIC, 98.765432)
    assert found.stamp.unix_s is None
    assert found.message == MESSAGE
    assert read(line, boot_unix_s=1000.0).stamp.unix_s == pytest.approx(1098.765432)


@pytest.mark.parametrize(
    "line",
    [
        f"2025-02-14T05:03:41,000000+00:00 {MESSAGE}",
        f"kern  :warn  : 2025-02-14T06:03:41,000000+01:00 {MESSAGE}",
        f"2025-02-14T05:03:41+0000 node7 kernel: {MESSAGE}",
        f"2025-02-14T05:03:41.000000+00:00 node7 kernel: [   98.765432] {MESSAGE}",
        f"Fri 2025-02-14 05:03:41 UTC node7 kernel: {MESSAGE}",
        f"<3>1 2025-02-14T05:03:41.000Z node7 kernel - - - {MESSAGE}",
        f"1739509421.000000 node7 kernel: {MESSAGE}",
        json.dumps({"MESSAGE": MESSAGE, "__REALTIME_TIMESTAMP": "1739509421000000", "_TRANSPORT": "kernel"}),
        "\x1e" + json.dumps({"MESSAGE": [*MESSAGE.encode()], "__REALTIME_TIMESTAMP": "1739509421000000"}),
    ],
)
def test_a_stated_zone_gives_a_point_in_time(line: str) -> None:
    found = read(line)
    assert (found.stamp.clock, found.stamp.unix_s) == (Clock.REALTIME, UNIX_S)
    assert found.message == MESSAGE


@pytest.mark.parametrize(
    "line",
    [
        f"[Fri Feb 14 05:03:41 2025] {MESSAGE}",
        f"2025-02-14 05:03:41 {MESSAGE}",
        f"[Feb 14 2025 05:03:41] [INFO] [tid 12] {MESSAGE}",
        f"Fri 2025-02-14 05:03:41 CET node7 kernel: {MESSAGE}",
    ],
)
def test_a_wall_clock_without_zone_is_no_point_in_time_until_the_zone_is_given(line: str) -> None:
    stamp = read(line).stamp
    assert (stamp.clock, stamp.unix_s, stamp.wall) == (Clock.LOCAL, None, datetime(2025, 2, 14, 5, 3, 41))  # noqa: DTZ001
    assert read(line, zone=timezone(timedelta(hours=1))).stamp.unix_s == UNIX_S - 3600


def test_a_year_that_is_not_written_is_told_by_the_age_of_the_file_over_new_year_too() -> None:
    line = f"Dec 31 23:59:59 node7 kernel: {MESSAGE}"
    assert read(line).stamp.wall is None
    assert read(line).stamp.text == "Dec 31 23:59:59"
    wall = read(line, not_after=datetime(2026, 1, 2)).stamp.wall  # noqa: DTZ001
    assert wall == datetime(2025, 12, 31, 23, 59, 59)  # noqa: DTZ001
    leap = read(f"Feb 29 00:00:00 node7 kernel: {MESSAGE}", not_after=datetime(2026, 1, 2)).stamp.wall  # noqa: DTZ001
    assert leap == datetime(2024, 2, 29)  # noqa: DTZ001


def test_both_clocks_of_a_line_are_kept() -> None:
    stamp = read(f"Feb 14 05:03:41 node7 kernel: [   98.765432] {MESSAGE}").stamp
    assert (stamp.clock, stamp.monotonic_s, stamp.text) == (Clock.LOCAL, 98.765432, "Feb 14 05:03:41")


def test_host_and_program_are_kept_apart() -> None:
    line = read("Aug 17 06:18:01 vm-0 systemd-networkd[5398]: ib6: lost carrier")
    assert (line.host, line.ident, line.message) == ("vm-0", "systemd-networkd", "ib6: lost carrier")
    assert not line.from_kernel
    # a driver and its address look like host and program: only dmesg has a comma in its time
    line = read("2025-02-14T05:03:41,000000+00:00 mlx5_core 0000:ab:00.0: Port module event: module 0, Cable plugged")
    assert (line.host, line.ident) == (None, None)
    assert line.message.startswith("mlx5_core 0000:ab:00.0: ")
    assert read(f"node3: [   1.5] {MESSAGE}").host == "node3"


def test_escapes_of_a_record_are_undone() -> None:
    assert read(r"6,1,2,-;NVRM: a\x0aNVRM: b \xc3\xa9 \x5cx").message == "NVRM: a\nNVRM: b é \\x"


def test_an_unknown_form_is_all_message() -> None:
    found = read(MESSAGE)
    assert (found.message, found.stamp.clock, found.host, found.ident) == (MESSAGE, Clock.NONE, None, None)
    assert read("{not json").message == "{not json"


@given(st.text(max_size=200), st.booleans())
def test_no_line_is_too_odd(text: str, known: bool) -> None:
    reader = LineReader(zone=UTC, not_after=datetime(2026, 1, 1), boot_unix_s=1.0) if known else LineReader()  # noqa: DTZ001
    assert isinstance(reader.read(text), KernelLine)


@pytest.mark.parametrize(
    "line",
    [
        f"2025-02-31T25:61:61+99:99 node kernel: {MESSAGE}",
        f"[Mon Feb 31 99:99:99 0000] {MESSAGE}",
        f"Feb 30 00:00:00 node kernel: {MESSAGE}",
        '{"MESSAGE": null}',
        '{"MESSAGE": [300, "a"], "PRIORITY": "99"}',
        '{"MESSAGE": "x", "__REALTIME_TIMESTAMP": "²", "_HOSTNAME": 3}',
        '{"a":' * 3000,
    ],
)
def test_impossible_times_and_broken_entries_are_not_believed(line: str) -> None:
    assert read(line, not_after=datetime(2026, 1, 1)).stamp.unix_s is None  # noqa: DTZ001
