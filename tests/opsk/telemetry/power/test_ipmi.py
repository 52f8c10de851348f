"""Is the node's power read from what any IPMI tool prints, and does a tool that fails, hangs or is missing say so?"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import TelemetryError
from opsk.telemetry.power.ipmi import DcmiFile, DcmiPower, DcmiReader, DcmiTool, NoControllerError, parse_dcmi
from tests.fakes.powercap import FREEIPMI, IPMITOOL, fake_tool

IPMIUTIL = """ipmiutil dcmi ver 3.17
DCMI Power Management:          Supported
  Current Power:                   49 Watts
  Min Power over sample duration:  6 Watts
  Max Power over sample duration:  304 Watts
  Avg Power over sample duration:  48 Watts
  Timestamp:                       Thu Feb 15 09:37:32 2024

  Sampling period:                 1000 ms
  Power reading state is:          active
  Power Limit:       896 Watts (inactive)
  Sampling period:   1472 sec
"""


@pytest.mark.parametrize("text", [IPMITOOL, FREEIPMI], ids=["ipmitool", "FreeIPMI"])
def test_both_tools_say_the_same(text: str) -> None:
    assert parse_dcmi(text.format(watts=2578)) == DcmiPower(
        current_w=2578, minimum_w=100, maximum_w=9000, average_w=2000, period_s=10
    )


def test_ipmiutil_says_the_period_of_the_reading_first() -> None:
    power = parse_dcmi(IPMIUTIL)
    assert (power.current_w, power.average_w, power.period_s) == (49, 48, 1.0)


def test_capmc_says_averages_in_json() -> None:
    power = parse_dcmi('{"start_time": "x", "avg": 5942, "min": 5748, "max": 6132, "window_len": 600, "e": 0}')
    assert (power.current_w, power.average_w, power.watts, power.period_s) == (None, 5942, 5942, 600)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rubbish",
        IPMITOOL.format(watts=100).replace("activated", "deactivated"),
        FREEIPMI.format(watts=100).replace(": Active", ": Not Available"),
        "    Instantaneous power reading:   0 Watts\n",
        "    Instantaneous power reading:   N/A\n",
        '{"e": 37, "err_msg": "no"}',
        "{",
        "{}",
    ],
)
def test_what_is_no_reading_is_an_error_and_no_zero(text: str) -> None:
    with pytest.raises(TelemetryError):
        parse_dcmi(text)


@given(st.text(max_size=300))
def test_any_text_is_a_reading_or_one_clear_error(text: str) -> None:
    with suppress(TelemetryError):
        assert parse_dcmi(text).watts


def tool(folder: Path, deadline_s: float = 5.0) -> DcmiTool:
    return DcmiTool(deadline_s=deadline_s, environ={"PATH": str(folder)})


@pytest.mark.parametrize(("name", "text"), [("ipmitool", IPMITOOL), ("ipmi-dcmi", FREEIPMI)])
def test_the_tool_that_is_installed_is_asked(tmp_path: Path, name: str, text: str) -> None:
    folder = fake_tool(tmp_path, name, f"cat <<'END'\n{text.format(watts=777)}\nEND")
    assert tool(folder).read()[0].current_w == 777


def test_a_tool_is_asked_with_its_own_words(tmp_path: Path) -> None:
    folder = fake_tool(tmp_path, "ipmitool", f'echo "$@" > {tmp_path}/asked')
    with pytest.raises(TelemetryError):
        tool(folder).read()
    assert (tmp_path / "asked").read_text() == "dcmi power reading\n"


def test_a_tool_that_hangs_is_ended_at_its_deadline(tmp_path: Path) -> None:
    folder = fake_tool(tmp_path, "ipmitool", "exec sleep 60")
    with pytest.raises(TelemetryError, match=r"within 0\.2 s"):
        tool(folder, deadline_s=0.2).read()


@pytest.mark.parametrize(
    ("said", "no_controller"),
    [
        ("Could not open device at /dev/ipmi0 or /dev/ipmi/0 or /dev/ipmidev/0: No such file or directory", True),
        ("ipmi-dcmi: could not find inband device", True),
        ("Could not open device at /dev/ipmi0: Permission denied", False),
        ("ipmi_cmd_dcmi_get_power_reading: driver timeout", False),
    ],
)
def test_no_controller_is_no_fault_and_no_rights_is_one(tmp_path: Path, said: str, *, no_controller: bool) -> None:
    folder = fake_tool(tmp_path, "ipmitool", f"echo '{said}' >&2; exit 1")
    with pytest.raises(TelemetryError) as caught:
        tool(folder).read()
    assert isinstance(caught.value, NoControllerError) == no_controller
    assert said in caught.value.message


def test_a_file_of_roots_timer_is_as_old_as_its_time(tmp_path: Path) -> None:
    path = tmp_path / "dcmi-power"
    path.write_text(IPMITOOL.format(watts=321))
    os.utime(path, (1000, 1000))
    power, age_s = DcmiFile(path, clock=lambda: 1012.0).read()
    assert (power.current_w, age_s) == (321, 12.0)


def test_a_file_that_its_timer_left_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "dcmi-power"
    path.write_text(IPMITOOL.format(watts=321))
    os.utime(path, (1000, 1000))
    with pytest.raises(TelemetryError, match="ago"):
        DcmiFile(path, clock=lambda: 1000.0 + 601).read()


def test_the_file_comes_before_the_tool(tmp_path: Path) -> None:
    folder = fake_tool(tmp_path / "bin", "ipmitool", f"cat <<'END'\n{IPMITOOL.format(watts=1)}\nEND")
    path = tmp_path / "dcmi-power"
    reader = DcmiReader(DcmiFile(path), tool(folder))
    assert reader.read()[0].current_w == 1
    path.write_text(IPMITOOL.format(watts=2))
    assert reader.read()[0].current_w == 2


@pytest.mark.shared
def test_a_recorded_answer_is_read_as_it_says(shared: Path) -> None:
    # Read off the file by eye.
    assert parse_dcmi((shared / "data/real/sysfs/ipmitool_dcmi_power.txt").read_text()) == DcmiPower(
        current_w=2578, minimum_w=2118, maximum_w=4294, average_w=2567, period_s=300
    )


@pytest.mark.parametrize(
    "text", ["a" + " " * 60_000, "a b " * 15_000, "/dev/ipmi" * 7_000, ("a" + " " * 9_000 + "\n") * 6, "{" * 50_000]
)
def test_a_hostile_answer_comes_to_an_end(text: str) -> None:
    with pytest.raises(TelemetryError):
        parse_dcmi(text)


def test_a_tool_that_says_much_and_nothing_comes_to_an_end(tmp_path: Path) -> None:
    program = tmp_path / "ipmitool"
    program.write_text(f"#!/bin/sh\necho '{'/dev/ipmi' * 7_000}' >&2\nexit 1\n", encoding="ascii")
    program.chmod(0o755)
    with pytest.raises(TelemetryError):
        DcmiTool((str(program),)).read()
