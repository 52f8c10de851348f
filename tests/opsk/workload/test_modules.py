from __future__ import annotations

import pytest

from opsk.errors import PlanInfeasibleError
from opsk.workload.plan import OffloadModule, Plan, RecomputeModule, sorted_words


@pytest.mark.parametrize("text", ["moe_act mlp", "mlp,moe_act", "[moe_act, 'mlp']", "  moe_act;mlp mlp "])
def test_words_are_read_as_command_lines_yaml_and_tables_write_them(text: str):
    assert sorted_words(RecomputeModule, text) == ("mlp moe_act", ())


def test_unknown_words_are_told_apart():
    assert sorted_words(OffloadModule, "core_attn gdp_qkv") == ("core_attn", ("gdp_qkv",))


def test_plans_that_name_the_same_modules_are_equal():
    one = Plan(global_batch=8, recompute_modules="moe_act core_attn", offload_modules="attn_proj,core_attn")
    assert one == Plan(global_batch=8, recompute_modules="core_attn moe_act", offload_modules="core_attn attn_proj")


def test_a_plan_with_a_module_that_does_not_exist_is_refused():
    with pytest.raises(PlanInfeasibleError, match="no module attention; there are core_attn, mlp"):
        Plan(global_batch=8, recompute_modules="attention")


@pytest.mark.parametrize("fraction", [-0.1, 1.5, float("nan")])
def test_a_share_of_the_optimizer_is_between_0_and_1(fraction: float):
    with pytest.raises(PlanInfeasibleError, match="offload_fraction"):
        Plan(global_batch=8, offload_fraction=fraction)
