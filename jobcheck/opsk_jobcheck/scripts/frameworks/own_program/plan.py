"""States how a user's own program trains: number format, sharding, recomputation, and the ranks that it starts."""

from __future__ import annotations

import re
from dataclasses import replace

from opsk.frameworks.settings.usual_settings import (
    NUMBERS,
    PRECISION_WORDS,
    PRECISIONS,
    RECOMPUTES,
    SHARDINGS,
    STRATEGY_WORDS,
    TRUE_FORMATS,
)
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.settings import PARALLEL
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import WEIGHTS
from opsk_jobcheck.scripts.frameworks.own_program.numbers import DDP, FSDP, doubt_entry, state_entry
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings, get_last_name
from opsk_jobcheck.scripts.frameworks.python.source import Call, PythonSource
from opsk_jobcheck.scripts.launchers.programs import Program, list_flag_names
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.config_file import Entry
from opsk_jobcheck.scripts.settings.findings import parse_boolean, state_data_parallel_only
from opsk_jobcheck.scripts.settings.reader import Reading

_SPLITS = (
    *("parallelize_module", "ColumnParallelLinear", "RowParallelLinear", "PipelineModule", "initialize_model_parallel"),
    *("context_parallel", "ScheduleGPipe", "Schedule1F1B", "tensor_parallel"),
)
SPLITS_NOTHING = "the program splits nothing"
"""The evidence of a program without tensor, pipeline or context parallelism."""
_LOWERED = re.compile(
    r"bf16|bfloat16|fp16|float16|half|autocast|\bamp\b|precision|Accelerator|deepspeed|lightning|fabric"
)
"""Words of programs that may compute in less than 32 bits."""
_SPAWNS = re.compile(r"mp\.spawn|multiprocessing|lightning|Fabric|ray\b|notebook_launcher|submitit")
_STARTERS = frozenset(
    {
        *("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "accelerate.commands.launch"),
        *("deepspeed", "mpirun", "mpiexec", "composer", "colossalai", "horovodrun", "flux", "torchrun_jsc", "torchx"),
    }
)
"""Launchers that start a rank a GPU, or compare themselves what they are given with the GPUs."""

_MAPS = frozenset({"auto", "balanced", "balanced_low_0", "sequential"})
"""Ways in which transformers spreads the layers of a model over GPUs."""
_RANKS = ("--num-processes", "--nproc-per-node", "--nproc-per-machine", "--num-gpus")
"""Flags of launchers that state how many processes they start."""


def find_few_ranks(settings: ProgramSettings, invocation: Invocation, reading: Reading, tasks: int | None) -> str:
    """Return why a program that starts no ranks by itself may use some of the GPUs only."""
    gpus, per_node = (reading.findings.get(f"plan.{name}") for name in ("gpus", "gpus_per_node"))
    if (gpus or 1) < 2:
        return ""
    words = {word.rpartition("/")[2] for word in invocation.shown_words if len(word) < 4096}
    if words & _STARTERS and (reason := explain_spread(settings, invocation, gpus)):
        return reason
    if words & _STARTERS or (settings.source is not None and any(map(_SPAWNS.search, settings.source.imports))):
        return ""
    if "srun" not in words:
        return f"python starts one process, and the job has {gpus} GPUs"
    count = tasks or 1
    what = f"srun starts {count} {'task' if count == 1 else 'tasks'} on a node, for {per_node or gpus} GPUs"
    return "" if count == per_node else what


def spreads_layers(settings: ProgramSettings) -> bool:
    """Return whether a program loads its one model with layers on all GPUs of its process: the Trainer copies none."""
    loads = list(settings.source.find_calls("from_pretrained")) if settings.source is not None else []
    maps = [call.keywords["device_map"] for call in loads if "device_map" in call.keywords]
    return bool(maps) and all(value.is_known and value.literal in _MAPS for value in maps)


def explain_spread(settings: ProgramSettings, invocation: Invocation, gpus: int | None) -> str:
    """Return that one process has the layers of its model on all GPUs; empty where it has not, or there are more."""
    if (gpus or 1) < 2 or not spreads_layers(settings) or not _starts_one_rank(invocation):
        return ""
    return f"one process has the layers of its model on {gpus} GPUs ({settings.file}: device_map)"


def _starts_one_rank(invocation: Invocation) -> bool:
    """Return whether a launcher is told to start one process."""
    flags = get_arguments(invocation).flags
    return any(name in flags and flags[name].value.known == "1" for name in _RANKS)


def state_plan(settings: ProgramSettings, program: Program, invocation: Invocation, reading: Reading) -> None:
    """State number format, sharding, recomputation and what ranks share."""
    findings = reading.findings
    _state_precision(settings, reading)
    _state_sharding(settings, reading)
    _state_recompute(settings, reading)
    names = [*list_flag_names(program), *(get_last_name(name) for name, _ in (*settings.given, *settings.of_files))]
    split = next((name for name in names if PARALLEL.fullmatch(name[:80])), "")
    calls = [call for call in settings.source.calls if call.function in _SPLITS] if settings.source else []
    if calls and settings.is_active(calls[0]) is not False:
        doubt_entry(
            reading, "plan.tp", f"the program splits the model ({settings.file}, line {calls[0].line})", Entry()
        )
    elif split and split not in NUMBERS:
        doubt_entry(reading, "plan.tp", f"{split} may split the model", Entry())
    elif settings.source is not None and not split:
        state_data_parallel_only(findings, SPLITS_NOTHING, invocation.line)


def _state_precision(settings: ProgramSettings, reading: Reading) -> None:
    """State the number format."""
    source = settings.source
    for name, precision in (("bf16", "bf16"), ("fp16", "fp16"), ("use_bf16", "bf16"), ("use_fp16", "fp16")):
        entry = settings.find((name,))
        if entry is not None and not entry.why and parse_boolean(entry.value):
            state_entry(reading, "plan.precision", precision, entry)
            return
    entry = settings.find(PRECISIONS)
    if entry is not None and entry.why:
        doubt_entry(reading, "plan.precision", entry.why, entry)
        return
    if entry is not None and (word := PRECISION_WORDS.get(str(entry.value).lower())):
        state_entry(reading, "plan.precision", word, entry)
        if weights := TRUE_FORMATS.get(str(entry.value).lower()):
            reading.findings.options[WEIGHTS] = weights
        return
    if source is None:
        return
    for call in source.find_calls("autocast"):
        if "dtype" in call.keywords and settings.is_active(call):
            kind = settings.resolve(call.keywords["dtype"])
            if not kind.why and (word := PRECISION_WORDS.get(str(kind.value).lower())):
                state_entry(reading, "plan.precision", word, kind)
                return
    _state_precision_of_loop(settings, source, reading)


def _state_precision_of_loop(settings: ProgramSettings, source: PythonSource, reading: Reading) -> None:
    """State the number format of a program that names none, or that the program chooses it."""
    loop = next(source.find_calls("backward"), None)
    lowered = next(source.find_calls("half", "bfloat16", "set_default_dtype"), None)
    cast = next((call for call in source.find_calls("to") if "dtype" in call.keywords or call.first.is_dtype), None)
    if (changed := lowered or cast) is not None and settings.is_active(changed) is not False:
        why = f"the program sets number formats itself ({settings.file}, line {changed.line})"
        doubt_entry(reading, "plan.precision", why, Entry(file=settings.file, line=changed.line))
    elif loop is not None and not _LOWERED.search("\n".join(source.lines)) and not settings.closed:
        where = Entry(file=settings.file, line=loop.line, text="nothing in the program lowers the precision")
        state_entry(reading, "plan.precision", "fp32", where)


def _state_sharding(settings: ProgramSettings, reading: Reading) -> None:
    """State what is sharded, by the settings or by the class that wraps the model."""
    entry = settings.find(SHARDINGS)
    if entry is not None and not entry.why and (stage := STRATEGY_WORDS.get(str(entry.value).lower())):
        state_entry(reading, "plan.sharding", stage, entry)
        return
    source = settings.source
    if source is None:
        return
    for call in source.find_calls(*FSDP, "initialize", "ZeroRedundancyOptimizer"):
        if (call.function == "initialize" and call.owner != "deepspeed") or settings.is_active(call) is False:
            continue
        stage, where = _find_stage(settings, call), Entry(file=settings.file, line=call.line)
        if settings.is_active(call) and stage:
            state_entry(reading, "plan.sharding", stage, replace(where, text=source.get_line(call.line)))
        else:
            doubt_entry(reading, "plan.sharding", f"the program shards it ({settings.file}, line {call.line})", where)
        return
    for call in source.find_calls(*DDP):
        if settings.is_active(call) is not False:
            text = source.get_line(call.line)
            state_entry(reading, "plan.sharding", "none", Entry(file=settings.file, line=call.line, text=text))
            return


def _find_stage(settings: ProgramSettings, call: Call) -> str:
    """Return the stage that a wrapper amounts to; empty where that is unknown."""
    if call.function == "initialize":
        return ""
    if call.function == "ZeroRedundancyOptimizer":
        return "zero1"
    for name in ("sharding_strategy", "reshard_after_forward"):
        if name in call.keywords:
            entry = settings.resolve(call.keywords[name])
            if name == "reshard_after_forward" and not entry.why:
                return "zero2" if entry.value is False else "zero3"
            return "" if entry.why else STRATEGY_WORDS.get(str(entry.value).lower(), "")
    return "zero3"


def _state_recompute(settings: ProgramSettings, reading: Reading) -> None:
    """State whether layers are recomputed."""
    entry = settings.find(RECOMPUTES)
    if entry is not None and not entry.why and (is_on := parse_boolean(entry.value)) is not None:
        state_entry(reading, "plan.recompute", "full" if is_on else "none", entry)
        return
    if settings.source is None:
        return
    for call in settings.source.find_calls("gradient_checkpointing_enable", "checkpoint", "checkpoint_wrapper"):
        is_active = settings.is_active(call)
        where = Entry(file=settings.file, line=call.line, text=settings.source.get_line(call.line))
        if call.function == "gradient_checkpointing_enable" and is_active:
            state_entry(reading, "plan.recompute", "full", where)
        elif is_active is not False:
            why = f"the program recomputes some of it ({settings.file}, line {call.line})"
            doubt_entry(reading, "plan.recompute", why, where)
