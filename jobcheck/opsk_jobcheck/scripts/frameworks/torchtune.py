"""Reads the training settings from a launch script of torchtune, and from its YAML file.

Source: ``recipes/full_finetune_distributed.py`` and ``recipes/configs`` of torchtune 0.1 to 0.6. ``tune run [torchrun's
flags] RECIPE --config X key=value ...``: X is a file, or one of the configurations inside torchtune, of which
`opsk.frameworks.settings.torchtune_configs` has a table. Distributed recipes shard data-parallel replicas; tensors are
split from 0.6 on (``tensor_parallel_dim``).
"""

from __future__ import annotations

import re
from types import MappingProxyType

from opsk.frameworks.settings.pytorch_programs import STEPS, TORCHTUNE_NUMBERS, TORCHTUNE_RECOMPUTE
from opsk.frameworks.settings.torchtune_configs import find_torchtune_config
from opsk.frameworks.settings.usual_settings import PRECISION_WORDS
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import read_trainable
from opsk_jobcheck.scripts.launchers.programs import (
    RECOMPUTE_WORDS,
    SURE,
    find_command,
    find_program,
    name_shape,
    parse_assignments,
)
from opsk_jobcheck.scripts.settings.arguments import Argument, Setting, get_arguments, iterate_settings
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import Findings, parse_boolean, parse_integer, state_numbers, state_word
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading
from opsk_jobcheck.scripts.settings.uncounted_settings import UNCOUNTED_TORCHTUNE, is_on, report_uncounted_settings

TUNE = "torchtune"
_RECIPE = re.compile(r"(\w+_)?(finetune|qat|dpo|distillation|grpo)_(\w+_)?(distributed|single_device)(\.py)?")
_SWITCHES = MappingProxyType(
    {
        "optimizer_in_bwd": ("optimizer.step", "in-backward"),
        "enable_activation_offloading": ("activations.offload", "cpu"),
        "compile": ("compiled", "true"),
    }
)
_OPTIMIZERS = MappingProxyType(
    {
        "PagedAdamW8bit": "paged-adam-8bit",
        "PagedAdamW": "paged-adam",
        **dict.fromkeys(("AdamW8bit", "Adam8bit"), "adam-8bit"),
        "SGD": "sgd",
        "Lion": "lion",
    }
)
"""Optimizers of torch, bitsandbytes and torchao other than Adam."""
_CHUNKED = ("Chunked", "LinearCrossEntropy")
_COMPONENT = re.compile(r"torchtune\.models\.(\w+)\.(?:q?lora_)?(\w+)")
_PRESET = re.compile(r"(\w+)/([\w.]+?B|mini|scout_17B_16E|maverick_17B_128E)_\w+", re.IGNORECASE)
_FAMILIES = MappingProxyType(
    {
        "llama2": "llama-2-{}",
        **dict.fromkeys(("llama3", "llama3_1", "llama3_3"), "llama-3-{}"),
        "llama3_2": "llama-3.2-{}",
        "mistral": "mistral-{}",
        "gemma": "gemma-{}",
        "gemma2": "gemma-2-{}",
        "code_llama2": "codellama-{}",
        "qwen2": "qwen2-{}",
        "phi4": "phi-4",
        "qwen2_5": "qwen2.5-{}",
        "qwen3": "qwen3-{}",
        "phi3": "phi-3-{}",
    }
)
_SINGLE_DEVICE = "single_device"


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with torchtune: ``tune run``, or one of its recipes under a launcher."""
    tune, program = find_command(invocation, "tune"), find_program(invocation)
    is_tune = tune is not None and bool(tune.words) and tune.words[0].known == "run"
    if not is_tune and (program is None or not _RECIPE.fullmatch(program.file) or not _has_config_flag(invocation)):
        return None
    return Match(framework=TUNE, weight=SURE, invocation=invocation, arguments=get_arguments(invocation))


def read_torchtune(match: Match, reading: Reading) -> None:
    """State the values of the file and of the settings that override it."""
    findings, flag = reading.findings, match.arguments.flags.get("--config")
    config = ConfigFile(path="", why="no configuration is named on the command line")
    packaged: dict[str, Entry] = {}
    if flag is not None and (flag.value.known is None or flag.value.known.endswith((".yaml", ".yml"))):
        config = reading.config(flag.value, match.invocation, form="yaml")
    elif flag is not None:
        packaged = _read_packaged(flag)
        is_known = len(packaged) > 1
        why = "" if is_known else f"the settings are inside torchtune: {flag.shown[:80]}"
        config = ConfigFile(path="", why=why)
    config.overrides = packaged | parse_assignments(match.invocation.words)
    state_numbers(findings, config, TORCHTUNE_NUMBERS)
    _state_replicas(match, config, findings)
    _state_steps(config.entry(STEPS), findings)
    state_word(findings, "plan.precision", config.entry("dtype"), PRECISION_WORDS)
    recompute = config.entry(TORCHTUNE_RECOMPUTE)
    state_word(findings, "plan.recompute", recompute, RECOMPUTE_WORDS)
    offload = config.entry("fsdp_cpu_offload")
    if offload is not None and not offload.why and parse_boolean(offload.value):
        findings.options["optimizer.offload"] = "cpu"
    _state_memory(config, findings)
    name = _find_name(config, flag.value.known if flag is not None else None)
    why = config.why or "the shape of the model is in Python"
    name_shape(reading, name, why=why, line=match.invocation.line)
    read_trainable(
        match.invocation,
        findings,
        settings=(*iterate_settings(config), *(_to_setting(name, entry) for name, entry in packaged.items())),
        framework="" if config.why else TUNE,
        adapters="qlora" if ".qlora_" in _find_component(config) else "",
    )


def _read_packaged(flag: Argument) -> dict[str, Entry]:
    """Return the settings of a configuration that torchtune ships, the number format alone of one that is not known."""
    name, line = flag.value.known or "", flag.line
    known = find_torchtune_config(name)
    if known is None:
        text = f"{flag.shown[:80]}: dtype is bf16 in all that torchtune ships"
        return {"dtype": Entry(value="bf16", line=line, text=text)}
    return {
        key: Entry(line=line, why=f"{key} of {name} differs between releases of torchtune")
        if value is None
        else Entry(value=value, line=line, text=f"{flag.shown[:80]} has {key} {value}")
        for key, value in known.items()
    }


def _to_setting(name: str, entry: Entry) -> Setting:
    """Return a setting of a packaged configuration as those of files are."""
    return Setting(name=name, value=None if entry.why else str(entry.value), line=entry.line, file=entry.file)


TORCHTUNE = Reader(frameworks=(TUNE,), recognise=recognise, read=read_torchtune)


def _state_memory(config: ConfigFile, findings: Findings) -> None:
    """Set the options of optimizer step and states, loss kernel and offloading."""
    report_uncounted_settings(config, UNCOUNTED_TORCHTUNE, findings)
    for key, (option, value) in _SWITCHES.items():
        if is_on(config.entry(key)):
            findings.options[option] = value
    dtype, optimizer, loss = (config.entry(key) for key in ("dtype", "optimizer._component_", "loss._component_"))
    if dtype is not None and dtype.value in ("bf16", "fp16"):
        findings.options["weights.dtype"] = str(dtype.value)
    name = str(optimizer.value).rpartition(".")[2] if optimizer is not None and not optimizer.why else ""
    if optimizer_states := _OPTIMIZERS.get(name):
        findings.options["optimizer.keeps"] = optimizer_states
    if loss is not None and not loss.why and any(word in str(loss.value) for word in _CHUNKED):
        findings.options["loss.kernel"] = "chunked"


def _has_config_flag(invocation: Invocation) -> bool:
    return "--config" in get_arguments(invocation).flags


def _state_replicas(match: Match, config: ConfigFile, findings: Findings) -> None:
    """State the parallelism: recipes have no pipelines, and split tensors only if the file does."""
    line = match.invocation.line
    recipe = next((word for word in match.invocation.words if _RECIPE.fullmatch(word.shown.rpartition("/")[2])), None)
    if recipe is None:
        return
    if config.entry("tensor_parallel_dim") is None:
        findings.state("plan.tp", 1, recipe.line or line, f"{recipe.shown[:80]} without tensor_parallel_dim")
    if "plan.tp" in findings.values:
        findings.state("plan.pp", 1, recipe.line or line, f"{recipe.shown[:80]} has no pipelines")
    copies = config.entry("data_parallel_replicate_dim")
    if copies is not None and not copies.why and (count := parse_integer(copies.value)) and count > 1:
        findings.options["optimizer.instances"] = str(count)
    if _SINGLE_DEVICE in recipe.shown:
        findings.state("plan.sharding", "none", recipe.line or line, recipe.shown[:80])
        return
    reshard = config.entry("fsdp_reshard_after_forward")
    if reshard is not None and reshard.why:
        findings.mark_unknown("plan.sharding", reshard.why, recipe.line or line)
    elif reshard is not None and str(reshard.value).lower() == "false":
        findings.state("plan.sharding", "zero2", reshard.line, reshard.text, file=reshard.file)
    else:
        findings.state("plan.sharding", "zero3", recipe.line or line, f"{recipe.shown[:80]} shards all states")


def _state_steps(entry: Entry | None, findings: Findings) -> None:
    """Set the number of accumulation steps."""
    if entry is None:
        return
    steps = None if entry.why else parse_integer(entry.value)
    if steps and steps > 0:
        findings.options[STEPS_OPTION] = str(steps)
    else:
        why = entry.why or f"{entry.text[:80]} is no number of steps"
        findings.mark_unknown("plan.global_batch", why, entry.line, file=entry.file)


def _find_component(config: ConfigFile) -> str:
    """Return the builder of the model, empty where none is known."""
    entry = config.entry("model._component_")
    return str(entry.value) if entry is not None and not entry.why and entry.value is not None else ""


def _find_name(config: ConfigFile, preset: str | None) -> str | None:
    """Return the public model that the file's component, or torchtune's own configuration, is for."""
    known = _find_component(config)
    if match := _COMPONENT.fullmatch(known):
        family, size = match[1], match[2].removeprefix(f"{match[1]}_").removesuffix("_instruct").removesuffix("_base")
    elif config.why and preset and (match := _PRESET.fullmatch(preset)):
        family, size = match[1].lower(), match[2].lower().replace("_", ".")
    else:
        return None
    form = _FAMILIES.get(family)
    return form.format(size.lower().replace("_", ".")) if form else None
