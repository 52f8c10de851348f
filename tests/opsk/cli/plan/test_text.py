"""The picture of ``opsk plan``, on terminals of two widths, against what was read in review."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from opsk.cli.plan.plan_table import format_plan, format_remarks
from opsk.cli.plan.text import print_answer
from tests.golden.compare import assert_as_golden

GIB = 2**30


def plan(**axes: Any) -> dict[str, Any]:
    axes = {"dp": 8, "micro_batch": 1, "global_batch": 512, **axes}
    whole = {
        **dict.fromkeys(("tp", "pp", "vpp", "cp", "ep"), 1),
        **dict.fromkeys(("etp", "shard_gpus", "recompute_layers", "first_stage_layers", "last_stage_layers"), 0),
        **{"sharding": "zero1", "sequence_parallel": False, "recompute": "none", "schedule": "1f1b"},
        **axes,
    }
    return {"gpus": whole["tp"] * whole["pp"] * whole["cp"] * whole["dp"], **whole}


def entry(
    step_s: float, needed_gib: float, chance: float, verdict: str, *, by: list[str], **axes: Any
) -> dict[str, Any]:
    return {
        "plan": plan(**axes),
        "verdict": verdict,
        "memory": {"needed_bytes": {"expected": needed_gib * GIB}, "fit_probability": chance},
        "time": {"step_s": {"expected": step_s}, "mfu": {"expected": 27.5 / step_s}},
        "energy": {"j_per_token": {"expected": 1.09}},
        "frameworks": by,
    }


def chosen(step_s: float, needed_gib: float, step_j: float, chance: float, **axes: Any) -> dict[str, Any]:
    own = plan(**axes)
    return {
        "plan": own,
        "step_s": step_s,
        "needed_bytes": needed_gib * GIB,
        "step_j": step_j,
        "gpus": own["gpus"],
        "fit_probability": chance,
    }


def choice(shown: dict[str, Any], *roles: str, slower_by: float = 0.0, runs: int = 0, **more: Any) -> dict[str, Any]:
    return {
        **shown,
        "roles": list(roles),
        "slower_by": slower_by,
        "is_tied": abs(slower_by) < 0.08,
        "runs": runs,
        "runs_elsewhere": 2 * runs,
        "variants": {"count": 0, "values": {}},
        "features": [],
        **more,
    }


def document() -> dict[str, Any]:
    """A made-up answer in which every kind of line occurs."""
    sure = entry(55.2, 61.9, 0.96, "fits", by=["megatron", "deepspeed"], tp=4, pp=2, sequence_parallel=True)
    other = entry(58, 60.2, 0.999, "fits", by=[], tp=8, pp=8, vpp=2, dp=1, cp=1, recompute="full", recompute_layers=19,
                  schedule="zero-bubble-v", first_stage_layers=9, last_stage_layers=7)  # fmt: skip
    risky = entry(50.1, 88.9, 0.15, "tight", by=["megatron"], tp=2, ep=8, dp=32, etp=1, sharding="zero3", shard_gpus=8)
    fast = entry(48.6, 61.0, 0.95, "fits", by=["megatron"], tp=2, dp=32, sharding="zero3", sequence_parallel=True)
    return {
        "model": {"name": "made", "seq": 8192},
        "cluster": {"name": "superpod-h100", "gpu": "h100-sxm"},
        "capacity_bytes": 75.1 * GIB,
        "memory_margin_bytes": 4 * GIB,
        "gpus": 64,
        "global_batch": 512,
        "framework": "megatron",
        "fixed": {"tp": [2, 4, 8], "sequence_parallel": [True]},
        "space": 3_438_976,
        "evaluated": 67_037,
        "bounded": 3_371_939,
        "feasible": 13_740,
        "feasible_is_exact": False,
        "seconds": 0.613,
        "interrupted": False,
        "frameworks": ["megatron"],
        "releases": {"megatron": "Megatron-LM (Megatron Core 0.20)"},
        "choices": [
            choice(sure, "take", "conventional", runs=20,
                   variants={"count": 3, "values": {"cp": [1, 2, 4], "micro_batch": [1, 2]}}),
            choice(other, "roomiest", slower_by=0.05, runs=1),
            choice(fast, "fastest", slower_by=-0.12,
                   features=[{"framework": "megatron", "name": "tp beside FSDP", "since": "Core 0.12",
                              "standing": "slow", "why": "a reason", "source": "arguments.py"}]),
        ],
        "best": [risky, sure, other],
        "best_fitting": [sure, other],
        "refused": [
            {
                "plan": plan(tp=2, dp=32, micro_batch=4),
                "step_s": 49.5,
                "why": "needs 107.4 GiB, 28.3 GiB more than there is (activations 78.8 GiB, optimizer 12.3 GiB)",
            }
        ],
        "by_gpus": [
            {"gpus": 8, "best": None},
            {"gpus": 64, "best": chosen(55.2, 61.9, 4.4e6, 0.96, tp=4, pp=2)},
        ],
        "pareto": [
            chosen(50.1, 88.9, 4.1e6, 0.15, tp=2, dp=32),
            chosen(55.2, 61.9, 4.4e6, 0.96, tp=4, pp=2),
            chosen(99.9, 22.2, 880e3, 0.9999, tp=8, recompute="full"),
        ],
        "what_if": [
            {"what": "micro_batch", "value": "2", "step_s": None, "relative": None, "fits": False,
             "fit_probability": None, "plan": None},
            {"what": "tp", "value": "4", "step_s": 55.2, "relative": 1.0, "fits": True, "fit_probability": 0.96,
             "plan": plan(tp=4, pp=2)},
            {"what": "nics", "value": "4 a node", "step_s": 57.0, "relative": 57 / 55.2, "fits": False,
             "fit_probability": 0.5, "plan": plan(tp=4, pp=2)},
            {"what": "memory_margin", "value": "5%", "step_s": 54.1, "relative": 54.1 / 55.2, "fits": True,
             "fit_probability": 0.97, "plan": plan(tp=8, pp=2, dp=4)},
        ],
        "settings": {
            "framework": "megatron",
            "release": "Megatron Core 0.20",
            "refused": [],
            "pasted": "    --tensor-model-parallel-size 4 \\\n    --long " + "x" * 120,
            "notes": ["a note"],
            "missing": ["a thing"],
        },
        "script": {"file": "run.sbatch", "framework": "megatron", "why": None},
        "assumed": [
            {"field": "plan.states", "value": "mixed", "why": "Megatron keeps gradients and master weights in fp32"},
            {"field": "plan.precision", "value": "bf16", "why": "\x1b[31mhostile\nwhy [red]x[/red]"},
        ],
    }  # fmt: skip


def nothing_fits() -> dict[str, Any]:
    """The answer where no plan can run."""
    shown = document()
    for name in ("by_gpus", "pareto", "what_if", "settings"):
        del shown[name]
    shown |= {"best": [], "best_fitting": [], "choices": [], "feasible": 0, "interrupted": False}
    shown["nearest"] = {"gpus": 128, "step_s": 30.2, "plan": plan(tp=4, dp=32)}
    shown["fits_with"] = [
        {"constraint": "tp", "asked": "2", "nearest": ["4", "8"]},
        {"constraint": "framework", "asked": "fsdp", "nearest": []},
        {"constraint": "memory_margin", "asked": "50%", "nearest": ["31%"]},
    ]
    shown["script"] = {"file": None, "framework": None, "why": "no plan can run"}
    return shown


def drawn(width: int, shown: dict[str, Any]) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    print_answer(shown, console)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 120])
def test_the_picture_is_as_it_was_accepted(width: int):
    assert_as_golden(f"plan/picture-{width}.txt", drawn(width, document()))


def test_the_picture_of_nothing_that_fits_is_as_it_was_accepted():
    assert_as_golden("plan/nothing-fits-80.txt", drawn(80, nothing_fits()))


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ({"count": 1, "values": {}}, "a variant within 1% with other end stages"),
        ({"count": 3, "values": {"cp": [1, 4]}}, "3 variants within 1%: CP 1 to 4"),
        ({"count": 0, "values": {}}, "no such run was measured"),
    ],
)
def test_what_differs_between_variants_is_named(variants: dict[str, Any], expected: str):
    made = choice(entry(1.0, 60.0, 0.99, "fits", by=["megatron"]), variants=variants)
    assert format_remarks(made).endswith(expected)


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_but_what_is_pasted_is_wider_than_the_terminal(width: int):
    lines = drawn(width, document()).splitlines()
    assert max(cell_len(line) for line in lines if "--long" not in line) <= width
    # what is to be pasted is whole
    assert any(line.endswith("--long " + "x" * 120) for line in lines)


def test_neither_control_signs_nor_markup_of_others_are_obeyed():
    shown = document()
    hostile = "\x1b]0;owned\x07[red]r[/red][/]:warning:"
    shown["model"]["name"] = hostile
    shown["refused"][0]["why"] = hostile
    shown["settings"]["pasted"] = shown["settings"]["release"] = hostile
    shown["settings"]["notes"] = shown["settings"]["missing"] = [hostile]
    shown["what_if"][0]["value"] = hostile
    shown["script"]["file"] = hostile
    shown["choices"][0]["frameworks"] = [hostile]
    shown["choices"][0]["plan"] = shown["choices"][0]["plan"] | {"sharding": hostile}
    shown["choices"][2]["features"][0]["name"] = hostile
    text = drawn(2000, shown)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert text.count("[red]r[/red][/]:warning:") >= 9


@pytest.mark.parametrize("name", ["settings", "script", "pareto", "what_if", "by_gpus", "assumed", "refused"])
def test_what_was_not_asked_for_is_not_shown(name: str):
    shown = document()
    shown[name] = None if name in ("settings", "script") else []
    assert len(drawn(100, shown)) < len(drawn(100, document()))


def test_a_gain_that_nobody_would_notice_is_no_reason_for_a_risk():
    shown = document()
    assert "fits with a chance of 15%" in drawn(120, shown)
    shown["best"][0]["time"]["step_s"]["expected"] = 55.1
    assert "fits with a chance of" not in drawn(120, shown)


def test_steps_of_other_batches_are_compared_by_the_sequence():
    """50.1 s for 450 sequences is 111 ms each, 55.2 s for 512 is 108 ms: it is slower, and no reason for a risk."""
    shown = deepcopy(document())
    shown["best"][0]["plan"]["global_batch"] = 450
    assert "fits with a chance of" not in drawn(120, shown)
    shown["choices"][1]["plan"]["global_batch"] = 480
    header = next(line for line in drawn(120, shown).splitlines() if "MFU" in line)
    assert header.split()[0] == "batch"


def test_a_plan_that_is_as_fast_as_far_as_can_be_known_is_marked():
    assert "2 the most memory left; 5.0% slower ≈" in drawn(120, document())


def test_a_great_gain_without_any_measured_run_is_called_a_claim():
    line = "3 the fastest; 12.0% faster as predicted, a claim to be tried and not a fact; no such run was measured"
    assert line in drawn(200, document())


def test_a_feature_that_is_slow_in_the_framework_is_named():
    assert "slow there: tp beside FSDP" in drawn(200, document())


def test_variants_are_one_row_with_their_count():
    assert "3 variants within 1%: CP 1 to 4, mbs 1 to 2" in drawn(200, document())


def test_an_interrupted_search_says_what_was_not_looked_at():
    shown = document() | {"interrupted": True, "bounded": 3_000_000}
    assert "371,939 not looked at (interrupted: the best so far)" in drawn(120, shown)


def test_no_framework_that_can_is_told_with_reasons():
    shown = document()
    shown["settings"] = {"framework": None, "refused": ["megatron: has no etp", "fsdp: has no pp"]}
    text = drawn(120, shown)
    assert "No framework can run the first as it is: megatron: has no etp; fsdp: has no pp" in text


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"dp": 1}, "mbs 1 zero1"),
        ({"tp": 8, "pp": 16, "vpp": 2, "dp": 32, "sequence_parallel": True}, "TP8 PP16×2 DP32 mbs 1 zero1 SP"),
        ({"sharding": "none", "micro_batch": 4}, "DP8 mbs 4"),
        ({"recompute": "full", "recompute_layers": 3}, "DP8 mbs 1 zero1 recompute full 3 a stage"),
        ({"pp": 2, "first_stage_layers": 7, "last_stage_layers": 6}, "PP2 DP8 mbs 1 zero1 ends 7+6 layers"),
        ({"shard_gpus": 8, "sharding": "zero3"}, "DP8 mbs 1 zero3/8"),
        ({"ep": 8, "etp": 1}, "EP8 DP8 ETP1 mbs 1 zero1"),
    ],
)
def test_a_plan_is_a_few_words(axes: dict[str, Any], words: str):
    assert format_plan(plan(**axes)) == words
