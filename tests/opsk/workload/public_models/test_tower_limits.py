"""What the tower of a model of images and text takes at most."""

from __future__ import annotations

import pytest

from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.tower_limits import limit_tower

TEXT = public_model("Qwen/Qwen2.5-7B")


def test_the_tower_of_qwen_saves_what_its_own_sizes_say() -> None:
    """32 layers of a width of 1280 for 4 patches a token (config.json of Qwen2.5-VL-7B), 28 of 3584 behind it."""
    assert TEXT is not None
    limit = limit_tower("Qwen/Qwen2.5-VL-7B-Instruct", TEXT, "trained")
    assert limit is not None
    assert limit.activation_share == pytest.approx(4 * 32 * 1280 / (28 * 3584), rel=0.25)
    assert limit.state_bytes == pytest.approx(16 * 0.68e9, rel=0.1)


@pytest.mark.parametrize(("name", "what"), [("Qwen/Qwen2.5-7B", "trained"), ("Qwen/Qwen2.5-VL-7B-Instruct", "")])
def test_nothing_is_added_where_no_tower_is_open(name: str, what: str) -> None:
    assert TEXT is not None
    assert limit_tower(name, TEXT, what) is None


def test_adapters_take_less_of_a_tower_than_training_it() -> None:
    assert TEXT is not None
    adapted, trained = (limit_tower("Qwen/Qwen2.5-VL-7B", TEXT, what) for what in ("adapted", "trained"))
    assert adapted is not None
    assert trained is not None
    assert adapted.state_bytes < trained.state_bytes
