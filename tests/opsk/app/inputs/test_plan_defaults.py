"""What is filled in where nobody says, that it is told, and what widens the ranges."""

from __future__ import annotations

from typing import Any

import pytest

from opsk.app.inputs.plan_validation import examine_plan
from opsk.costmodel.efficiency.efficiency import Spread
from opsk.costmodel.uncertainty.case_spread import assumed_inputs, widen_spread
from opsk.costmodel.uncertainty.chance import USUAL_ASSUMED
from opsk.workload.plan import Precision, Sharding, Software, States

STATED: dict[str, Any] = {
    "model": {
        **{"layers": 8, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": 32000, "seq": 2048},
        **{"gated_mlp": False, "tied_embeddings": True, "flash_attention": True},
    },
    "plan": {
        **{"software": "pytorch", "states": "autocast", "precision": "bf16", "recompute": "none"},
        **{"micro_batch": 1, "global_batch": 8},
    },
}


def assumed(**less: set[str]) -> dict[str, Any]:
    tables = {
        table: {key: value for key, value in content.items() if key not in less.get(table, set())}
        for table, content in STATED.items()
    }
    found = examine_plan(tables)
    assert found.wrong == ()
    return {entry.field: entry.value for entry in found.assumed}


def test_nothing_is_assumed_where_all_that_matters_is_stated():
    assert assumed() == {}


def test_what_is_left_out_is_filled_in_and_told():
    everything = {"model": set(STATED["model"]) - {"layers", "hidden", "heads"}, "plan": set(STATED["plan"])}
    found = assumed(**everything)
    # gated: 8/3 x 512 = 1365.3, up to a multiple of 256: 1536
    assert found == {
        "model.gated_mlp": True,
        "model.ffn": 1536,
        "model.vocab": 128256,
        "model.tied_embeddings": False,
        "model.seq": 4096,
        "model.flash_attention": True,
        "plan.software": Software.MEGATRON_CORE,
        "plan.precision": Precision.BF16,
        "plan.micro_batch": 1,
        "plan.global_batch": 1,
        "plan.recompute": "none",
        "plan.states": States.MIXED,
    }


@pytest.mark.parametrize(
    ("software", "states", "sharding"),
    [
        ("megatron-core", States.MIXED, Sharding.NONE),
        ("deepspeed", States.MIXED_16BIT_GRADIENTS, Sharding.NONE),
        ("pytorch", States.AUTOCAST, Sharding.ZERO3),
    ],
)
def test_states_and_sharding_follow_the_software(software: str, states: States, sharding: Sharding):
    plan = {"software": software, "precision": "bf16", "dp": 8}
    found = {entry.field: entry.value for entry in examine_plan({**STATED, "plan": plan}).assumed}
    assert (found["plan.states"], found["plan.sharding"]) == (states, sharding)


def test_a_public_model_states_all_but_the_length_of_its_sequences():
    found = examine_plan({"model": {"like": "llama-3-8b"}, "plan": STATED["plan"]})
    assert found.wrong == ()
    assert found.model is not None
    assert (found.model.hidden, found.model.vocab) == (4096, 128256)
    assert [entry.field for entry in found.assumed] == ["model.seq"]
    stated = examine_plan({"model": {"like": "Meta-Llama-3-8B", "seq": 1024}, "plan": STATED["plan"]})
    assert stated.assumed == ()
    assert stated.model is not None
    assert stated.model.seq == 1024


def test_every_assumed_input_widens_the_range_of_what_depends_on_it():
    fields = examine_plan({**STATED, "plan": {"software": "pytorch"}}).assumed
    assert {entry.field for entry in fields} == {
        f"plan.{key}" for key in ("precision", "micro_batch", "global_batch", "recompute", "states")
    }
    names = [entry.field for entry in fields]
    # formats of states follow from the software
    assert assumed_inputs(names) == (4, 4)


def test_the_spread_grows_from_that_of_stated_inputs_to_that_of_assumed_ones():
    spread = Spread(time_log_sigma=0.1, time_assumed_log_sigma=0.2, memory_log_sigma=0.05, memory_assumed_log_sigma=0.1)
    none = widen_spread(spread, time_inputs=0, memory_inputs=0)
    usual = widen_spread(spread, time_inputs=USUAL_ASSUMED, memory_inputs=USUAL_ASSUMED)
    more = widen_spread(spread, time_inputs=USUAL_ASSUMED + 1, memory_inputs=0)
    assert (none.time_log_sigma, none.memory_log_sigma) == pytest.approx((0.1, 0.05))
    assert (usual.time_log_sigma, usual.memory_log_sigma) == pytest.approx((0.2, 0.1))
    assert more.time_log_sigma > 0.2
    assert more.memory_log_sigma == pytest.approx(0.05)
