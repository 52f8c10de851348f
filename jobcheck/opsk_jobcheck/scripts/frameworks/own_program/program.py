"""Reads programs that no framework's reader knows, by the names that programs usually give to their settings.

A field that two settings state differently is unknown, and so is one that the program sets again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from opsk.frameworks.settings.huggingface import MICRO
from opsk.frameworks.settings.usual_settings import LAST_LENGTHS
from opsk.workload.completion import MASKED
from opsk.workload.public_models.measured import find_measured, fixes_length, is_public
from opsk.workload.roles import METHOD
from opsk.workload.unstated.long_texts import CUT_TEXTS
from opsk.workload.unstated.open_models import OPEN_MODELS
from opsk.workload.worst_case import CHECKED, UNSEEN
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.huggingface.settings import (
    LENGTHS,
    read_deepspeed_settings,
    read_fsdp_settings,
    read_memory,
    read_settings,
    read_weights,
)
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import (
    ADAPTERS,
    WEIGHTS,
    is_only_about_adapters,
    read_trainable,
)
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE
from opsk_jobcheck.scripts.frameworks.huggingface.trainer import EXAMPLES
from opsk_jobcheck.scripts.frameworks.nanotron import NANOTRON, is_nanotron_file, state_nanotron_file
from opsk_jobcheck.scripts.frameworks.own_program.adapters import doubt_other_adapters
from opsk_jobcheck.scripts.frameworks.own_program.count import has_no_other_models, has_step, state_parameters
from opsk_jobcheck.scripts.frameworks.own_program.following import fill_calls, follow, is_open
from opsk_jobcheck.scripts.frameworks.own_program.model import (
    find_weight_format,
    state_loss,
    state_model,
    state_trained_part,
)
from opsk_jobcheck.scripts.frameworks.own_program.names import find_own_names
from opsk_jobcheck.scripts.frameworks.own_program.numbers import (
    FIELDS,
    state_batch_of_loader,
    state_count,
    state_lengths_and_batches,
    state_numbers,
)
from opsk_jobcheck.scripts.frameworks.own_program.plan import explain_spread, find_few_ranks, state_plan
from opsk_jobcheck.scripts.frameworks.own_program.samples import check_samples, find_inputs
from opsk_jobcheck.scripts.frameworks.own_program.sentence_encoders import is_sentence_encoder
from opsk_jobcheck.scripts.frameworks.own_program.text_lengths import cuts_texts, find_text_length
from opsk_jobcheck.scripts.frameworks.own_program.worst_case import check_loading, state_worst_case
from opsk_jobcheck.scripts.frameworks.program_files import find_console_program
from opsk_jobcheck.scripts.frameworks.python.recipes import (
    RECIPE_FRAMEWORKS,
    find_recipe_framework,
    state_python_recipe,
)
from opsk_jobcheck.scripts.frameworks.python.roles import forget_name
from opsk_jobcheck.scripts.frameworks.python.settings import (
    MAX_ENTRIES,
    ProgramSettings,
    collect_settings,
    read_source,
    takes_flags,
)
from opsk_jobcheck.scripts.frameworks.python.source import PythonSource
from opsk_jobcheck.scripts.frameworks.vision.ultralytics import ULTRALYTICS, is_ultralytics, state_ultralytics
from opsk_jobcheck.scripts.launchers.programs import SHAPE, find_program
from opsk_jobcheck.scripts.settings.arguments import Setting
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
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
_GOES_BACK = frozenset({"backward", "value_and_grad", "apply_gradients", "train_on_batch", "train_batch", "SFTTrainer"})
_FITS = frozenset({"fit", "fit_generator"})
_TABLE = re.compile(r"\b\w{0,20}TrainingArguments\((?:[^()]|\([^()]{0,400}\)){0,2000}?\*\*\w")
_TRAINERS = re.compile(r"[A-Z]\w{0,40}Trainer")
_OF_TRL = re.compile(r"\w{0,40}(SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO)Trainer")
_SETTINGS_OF_TRL = re.compile(r"trl\.([\w.]{0,80}\.)?((SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO|Model)Config)")
_OF_TRAINER = re.compile(
    r"TrainingArguments|Trainer$|Hf\w*Pars|H4\w*Pars|TrlParser|(SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO|PPO)Config"
)
"""Calls of programs that take the arguments of HuggingFace's Trainer, or of TRL's."""
_ASKS_FOR_BF16 = re.compile(r"\bis_(torch_)?(bf16|bfloat16)(_gpu)?_(supported|available)\(")
_NAMES_TRAINER = re.compile(r"Trainer|TrainingArguments|HfArgumentParser")
_PARSERS = ("HfArgumentParser", "H4ArgumentParser", "HfArgparser")


def read_own_program(invocation: Invocation, reading: Reading, *, tasks: int | None) -> str:
    """State what a program's command, files and Python text state; return its framework, empty where it has none.

    Only fields that nothing has stated are stated.

    Parameters
    ----------
    tasks
        The tasks of a node, where that is known.
    """
    program = find_program(invocation) or find_console_program(invocation, reading)
    if program is None:
        return ""
    settings = collect_settings(program, invocation, reading)
    findings, framework = reading.findings, _find_framework(settings)
    reading.own_names = find_own_names(settings)
    if (known := next(filter(is_nanotron_file, settings.configs), None)) is not None:
        state_nanotron_file(known, findings)
        return NANOTRON
    if recipe := state_python_recipe(settings, reading):
        return recipe
    if state_ultralytics(settings, invocation, reading):
        return ULTRALYTICS
    followed = follow(settings, program, invocation, reading) if is_open(settings) else None
    if followed is not None:
        fill_calls(settings, followed)
    if framework:
        _read_trainer(settings, invocation, reading)
    state_numbers(settings, reading)
    state_lengths_and_batches(settings, reading)
    if followed is not None and followed.is_batch_known and not framework:
        state_batch_of_loader(settings, followed.batch_size, reading)
    state_plan(settings, program, invocation, reading)
    if framework == TRAINER:
        _doubt_precision(settings, reading)
    state_model(settings, invocation, reading)
    _state_text_length(settings, reading)
    if settings.source is not None and any("MaskedLM" in call.owner for call in settings.source.calls):
        findings.options[MASKED] = "true"
    _doubt_ranks(find_few_ranks(settings, invocation, reading, tasks), invocation, reading)
    state_loss(settings, reading)
    if not framework and WEIGHTS not in findings.options:
        read_weights(find_weight_format(settings), findings)
    if settings.source is not None:
        state_trained_part(settings, reading, framework=framework)
        doubt_other_adapters(settings, reading)
    is_about_adapters = is_only_about_adapters(findings.options)
    if is_about_adapters or not findings.options.keys() & {TRAINABLE, ADAPTERS}:
        rows = [_to_setting(name, entry) for name, entry in settings.of_files[:MAX_ENTRIES]]
        read_trainable(
            invocation,
            findings,
            settings=rows,
            knows_roles=METHOD in findings.options,
            knows_adapters=is_about_adapters or ADAPTERS in findings.options,
        )
    check_loading(settings, findings)
    state_worst_case(settings, invocation, reading, lambda: followed or follow(settings, program, invocation, reading))
    if _has_open_model(reading) and not all(name in findings.values for name in SHAPE):
        followed = followed or follow(settings, program, invocation, reading)
        if not is_public(reading.model_name or "") or has_step(followed):
            state_parameters(followed, reading, find_inputs(settings))
        if has_no_other_models(followed):
            forget_name(settings, findings)  # PPO of small networks has no reward model
    if followed is not None:
        reading.trains = True if followed.may_train else False if followed.is_other else None
    why, named = settings.closed, reading.model_name
    for name in NEEDED if why else ():
        is_known = named and (name in SHAPE or (name == "model.seq" and fixes_length(named)))
        if name not in findings.values and not is_known:
            findings.mark_unknown(name, why, invocation.line)
    return framework


def _has_open_model(reading: Reading) -> bool:
    """Return whether a model has no public name, or is one of images whose batch only the program's text may tell."""
    name = reading.model_name or ""
    return not is_public(name) or (
        find_measured(name) is not None and "plan.micro_batch" not in reading.findings.values
    )


def _read_trainer(settings: ProgramSettings, invocation: Invocation, reading: Reading) -> None:
    """State what the arguments of HuggingFace's Trainer say beyond the settings of any program."""
    stated = {name: entry for name in TRAINER_SETTINGS if (entry := settings.find((name,))) is not None}
    stated |= _choose_16_bits(stated, settings)
    config = ConfigFile(path="", overrides=stated)
    read_settings(config, reading.findings, lengths=(*LAST_LENGTHS, *LENGTHS))
    read_memory(config, reading.findings)
    read_deepspeed_settings(config, invocation, reading)
    read_fsdp_settings(config, invocation, reading)


def _choose_16_bits(stated: Mapping[str, Entry], settings: ProgramSettings) -> dict[str, Entry]:
    """Return bf16 as switched on where a program takes that or fp16, by what the GPU can: both take the same memory."""
    both = [stated[name] for name in ("bf16", "fp16") if name in stated]
    lines = settings.source.lines if settings.source is not None else ()
    if len(both) < 2 or not all(entry.why for entry in both) or not any(map(_ASKS_FOR_BF16.search, lines)):
        return {}
    text = "bf16, or fp16 where the GPU has none"
    where = Entry(value=True, file=both[0].file, line=both[0].line, text=text)
    return {"bf16": where, "fp16": replace(where, value=False)}


def _doubt_precision(settings: ProgramSettings, reading: Reading) -> None:
    """Mark the number format as unknown where it may be in a table that the Trainer's arguments are made of."""
    findings, lines = reading.findings, settings.source.lines if settings.source is not None else ()
    is_known = "plan.precision" in findings.values or "plan.precision" in findings.unknown
    if not is_known and (match := _TABLE.search("\n".join(lines))) is not None:
        why = f"the Trainer's arguments take a table of settings ({settings.file}: {match[0][:40]}...)"
        findings.mark_unknown("plan.precision", why, 0)


def read_own_parts(invocation: Invocation, reading: Reading, *, is_trl: bool = False) -> None:
    """State what the Python file of a Trainer program fixes: adapters, the length of a sequence and the model.

    Parameters
    ----------
    is_trl
        Whether it is one of TRL, by its name or its settings.
    """
    program, findings = find_program(invocation), reading.findings
    if program is None or EXAMPLES.fullmatch(program.file):
        check_samples(invocation, "", findings)
        return
    settings = collect_settings(program, invocation, reading)
    if settings.source is None:
        # programs of TRL take one text as a sample
        if check_samples(invocation, "", findings) and not is_trl:
            del findings.options[CHECKED]
            findings.options[UNSEEN] = "true"
        return
    _doubt_flags(settings, invocation, reading)
    reading.own_names = find_own_names(settings)
    followed = follow(settings, program, invocation, reading) if is_open(settings) else None
    if followed is not None:
        fill_calls(settings, followed)
    check_samples(invocation, "\n".join(settings.source.lines), findings)
    if does_train(settings.source) and not _may_start_trainer(settings, reading):
        _state_batch_of_own_loop(settings, invocation, reading)
    _state_passed_batch(settings, reading)
    if WEIGHTS not in findings.options:
        read_weights(find_weight_format(settings), findings)
    state_loss(settings, reading)
    state_trained_part(settings, reading, framework=_find_framework(settings))
    doubt_other_adapters(settings, reading)
    if "model.seq" not in findings.values and "model.seq" not in findings.unknown:
        state_count(reading, "model.seq", settings.find(FIELDS["model.seq"]) or settings.find(LAST_LENGTHS))
    if not reading.model_name:
        state_model(settings, invocation, reading)
    _state_text_length(settings, reading)
    _doubt_ranks(explain_spread(settings, invocation, findings.get("plan.gpus")), invocation, reading)
    check_loading(settings, findings)
    state_worst_case(settings, invocation, reading, lambda: followed or follow(settings, program, invocation, reading))


def _state_passed_batch(settings: ProgramSettings, reading: Reading) -> None:
    """State the batch of a GPU that the program hands to the Trainer: ``--batch_size`` alone may be that of all."""
    findings, entry = reading.findings, settings.find(FIELDS["plan.micro_batch"])
    if "plan.micro_batch" in findings.values or entry is None or entry.why:
        return
    doubt = findings.unknown.pop("plan.micro_batch", None)
    if state_count(reading, "plan.micro_batch", entry) is None and doubt is not None:
        findings.unknown["plan.micro_batch"] = doubt


def _doubt_flags(settings: ProgramSettings, invocation: Invocation, reading: Reading) -> None:
    """Mark what the command states as unknown where its program does not read it."""
    if settings.source is None or not settings.given or takes_flags(settings.source):
        return
    why = f"{settings.file[-60:]} does not read its command line"
    for name in ("plan.micro_batch", "plan.global_batch", "plan.precision", "plan.recompute", "model.seq"):
        stated = reading.findings.evidence.get(name)
        if stated is not None and name in reading.findings.values and stated.text.lstrip().startswith("-"):
            reading.findings.mark_unknown(name, why, invocation.line)
    settings.given.clear()


def _doubt_ranks(reason: str, invocation: Invocation, reading: Reading) -> None:
    """Mark as unknown what depends on the ranks, where there may be fewer than GPUs."""
    if reason:
        reading.findings.mark_unknown("plan.dp", reason, invocation.line)
    if reason and "plan.micro_batch" in reading.findings.values:
        reading.findings.mark_unknown("plan.micro_batch", reason, invocation.line)


def _may_start_trainer(settings: ProgramSettings, reading: Reading) -> bool:
    """Return whether the text of a program, or that of a module that was read with it, names a trainer."""
    texts = [text for path, text in reading.files.items() if path.endswith(".py")]
    if settings.source is not None:
        texts.append("\n".join(settings.source.lines))
    return any(_NAMES_TRAINER.search(text) for text in texts)


def _state_batch_of_own_loop(settings: ProgramSettings, invocation: Invocation, reading: Reading) -> None:
    """State the batch of a program that has the Trainer's flags and a loop of its own: it has none by default."""
    state_lengths_and_batches(settings, reading)
    if "plan.micro_batch" not in reading.findings.values:
        why = f"the program starts no Trainer ({settings.file})"
        reading.findings.mark_unknown("plan.micro_batch", why, invocation.line)


def _state_text_length(settings: ProgramSettings, reading: Reading) -> None:
    """State the length to which texts are cut, where no setting states one and the model reads texts."""
    if cuts_texts(settings):
        reading.findings.options[CUT_TEXTS] = "true"
    if "model.seq" in reading.findings.values or "model.seq" in reading.findings.unknown:
        return
    names = [reading.model_name] if reading.model_name else reading.findings.options.get(OPEN_MODELS, "").split()
    if names and not any(map(fixes_length, names)):
        state_count(reading, "model.seq", find_text_length(settings))


def may_be_own_program(framework: str | None, *, is_read: bool) -> bool:
    """Return whether a program may be its user's own: one that is only named like TRL's, or of NeMo or Megatron-Bridge.

    Those of the last two are where no reader knows them.
    """
    return framework in OWN_PROGRAMS or (framework in {*RECIPE_FRAMEWORKS, TRL} and not is_read)


def name_framework(framework: str | None, trainer: str, *, is_read: bool) -> str | None:
    """Return the framework of a program, with the trainer that it starts."""
    if trainer in RECIPE_FRAMEWORKS or (framework == TRL and trainer and not is_read):
        return trainer
    if framework not in (None, ACCELERATE) or not trainer:
        return framework
    return f"{TRL} + {ACCELERATE}" if trainer == TRL and framework else trainer


def find_source(invocation: Invocation, reading: Reading) -> PythonSource | None:
    """Return what the Python file of a command states, where its text is at hand; it is asked for otherwise.

    Programs that come with a framework (``run_clm.py``) are known: theirs is neither read nor asked for.
    """
    program = find_program(invocation)
    if program is None or EXAMPLES.fullmatch(program.file):
        return None
    return read_source(program, invocation, reading)[0]


def does_train(source: PythonSource | None) -> bool:
    """Return whether a program trains: it goes backward, or starts a trainer."""
    if source is None:
        return False
    if find_recipe_framework(source) or is_ultralytics(source) or is_sentence_encoder(source):
        return True
    names = {call.function for call in source.calls}
    if {"fit", "train"} & names and any(_TRAINERS.fullmatch(call.owner) for call in source.calls):
        return True
    is_compiled = "compile" in names and any(name.startswith("tensorflow") for name in source.imports)
    is_fitted = bool(_FITS & names) and (
        is_compiled or any("lightning" in name or "keras" in name for name in source.imports)
    )
    return (
        bool(names & _GOES_BACK)
        or is_fitted
        or any(_TRAINERS.fullmatch(name) and name != "Trainer" for name in names)
        or ("Trainer" in names and "train" in names)
    )


def has_own_loop(source: PythonSource | None) -> bool:
    """Return whether a program goes backward itself, and makes neither a Trainer nor its arguments."""
    if source is None or not any(source.find_calls("backward")):
        return False
    return not any(map(_OF_TRAINER.search, source.functions))


def takes_settings_of_trl(source: PythonSource | None) -> bool:
    """Return whether a program's parser takes the settings of one of TRL's trainers, which it makes."""
    if source is None or not any(name.partition(".")[0] == "trl" for name in source.imports):
        return False
    has_trainer = any(map(_OF_TRL.fullmatch, source.functions))
    has_settings = any(_SETTINGS_OF_TRL.fullmatch(name) for name in source.imports)
    return has_trainer and (any(source.find_calls("TrlParser")) or (has_settings and any(source.find_calls(*_PARSERS))))


def _to_setting(name: str, entry: Entry) -> Setting:
    """Return an entry as a setting."""
    value = None if entry.why else "null" if entry.value is None else str(entry.value)
    return Setting(name=name, value=value, line=entry.line, file=entry.file)


def _find_framework(settings: ProgramSettings) -> str:
    """Return the framework whose trainer the program starts, empty where it starts none."""
    source = settings.source
    if source is None:
        return ""
    names = {call.function for call in source.calls if settings.is_active(call) is not False}
    packages = {name.partition(".")[0] for name in source.imports}
    packages |= {call.owner for call in source.calls if call.is_followed}
    if "trl" in packages and any(_TRAINERS.fullmatch(name) and name != "Seq2SeqTrainer" for name in names):
        return TRL
    is_own = any(name.endswith(".Trainer") and name.partition(".")[0] != "transformers" for name in source.imports)
    known = {"Seq2SeqTrainer"} if is_own else {"Trainer", "Seq2SeqTrainer"}
    return TRAINER if known & names and "transformers" in packages else ""
