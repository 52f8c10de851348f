"""Are values of nvidia-smi -q numbers in SI units, reasons, or a word for why there is none?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.gpu.nvidia_smi import Absent, absent, quantity

MIB = 1 << 20


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("N/A", Absent.NOT_APPLICABLE),
        ("[N/A]", Absent.NOT_APPLICABLE),
        ("[Not Supported]", Absent.NOT_SUPPORTED),
        ("Requested functionality has been deprecated", Absent.DEPRECATED),
        ("[Insufficient Permissions]", Absent.NO_PERMISSION),
        ("GPU is lost", Absent.LOST),
        ("[GPU is lost]", Absent.LOST),
        ("[GPU requires reset]", Absent.RESET_REQUIRED),
        ("[Unknown Error]", Absent.UNKNOWN_ERROR),
        ("ERR!", Absent.ERROR),
        ("42 W", None),
        ("NVIDIA H100", None),
    ],
)
def test_the_ways_to_say_nothing(value: str, why: Absent | None) -> None:
    assert absent(value) is why


def test_only_some_of_them_are_bad_news() -> None:
    bad = {Absent.LOST, Absent.RESET_REQUIRED, Absent.UNKNOWN_ERROR, Absent.ERROR}
    assert {why for why in Absent if why.is_error} == bad


@given(st.text(max_size=30), st.text(max_size=5))
def test_any_value_is_a_quantity_or_none(value: str, unit: str) -> None:
    assert quantity(value, unit) is None or isinstance(quantity(value, unit), float)
