"""Reads programs that no framework's reader knows, by the names that programs usually give to their settings.

A field that two settings state differently is unknown, and so is one that the program sets again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from opsk.frameworks.huggingface import MICRO
from opsk.frameworks.usual_settings import (
    BATCHES,
    IMAGE_SIDES,
    LAST_LENGTHS,
    LAST_WIDTHS,
    MAX_SEQUENCES,
    MODELS,
    NUMBERS,
    PRECISION_WORDS,
    PRECISIONS,
    RECOMPUTES,
    SHARDINGS,
    STEPS,
    STRATEGY_WORDS,
    TRUE_FORMATS,
)
from opsk.workload.completion import MASKED
from opsk.workload.measured_model import INPUT_SIZE
from opsk.workload.public_models.lookup import public_model
from opsk.workload.public_models.measured import fixes_length, is_public
from opsk.workload.roles import METHOD
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.model import MAX_NAME, name_model
from opsk_jobcheck.scripts.frameworks.huggingface.settings import (
    LENGTHS,
    PARALLEL,
    read_deepspeed_settings,
    read_fsdp_settings,
    read_memory,
    read_settings,
)
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import WEIGHTS, read_trainable
from opsk_jobcheck.scripts.frameworks.huggingface.trainer import EXAMPLES
from opsk_jobcheck.scripts.frameworks.image_models import find_image_side, list_image_models
from opsk_jobcheck.scripts.frameworks.nanotron import NANOTRON, is_nanotron_file, state_nanotron_file
from opsk_jobcheck.scripts.frameworks.program_settings import (
    MAX_ENTRIES,
    ProgramSettings,
    collect_settings,
    get_last_name,
    read_source,
)
from opsk_jobcheck.scripts.frameworks.python_roles import find_loss, find_trainers, forget_name, state_python_roles
from opsk_jobcheck.scripts.frameworks.python_source import (
    FREEZES,
    Call,
    PythonSource,
    Value,
)
from opsk_jobcheck.scripts.launchers.programs import (
    SHAPE,
    Program,
    list_flag_names,
    program_of,
)
from opsk_jobcheck.scripts.settings.arguments import Setting
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, parse_boolean, parse_integer, state_data_parallel_only
from opsk_jobcheck.scripts.settings.reader import Reading

TRAINER_SETTINGS = (
    *("optim", "torch_dtype", "dtype", "deepspeed", "fsdp", "fsdp_config", "bf16", "fp16", "gradient_checkpointing"),
    *("gradient_accumulation_steps", "auto_find_batch_size", "attn_implementation", "use_liger_kernel", "use_liger"),
    *("torch_compile", "activation_offloading", *MICRO, *LAST_LENGTHS, *LENGTHS),
)
NEEDED = (*SHAPE, "model.seq", "plan.micro_batch")
TRAINER, TRL, ACCELERATE = "hf-trainer", "trl", "accelerate"
OWN_PROGRAMS = frozenset({None, ACCELERATE, "deepspeed", "pytorch-ddp", "pytorch-fsdp", "lightning", "open-clip"})
"""Frameworks whose programs are their users' own: the reader of the framework knows what starts them alone."""
WITH_OWN_PARTS = frozenset({TRAINER, "hf-trainer+deepspeed", TRL, f"{TRL} + {ACCELERATE}"})
"""Frameworks whose users' programs decide in Python what no flag says: adapters, most of all."""
MAX_OWN_WEIGHT = 1
"""Weight of the matches of such programs, at most: more of their flags are the framework's."""
_TRAINERS = re.compile(r"[A-Z]\w{0,40}Trainer")
_OTHER_MODELS = re.compile(r"(DPO|KTO|GRPO|PPO\w*|RLOO|GKD|XPO|NashMD|OnlineDPO)Trainer")
_NO_MODELS = re.compile(r"Token|Process|Config|FeatureExtractor|Schedul|Generation")
"""Classes whose ``from_pretrained`` loads no model."""
_FSDP = ("FullyShardedDataParallel", "FSDP", "fully_shard")
_DDP = ("DistributedDataParallel", "DDP")
_SPLITS = (
    *("parallelize_module", "ColumnParallelLinear", "RowParallelLinear", "PipelineModule", "initialize_model_parallel"),
    *("context_parallel", "ScheduleGPipe", "Schedule1F1B", "tensor_parallel"),
)
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
_OPTIMIZERS = re.compile(
    r"(?:Fused|Deepspeed|Paged|DeepSpeedCPU)?(Adam|AdamW|SGD|Adafactor|Lion|AdaBelief|LAMB|Lamb|Muon|Shampoo|SOAP"
    r"|RMSprop|Adagrad|Prodigy|Adan|Sophia\w*|CAME)(8bit|4bit)?"
)
_FUSED_LOSSES = re.compile(
    r"_?apply_liger_kernel(_to_\w+)?|LigerFusedLinear\w*Loss|AutoLigerKernelFor\w+|cce_patch|linear_cross_entropy"
)
"""Calls, and owners of ``from_pretrained``, after which logits are never whole in memory."""
_KINDS_OF_LAYERS = re.compile(r"num_encoder_layers|encoder_layers|n_encoder_layers|num_decoder_layers|n_conv_layers")


def read_own_program(invocation: Invocation, reading: Reading, *, tasks: int | None) -> str:
    """State what a program's command, files and Python text state; return its framework, empty where it has none.

    Only fields that nothing has stated are stated.

    Parameters
    ----------
    tasks
        The tasks of a node, where that is known.
    """
    program = program_of(invocation)
    if program is None:
        return ""
    settings = collect_settings(program, invocation, reading)
    findings, framework = reading.findings, _find_framework(settings)
    if (known := next(filter(is_nanotron_file, settings.configs), None)) is not None:
        state_nanotron_file(known, findings)
        return NANOTRON
    if framework:
        _read_trainer(settings, invocation, reading)
    _state_numbers(settings, reading)
    _state_lengths_and_batches(settings, reading)
    _state_plan(settings, program, invocation, reading)
    _state_model(settings, invocation, reading)
    if settings.source is not None and any("MaskedLM" in call.owner for call in settings.source.calls):
        findings.options[MASKED] = "true"
    reason = _find_few_ranks(settings, invocation, reading, tasks)
    if reason:
        findings.mark_unknown("plan.dp", reason, invocation.line)
    if reason and "plan.micro_batch" in findings.values:
        findings.mark_unknown("plan.micro_batch", reason, invocation.line)
    _state_loss(settings, reading)
    if settings.source is not None:
        _state_trained_part(settings, reading)
    if TRAINABLE not in findings.options:
        rows = [_to_setting(name, entry) for name, entry in settings.of_files[:MAX_ENTRIES]]
        read_trainable(invocation, findings, settings=rows, knows_roles=METHOD in findings.options)
    why, named = settings.closed, reading.model_name
    for name in NEEDED if why else ():
        is_known = named and (name in SHAPE or (name == "model.seq" and fixes_length(named)))
        if name not in findings.values and not is_known:
            findings.mark_unknown(name, why, invocation.line)
    return framework


def _read_trainer(settings: ProgramSettings, invocation: Invocation, reading: Reading) -> None:
    """State what the arguments of HuggingFace's Trainer say beyond the settings of any program."""
    stated = {name: entry for name in TRAINER_SETTINGS if (entry := settings.find((name,))) is not None}
    config = ConfigFile(path="", overrides=stated)
    read_settings(config, reading.findings, lengths=(*LAST_LENGTHS, *LENGTHS))
    read_memory(config, reading.findings)
    read_deepspeed_settings(config, invocation, reading)
    read_fsdp_settings(config, invocation, reading)


def read_own_parts(invocation: Invocation, reading: Reading) -> None:
    """State what the Python file of a Trainer program fixes: adapters, the length of a sequence and the model."""
    program, findings = program_of(invocation), reading.findings
    if program is None or EXAMPLES.fullmatch(program.file):
        return
    settings = collect_settings(program, invocation, reading)
    if settings.source is None:
        return
    _state_loss(settings, reading)
    _state_trained_part(settings, reading)
    if "model.seq" not in findings.values and "model.seq" not in findings.unknown:
        _state_count(reading, "model.seq", settings.find(_FIELDS["model.seq"]) or settings.find(LAST_LENGTHS))
    if not reading.model_name:
        _state_model(settings, invocation, reading)


def name_framework(framework: str | None, trainer: str) -> str | None:
    """Return the framework of a program, with the trainer that it starts."""
    if framework not in (None, ACCELERATE) or not trainer:
        return framework
    return f"{TRL} + {ACCELERATE}" if trainer == TRL and framework else trainer


def find_source(invocation: Invocation, reading: Reading) -> PythonSource | None:
    """Return what the Python file of a command states, where its text is at hand; it is asked for otherwise.

    Programs that come with a framework (``run_clm.py``) are known: theirs is neither read nor asked for.
    """
    program = program_of(invocation)
    if program is None or EXAMPLES.fullmatch(program.file):
        return None
    return read_source(program, invocation, reading)[0]


def does_train(source: PythonSource | None) -> bool:
    """Return whether a program trains: it goes backward, or starts a trainer."""
    if source is None:
        return False
    names = {call.function for call in source.calls}
    is_fitted = "fit" in names and any("lightning" in name or "keras" in name for name in source.imports)
    return (
        bool(names & {"backward", "value_and_grad", "train_batch", "SFTTrainer"})
        or is_fitted
        or any(_TRAINERS.fullmatch(name) and name != "Trainer" for name in names)
        or ("Trainer" in names and "train" in names)
    )


def _to_setting(name: str, entry: Entry) -> Setting:
    """Return an entry as a setting."""
    value = None if entry.why else "null" if entry.value is None else str(entry.value)
    return Setting(name=name, value=value, line=entry.line, file=entry.file)


def _state(reading: Reading, name: str, value: object, entry: Entry) -> None:
    """State a value unless the field has one."""
    if name not in reading.findings.values:
        reading.findings.state(name, value, entry.line, entry.text, file=entry.file)


def _doubt(reading: Reading, name: str, why: str, entry: Entry) -> None:
    """Mark a field as unknown unless it has a value."""
    if name not in reading.findings.values:
        reading.findings.mark_unknown(name, why, entry.line, file=entry.file)


def _state_count(reading: Reading, name: str, entry: Entry | None) -> int | None:
    """State a whole number, or that it is unknown."""
    if entry is None or (entry.value in (None, "", "null", "None", "none", "auto") and not entry.why):
        return None
    number = None if entry.why else parse_integer(entry.value)
    if number is None or not 1 <= number <= MAX_NUMBER:
        if number != 0 and number != -1:
            _doubt(reading, name, entry.why or f"{entry.text[:80]} is not a whole number from 1 on", entry)
        return None
    _state(reading, name, number, entry)
    return number


_FIELDS: Mapping[str, tuple[str, ...]] = {
    field_name: tuple(name for name, target in NUMBERS.items() if target == field_name)
    for field_name in dict.fromkeys(NUMBERS.values())
}
_PLAIN_FIELDS = tuple(name for name in _FIELDS if name not in ("model.seq", "plan.micro_batch", "plan.global_batch"))


def _state_numbers(settings: ProgramSettings, reading: Reading) -> None:
    """State the shape and the axes of the plan."""
    findings = reading.findings
    has_kinds = _has_kinds_of_layers(settings)
    if has_kinds:
        _doubt(reading, "model.layers", "encoder and decoder have layers of their own", Entry())
    for name in _PLAIN_FIELDS:
        is_open = name not in findings.unknown or name in SHAPE
        if is_open and not (has_kinds and name == "model.layers"):
            _state_count(reading, name, settings.find(_FIELDS[name]))
    if findings.get("model.layers") and findings.get("model.heads") and "model.hidden" not in findings.unknown:
        _state_count(reading, "model.hidden", settings.find(LAST_WIDTHS))
    if findings.get("model.experts") == 1:
        findings.values.pop("model.experts")
        findings.evidence.pop("model.experts", None)
    hidden, heads = findings.get("model.hidden"), findings.get("model.heads")
    if hidden and heads and hidden % heads and not findings.get("model.head_dim"):
        findings.mark_unknown("model.heads", f"{heads} heads do not divide a width of {hidden}", 0)


def _has_kinds_of_layers(settings: ProgramSettings) -> bool:
    """Return whether a program has layers of several kinds, of which none is all of them."""
    names = [get_last_name(name) for name, _ in (*settings.given, *settings.of_files)]
    if settings.source is not None:
        names += [*settings.source.defaults, *settings.source.constants]
        names += [name for call in settings.source.calls for name in call.keywords]
    return any(map(_KINDS_OF_LAYERS.fullmatch, names))


def _state_lengths_and_batches(settings: ProgramSettings, reading: Reading) -> None:
    """State the tokens of a sequence and the batch."""
    findings = reading.findings
    length = settings.find(_FIELDS["model.seq"]) or settings.find(LAST_LENGTHS)
    _state_count(reading, "model.seq", length)
    if _state_shared_steps(settings, reading):
        return
    steps = settings.find(STEPS)
    count = parse_integer(steps.value) if steps is not None and not steps.why and steps.value is not None else None
    whole = _state_count(reading, "plan.global_batch", settings.find(_FIELDS["plan.global_batch"]))
    if whole and whole > MAX_SEQUENCES:
        findings.mark_unknown("plan.global_batch", f"a batch of {whole} may count tokens", 0)
    if _state_count(reading, "plan.micro_batch", settings.find(_FIELDS["plan.micro_batch"])) is None:
        batch = settings.find(BATCHES)
        if batch is not None and "plan.micro_batch" not in findings.values:
            why = _find_doubt_about_batch(settings, findings.get("plan.gpus"), batch)
            if why:
                _doubt(reading, "plan.micro_batch", why, batch)
            else:
                findings.unknown.pop("plan.micro_batch", None)
                _state_count(reading, "plan.micro_batch", batch)
    if count and 0 < count <= 10**6 and STEPS_OPTION not in findings.options:
        findings.options[STEPS_OPTION] = str(count)
    elif steps is not None and steps.why:
        _doubt(reading, "plan.global_batch", steps.why, steps)


def _state_shared_steps(settings: ProgramSettings, reading: Reading) -> bool:
    """State the batch of a program that divides the steps of accumulation among its ranks, as nanoGPT does."""
    if settings.source is None or settings.source.divided.isdisjoint(STEPS):
        return False
    batch, steps = settings.find((*BATCHES, *_FIELDS["plan.micro_batch"])), settings.find_unchanged(STEPS)
    if batch is None or steps is None or batch.why or steps.why:
        return False
    micro, count = _state_count(reading, "plan.micro_batch", batch), parse_integer(steps.value)
    if micro and count and 0 < micro * count <= MAX_NUMBER:
        entry = replace(steps, text=f"{steps.text}: steps of all ranks × {micro}"[:200])
        _state(reading, "plan.global_batch", micro * count, entry)
    return micro is not None


def _find_doubt_about_batch(settings: ProgramSettings, gpus: int | None, batch: Entry) -> str:
    """Return why ``batch_size`` may not be what one GPU works on at a time; empty where it is."""
    if batch.why:
        return batch.why
    source = settings.source
    if source is not None and not source.divided.isdisjoint(BATCHES):
        return f"the program divides the batch ({settings.file})"
    if gpus == 1:
        return ""
    if source is None:
        return f"{batch.text[:60]} may be the batch of one GPU, or of all"
    is_each_ranks = any(call.function in (*_DDP, *_FSDP, "DistributedSampler", "Accelerator") for call in source.calls)
    is_loaded = any(
        call.keywords["batch_size"].name.lower() in BATCHES or call.keywords["batch_size"].is_known
        for call in source.calls
        if "batch_size" in call.keywords
    )
    is_lightning = any("lightning" in name for name in source.imports)
    return "" if is_loaded and (is_each_ranks or is_lightning) else f"{batch.text[:60]} may be the batch of all GPUs"


def _find_few_ranks(settings: ProgramSettings, invocation: Invocation, reading: Reading, tasks: int | None) -> str:
    """Return why a program that starts no ranks by itself may use some of the GPUs only."""
    gpus, per_node = (reading.findings.get(f"plan.{name}") for name in ("gpus", "gpus_per_node"))
    if (gpus or 1) < 2:
        return ""
    words = {word.rpartition("/")[2] for word in invocation.shown_words if len(word) < 4096}
    if words & _STARTERS or (settings.source is not None and any(map(_SPAWNS.search, settings.source.imports))):
        return ""
    if "srun" not in words:
        return f"python starts one process, and the job has {gpus} GPUs"
    count = tasks or 1
    what = f"srun starts {count} {'task' if count == 1 else 'tasks'} on a node, for {per_node or gpus} GPUs"
    return "" if count == per_node else what


def _state_plan(settings: ProgramSettings, program: Program, invocation: Invocation, reading: Reading) -> None:
    """State number format, sharding, recomputation and what ranks share."""
    findings = reading.findings
    _state_precision(settings, reading)
    _state_sharding(settings, reading)
    _state_recompute(settings, reading)
    names = [*list_flag_names(program), *(get_last_name(name) for name, _ in (*settings.given, *settings.of_files))]
    split = next((name for name in names if PARALLEL.fullmatch(name[:80])), "")
    calls = [call for call in settings.source.calls if call.function in _SPLITS] if settings.source else []
    if calls and settings.is_active(calls[0]) is not False:
        _doubt(reading, "plan.tp", f"the program splits the model ({settings.file}, line {calls[0].line})", Entry())
    elif split and split not in NUMBERS:
        _doubt(reading, "plan.tp", f"{split} may split the model", Entry())
    elif settings.source is not None and not split:
        state_data_parallel_only(findings, "the program splits nothing", invocation.line)


def _state_precision(settings: ProgramSettings, reading: Reading) -> None:
    """State the number format."""
    source = settings.source
    for name, precision in (("bf16", "bf16"), ("fp16", "fp16"), ("use_bf16", "bf16"), ("use_fp16", "fp16")):
        entry = settings.find((name,))
        if entry is not None and not entry.why and parse_boolean(entry.value):
            _state(reading, "plan.precision", precision, entry)
            return
    entry = settings.find(PRECISIONS)
    if entry is not None and entry.why:
        _doubt(reading, "plan.precision", entry.why, entry)
        return
    if entry is not None and (word := PRECISION_WORDS.get(str(entry.value).lower())):
        _state(reading, "plan.precision", word, entry)
        if weights := TRUE_FORMATS.get(str(entry.value).lower()):
            reading.findings.options[WEIGHTS] = weights
        return
    if source is None:
        return
    for call in source.find_calls("autocast"):
        if "dtype" in call.keywords and settings.is_active(call):
            kind = settings.resolve(call.keywords["dtype"])
            if not kind.why and (word := PRECISION_WORDS.get(str(kind.value).lower())):
                _state(reading, "plan.precision", word, kind)
                return
    _state_precision_of_loop(settings, source, reading)


def _state_precision_of_loop(settings: ProgramSettings, source: PythonSource, reading: Reading) -> None:
    """State the number format of a program that names none, or that the program chooses it."""
    loop = next(source.find_calls("backward"), None)
    lowered = next(source.find_calls("half", "bfloat16", "set_default_dtype"), None)
    cast = next((call for call in source.find_calls("to") if "dtype" in call.keywords or call.first.is_dtype), None)
    if (changed := lowered or cast) is not None and settings.is_active(changed) is not False:
        why = f"the program sets number formats itself ({settings.file}, line {changed.line})"
        _doubt(reading, "plan.precision", why, Entry(file=settings.file, line=changed.line))
    elif loop is not None and not _LOWERED.search("\n".join(source.lines)) and not settings.closed:
        where = Entry(file=settings.file, line=loop.line, text="nothing in the program lowers the precision")
        _state(reading, "plan.precision", "fp32", where)


def _state_sharding(settings: ProgramSettings, reading: Reading) -> None:
    """State what is sharded, by the settings or by the class that wraps the model."""
    entry = settings.find(SHARDINGS)
    if entry is not None and not entry.why and (stage := STRATEGY_WORDS.get(str(entry.value).lower())):
        _state(reading, "plan.sharding", stage, entry)
        return
    source = settings.source
    if source is None:
        return
    for call in source.find_calls(*_FSDP, "initialize", "ZeroRedundancyOptimizer"):
        if (call.function == "initialize" and call.owner != "deepspeed") or settings.is_active(call) is False:
            continue
        stage, where = _find_stage(settings, call), Entry(file=settings.file, line=call.line)
        if settings.is_active(call) and stage:
            _state(reading, "plan.sharding", stage, replace(where, text=source.get_line(call.line)))
        else:
            _doubt(reading, "plan.sharding", f"the program shards it ({settings.file}, line {call.line})", where)
        return
    for call in source.find_calls(*_DDP):
        if settings.is_active(call) is not False:
            text = source.get_line(call.line)
            _state(reading, "plan.sharding", "none", Entry(file=settings.file, line=call.line, text=text))
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
        _state(reading, "plan.recompute", "full" if is_on else "none", entry)
        return
    if settings.source is None:
        return
    for call in settings.source.find_calls("gradient_checkpointing_enable", "checkpoint", "checkpoint_wrapper"):
        is_active = settings.is_active(call)
        where = Entry(file=settings.file, line=call.line, text=settings.source.get_line(call.line))
        if call.function == "gradient_checkpointing_enable" and is_active:
            _state(reading, "plan.recompute", "full", where)
        elif is_active is not False:
            why = f"the program recomputes some of it ({settings.file}, line {call.line})"
            _doubt(reading, "plan.recompute", why, where)


def _state_model(settings: ProgramSettings, invocation: Invocation, reading: Reading) -> None:
    """Name the public model, or the folder, that is trained, where its shape is not stated."""
    findings = reading.findings
    _doubt_shape(settings, reading)
    if all(name in findings.values for name in SHAPE):
        return
    entry = _find_model(settings)
    if entry is None or entry.why or not isinstance(entry.value, str):
        return
    value = entry.value.strip()
    _state_image_side(settings, reading)
    is_folder = "/" in value and value.startswith((".", "/"))
    if value and len(value) < MAX_NAME and (is_folder or is_public(value)):
        name_model(entry, invocation, reading)


def _state_image_side(settings: ProgramSettings, reading: Reading) -> None:
    """Note the side of the images, by a setting or by what the program cuts its samples to."""
    entry = settings.find(IMAGE_SIDES)
    side = parse_integer(entry.value) if entry is not None and not entry.why and entry.value is not None else None
    if not side and settings.source is not None:
        side = find_image_side(settings.source)
    if side and side > 0:
        reading.findings.options.setdefault(INPUT_SIZE, str(side))


def _doubt_shape(settings: ProgramSettings, reading: Reading) -> None:
    """Mark a shape as unknown where the program may load a public model of another one."""
    for entry in _list_loaded(settings):
        name = entry.value if isinstance(entry.value, str) and len(entry.value) < MAX_NAME else ""
        shape = public_model(name) if name else None
        for field in SHAPE if shape is not None else ():
            stated = reading.findings.get(field)
            if stated is not None and stated != getattr(shape, field.removeprefix("model.")):
                why = f"the program may load {name[:80]}, which is of another shape"
                reading.findings.mark_unknown(field, why, entry.line, file=entry.file)


def _find_model(settings: ProgramSettings) -> Entry | None:
    """Return the name of the model: the one that the program loads, else the first setting that names a public one."""
    loaded = _list_loaded(settings)
    if len({(str(entry.value), entry.why) for entry in loaded}) > 1:
        return None
    if loaded and not loaded[0].why:
        return loaded[0]
    for name in MODELS:
        named = settings.find((name,))
        value = named.value if named is not None and not named.why else None
        if isinstance(value, str) and len(value) < MAX_NAME and is_public(value):
            return named
    return None


def _list_loaded(settings: ProgramSettings) -> list[Entry]:
    """Return the names of the models that the program loads, each once."""
    entries: dict[tuple[object, str], Entry] = {}
    for call in settings.source.calls if settings.source is not None else ():
        is_loaded = call.function == "from_pretrained" and not _NO_MODELS.search(call.owner)
        if (is_loaded or call.function == "create_model") and settings.is_active(call) is not False:
            is_first = call.first.is_known or bool(call.first.name)
            entry = settings.resolve(call.first if is_first else next(iter(call.keywords.values()), Value()))
            entries.setdefault((entry.value, entry.why), entry)
    for call in list_image_models(settings.source) if settings.source is not None else ():
        if settings.is_active(call) is not False and settings.source is not None:
            text = settings.source.get_line(call.line)
            entry = Entry(value=call.function, file=settings.file, line=call.line, text=text)
            entries.setdefault((entry.value, ""), entry)
    return list(entries.values())


def _state_trained_part(settings: ProgramSettings, reading: Reading) -> None:
    """State that adapters, a part of the model, or other models beside it are trained or held."""
    source, findings = settings.source, reading.findings
    if source is None:
        return
    trainers = find_trainers(settings)
    if trainers:
        forget_name(settings, findings)
    if TRAINABLE in findings.options:
        return
    for call in source.calls:
        if find_loss(call.function) and trainers:
            continue
        quantised = [call.keywords[name] for name in ("load_in_4bit", "load_in_8bit") if name in call.keywords]
        is_quantised = any(not value.is_known or value.literal for value in quantised)
        what = "the weights are quantized" if is_quantised else _get_part(call.function)
        if what and settings.is_active(call) is not False:
            findings.options[TRAINABLE] = f"unknown: {what} ({call.function}, {settings.file}:{call.line})"
            return
    if trainers:
        state_python_roles(trainers[0], settings, findings)
    _state_optimizer(settings, reading)


def _state_loss(settings: ProgramSettings, reading: Reading) -> None:
    """State a loss that is fused with the output layer, where the program certainly uses one."""
    for call in settings.source.calls if settings.source is not None else ():
        is_fused = _FUSED_LOSSES.fullmatch(call.function) or _FUSED_LOSSES.fullmatch(call.owner)
        switch = call.keywords.get("fused_linear_cross_entropy")
        if is_fused and settings.is_active(call) and (switch is None or switch.literal is True):
            reading.findings.options.setdefault("loss.kernel", "fused")
            return


def _get_part(function: str) -> str:
    """Return what a call says about the trained part, empty where it says nothing."""
    if function in ("LoraConfig", "get_peft_model", "AdaLoraConfig", "IA3Config", "PrefixTuningConfig"):
        return "only adapters are trained"
    if function == "BitsAndBytesConfig":
        return "the weights are quantized"
    if function == FREEZES:
        return "part of the model is frozen"
    return "other models are in memory too" if _OTHER_MODELS.fullmatch(function) else ""


def _state_optimizer(settings: ProgramSettings, reading: Reading) -> None:
    """State an optimizer other than Adam."""
    if settings.source is None or "optimizer.name" in reading.findings.options:
        return
    names = [
        call.function
        for call in settings.source.calls
        if _OPTIMIZERS.fullmatch(call.function) and settings.is_active(call) is not False
    ]
    if names and not any(name.removeprefix("Fused") in ("Adam", "AdamW") for name in names):
        reading.findings.options["optimizer.name"] = names[0].lower()[:40]


def _find_framework(settings: ProgramSettings) -> str:
    """Return the framework whose trainer the program starts, empty where it starts none."""
    source = settings.source
    if source is None:
        return ""
    names = {call.function for call in source.calls if settings.is_active(call) is not False}
    packages = {name.partition(".")[0] for name in source.imports}
    if "trl" in packages and any(_TRAINERS.fullmatch(name) and name != "Seq2SeqTrainer" for name in names):
        return TRL
    return TRAINER if {"Trainer", "Seq2SeqTrainer"} & names and "transformers" in packages else ""
