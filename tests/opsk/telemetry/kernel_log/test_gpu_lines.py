"""Which events do lines of NVIDIA's drivers give: XIDs, SXids, GPUs that fell off, complaints?"""

from __future__ import annotations

import pytest

from opsk.hardware.xids import XidClass
from opsk.telemetry.kernel_log import (
    DriverEvent,
    FallenOffBusEvent,
    KernelEvent,
    SxidEvent,
    XidEvent,
    read_kernel_log,
)

XID = "NVRM: Xid (PCI:0000:1a:00): "


def only(text: str) -> KernelEvent:
    (event,) = read_kernel_log(text).events
    return event


def only_xid(text: str) -> XidEvent:
    event = only(text)
    assert isinstance(event, XidEvent)
    return event


@pytest.mark.parametrize("where", ["PCI:0000:1a:00", "0000:1a:00", "PCI:0000:1A:00.0", "PCI:00000000:1a:00"])
def test_an_xid_has_the_address_in_one_form(where: str) -> None:
    event = only_xid(f"[  1.5] NVRM: Xid ({where}): 48, pid=77, name=python, An uncorrectable double bit error")
    assert (event.pci, event.code, event.pid, event.process) == ("0000:1a:00.0", 48, 77, "python")
    assert event.rest == "An uncorrectable double bit error"


@pytest.mark.parametrize(
    ("said", "pid", "process", "rest"),
    [
        ("79, GPU has fallen off the bus.", None, None, "GPU has fallen off the bus."),
        ("63, pid=1896, Row Remapper: New row", 1896, None, "Row Remapper: New row"),
        ("13, pid='<unknown>', name=<unknown>, Graphics Exception", None, None, "Graphics Exception"),
        ("31, pid=5, name=pt main/0, Ch 00000008, intr 00000000", 5, "pt main/0", "Ch 00000008, intr 00000000"),
        ("14", None, None, ""),
        ("43, pid=99999999999, name=x, Ch 1", None, "x", "Ch 1"),
    ],
)
def test_the_process_is_what_the_message_names(said: str, pid: int | None, process: str | None, rest: str) -> None:
    event = only_xid(XID + said)
    assert (event.pid, event.process, event.rest) == (pid, process, rest)


def test_a_mig_instance_is_kept() -> None:
    event = only_xid("NVRM: Xid (PCI:0000:b7:00 GPU-I:0a): 43, pid=3, name=python, Ch 00000001")
    assert (event.pci, event.mig_instance, event.pid) == ("0000:b7:00.0", 10, 3)


def test_a_name_cannot_write_to_the_terminal() -> None:
    event = only_xid(XID + "31, pid=5, name=\x1b[31mred\u202e, Ch 1")
    assert event.process == "\\x1b[31mred\\u202e"
    assert event.text.isprintable()


def test_the_uuid_comes_from_the_line_before() -> None:
    uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    event = only_xid(f"NVRM: GPU at PCI:0000:1a:00: {uuid}\n{XID}119, pid=1, name=x, Timeout after 6s")
    assert event.gpu_uuid == uuid
    assert event.entry.class_ is XidClass.RESET


@pytest.mark.parametrize(
    ("said", "fatal", "link", "words"),
    [
        ("149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x025001c6 0x00000000 0x0)", True, 8, 3),
        ("149, NETIR_LINK_EVT Fatal XC 1 i 0 Link -1 (0x025001c6 0x00000000)", True, None, 2),
        ("149, NETIR_LINK_DOWN Nonfatal XC0 i0 Link 17 (0x02500011 0x0 0x0 0x0 0x0 0x0)", False, 17, 6),
        ("149, pid=1, name=x, NETIR_LINK_EVT Fatal XC0 i0 Link 01 [0x025001c6 0x0]", True, 1, 2),
        ("145, RLW_REMAP Non-fatal XC1 i0 Link 03 (0x00000004 0x00000001 0x0 0x0 0x0 0x0 0x0)", False, 3, 7),
    ],
)
def test_nvlink5_fields_are_read(said: str, fatal: bool, link: int | None, words: int) -> None:
    fields = only_xid(XID + said).nvlink
    assert fields is not None
    assert (fields.fatal, fields.link, len(fields.words), fields.injected) == (fatal, link, words, False)


def test_a_peer_that_took_the_link_down_is_told_from_the_words() -> None:
    event = only_xid(XID + "149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x025001c6 0x00000000 0x00000000)")
    assert event.entry.follow_up == "INVESTIGATE_PEER_DEVICE"


def test_xid_154_names_the_recovery_action() -> None:
    action = only_xid(XID + "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)").recovery
    assert action is not None
    assert action.name == "node_reboot"


@pytest.mark.parametrize(
    ("text", "pci"),
    [
        ("NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.", "0000:1a:00.0"),
        ("NVRM: GPU 1a:00.0: GPU has fallen off the bus.", "0000:1a:00.0"),
        ("NVRM: GPU at 0000:1a:00.0 has fallen off the bus.", "0000:1a:00.0"),
        (
            "[ 7.1] NVRM: The NVIDIA GPU 0001:1a:00.0\n[ 7.1] NVRM: (PCI ID: 10de:2330) installed in this system has\n"
            "[ 7.1] NVRM: fallen off the bus and is not responding to commands.",
            "0001:1a:00.0",
        ),
        (
            r"4,9,7100000,-;NVRM: The NVIDIA GPU 0001:1a:00.0\x0aNVRM: (PCI ID: 10de:2330) installed in this system has"
            r"\x0aNVRM: fallen off the bus and is not responding to commands.",
            "0001:1a:00.0",
        ),
        ("NVRM: The NVIDIA GPU 0001:1a:00.0 installed in this system has fallen off the bus", "0001:1a:00.0"),
        ("NVRM: fallen off the bus and is not responding to commands.", None),
    ],
)
def test_a_gpu_that_fell_off_is_found_in_one_line_or_three(text: str, pci: str | None) -> None:
    event = only(text)
    assert isinstance(event, FallenOffBusEvent)
    assert event.pci == pci


@pytest.mark.parametrize(
    ("text", "fatal", "link"),
    [
        ("nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", True, 30),
        ("nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 12028, Non-fatal, Link 3 egress PRIV error (First)", False, 3),
        ("nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 10003, Host_unhandled_interrupt", None, None),
        (
            "[Feb 27 2025 15:10:02] [ERROR] [tid 1] detected NVSwitch fatal error 20034 on fid 0 "
            "on NVSwitch pci bus id 00000000:C5:00.0 physical id 3 port 30",
            True,
            30,
        ),
    ],
)
def test_sxids_of_the_driver_and_of_the_fabric_manager(text: str, fatal: bool | None, link: int | None) -> None:
    event = only(text)
    assert isinstance(event, SxidEvent)
    assert (event.pci, event.fatal, event.link) == ("0000:c5:00.0", fatal, link)


def test_data_lines_of_an_sxid_are_not_further_errors() -> None:
    lines = (
        "nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
        "nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00\n"
        "nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 20034, Data {0x00000001, 0x00000000}\n"
    )
    assert len(read_kernel_log(lines).events) == 1


@pytest.mark.parametrize(
    ("text", "kind", "pci", "error"),
    [
        (
            "NVRM: GPU 0000:1a:00.0: RmInitAdapter failed! (0x26:0x56:1482)",
            "init_failed",
            "0000:1a:00.0",
            "0x26:0x56:1482",
        ),
        ("NVRM: GPU 0000:1a:00.0: rm_init_adapter failed, device minor number 0", "init_failed", "0000:1a:00.0", None),
        ("nvidia: probe of 0000:1a:00.0 failed with error -1", "probe_failed", "0000:1a:00.0", "-1"),
        (
            "NVRM: GPU2 nvAssertOkFailedNoLog: Assertion failed: Reset required [NV_ERR_RESET_REQUIRED] (0x6B) @ a.c:1",
            "assert",
            None,
            "NV_ERR_RESET_REQUIRED",
        ),
        (
            "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
            "peermem",
            None,
            "detected invalid context",
        ),
    ],
)
def test_complaints_of_the_driver(text: str, kind: str, pci: str | None, error: str | None) -> None:
    event = only(text)
    assert isinstance(event, DriverEvent)
    assert (event.kind, event.pci, event.error) == (kind, pci, error)
