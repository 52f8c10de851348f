"""Is perfquery's text read under the names, and in the units, that sysfs has?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.network.perfquery import SYSFS_NAMES, parse_perfquery
from opsk_exporters.network.names import COUNTERS


def block(head: str, **values: object) -> str:
    """Write a block as perfquery does: names filled up with dots."""
    return "\n".join(
        [f"# {head}", *(f"{name}:{'.' * max(1, 32 - len(name))}{value}" for name, value in values.items())]
    )


EXTENDED = "Port extended counters: Lid 133 port 2 (CapMask: 0x5A00 CapMask2: 0x0000000)"


def test_data_words_become_bytes_and_names_those_of_sysfs() -> None:
    text = block(
        EXTENDED,
        PortSelect=2,
        CounterSelect="0x0000",
        PortXmitData=1000,
        PortRcvData=2000,
        PortXmitPkts=30,
        SymbolErrorCounter=4,
        PortXmitWait=5,
        QP1Dropped=6,
    )
    (port,) = parse_perfquery(text).ports
    assert (port.attribute, port.address, port.lid, port.port) == ("Port extended counters", "Lid 133", 133, 2)
    # A word has 4 bytes (IBA 16.1.3.5).
    assert port.counters == {
        "port_xmit_data": 4000,
        "port_rcv_data": 8000,
        "port_xmit_packets": 30,
        "symbol_error": 4,
        "port_xmit_wait": 5,
    }
    assert port.others == {"QP1Dropped": 6}


def test_every_name_is_one_that_the_exporter_knows() -> None:
    assert set(SYSFS_NAMES.values()) <= set(COUNTERS)


def test_several_ports_and_attributes_are_several_reports() -> None:
    text = "\n".join(
        [
            block("Port counters: Lid 7 port 1 (CapMask: 0x1600)", SymbolErrorCounter=1),
            block("PortVLXmitWaitCounters counters: Lid 7 port 1", PortVLXmitWait0=8, PortVLXmitWait1=9),
            "",
            block("Port counters: DR path slid 65535; dlid 65535; 0,1,5 port 3 (CapMask: 0x1600)", LinkDownedCounter=2),
            block("Port counters: Lid 7 port 255 (CapMask: 0x1600)", LinkDownedCounter=3),
        ]
    )
    reading = parse_perfquery(text)
    assert reading.unread == ()
    assert [(port.lid, port.port, port.line) for port in reading.ports] == [
        (7, 1, 1),
        (7, 1, 3),
        (None, 3, 7),
        (7, None, 9),
    ]
    assert reading.ports[1].others == {"PortVLXmitWait0": 8, "PortVLXmitWait1": 9}
    assert reading.ports[2].address.startswith("DR path")


def test_the_tick_of_a_port_is_read() -> None:
    # NVIDIA's example: tick 7 is 8 bytes.
    (port,) = parse_perfquery(block("PortSamplesControl: Lid 32 port 5", OpCode="0xff", Tick="0x07")).ports
    assert port.tick_bytes == 8
    (other,) = parse_perfquery(block(EXTENDED, PortXmitData=1)).ports
    assert other.tick_bytes is None


def test_a_wait_counter_that_the_port_does_not_have_is_absent() -> None:
    # 0x4A00 lacks bit 12: perfquery prints 0 all the same.
    (port,) = parse_perfquery(block("Port counters: Lid 1 port 1 (CapMask: 0x4A00)", PortXmitWait=0)).ports
    assert "port_xmit_wait" not in port.counters


@pytest.mark.parametrize(
    ("attribute", "name", "value", "saturated"),
    [
        ("Port counters", "LinkDownedCounter", 255, True),
        ("Port counters", "SymbolErrorCounter", 65535, True),
        ("Port counters", "PortXmitData", 2**32 - 1, True),
        ("Port counters", "PortXmitData", 2**32 - 2, False),
        ("Port extended counters", "LinkDownedCounter", 255, False),
        ("Port extended counters", "PortXmitData", 2**64 - 1, True),
    ],
)
def test_a_counter_at_the_end_of_its_field_is_saturated(attribute: str, name: str, value: int, saturated: bool) -> None:
    (port,) = parse_perfquery(block(f"{attribute}: Lid 1 port 1 (CapMask: 0x5A00)", **{name: value})).ports
    assert port.saturated == ((SYSFS_NAMES[name],) if saturated else ())


def test_what_is_not_perfquerys_is_listed_and_the_rest_read() -> None:
    text = "ibwarn: [1] _do_madrpc: recv failed\n" + block(EXTENDED, PortXmitData=1) + "\nPortRcvData:.....\n"
    reading = parse_perfquery(text)
    assert reading.ports[0].counters == {"port_xmit_data": 4}
    assert reading.unread == ("1: ibwarn: [1] _do_madrpc: recv failed", "4: PortRcvData:.....")


@given(st.text(max_size=300))
def test_no_text_makes_it_fail(text: str) -> None:
    reading = parse_perfquery(text)
    assert len(reading.ports) + len(reading.unread) <= len(text.splitlines())


@pytest.mark.shared
def test_real_ports_are_read(shared: Path) -> None:
    folder = shared / "data" / "real" / "ib_counters"
    two = parse_perfquery((folder / "perfquery_0x7cfe9003009ce5b0.out").read_text(encoding="utf-8"))
    assert [(port.lid, port.port) for port in two.ports] == [(1719, 1), (1719, 2)]
    # Words and ticks read from the file by hand.
    assert two.ports[0].counters["port_xmit_data"] == 36_298_026_860_928 * 4
    assert two.ports[1].counters["port_xmit_wait"] == 36_510_964
    for path in sorted(folder.glob("perfquery*")):
        reading = parse_perfquery(path.read_text(encoding="utf-8"))
        assert reading.ports, path.name
        assert reading.unread == (), path.name
    details = parse_perfquery((folder / "perfquery_rcv_0x7cfe9003009ce5b0-1.out").read_text(encoding="utf-8")).ports[0]
    assert details.counters == {}
    assert details.others["PortBufferOverrunErrors"] == 0


@pytest.mark.parametrize("pieces", [(" ", "1"), (" ", "a"), ("a ", ":"), (": ", " port 1 ")])
def test_a_long_hostile_head_comes_to_an_end(pieces: tuple[str, str]) -> None:
    text = "# Port counters: " + "".join(piece * 20_000 for piece in pieces)
    assert parse_perfquery(text).ports == ()
