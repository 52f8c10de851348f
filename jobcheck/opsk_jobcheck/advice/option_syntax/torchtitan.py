"""How does torchtitan spell a change of plan? What differs between the configurations of the two.

A number that the TOML states is changed there, in the job's own words: sections and names moved from release to release
(``[training]`` to ``[parallelism]``, ``batch_size`` to ``local_batch_size``), and a flag of another one is refused.
"""

from __future__ import annotations

import re

from opsk.frameworks.torchtitan import config_of
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan
from opsk.workload.workload import Evidence, Workload
from opsk_jobcheck.advice.option_syntax.named import by_place, settings_file

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
"""Names of releases before 0.2, which a job may have in its own words."""
_IN_TOML = re.compile(r"""(?P<name>\w+)(?P<between>\s*=\s*)(?P<quote>["']?)(?P<value>[-\w]+)(?P=quote)\s*(#.*)?""")
_SHARDS = "parallelism.data_parallel_shard_degree"
_WHOLE_BATCH = "training.global_batch_size"


def torchtitan_flags(workload: Workload, model: ModelShape, asked: Plan, wanted: Plan) -> tuple[str, ...]:
    """Return the settings: of the TOML where that states them, else flags of ``torchtitan.train``, which beat it."""
    before, after = config_of(model, asked), config_of(model, wanted)
    found = []
    for section in SECTIONS:
        for name, value in after[section].items():
            key = f"{section}.{name}"
            is_changed = before[section].get(name) != value or (
                key == _WHOLE_BATCH and _is_batch_left_open(workload, asked, wanted)
            )
            # on and off are flags without a value in some releases and with one in others
            if (
                is_changed
                and not isinstance(value, bool | list)
                and not (key == _SHARDS and _is_what_is_left(workload))
            ):
                found.append(_spelled(workload, key, value))
    return by_place(found)


def _spelled(workload: Workload, key: str, value: object) -> tuple[str, str]:
    """Return a setting, and the file that it stands in where the job has it in one."""
    names = (key, *_OLD_NAMES.get(key, ()))
    last = {name.rpartition(".")[2] for name in names}
    for entry in workload.evidence:
        match = _IN_TOML.fullmatch(entry.text.strip())
        if match and match["name"] in last and settings_file(entry):
            return f"{match['name']}{match['between']}{match['quote']}{value}{match['quote']}", settings_file(entry)
    stated = " ".join(entry.text for entry in workload.evidence)
    return f"--{next((name for name in names if name in stated), key)} {value}", ""


def _is_what_is_left(workload: Workload) -> bool:
    """Tell whether torchtitan itself takes as many shards as GPUs are left: -1, which is also its default."""
    return all(_shard_count(entry) in (None, "-1") for entry in workload.evidence)


def _shard_count(entry: Evidence) -> str | None:
    """Return what a value read says of the degree of sharding."""
    match = re.search(r"\bdata_parallel(?:_shard)?_degree['\"]?[\s=]+(-?\d+)", entry.text)
    return match[1] if match else None


def _is_batch_left_open(workload: Workload, asked: Plan, wanted: Plan) -> bool:
    """Tell whether the release would take another global batch for the new plan: one local batch of each replica."""
    if any(entry.field == "plan.global_batch" for entry in workload.evidence):
        return False
    return wanted.pp == 1 and wanted.micro_batches > 1 and wanted.micro_batch * wanted.dp != asked.global_batch
