"""How many layers does the first and the last pipeline stage hold, where a framework balances stages by itself?"""

from __future__ import annotations

from opsk.workload.model import ModelShape


def balanced_ends(model: ModelShape, stages: int) -> tuple[int, int]:
    """Return the layers of the first and the last stage of nanotron's split by parameters in products.

    Blocks go to a stage until it passes its share, and the head counts as one (nanotron/models/base.py,
    ``build_model``; models/llama.py, ``get_block_compute_costs``). The last is the nearest to it that leaves all stages
    between them as many. 24 layers of 42 M and a head of 103 M on four stages: 7, 7, 6, 4, taken as
    7, 7, 7, 3.
    """
    layer = 4 * model.heads * model.head_dim * model.hidden + 3 * model.ffn * model.hidden
    costs = [layer] * model.layers + [model.vocab * model.hidden]
    share, stage, passed = sum(costs) / stages, 0, 0
    held = [0] * stages
    for place, cost in enumerate(costs):
        held[stage] += place < model.layers
        passed += cost
        stage += passed > share * (stage + 1) and stage < stages - 1
    return held[0], _last(model.layers - held[0], stages - 2, held[-1])


def _last(left: int, between: int, wanted: int) -> int:
    """Return the layers of the last stage nearest to ``wanted`` that leave stages ``between`` an even share."""
    if between == 0:
        return left
    fitting = [last for last in range(1, left - between + 1) if (left - last) % between == 0]
    return min(fitting, key=lambda last: abs(last - wanted), default=0)
