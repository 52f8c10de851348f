"""How many layers does the first and the last pipeline stage hold, where a framework balances stages by itself?"""

from __future__ import annotations

from opsk.workload.model import ModelShape


def balanced_ends(model: ModelShape, stages: int) -> tuple[int, int]:
    """Return the layers of the first and the last stage of nanotron's split by parameters in products.

    Blocks go to a stage until it passes its share, and the head counts as one (nanotron/models/base.py,
    ``build_model``; models/llama.py, ``get_block_compute_costs``): 24 layers of 42 M and a head of 103 M on four
    stages are 7, 7, 6, 4. A last stage that holds the head alone is given a layer, as a plan has one on each.
    """
    layer = 4 * model.heads * model.head_dim * model.hidden + 3 * model.ffn * model.hidden
    costs = [layer] * model.layers + [model.vocab * model.hidden]
    share, stage, passed = sum(costs) / stages, 0, 0
    held = [0] * stages
    for place, cost in enumerate(costs):
        held[stage] += place < model.layers
        passed += cost
        stage += passed > share * (stage + 1) and stage < stages - 1
    return held[0], max(held[-1], 1)
