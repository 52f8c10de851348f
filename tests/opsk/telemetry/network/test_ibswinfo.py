"""Is a switch's health read in base units, and is what it does not say absent?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.network.ibswinfo import parse_ibswinfo

TEXT = """\
=================================================
QuantumX Example Works
=================================================
part number        | PN-1
ports              | 40
GUID               | 0x00AA000000000001
-------------------------------------------------
uptime (d-h:m:s)   | 1d-02:03:04
-------------------------------------------------
PSU0 status        | OK
     P/N           | P-0
     S/N           | S-0
     DC power      | OK
     fan status    | ERROR
     power (W)     | 72
PSU1 status        |
     P/N           | P-1
-------------------------------------------------
temperature (C)    | 45
max temp (C)       | 57
-------------------------------------------------
fan status         | OK
fan#1 (rpm)        | 6000
fan#2 (rpm)        |
fan#10 (rpm)       | 9000
-------------------------------------------------
"""


def test_a_switch_is_read_in_base_units() -> None:
    switch = parse_ibswinfo(TEXT)
    assert (switch.description, switch.guid, switch.ports) == ("QuantumX Example Works", "00aa000000000001", 40)
    # 86,400 + 7,200 + 180 + 4 s; 6,000 and 9,000 turns a minute.
    assert switch.uptime_s == 93_784
    assert switch.fan_turns_per_s == {1: 100, 10: 150}
    assert (switch.temperature_celsius, switch.max_temperature_celsius) == (45, 57)
    assert switch.facts == {"part number": "PN-1"}
    assert switch.unread == ()


def test_a_power_supplys_fan_is_not_the_switchs() -> None:
    switch = parse_ibswinfo(TEXT)
    assert switch.fan_status == "OK"
    first, second = switch.power_supplies
    assert (first.index, first.status, first.dc_power, first.fan_status, first.power_w) == (0, "OK", "OK", "ERROR", 72)
    assert (first.part_number, first.serial_number) == ("P-0", "S-0")
    assert (second.status, second.power_w, second.part_number) == (None, None, "P-1")


def test_nothing_is_nothing() -> None:
    switch = parse_ibswinfo("")
    assert (switch.description, switch.uptime_s, switch.power_supplies, switch.fan_turns_per_s) == ("", None, (), {})


def test_lines_that_are_no_rows_are_listed() -> None:
    assert parse_ibswinfo(TEXT + "-E- no access\n").unread == ("27: -E- no access",)


@given(st.text(max_size=300))
def test_no_text_makes_it_fail(text: str) -> None:
    parse_ibswinfo(text)


@pytest.mark.shared
def test_real_switches_are_read(shared: Path) -> None:
    folder = shared / "data" / "real" / "ib_counters"
    whole = parse_ibswinfo((folder / "ibswinfo_test1.out").read_text(encoding="utf-8"))
    # 160 d 10 h 38 min 53 s; read from the file by hand.
    assert (whole.ports, whole.uptime_s) == (36, 13_862_333)
    assert [supply.power_w for supply in whole.power_supplies] == [72, 71]
    assert (whole.fan_status, len(whole.fan_turns_per_s)) == ("ERROR", 8)
    missing = parse_ibswinfo((folder / "ibswinfo_test1-missing.out").read_text(encoding="utf-8"))
    assert [supply.power_w for supply in missing.power_supplies] == [None, 71]
    assert [supply.status for supply in missing.power_supplies] == ["OK", None]
    assert sorted(missing.fan_turns_per_s) == [2, 3, 4, 5, 6, 7, 8]
    assert missing.temperature_celsius is None
    assert (whole.unread, missing.unread) == ((), ())
