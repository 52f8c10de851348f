"""Does the catalogue of Xids answer every code, and as NVIDIA's table and our reading have it?"""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.hardware.xids import (
    Suspect,
    XidClass,
    guidance,
    nvlink5,
    nvlink5_xid,
    parse_recovery_action,
    recovery_action,
    sxid,
    xid,
    xids,
)


@pytest.mark.parametrize(
    ("code", "class_", "immediate"),
    [  # NVIDIA's column "Resolution Bucket (Immediate Action)", read 2026-11-21; classes of facts/ops.md 3.10
        (13, XidClass.APP, "RESTART_APP"),
        (31, XidClass.APP, "RESTART_APP"),
        (43, XidClass.INFO, "IGNORE"),
        (45, XidClass.CASCADE, "WORKFLOW_XID_45"),
        (48, XidClass.DRAIN, "WORKFLOW_XID_48"),
        (54, XidClass.SERVICE, "CHECK_MECHANICALS"),
        (63, XidClass.RESET_WHEN_IDLE, "IGNORE"),
        (64, XidClass.DRAIN, "RESET_GPU"),
        (74, XidClass.DRAIN, "WORKFLOW_NVLINK_ERR"),
        (79, XidClass.REBOOT, "RESTART_BM"),
        (92, XidClass.WATCH, "IGNORE"),
        (94, XidClass.RESET_WHEN_IDLE, "RESTART_APP"),
        (95, XidClass.DRAIN, "RESET_GPU"),
        (109, XidClass.RESET, "RESET_GPU"),
        (119, XidClass.RESET, "RESET_GPU"),
        (120, XidClass.RESET, "RESET_GPU"),
        (140, XidClass.DRAIN, "RESET_GPU"),
        (149, XidClass.NVLINK, "WORKFLOW_NVLINK5_ERR"),
        (151, XidClass.REBOOT, "RESTART_VM"),
        (154, XidClass.SUMMARY, "XID_154"),
        (167, XidClass.DRAIN, ""),
        (169, XidClass.DRAIN, ""),
    ],
)
def test_known_codes_have_their_class_and_bucket(code: int, class_: XidClass, immediate: str) -> None:
    assert (xid(code).class_, xid(code).immediate) == (class_, immediate)


def test_the_catalogue_has_every_code_of_nvidias_list_once_with_a_source() -> None:
    assert [entry.code for entry in xids()] == list(range(1, 173))  # NVIDIA's list ends at 172
    for entry in xids():
        assert entry.name
        assert entry.meaning
        assert entry.action
        assert entry.source
        assert "\n" not in entry.meaning + entry.action
        for bucket in filter(None, (entry.immediate, entry.follow_up)):
            assert guidance(bucket), bucket


@given(st.integers())
def test_any_number_is_answered(code: int) -> None:
    entry = xid(code)
    assert entry.code == code
    assert entry.known == (1 <= code <= 172)
    assert sxid(code).code == code


def test_an_unknown_code_says_that_it_is_unknown() -> None:
    entry = xid(999)
    assert not entry.known
    assert entry.meaning == "not in the catalogue"
    assert (entry.name, entry.immediate, entry.suspect) == ("", "", Suspect.NONE)
    assert sxid(999).severity == "unknown"
    assert not sxid(999).known


def test_consequences_and_notices_are_no_root() -> None:
    assert not any(xid(code).may_be_root for code in (43, 45, 154))
    assert all(xid(code).may_be_root for code in (13, 48, 79, 119, 149))


@pytest.mark.parametrize("unit", ["NETIR_LINK_EVT", "NETIR_LINK_DOWN"])
def test_a_link_that_its_peer_took_down_blames_the_peer(unit: str) -> None:
    # reason 0x25 in bits 25:20; the low bits are the unit before R575 (0x1c6) and from it (0x11)
    found = nvlink5(149, unit, ((0x25 << 20) | (0x1C6 if unit.endswith("EVT") else 0x11), 0))
    assert found is not None
    assert (found.peer, found.immediate, found.severity) == (True, "RESET_GPU", "link_fatal")
    assert found.class_ is XidClass.RESET
    entry = nvlink5_xid(149, unit, (0x25 << 20, 0))
    assert entry.follow_up == "INVESTIGATE_PEER_DEVICE"
    assert "other end" in entry.action


def test_a_promotable_error_follows_the_word_of_the_message() -> None:
    mild, hard = (nvlink5(145, "RLW_RXPIPE", (0x6, 0x2), fatal=fatal) for fatal in (False, True))
    assert mild is not None
    assert (mild.immediate, mild.class_) == ("IGNORE", XidClass.INFO)
    assert hard is not None
    assert (hard.immediate, hard.severity) == ("RESET_GPU", "fatal")


def test_words_that_the_table_does_not_have_leave_the_plain_entry() -> None:
    assert nvlink5(145, "RLW_REMAP", (0x4, 0x12345)) is None
    assert nvlink5(144, "NO_SUCH_UNIT", ()) is None
    assert nvlink5_xid(144, "NO_SUCH_UNIT", ()) == xid(144)


@pytest.mark.parametrize(
    ("text", "name", "class_"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", "node_reboot", XidClass.REBOOT),
        ("GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (GPU Reset Required)", "gpu_reset", "reset"),
        ("GPU recovery action changed from 0x0 (None) to 0x3 (Drain P2P)", "drain_p2p", XidClass.DRAIN),
        ("GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)", "gpu_reset", XidClass.RESET),
        ("recovery action changed to Drain and Reset", "drain_and_reset", XidClass.DRAIN),
        ("GPU recovery action changed from 0x0 (None) to 0x63 (Something New)", "unknown", XidClass.UNKNOWN),
    ],
)
def test_the_recovery_action_is_read_by_its_value_and_else_by_its_words(text: str, name: str, class_: str) -> None:
    action = parse_recovery_action(text)
    assert action is not None
    assert (action.name, action.class_) == (name, class_)


def test_no_recovery_action_is_none() -> None:
    assert parse_recovery_action("Timeout") is None
    assert [recovery_action(value).name for value in range(8)] == [
        "none",
        "gpu_reset",
        "node_reboot",
        "drain_p2p",
        "drain_and_reset",
        "recover_imex_domain",
        "bus_reset",
        "system_reboot",
    ]  # nvmlDeviceGpuRecoveryAction_t


@pytest.mark.parametrize(
    ("code", "severity"), [(20034, "fatal"), (12028, "non_fatal"), (22003, "always_fatal"), (19084, "non_fatal")]
)
def test_sxids_have_the_severity_of_the_user_guide(code: int, severity: str) -> None:
    assert sxid(code).severity == severity
    assert sxid(code).source


def test_asking_loads_no_validator() -> None:
    code = "import sys; from opsk.hardware.xids import xid; xid(79); print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
