"""Lists the inputs that decide a prediction: assuming one of them widens its range."""

from __future__ import annotations

TIME_INPUTS = frozenset(
    {
        *("model.layers", "model.hidden", "model.heads", "model.ffn", "model.seq", "model.experts", "model.top_k"),
        *("model.mixer_layers", "model.expert_imbalance"),
        *("cluster.gpu", "cluster.nic_gbps"),
        *("plan.gpus", "plan.tp", "plan.pp", "plan.cp", "plan.dp", "plan.ep", "plan.micro_batch"),
        *("plan.global_batch", "plan.recompute", "plan.sharding", "plan.precision"),
    }
)
"""Inputs that decide the time of a step; a row with none of them assumed has every time input stated.

Interleaving, sequence parallelism, formats of states and the family of software follow from the framework and are not
counted, nor is the fabric of a run inside one NVLink domain, which does not use it.
"""
MEMORY_INPUTS = (TIME_INPUTS | {"model.vocab"}) - {"cluster.nic_gbps"}
"""Inputs that decide the memory of a GPU."""
