"""Does the picture of the post-mortem's confidence show what its numbers are?"""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "programs" / "confidence.py")))


def judged(confidence: float, right: int, wrong: int) -> list[object]:
    return [
        PROGRAM.Judgement(kind="hard", confidence=confidence, is_right=number < right)
        for number in range(right + wrong)
    ]


def test_a_share_has_the_interval_of_wilson() -> None:
    # 13 of 20: Wilson's interval with z = 1.96 is 43.3 % to 81.9 %
    assert PROGRAM.interval(13, 20) == pytest.approx((0.4329, 0.8188), abs=1e-4)


def test_each_band_is_a_row_and_a_circle() -> None:
    judgements = [*judged(0.65, 13, 7), *judged(0.98, 9, 0)]
    assert "| 60% to 70% | 13 of 20 (65%) | 13 of 20 (65%) |" in PROGRAM.render_table(judgements)
    tree = ElementTree.fromstring(PROGRAM.render_svg(judgements))
    assert {title.text for title in tree.iter("{http://www.w3.org/2000/svg}title")} == {
        "13 of 20 right", "9 of 9 right",
    }  # fmt: skip


def test_the_picture_is_there_and_says_that_its_logs_are_generated() -> None:
    text = PROGRAM.PICTURE.read_text("utf-8")
    assert "generated" in text
    assert "real" in text
