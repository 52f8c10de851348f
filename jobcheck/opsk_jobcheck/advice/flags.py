"""Formats the settings that change one plan into another, in the syntax of the script or of the files that it names.

A number that a file states is changed there, under the job's own name for it. Sections and names of torchtitan moved
from release to release (``[training]`` to ``[parallelism]``, ``batch_size`` to ``local_batch_size``), and torchtitan
refuses a flag of another release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from opsk.frameworks.torchtitan import build_config
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.workload import Evidence, Workload
from opsk_jobcheck.advice.abilities import family_of, is_deepspeed
from opsk_jobcheck.advice.option_names import (
    HF,
    HF_DEEPSPEED,
    NAMES,
    NEMO_1,
    NEMO_2,
    NO_NAMES,
    STAGES,
    Names,
    Style,
)

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
MEGATRON_NAMES: Mapping[str, str] = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "micro_batch": "--micro-batch-size",
}
BRIDGE_NAMES: Mapping[str, str] = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "micro_batch": "train.micro_batch_size",
}
_PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"
AXES = ("tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "micro_batches")
_FOLLOWS = ("dp", "micro_batches")
"""Fields that follow from the others where the framework has no setting for them."""
_STATED = re.compile(r"""(?P<key>["']?[-\w.+]+["']?)(?P<between>\s*[:=]\s*|\s+)(?P<value>\d+),?(\s*#.*)?""")
_FILES = (".yaml", ".yml", ".json", ".toml", ".py")
MAX_FILE_CHARS = 80


def build_flags(
    workload: Workload, requested: Plan, target: Plan, *, model: ModelShape | None = None
) -> tuple[str, ...]:
    """Return the settings of a plan change in the framework's own syntax; empty when opsk cannot express all of it.

    Flags and overrides are for the command line; a setting in a file names the file: ``micro_batch_size: 1 in a.yaml``.

    Parameters
    ----------
    model
        The model, for frameworks whose settings depend on it.
    """
    framework = workload.framework
    if framework == "megatron-bridge":
        return build_bridge_overrides(workload, requested, target)
    if framework in ("megatron-lm", "megatron-deepspeed"):
        return build_megatron_flags(workload, requested, target, deepspeed=framework == "megatron-deepspeed")
    if framework == "torchtitan" and model is not None:
        return build_torchtitan_flags(workload, model, requested, target)
    return build_named_settings(workload, requested, target)


def build_megatron_flags(workload: Workload, requested: Plan, target: Plan, *, deepspeed: bool) -> tuple[str, ...]:
    """Return the difference as Megatron-LM flags."""
    flags = [
        f"{flag} {getattr(target, field)}" for field, flag in MEGATRON_NAMES.items() if differ(requested, target, field)
    ]
    flags += _build_chunk_flags(workload, requested, target)
    if is_batch_left_open(workload, requested, target):
        flags.append(f"--global-batch-size {target.global_batch}")
    if target.sequence_parallel and not requested.sequence_parallel:
        flags.append("--sequence-parallel")
    if requested.sharding != target.sharding and target.sharding is Sharding.ZERO1:
        flags.append("--zero-stage 1" if deepspeed else "--use-distributed-optimizer")
    if requested.recompute != target.recompute:
        flags += _build_recompute_flags(workload, target.recompute, deepspeed=deepspeed)
    return tuple(flags)


def _build_chunk_flags(workload: Workload, requested: Plan, target: Plan) -> list[str]:
    """Return the flag for the number of model chunks per stage, in the unit that the script uses."""
    per_chunk = dict(workload.options).get("pipeline.layers_per_chunk")
    layers = workload.model.layers
    if per_chunk is None or not layers:
        if requested.vpp == target.vpp:
            return []
        name = "--num-virtual-stages-per-pipeline-rank"
        return [f"{name} {target.vpp}" if target.vpp > 1 else f"(without {name})"]
    target_chunk = str(layers // (target.pp * target.vpp))
    if target.vpp == 1:
        return [f"(without {_PER_CHUNK})"] if requested.vpp > 1 else []
    return [f"{_PER_CHUNK} {target_chunk}"] if target_chunk != per_chunk else []


def _build_recompute_flags(workload: Workload, mode: Recompute, *, deepspeed: bool) -> list[str]:
    """Return the flags of a recompute mode, and the removal of flags that contradict it."""
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.recompute"), "")
    short = stated.split(" ")[0]
    is_simple = short in ("--recompute-activations", "--checkpoint-activations")
    options = dict(workload.options)
    if mode is Recompute.NONE:
        return [f"(without {short or 'recompute flags'})"]
    flags = [f"(without {short})"] if is_simple else []
    if mode is Recompute.FULL:
        full = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        return [*flags, "--checkpoint-activations" if deepspeed else full]
    if "recompute.method" in options:
        flags.append("(without --recompute-method)")
    return [*flags, "--recompute-activations" if deepspeed else "--recompute-granularity selective"]


def build_bridge_overrides(workload: Workload, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the difference as Megatron-Bridge overrides."""
    overrides = [
        f"{name}={getattr(target, field)}" for field, name in BRIDGE_NAMES.items() if differ(requested, target, field)
    ]
    if requested.vpp != target.vpp:
        value = target.vpp if target.vpp > 1 else "null"
        overrides.append(f"model.virtual_pipeline_model_parallel_size={value}")
    if is_batch_left_open(workload, requested, target):
        overrides.append(f"train.global_batch_size={target.global_batch}")
    if target.sequence_parallel and not requested.sequence_parallel:
        overrides.append("model.sequence_parallel=true")
    if requested.sharding != target.sharding and target.sharding is Sharding.ZERO1:
        overrides.append("ddp.use_distributed_optimizer=true")
    if requested.recompute != target.recompute:
        mode = "null" if target.recompute is Recompute.NONE else target.recompute.value
        overrides.append(f"model.recompute_granularity={mode}")
        if target.recompute is Recompute.FULL:
            overrides += ["model.recompute_method=uniform", "model.recompute_num_layers=1"]
    return tuple(overrides)


def is_batch_left_open(workload: Workload, requested: Plan, target: Plan) -> bool:
    """Return whether the framework would compute another global batch for the new plan than for the requested one."""
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.global_batch"), "")
    is_computed = workload.plan.global_batch is None or " × dp " in stated
    return is_computed and (differ(requested, target, "dp") or differ(requested, target, "micro_batch"))


def differ(requested: Plan, target: Plan, field: str) -> bool:
    """Return whether two plans differ in a field."""
    return bool(getattr(requested, field) != getattr(target, field))


def build_torchtitan_flags(workload: Workload, model: ModelShape, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the settings: in the TOML where it states them, else flags of ``torchtitan.train``, which override it."""
    before, after = build_config(model, requested), build_config(model, target)
    changes = []
    for section in SECTIONS:
        for name, value in after[section].items():
            key = f"{section}.{name}"
            is_changed = before[section].get(name) != value or (
                key == _WHOLE_BATCH and _is_torchtitan_batch_left_open(workload, requested, target)
            )
            # Boolean flags take a value in some releases and none in others.
            if (
                is_changed
                and not isinstance(value, bool | list)
                and not (key == _SHARDS and _are_shards_implied(workload))
            ):
                changes.append(_format_torchtitan_setting(workload, key, value))
    return join_by_file(changes)


def _format_torchtitan_setting(workload: Workload, key: str, value: object) -> tuple[str, str]:
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


def _is_torchtitan_batch_left_open(workload: Workload, requested: Plan, target: Plan) -> bool:
    """Return whether the release would use another global batch for the new plan: one local batch per replica."""
    if any(entry.field == "plan.global_batch" for entry in workload.evidence):
        return False
    return target.pp == 1 and target.micro_batches > 1 and target.micro_batch * target.dp != requested.global_batch


def build_named_settings(workload: Workload, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the settings that differ; empty when one of them cannot be expressed for the framework."""
    names = _select_table(workload)
    changes: list[tuple[str, str]] = []
    for field in AXES:
        value = getattr(target, field)
        if getattr(requested, field) == value:
            continue
        change = _format_number(workload, names, field, getattr(requested, field), value)
        if change:
            changes.append(change)
        elif field not in _FOLLOWS or (field == "micro_batches" and names.computes_batch):
            return ()
    if requested.sharding != target.sharding:
        shards = _sharding(workload, names, requested.sharding, target.sharding)
        if not shards:
            return ()
        changes += shards
    if requested.recompute != target.recompute:
        settings = names.recompute.get(target.recompute)
        if not settings:
            return ()
        changes += [_format_setting(workload, names, name, value) for name, value in settings]
    if requested.sequence_parallel != target.sequence_parallel and target.tp > 1:
        if not names.sequence_parallel or not target.sequence_parallel:
            return ()
        changes.append(_format_setting(workload, names, *names.sequence_parallel))
    return join_by_file(changes)


def _select_table(workload: Workload) -> Names:
    """Return the settings table of a workload's framework; some frameworks have several."""
    names = NAMES.get(family_of(workload), NO_NAMES)
    if names is HF and is_deepspeed(workload):
        return HF_DEEPSPEED
    is_second = names is NEMO_1 and any("strategy." in entry.text for entry in workload.evidence)
    return NEMO_2 if is_second else names


def _format_number(workload: Workload, names: Names, field: str, requested: int, target: int) -> tuple[str, str] | None:
    """Return the setting of a number and its file: as the job states it, else by the framework's name."""
    stated = next((entry for entry in workload.evidence if entry.field == f"plan.{field}"), None)
    match = _STATED.fullmatch(stated.text.strip()) if stated else None
    if stated and match and not match["key"].startswith("#") and int(match["value"]) == requested:
        return f"{match['key']}{match['between']}{target}", settings_file(stated)
    if field not in names.numbers:
        return None
    return _format_setting(workload, names, names.numbers[field], str(target))


def _sharding(workload: Workload, names: Names, requested: Sharding, target: Sharding) -> list[tuple[str, str]]:
    """Return the settings of a sharding: another stage where the job states one, else by the framework's names."""
    stated = next((entry for entry in workload.evidence if entry.field == "plan.sharding"), None)
    match = _STATED.fullmatch(stated.text.strip()) if stated else None
    if stated and match and not match["key"].startswith("#") and match["value"] == STAGES[requested]:
        return [(f"{match['key']}{match['between']}{STAGES[target]}", settings_file(stated))]
    file = (settings_file(stated) if stated else "") or names.sharding_file
    settings = names.sharding.get(target, ())
    return [
        _format_setting(workload, names, name, value, file=file if names.sharding_file else "")
        for name, value in settings
    ]


def _format_setting(workload: Workload, names: Names, name: str, value: str, *, file: str = "") -> tuple[str, str]:
    """Return a setting in the framework's syntax, and its file."""
    if names.style is Style.FILE or file:
        return f"{name}: {value}", file or _config_file(workload)
    return (f"--{name} {value}" if names.style is Style.FLAG else f"{name}={value}"), ""


def _config_file(workload: Workload) -> str:
    """Return the file that holds the job's settings."""
    files = [file for entry in workload.evidence if (file := settings_file(entry)) and entry.field.startswith("plan.")]
    return files[0] if files else "its configuration"


def settings_file(entry: Evidence) -> str:
    """Return the configuration file that a value was read in; empty for the script itself."""
    return entry.file[-MAX_FILE_CHARS:] if entry.file.lower().endswith(_FILES) else ""


def join_by_file(changes: list[tuple[str, str]]) -> tuple[str, ...]:
    """Return the settings of the command line one by one, those of a file joined with its name."""
    inline = [text for text, file in changes if not file]
    files = dict.fromkeys(file for _, file in changes if file)
    together = [", ".join(text for text, name in changes if name == file) + f" in {file}" for file in files]
    return (*inline, *together)
