"""Formats plan changes as torchtitan settings: the differences between the configurations of the two plans.

A number that the TOML states is changed there, under the job's own name for it: sections and names moved from release
to release (``[training]`` to ``[parallelism]``, ``batch_size`` to ``local_batch_size``), and torchtitan refuses a flag
of another release.
"""

from __future__ import annotations

import re

from opsk.frameworks.torchtitan import build_config
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.workload import Evidence, Workload
from opsk_jobcheck.advice.option_syntax.named import join_by_file, settings_file

SECTIONS = ("parallelism", "training", "activation_checkpoint")
_OLD_NAMES = {
    "training.local_batch_size": ("training.batch_size",),
    "parallelism.pipeline_parallel_degree": ("experimental.pipeline_parallel_degree",),
    "parallelism.context_parallel_degree": ("experimental.context_parallel_degree",),
    "parallelism.tensor_parallel_degree": ("training.tensor_parallel_degree",),
    "parallelism.data_parallel_shard_degree": (
        *("training.data_parallel_shard_degree", "training.data_parallel_degree"),
    ),
}
"""Names of releases before 0.2, which a job may use."""
_IN_TOML = re.compile(r"""(?P<name>\w+)(?P<between>\s*=\s*)(?P<quote>["']?)(?P<value>[-\w]+)(?P=quote)\s*(#.*)?""")
_SHARDS = "parallelism.data_parallel_shard_degree"
_WHOLE_BATCH = "training.global_batch_size"


def build_torchtitan_flags(workload: Workload, model: ModelShape, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the settings: in the TOML where it states them, else flags of ``torchtitan.train``, which override it."""
    before, after = build_config(model, requested), build_config(model, target)
    changes = []
    for section in SECTIONS:
        for name, value in after[section].items():
            key = f"{section}.{name}"
            is_changed = before[section].get(name) != value or (
                key == _WHOLE_BATCH and _is_batch_left_open(workload, requested, target)
            )
            # Boolean flags take a value in some releases and none in others.
            if (
                is_changed
                and not isinstance(value, bool | list)
                and not (key == _SHARDS and _are_shards_implied(workload))
            ):
                changes.append(_format_setting(workload, key, value))
    return join_by_file(changes)


def _format_setting(workload: Workload, key: str, value: object) -> tuple[str, str]:
    """Return a setting, and its file where the job has it in one."""
    names = (key, *_OLD_NAMES.get(key, ()))
    last = {name.rpartition(".")[2] for name in names}
    for entry in workload.evidence:
        match = _IN_TOML.fullmatch(entry.text.strip())
        if match and match["name"] in last and settings_file(entry):
            return f"{match['name']}{match['between']}{match['quote']}{value}{match['quote']}", settings_file(entry)
    stated = " ".join(entry.text for entry in workload.evidence)
    return f"--{next((name for name in names if name in stated), key)} {value}", ""


def _are_shards_implied(workload: Workload) -> bool:
    """Return whether torchtitan itself uses all remaining GPUs as shards: -1, which is also its default."""
    return all(_shard_count(entry) in (None, "-1") for entry in workload.evidence)


def _shard_count(entry: Evidence) -> str | None:
    """Return the degree of sharding that a value states."""
    match = re.search(r"\bdata_parallel(?:_shard)?_degree['\"]?[\s=]+(-?\d+)", entry.text)
    return match[1] if match else None


def _is_batch_left_open(workload: Workload, requested: Plan, target: Plan) -> bool:
    """Return whether the release would use another global batch for the new plan: one local batch per replica."""
    if any(entry.field == "plan.global_batch" for entry in workload.evidence):
        return False
    return target.pp == 1 and target.micro_batches > 1 and target.micro_batch * target.dp != requested.global_batch
