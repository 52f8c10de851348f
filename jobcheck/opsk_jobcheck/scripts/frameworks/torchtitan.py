"""Reads the training settings from a launch script of torchtitan, and from its TOML file.

Source: ``torchtitan/config_manager.py``, ``config/job_config.py`` and ``train_configs`` (2024 to January 2026); from
February 2026 on (``--module``, ``--config``) the settings come from Python. Sections moved: degrees of parallelism
were in ``[training]`` and ``[experimental]`` before ``[parallelism]``, ``local_batch_size`` was ``batch_size``.
"""

from __future__ import annotations

import re
from types import MappingProxyType

from opsk.frameworks.settings.torchtitan_flags import COPIES, GLOBAL_BATCH, LOCAL_BATCH, NUMBERS, SCHEDULE, SHARDS
from opsk.frameworks.settings.usual_settings import PRECISION_WORDS
from opsk_jobcheck.scripts.bash.values import Invocation, Scalar
from opsk_jobcheck.scripts.launchers.programs import (
    SURE,
    collect_flags,
    find_command,
    find_first_entry,
    find_program,
    name_shape,
)
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    parse_boolean,
    parse_integer,
    state_derived,
    state_number,
    state_word,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.uncounted_settings import (
    UNCOUNTED_TORCHTITAN,
    is_on,
    report_uncounted,
    report_uncounted_settings,
)

TITAN = "torchtitan"
CONFIG_FLAG = "--job.config-file"
_MODULE = re.compile(r"torchtitan(\.\w+)*\.train")
_RUN = "run_train.sh"
_PER_STAGE = "parallelism.pipeline_parallel_layers_per_stage"
_RECOMPUTE = MappingProxyType({"none": "none", "selective": "selective", "full": "full"})
_BUDGET = "memory_budget"
_BUDGET_WHY = "counted is selective recomputation by operators; the compiler decides otherwise"
_SWITCHES = MappingProxyType(
    {"compile.enable": ("compiled", "true"), "activation_checkpoint.cpu_offload": ("activations.offload", "cpu")}
)
_CONVERTERS = (("mx", "mxfp8"), ("float8", "fp8"))
_MODELS = MappingProxyType(
    {
        **{f"llama2/{size}": f"llama-2-{size}" for size in ("7b", "13b", "70b")},
        **{f"llama3/{size}": f"llama-3-{size}" for size in ("8b", "70b", "405b")},
        "llama4/17bx16e": "llama-4-scout",
        "llama4/17bx128e": "llama-4-maverick",
        "deepseek_v3/671b": "deepseek-v3",
        **{f"gpt_oss/{size}": f"gpt-oss-{size}" for size in ("20b", "120b")},
        **{f"qwen3/{size}": f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b")},
        **{f"qwen3/{size}": f"qwen3-{size}" for size in ("30b-a3b", "235b-a22b")},
    }
)
"""Which of torchtitan's models and flavours is which public model; others are its own."""


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with torchtitan, or that starts its ``run_train.sh``."""
    arguments = get_arguments(invocation)
    program = find_program(invocation)
    is_program = program is not None and (
        bool(program.is_module and _MODULE.fullmatch(program.name))
        or (program.file == "train.py" and ("torchtitan" in program.name or CONFIG_FLAG in arguments.flags))
    )
    if is_program or (program is not None and CONFIG_FLAG in arguments.flags):
        return Match(framework=TITAN, weight=SURE + 1, invocation=invocation, arguments=arguments)
    starter = find_command(invocation, _RUN)
    if starter is not None and (CONFIG_FLAG in arguments.flags or "torchtitan" in starter.name):
        return Match(framework=TITAN, weight=SURE, invocation=invocation, arguments=arguments)
    return None


def read_torchtitan(match: Match, reading: Reading) -> None:
    """State the values of the file and of the flags that override it."""
    findings, config = reading.findings, _read_config(match, reading)
    for field, keys in NUMBERS.items():
        state_number(findings, field, find_first_entry(config, *keys))
    if (findings.get("plan.tp") or 1) > 1:
        state_derived(
            findings, "plan.sequence_parallel", True, "torchtitan splits sequences where it splits tensors", "plan.tp"
        )
    _state_replicas(config, findings)
    _state_batch(config, findings)
    _state_stages(config, findings)
    _state_memory(config, findings)
    _state_precision(config, findings)
    _state_model(match, config, reading)


TORCHTITAN = Reader(frameworks=(TITAN,), recognise=recognise, read=read_torchtitan)


def _read_config(match: Match, reading: Reading) -> ConfigFile:
    """Return the settings, flags on top."""
    flags = match.arguments.flags
    overrides = {name: entry for name, entry in collect_flags(match.arguments).items() if "." in name}
    named = flags[CONFIG_FLAG].value if CONFIG_FLAG in flags else None
    if named is None and find_command(match.invocation, _RUN):
        variable = reading.run.variables.get("CONFIG_FILE")
        named = variable.text if isinstance(variable, Scalar) else None
    if named is not None and named.parts:
        config = reading.config(named, match.invocation, form="toml")
    elif "--config" in flags:
        config = ConfigFile(path="", why=f"the settings come from Python: {flags['--config'].shown[:80]}")
    else:
        config = ConfigFile(path="", why="no configuration file is named on the command line")
    config.overrides = overrides
    return config


def _state_replicas(config: ConfigFile, findings: Findings) -> None:
    """State the data parallelism where it is a number (-1 is the remainder), and what is sharded over it."""
    shard, replicate = find_first_entry(config, *SHARDS), find_first_entry(config, *COPIES)
    copies = 1 if replicate is None else _parse_number(replicate)
    parts = None if shard is None else _parse_number(shard)
    if shard is not None and shard.why:
        findings.mark_unknown("plan.sharding", shard.why, shard.line, file=shard.file)
    elif parts is not None and shard is not None:
        sharding = "none" if parts == 1 else _find_sharding(config)
        findings.state("plan.sharding", sharding, shard.line, shard.text, file=shard.file)
    if shard is not None and copies and parts and parts > 0:
        findings.state("plan.dp", parts * copies, shard.line, shard.text, file=shard.file)
    if copies and copies > 1 and parts != 1:
        findings.options["optimizer.instances"] = str(copies)


def _find_sharding(config: ConfigFile) -> str:
    """Return the stage that sharded weights amount to: a pipeline keeps them whole between its micro-batches."""
    entry = config.entry("parallelism.fsdp_reshard_after_forward")
    word = str(entry.value) if entry is not None and not entry.why else "default"
    pipeline = find_first_entry(config, *NUMBERS["plan.pp"])
    is_piped = pipeline is not None and (_parse_number(pipeline) or 1) > 1
    return "zero2" if word == "never" or (word == "default" and is_piped) else "zero3"


def _state_batch(config: ConfigFile, findings: Findings) -> None:
    """State the micro-batch and the steps; a pipeline cuts the local batch into micro-batches of its own."""
    local, whole_batch = find_first_entry(config, *LOCAL_BATCH), config.entry(GLOBAL_BATCH)
    if whole_batch is not None and _parse_number(whole_batch) != -1:
        state_number(findings, "plan.global_batch", whole_batch)
    if local is None:
        return
    pp = findings.get("plan.pp") or (None if "plan.pp" in findings.unknown else 1)
    if local.why or pp == 1:
        micro = state_number(findings, "plan.micro_batch", local)
    elif pp is None:
        why = "whether a pipeline cuts the batch of a rank is not known"
        findings.mark_unknown("plan.micro_batch", why, local.line, file=local.file)
        return
    else:
        micro = _state_pipeline_micro_batch(config, local, findings)
    is_single_batch = whole_batch is None or _parse_number(whole_batch) == -1
    size = _parse_number(local)
    if micro and size and is_single_batch and size % micro == 0:
        findings.options[STEPS_OPTION] = str(size // micro)


def _state_pipeline_micro_batch(config: ConfigFile, local: Entry, findings: Findings) -> int | None:
    """State the micro-batch of a pipeline."""
    entry = config.entry("parallelism.pipeline_parallel_microbatch_size")
    if entry is None:
        why = "the pipeline cuts the batch of a rank by the release's default"
        findings.mark_unknown("plan.micro_batch", why, local.line, file=local.file)
        return None
    return state_number(findings, "plan.micro_batch", entry)


def _state_stages(config: ConfigFile, findings: Findings) -> None:
    """State how layers are placed on stages that have several chunks."""
    schedule, per_stage = find_first_entry(config, *SCHEDULE), config.entry(_PER_STAGE)
    if schedule is None or schedule.why or findings.get("plan.pp") in (None, 1):
        return
    word = str(schedule.value).lower()
    if "interleaved" not in word and "looped" not in word and "zbv" not in word and "dualpipe" not in word:
        findings.state("plan.vpp", 1, schedule.line, schedule.text, file=schedule.file)
    elif per_stage is not None and (layers := _parse_number(per_stage)):
        findings.options["pipeline.layers_per_chunk"] = str(layers)
    else:
        findings.mark_unknown(
            "plan.vpp", "the schedule decides how many chunks a stage has", schedule.line, file=schedule.file
        )


def _state_memory(config: ConfigFile, findings: Findings) -> None:
    """State recomputation and offloading to host memory."""
    report_uncounted_settings(config, UNCOUNTED_TORCHTITAN, findings)
    for key, (name, value) in _SWITCHES.items():
        if is_on(config.entry(key)):
            findings.options[name] = value
    states, step = config.entry("training.dtype"), config.entry("optimizer.implementation")
    if states is not None and states.value == "bfloat16":
        findings.options["weights.dtype"] = "bf16"
    if step is not None and step.value in ("foreach", "fused", "for-loop"):
        findings.options["optimizer.step"] = "foreach" if step.value == "foreach" else "fused"
    mode, option = config.entry("activation_checkpoint.mode"), config.entry("activation_checkpoint.selective_ac_option")
    if mode is not None and mode.value == _BUDGET:
        findings.state("plan.recompute", "selective", mode.line, mode.text, file=mode.file)
        report_uncounted(findings, "activation_checkpoint.mode", _BUDGET, _BUDGET_WHY)
    else:
        state_word(findings, "plan.recompute", mode, _RECOMPUTE)
    every = _parse_number(option) if option is not None else None
    if mode is not None and mode.value == "selective" and option is not None and every is not None:
        if every == 1:
            findings.state("plan.recompute", "full", option.line, option.text, file=option.file)
        else:
            why = f"{option.text[:60]}: one layer of {every} is recomputed"
            findings.mark_unknown("plan.recompute", why, option.line, file=option.file)
    offload = config.entry("training.enable_cpu_offload")
    if offload is not None and not offload.why and parse_boolean(offload.value):
        findings.options["optimizer.offload"] = "cpu"
    etp = config.entry("parallelism.expert_tensor_parallel_degree")
    if etp is not None and (degree := _parse_number(etp)):
        findings.options["expert.tensor"] = str(degree)


def _state_precision(config: ConfigFile, findings: Findings) -> None:
    """State the number format: the parameters' format of mixed precision, or that of converters."""
    states = config.entry("training.dtype")
    if states is not None and states.value == "bfloat16":
        findings.state("plan.precision", "bf16", states.line, states.text, file=states.file)
    else:
        state_word(findings, "plan.precision", config.entry("training.mixed_precision_param"), PRECISION_WORDS)
    converters = config.entry("model.converters")
    if converters is not None and not converters.why:
        listed = converters.value if isinstance(converters.value, tuple) else str(converters.value or "").split(",")
        for word in listed:
            kinds = str(word).lower().split(".")
            precision = next((value for name, value in _CONVERTERS if name in kinds), None)
            if precision:
                findings.state("plan.precision", precision, converters.line, converters.text, file=converters.file)
    old = config.entry("float8.enable_float8_linear")
    if old is not None and not old.why and parse_boolean(old.value):
        findings.state("plan.precision", "fp8", old.line, old.text, file=old.file)


def _state_model(match: Match, config: ConfigFile, reading: Reading) -> None:
    """Name the model that is trained; its shape is in Python."""
    name, flavour = config.entry("model.name"), config.entry("model.flavor")
    flags, model_key = match.arguments.flags, ""
    if name is not None and flavour is not None and not (name.why or flavour.why):
        model_key = f"{name.value}/{flavour.value}"
    elif config.why and "--module" in flags and "--config" in flags:
        module, preset = (flags[flag].value.known or "" for flag in ("--module", "--config"))
        model_key = f"{module}/{preset.removeprefix(module + '_')}"
    why = config.why or "torchtitan has the shapes of its models in Python"
    name_shape(reading, _MODELS.get(model_key.lower()), why=why, line=match.invocation.line)


def _parse_number(entry: Entry) -> int | None:
    """Return a whole number, -1 included, where it is known."""
    if entry.why or entry.value is None:
        return None
    return -1 if str(entry.value).strip() == "-1" else parse_integer(entry.value)
