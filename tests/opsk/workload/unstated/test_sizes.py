"""The table of sizes that no script states."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from opsk.workload.unstated.sizes import TABLE, Size, Task, find_range, find_side


def test_every_range_has_a_source_and_a_generous_value_beyond_the_typical_one() -> None:
    table = tomllib.loads(files("opsk.workload.unstated").joinpath(TABLE).read_text(encoding="utf-8"))
    assert len({(row["size"], row["task"]) for row in table["range"]}) == len(table["range"])
    for row in table["range"]:
        span = find_range(Size(row["size"]), Task(row["task"]))
        assert span is not None
        assert 0 < span.typical < span.generous
        assert len(span.source) > 20
    for row in table["data_set"]:
        assert row["source"]
        assert all(find_side(name) == row["side"] for name in row["names"].split())


@pytest.mark.parametrize(("name", "side"), [("CIFAR-10", 32), ("fashion-mnist", 28), ("./cifar", 0), ("", 0)])
def test_public_data_sets_are_known_by_their_names(name: str, side: int) -> None:
    assert find_side(name) == side
