"""Do the screens look as they did when somebody looked at them? ``OPSK_GOLDEN=write`` accepts how they look now."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from importlib.metadata import version

import pytest

from opsk_tui.theme import PALETTES
from tests.fakes.big_cluster import BigCluster
from tests.fakes.screen_pictures import PICTURES, picture
from tests.golden.compare import assert_as_golden

DRAWN_WITH = "8."
SIZES = ((80, 24), (120, 40), (240, 70))
pytestmark = pytest.mark.skipif(
    not version("textual").startswith(DRAWN_WITH), reason=f"the pictures were drawn with Textual {DRAWN_WITH}x"
)


@lru_cache
def cluster() -> BigCluster:
    return BigCluster(nodes=200, jobs=60)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", PICTURES)
def test_each_screen_looks_as_it_was_accepted(name: str, size: tuple[int, int]) -> None:
    svg = asyncio.run(picture(name, size, cluster()))
    assert_as_golden(f"tui/{name}-{size[0]}x{size[1]}.svg", svg)


@pytest.mark.parametrize("theme", PALETTES)
def test_each_theme_looks_as_it_was_accepted(theme: str) -> None:
    svg = asyncio.run(picture("cluster", (80, 24), cluster(), theme=theme))
    assert_as_golden(f"tui/cluster-{theme}.svg", svg)
