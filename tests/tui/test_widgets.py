"""Do maps, tables and pages show the right lines, and is only what changed sent?"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from opsk_tui.data.view import Health, JobView, Metric, ViewIndex
from opsk_tui.screens.cluster import Selection, Sort, StateFilter, chosen_rows
from opsk_tui.screens.job_sections import job_columns
from opsk_tui.text import ASCII, UNICODE, age, ago, bar, glyphs_for, metric_range, run_time, sparkline
from opsk_tui.theme import MONOCHROME, PALETTES
from opsk_tui.widgets.canvas import build_strip, changed_span
from opsk_tui.widgets.grid_map import ABSENT, UNHEALTHY, UNKNOWN, WATCH, compute_codes
from opsk_tui.widgets.table import Table
from tests.fakes.big_cluster import BigCluster

KNOWN = ViewIndex(BigCluster(nodes=300, jobs=60).view())
WORDS = st.lists(st.tuples(st.sampled_from(["a", "bb", "ccc", "日本"]), st.sampled_from(["text", "dim", "sick"])))


def cells(strip: Strip) -> list[tuple[str, Style | None]]:
    """Return every cell of a line with its style; a wide sign is followed by nothing."""
    return [
        pair
        for part in strip
        for sign in part.text
        for pair in [(sign, part.style)] + [("", part.style)] * (Segment(sign).cell_length - 1)
    ]


@given(WORDS, WORDS)
def test_cells_outside_the_changed_span_are_the_same(
    first: list[tuple[str, str]], second: list[tuple[str, str]]
) -> None:
    palette = PALETTES["opsk-dark"]
    old, new = (build_strip(words, 12, palette, UNICODE) for words in (first, second))
    assert old.cell_length == new.cell_length == 12
    start, end = changed_span(old, new) or (0, 0)
    before, after = cells(old), cells(new)
    assert before[:start] == after[:start]
    assert before[end:] == after[end:]


def test_health_goes_before_the_value_and_what_is_not_known_is_no_zero() -> None:
    values = np.array([[0.0, 0.49, 1.0, np.nan, 0.9, 0.9, 0.5]], dtype=np.float32)
    health = np.array([[1, 1, 1, 1, Health.UNHEALTHY, Health.WATCH, 1]], dtype=np.int8)
    present = np.array([[True] * 6 + [False]])
    assert compute_codes(values, health, present, (0.0, 1.0)).tolist() == [[0, 3, 7, UNKNOWN, UNHEALTHY, WATCH, ABSENT]]


def test_a_height_that_trembles_at_a_limit_stays_and_one_that_moves_does_not() -> None:
    health, before = np.array([[1, 1, 1]], dtype=np.int8), np.array([[3, 3, UNHEALTHY]], dtype=np.uint8)
    # a step is 1/8: 0.51 is 0.08 steps beyond the third, 0.56 is 0.48 steps beyond it
    values = np.array([[0.51, 0.56, 0.51]], dtype=np.float32)
    assert compute_codes(values, health, None, (0.0, 1.0), before).tolist() == [[3, 4, 4]]


@pytest.mark.parametrize("sort", Sort)
@pytest.mark.parametrize("state", StateFilter)
def test_every_order_shows_each_chosen_node_once(sort: Sort, state: StateFilter) -> None:
    rows = chosen_rows(KNOWN, Selection(sort=sort, state=state, metric=Metric.POWER)).tolist()
    assert len(rows) == len(set(rows))
    assert set(rows) == set(chosen_rows(KNOWN, Selection(state=state)).tolist())


def test_states_share_all_nodes_between_them() -> None:
    parts = [chosen_rows(KNOWN, Selection(state=state)) for state in (StateFilter.FREE, StateFilter.OUT)]
    assert not set(parts[0].tolist()) & set(parts[1].tolist())


def test_the_worst_come_first() -> None:
    rows = chosen_rows(KNOWN, Selection(sort=Sort.HEALTH))
    assert (np.diff(KNOWN.worst[rows].astype(int)) <= 0).all()
    rows = chosen_rows(KNOWN, Selection(sort=Sort.HIGHEST, metric=Metric.POWER))
    means = np.nan_to_num(np.nanmean(KNOWN.gpus.values[Metric.POWER][rows[:-9]], axis=1), nan=-1.0)
    assert (np.diff(means) <= 1e-3).all()


@given(st.integers(min_value=20, max_value=400))
def test_columns_of_jobs_fit_every_window_that_holds_the_first(width: int) -> None:
    table = Table[JobView](job_columns(UNICODE), lambda job: job.record.id)
    layout = table.layout_for(width)
    assert {"job", "name", "state", "mfu", "loss"} <= {column.key for column, _ in layout}
    used = 1 + sum(size + 2 for _, size in layout) - 2
    assert used <= max(width, 52)


def test_a_sparkline_is_flat_where_nothing_changes_and_rises_where_it_does() -> None:
    assert set(sparkline([5.0, 5.0, 5.0], 3, UNICODE)) == {"▅"}
    assert sparkline([1, 2, 3, 4], 4, ASCII) == "0257"
    assert sparkline([], 8, UNICODE) == sparkline([float("nan")], 8, UNICODE) == ""
    assert bar(0.5, 4, ASCII) == "##.."
    assert bar(7.0, 2, ASCII) == "##"


@pytest.mark.parametrize(
    ("environ", "encoding", "glyphs"),
    [({}, "utf-8", UNICODE), ({}, "latin-1", ASCII), ({"OPSK_ASCII": "1"}, "utf-8", ASCII),
     ({"TERM": "linux"}, "UTF-8", ASCII), ({"OPSK_ASCII": "0"}, "utf-8", UNICODE), ({}, None, ASCII)],
)  # fmt: skip
def test_terminals_that_show_ascii_only_get_ascii(
    environ: dict[str, str], encoding: str | None, glyphs: object
) -> None:
    assert glyphs_for(environ, encoding) is glyphs


def test_the_theme_without_colour_has_none() -> None:
    palette = PALETTES[MONOCHROME]
    for style in (*palette.styles.values(), *palette.ramp):
        assert (style.color, style.bgcolor) == (None, None)
    assert palette["bar+cursor"].reverse is False
    assert palette["text+cursor"].reverse is True


def test_numbers_are_short_and_change_seldom() -> None:
    # 93,784 s is 1 day 2 h 3 min 4 s
    assert run_time(93_784) == "1-02:03"
    assert [age(seconds) for seconds in (0.3, 12.9, 150, 7300, 400_000, None)] == [
        "now",
        "12 s",
        "2 min",
        "2 h",
        "4 d",
        "–",
    ]
    assert metric_range(Metric.POWER, 643.0) == (0.0, 700.0)


def test_what_is_past_is_now_or_so_long_ago() -> None:
    assert (ago(0.5), ago(81.0)) == ("now", "81 s ago")
    assert ago(None) == age(None)
