"""What is read from the prose of a row."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from opsk.calibration.notes import read_notes


def test_a_named_recipe_gives_its_sizes() -> None:
    numbers = read_notes("recipe lists TP2 PP8 EP64 VP4 MBS1 GBS16384 for this name").numbers
    assert numbers == {"tp": 2, "pp": 8, "ep": 64, "vpp": 4, "micro_batch": 1, "global_batch": 16384}


def test_flags_are_read_by_name() -> None:
    notes = read_notes("toy; flags: kv-channels=128, attention-backend=unfused; more")
    assert notes.flag("kv-channels") == 128
    assert notes.flag("attention-backend") is None
    assert notes.flags["attention-backend"] == "unfused"


def test_batches_in_tokens_and_ratios_are_read() -> None:
    notes = read_notes("batch 4M tokens; mlp_ratio 8/3")
    assert notes.batch_tokens == 4e6
    assert notes.mlp_ratio == Fraction(8, 3)


def test_a_sharding_over_all_ranks_is_no_group() -> None:
    assert read_notes("zero1=8 (groups of 8)").numbers["shard_gpus"] == 8
    assert "shard_gpus" not in read_notes("zero1=-1 (sharded over all)").numbers


@given(st.text(max_size=400))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert all(value > 0 for value in read_notes(text).numbers.values())
