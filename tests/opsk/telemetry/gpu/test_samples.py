"""Are PCI addresses the same however wide somebody writes them?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.gpu.samples import normalise_pci


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("00000000:1A:00.0", "0000:1a:00.0"),
        ("0000:1a:00.0", "0000:1a:00.0"),
        ("0000:1a:00", "0000:1a:00.0"),
        ("1a:00.0", "0000:1a:00.0"),
        ("1:1A:0", "0001:1a:00.0"),
        # A domain wider than 16 bits stays as wide as it is (VMD, Grace).
        ("00010000:01:00.0", "10000:01:00.0"),
        (" 0018:01:00.0\n", "0018:01:00.0"),
        ("", None),
        ("N/A", None),
        ("1a:20.0", None),
        ("1a:00.8", None),
        ("000000000:1a:00.0", None),
    ],
)
def test_addresses_are_brought_to_the_kernels_form(text: str, expected: str | None) -> None:
    assert normalise_pci(text) == expected


@given(st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.integers(0, 31), st.integers(0, 7))
def test_the_kernels_form_stays_as_it_is(domain: int, bus: int, device: int, function: int) -> None:
    address = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
    assert normalise_pci(address) == address
    assert normalise_pci(f"0000{address.upper()}") == address
