"""The page that puts published recipes beside the best plans of a search."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opsk.calibration.runs.runs import parse_runs, read_runs
from opsk.workload.plan import Plan, Sharding
from tests.fakes.tables_of_runs import row, table

TEXTS = {"parts": {"how_to_read": "Read.\n", "ranking": "\nWhy.\n"}, "why": {"site": "Because."}}


def recipes(*rows: dict[str, str]) -> list[Any]:
    """Read recipes."""
    from recipe_search import recipes_of

    return recipes_of(parse_runs(table(*rows)).runs)


def test_a_recipe_states_its_sizes_and_a_full_one_every_choice() -> None:
    found = recipes(
        row(id="full-1", iter_time_s="1.4"),
        row(id="open-1", recompute=""),
        row(id="small-1", micro_batch=""),
        row(id="died-1", notes="OOM"),
    )
    assert [(entry.run.id, entry.is_full) for entry in found] == [("full-1", True), ("open-1", False)]
    assert found[0].measured_s == pytest.approx(1.4)


def test_what_makes_no_difference_is_written_one_way() -> None:
    from recipe_search import written_once

    alone = Plan(global_batch=4, sharding=Sharding.ZERO1, sequence_parallel=True)
    assert written_once(alone) == Plan(global_batch=4)
    whole = Plan(global_batch=8, dp=8, sharding=Sharding.ZERO3, shard_gpus=8)
    assert written_once(whole).shard_gpus == 0
    part = Plan(global_batch=8, dp=8, sharding=Sharding.ZERO3, shard_gpus=4, tp=2, sequence_parallel=True)
    assert written_once(part) == part


@pytest.fixture(scope="module")
def compared() -> Any:
    """The 22B model with full recomputation, as one recipe stated it."""
    from recipe_search import compare

    return compare(recipes(row(iter_time_s="1.42"))[0])


def test_the_recipe_is_a_plan_of_ours_and_none_is_faster_than_our_best(compared: Any) -> None:
    plan = compared.candidate.plan
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch) == (8, 1, 1, 4)
    assert compared.own.faster >= 0
    assert compared.whole.faster >= compared.own.faster


def test_gains_are_traced_to_choices_and_to_parts_of_the_step(compared: Any) -> None:
    # Korthikanti et al. 2022, table 5: selective recomputation and sequence parallelism take this row from 1.42 to 1.10
    assert compared.own.faster > 0.25
    assert compared.own.undone["recompute"] > 0.1
    assert all(0 <= share <= 1 for share in compared.own.undone.values())
    gained = sum(compared.own.shifted_s.values())
    assert gained == pytest.approx(compared.candidate.step_s - compared.own.candidate.step_s)
    assert max(compared.own.shifted_s, key=compared.own.shifted_s.get) == "recompute"


def test_stages_that_do_not_divide_are_found_balanced() -> None:
    from recipe_search import compare

    layers = row(layers="50", gpus="24", tp="8", pp="3", micro_batch="1", source="Megatron-DeepSpeed 2022")
    plan = compare(recipes(layers)[0]).candidate.plan
    assert plan.first_stage_layers + plan.last_stage_layers > 0


def test_a_recipe_that_breaks_a_rule_is_told_with_the_rule() -> None:
    from recipe_search import compare

    found = compare(recipes(row(heads="60", kv_heads="60"))[0])
    assert not found.is_legal
    assert "heads 60 is not a multiple of tp 8" in found.broken


def test_the_page_tells_each_recipe_and_how_the_ranking_held(compared: Any) -> None:
    from recipe_search import compare
    from recipes import page

    other = row(id="site-002", iter_time_s="1.1", micro_batch="2", tp="4", pp="2")
    text = page([compared, compare(recipes(other)[0])], TEXTS)
    assert "- 2 recipes; 2 are plans of ours" in text
    assert "- our best is at least as fast for 2 of 2" in text
    assert "**`site`** Because." in text
    assert "1 tasks (one model" in text
    assert "| site-001 | in-house | 8 A100 | TP8 DP1 mbs 4, full | " in text


def test_a_choice_that_others_can_replace_is_not_blamed() -> None:
    from recipes import SEVERAL, main_choice

    assert main_choice(SimpleNamespace(undone={"layout": 0.1, "recompute": 0.05})) == SEVERAL
    assert main_choice(SimpleNamespace(undone={"layout": 0.1, "recompute": 0.5})) == "recompute"


@pytest.mark.shared
def test_every_full_published_recipe_is_a_plan_of_ours(runs_of_the_fit: Path) -> None:
    from recipe_search import ANYTHING, pin_plan, recipes_of, written_once

    full = [entry for entry in recipes_of(read_runs(runs_of_the_fit).runs) if entry.is_full]
    assert len(full) > 300
    runs = [entry.run for entry in full]
    assert [run.id for run in runs if not pin_plan(run, ANYTHING, written_once(run.plan)).space] == []


@pytest.mark.shared
def test_our_best_is_predicted_at_least_as_fast_as_published_recipes(runs_of_the_fit: Path) -> None:
    from recipe_search import compare, recipes_of

    full = [entry for entry in recipes_of(read_runs(runs_of_the_fit).runs) if entry.is_full]
    for entry in full[5::40]:
        found = compare(entry)
        assert found.whole is not None, entry.run.id
        assert found.whole.faster >= -1e-9, entry.run.id
