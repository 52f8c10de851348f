"""Speed words of InfiniBand and what they carry."""

from __future__ import annotations

import pytest

from opsk.fabric.link_speed import link_bytes_per_s, parse_link, speed_rank
from opsk.units import as_gbit_per_s


@pytest.mark.parametrize(
    ("width", "speed", "gbit_per_s"),
    [  # data rates of the InfiniBand Trade Association's roadmap table
        (4, "SDR", 8), (4, "DDR", 16), (4, "QDR", 32), (4, "FDR10", 40), (4, "FDR", 54.54), (4, "EDR", 100),
        (4, "HDR", 200), (2, "HDR", 100), (4, "NDR", 400), (4, "XDR", 800), (1, "SDR", 2), (4, "???", 0),
    ],
)  # fmt: skip
def test_data_rate(width: int, speed: str, gbit_per_s: float) -> None:
    assert as_gbit_per_s(link_bytes_per_s(width, speed)) == pytest.approx(gbit_per_s, rel=1e-3)


def test_words_order_from_slow_to_fast() -> None:
    words = ["SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR"]
    assert sorted(words, key=speed_rank) == words
    assert speed_rank("ZDR") < speed_rank("SDR")


def test_link_text() -> None:
    assert parse_link('"x" lid 3 4xFDR10 s=1') == (4, "FDR10")
    assert parse_link("nothing") == (0, "")
