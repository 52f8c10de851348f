"""Reads the training settings from a launch script of a HuggingFace Trainer program, or of TRL.

Supported are ``run_clm.py`` and similar examples, users' programs that take the Trainer's flags, ``trl sft`` and
recipes by ``--config``, started by torchrun, ``accelerate launch``, ``deepspeed`` or ``python``. For users' programs
with other flags under ``accelerate launch`` or DeepSpeed, only the launcher's settings are read. Source: see
`huggingface.settings`, `huggingface.model`, `accelerate`, and ``TrlParser`` of TRL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace

from opsk.frameworks.settings.huggingface import MICRO, STEPS
from opsk.frameworks.settings.usual_settings import BATCHES
from opsk.workload.completion import DECODER_LENGTH, ENCODER_LENGTH, MASKED
from opsk.workload.unstated.long_texts import CUT_TEXTS
from opsk.workload.worst_case import MAX_TOKENS
from opsk_jobcheck.scripts.bash.values import Invocation, Text
from opsk_jobcheck.scripts.frameworks.huggingface.model import SHAPE, find_public_name, read_model
from opsk_jobcheck.scripts.frameworks.huggingface.preferences import PREFERENCE_KINDS, read_preferences
from opsk_jobcheck.scripts.frameworks.huggingface.role_settings import find_opaque
from opsk_jobcheck.scripts.frameworks.huggingface.settings import (
    FIELDS,
    LENGTHS,
    find_model_split,
    read_deepspeed_settings,
    read_fsdp_settings,
    read_memory,
    read_settings,
)
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import read_trainable
from opsk_jobcheck.scripts.frameworks.huggingface.vision_towers import read_tower
from opsk_jobcheck.scripts.frameworks.program_files import compose_settings
from opsk_jobcheck.scripts.launchers.accelerate import AccelerateSettings, find_accelerate_launch, read_accelerate
from opsk_jobcheck.scripts.launchers.programs import (
    SURE,
    Program,
    find_command,
    find_program,
    list_flag_names,
    list_setting_names,
    parse_assignments,
    parse_program_arguments,
    parse_program_flags,
)
from opsk_jobcheck.scripts.settings.arguments import get_arguments, iterate_settings
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry, list_entries
from opsk_jobcheck.scripts.settings.findings import (
    Findings,
    mark_all_unknown,
    parse_boolean,
    parse_integer,
    state_data_parallel_only,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

TRAINER, TRAINER_DEEPSPEED = "hf-trainer", "hf-trainer+deepspeed"
TRL, TRL_ACCELERATE = "trl", "trl + accelerate"
ACCELERATE, DEEPSPEED = "accelerate", "deepspeed"
_KNOWN_FLAGS = frozenset(
    {
        *(*MICRO, STEPS, "per_device_eval_batch_size", "num_train_epochs", "save_total_limit", "save_strategy"),
        *(
            "logging_steps",
            "lr_scheduler_type",
            "warmup_ratio",
            "report_to",
            "overwrite_output_dir",
            "model_name_or_path",
        ),
        *("gradient_checkpointing", "ddp_timeout", "ddp_find_unused_parameters", "dataloader_num_workers", "do_train"),
        *("evaluation_strategy", "eval_strategy", "logging_strategy", "group_by_length", "adam_beta2", "save_steps"),
        *("fsdp", "fsdp_config", "deepspeed", "remove_unused_columns", "max_steps", "preprocessing_num_workers"),
    }
)
_MIN_KNOWN_FLAGS, MIN_FLAGS_OF_COMMANDS = 2, 5
_PRINTERS = frozenset({"echo", "printf", "cat"})
_CONSOLE = re.compile(r"[a-z][\w.-]{1,60}")
"""Names of commands that packages install."""
MAX_ENTRIES = 2000
_OTHER_MODELS = frozenset({"reward", "ref", "reference", "critic", "value", "teacher", "judge", "eval", "evaluation"})
BUILT_IN_PYTHON = "the program builds its model in Python code"
"""Why a shape is unknown that the command does not name."""
EXAMPLES = re.compile(
    r"run_(clm|mlm|plm|fim|qa|seq2seq_qa|glue|ner|swag|summarization|translation|t5_mlm_flax|speech_\w+"
    r"|image_classification|audio_classification)(_no_trainer)?\.py"
)
_TRL_PROGRAMS = re.compile(
    r"(run_)?(sft|dpo|orpo|grpo|kto|cpo|rloo|ppo|gkd|reward_modeling)(_\w+)?\.py|(\w+_)?trl(_\w+)?\.py"
    r"|trl\.(scripts|cli)\.\w+"
)
_TRL_COMMANDS = frozenset({"sft", "dpo", "grpo", "kto", "orpo", "cpo", "rloo", "ppo", "gkd", "reward"})
_TRANSLATES = re.compile(r"run_(summarization|translation)(_no_trainer)?\.py")
"""Examples that read 1,024 tokens and write 128 unless told otherwise."""
_TOKENS_OF_GPU = ("per_device_max_tokens", "max_tokens_per_device", "max_tokens_per_gpu", "per_gpu_max_tokens")
_LENGTHS_TRL = ("max_length", *LENGTHS)
_NO_TRAINING = re.compile(
    r"(lm_eval|lighteval|vllm|sglang)(\..*)?|(\w+_)?(eval|evaluate|evaluation|infer|inference|generate|predict)(_\w+)?\.py"
)
_RUNNERS = frozenset({"torchrun", "torch.distributed.run", "torch.distributed.launch", "deepspeed"})
_PREDEFINED = {"zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp1": "zero3", "fsdp2": "zero3"}
"""What TRL's own accelerate configurations shard, by the names that ``--accelerate_config`` takes."""
_CONFIG = re.compile(r".*\.(ya?ml|json)", re.DOTALL)


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with the Trainer, or that accelerate or DeepSpeed starts."""
    program = _find_program(invocation)
    if program is None:
        return None
    given = list_flag_names(program)
    before = _find_launcher(invocation, program)
    matched = len(_KNOWN_FLAGS & {name.rpartition(".")[2] for name in list_setting_names(program)})
    has_recipe = bool(program.words) and _CONFIG.fullmatch(program.words[0].shown[:4096]) is not None
    framework, weight = _find_framework(program, before, given, matched, has_recipe=has_recipe)
    if not framework:
        return None
    arguments = get_arguments(invocation)
    return Match(framework=framework, weight=weight, invocation=invocation, arguments=arguments)


def read_hf_trainer(match: Match, reading: Reading) -> None:
    """State the values of the program's settings, the launcher and their files."""
    program, invocation = _find_program(match.invocation), match.invocation
    if program is None:
        return
    findings, launch = (
        reading.findings,
        find_accelerate_launch(_get_launcher_words(invocation, program), invocation, reading),
    )
    config = _read_settings_of_program(program, invocation, reading)
    is_trl = match.framework in (TRL, TRL_ACCELERATE)
    read_settings(config, findings, lengths=_LENGTHS_TRL if is_trl else (*LENGTHS, "max_length"))
    _doubt_batch(config, findings)
    _limit_tokens(config, findings)
    packing = config.entry("packing")
    if is_trl and not config.why and (packing is None or (not packing.why and parse_boolean(packing.value) is False)):
        findings.options[CUT_TEXTS] = "true"
    read_memory(config, findings)
    if _TRANSLATES.fullmatch(program.file):
        findings.options.setdefault(ENCODER_LENGTH, "1024")
        findings.options.setdefault(DECODER_LENGTH, "128")
    if "mlm" in program.file:
        findings.options[MASKED] = "true"
    has_deepspeed = read_deepspeed_settings(config, invocation, reading)
    has_fsdp = read_fsdp_settings(config, invocation, reading)
    if launch:
        read_accelerate(launch, invocation, reading)
    _state_predefined(config, findings)
    _state_mixed_precision(config, findings)
    if match.framework not in (ACCELERATE, DEEPSPEED) or config.overrides.keys() & {"model_name_or_path"}:
        read_model(config, invocation, reading)
    elif name := find_public_name(config.overrides):
        reading.model_name = name
    else:
        mark_all_unknown(findings, SHAPE, BUILT_IN_PYTHON, invocation.line)
    _state_ranks(match, program, config, launch, reading, is_read=bool(has_deepspeed) or has_fsdp)
    opaque = parse_program_arguments(program).opaque
    why = config.why or (f"it may be among words that cannot be told: {opaque[0].why}" if opaque else "")
    if why:
        mark_all_unknown(findings, (*FIELDS[:1], "model.seq"), why, invocation.line)
    kind = _find_trl_kind(match.invocation, program) if is_trl else ""
    knows_roles = kind in PREFERENCE_KINDS
    of_tower = read_tower(config, reading, is_frozen_by_default=False)
    settings = iterate_settings(config)
    read_trainable(
        invocation, findings, settings=settings, framework=match.framework, knows_roles=knows_roles, known=of_tower
    )
    if knows_roles:
        read_preferences(kind, config, findings, usual_bits=32, opaque=find_opaque(program))


HF_TRAINER = Reader(
    frameworks=(TRAINER, TRAINER_DEEPSPEED, TRL, TRL_ACCELERATE, ACCELERATE, DEEPSPEED),
    recognise=recognise,
    read=read_hf_trainer,
)


def _find_program(invocation: Invocation) -> Program | None:
    """Return the program that trains: ``trl`` with a trainer after it, a Python file or module, or another command.

    A command of a package (``my-cli sft``) has many of the Trainer's own flags where it starts the Trainer.
    """
    trl = find_command(invocation, "trl")
    if trl is not None and trl.words and trl.words[0].known in _TRL_COMMANDS:
        return Program(name="trl", is_module=False, words=trl.words[1:])
    program = find_program(invocation)
    name = (invocation.words[0].known or "") if program is None and invocation.words else ""
    if not _CONSOLE.fullmatch(name) or name in _RUNNERS | _PRINTERS:
        return program
    command = Program(name=name, is_module=False, words=invocation.words[1:])
    return command if len(_KNOWN_FLAGS & list_flag_names(command)) >= MIN_FLAGS_OF_COMMANDS else None


def _find_trl_kind(invocation: Invocation, program: Program) -> str:
    """Return which of TRL's trainers runs, as its command or its file names it."""
    if program.name == "trl":
        command = find_command(invocation, "trl")
        return (command.words[0].known or "") if command is not None and command.words else ""
    word = program.file.removesuffix(".py").rpartition(".")[2].removeprefix("run_")
    return "reward" if word.startswith("reward") else word.partition("_")[0]


def _get_launcher_words(invocation: Invocation, program: Program) -> tuple[Text, ...]:
    """Return the words before the program: the launcher's."""
    return invocation.words[: len(invocation.words) - len(program.words) - 1]


def _find_launcher(invocation: Invocation, program: Program) -> str:
    """Return the last launcher before the program, empty where there is none that is known."""
    names = [
        word.shown.rpartition("/")[2] for word in _get_launcher_words(invocation, program) if len(word.shown) < 4096
    ]
    known = [name for name in names if name in _RUNNERS or name in ("accelerate", "accelerate.commands.launch")]
    return known[-1].partition(".commands")[0] if known else ""


def _find_framework(
    program: Program, launcher: str, given: Set[str], matched: int, *, has_recipe: bool
) -> tuple[str, int]:
    """Return the framework's name and how sure it is, an empty name for none of these."""
    is_deepspeed = "deepspeed" in given or "deepspeed_config" in given
    if program.name == "trl" or _TRL_PROGRAMS.fullmatch(program.file):
        if program.name != "trl" and not launcher and not matched and "config" not in given:
            return "", 0
        return (TRL_ACCELERATE if launcher == ACCELERATE else TRL), matched + SURE
    if EXAMPLES.fullmatch(program.file) or matched >= _MIN_KNOWN_FLAGS:
        return (TRAINER_DEEPSPEED if is_deepspeed else TRAINER), matched + (
            SURE if EXAMPLES.fullmatch(program.file) else 0
        )
    if _NO_TRAINING.fullmatch(program.file):
        return "", 0
    if launcher == ACCELERATE:
        # the program of the task is unknown; recipes after it are TRL's convention
        is_task = "\N{HORIZONTAL ELLIPSIS}" in program.file and (has_recipe or "config" in given)
        return (TRL_ACCELERATE if is_task else ACCELERATE), 1
    return (DEEPSPEED, 1) if "deepspeed_config" in given or (launcher == DEEPSPEED and is_deepspeed) else ("", 0)


def _read_settings_of_program(program: Program, invocation: Invocation, reading: Reading) -> ConfigFile:
    """Return the program's settings: those of the recipe that it names, under those of its command line."""
    assigned = parse_assignments(program.words)
    stated = {**parse_program_flags(program), **assigned}
    # words of that form are Hydra's, in a program of its user
    composed = compose_settings(program, invocation, reading, stated) if assigned else None
    if composed is not None:
        config = composed.config
        of_groups = dict(list_entries(config, limit=MAX_ENTRIES))
        own = {name: entry for name, entry in stated.items() if name not in composed.choices}
        config.overrides = _index_by_last_name({**of_groups, **own})
        return config
    given = _index_by_last_name(stated)
    named = parse_program_arguments(program).flags.get("--config")
    path = named.value if named else None
    if path is None and program.words and not program.words[0].shown.startswith("-"):
        path = program.words[0] if _CONFIG.fullmatch(program.words[0].shown) else None
    config = reading.config(path, invocation) if path is not None and path.parts else ConfigFile(path="")
    config.overrides = given
    return config


def _index_by_last_name(settings: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return settings by the last part of their names, where they are the Trainer's.

    Settings of another model than the trained one (``--reward.bf16``) are left out; if two parts have the same setting,
    its value is unknown.
    """
    given: dict[str, Entry] = {}
    owners: dict[str, set[str]] = {}
    for name, entry in sorted(settings.items(), key=lambda item: "." not in item[0]):
        owner, _, last = name.rpartition(".")
        if not (last in _KNOWN_FLAGS or last in _LENGTHS_TRL or last in ("bf16", "fp16")):
            given[name] = entry
        elif owner.rpartition(".")[2] not in _OTHER_MODELS:
            owners.setdefault(last, set()).add(owner)
            given[last] = entry
    for last, prefixes in owners.items():
        if len(prefixes) > 1 and "" not in prefixes:
            given[last] = replace(given[last], value=None, why="several parts of the program set it")
    return given


def _doubt_batch(config: ConfigFile, findings: Findings) -> None:
    """Mark the micro-batch as unknown where a flag that is not the Trainer's gives a batch."""
    name = next((name for name in BATCHES if name in config.overrides), "")
    if name and "plan.micro_batch" not in findings.values and "plan.micro_batch" not in findings.unknown:
        entry = config.overrides[name]
        why = f"{entry.text[:60]} may be the batch of one GPU, or of all"
        findings.mark_unknown("plan.micro_batch", why, entry.line, file=entry.file)


def _limit_tokens(config: ConfigFile, findings: Findings) -> None:
    """Note how many tokens a GPU works on at a time at most, where a setting that is not the Trainer's states it."""
    entry = next((config.overrides[name] for name in _TOKENS_OF_GPU if name in config.overrides), None)
    number = parse_integer(entry.value) if entry is not None and not entry.why else None
    if number is not None and number > 0:
        findings.options[MAX_TOKENS] = str(number)


def _state_predefined(config: ConfigFile, findings: Findings) -> None:
    """State the sharding of a configuration that TRL ships."""
    entry = config.entry("accelerate_config")
    if entry is not None and entry.value in _PREDEFINED and findings.get("plan.sharding") is None:
        findings.state("plan.sharding", _PREDEFINED[entry.value], entry.line, entry.text, file=entry.file)


def _state_mixed_precision(config: ConfigFile, findings: Findings) -> None:
    """State the precision that a program of accelerate's takes itself, as accelerate's examples do."""
    entry = config.overrides.get("mixed_precision")
    if entry is not None and entry.value in ("bf16", "fp16", "fp8"):
        findings.state("plan.precision", entry.value, entry.line, entry.text)
    elif entry is not None and entry.value == "no":
        findings.mark_unknown("plan.precision", f"the program itself mixes none: {entry.text[:80]}", entry.line)


def _state_ranks(
    match: Match,
    program: Program,
    config: ConfigFile,
    launch: AccelerateSettings | None,
    reading: Reading,
    *,
    is_read: bool,
) -> None:
    """State that ranks are data-parallel only, where that is known."""
    findings = reading.findings
    if config.why or find_model_split(config.overrides, config):
        return
    if is_read and match.framework not in (ACCELERATE, DEEPSPEED):
        if not (launch and launch.config.why):
            state_data_parallel_only(
                findings, "the Trainer shards by DeepSpeed or FSDP, and splits nothing", match.invocation.line
            )
        return
    is_plain = match.framework in (TRAINER, TRL) and not parse_program_arguments(program).opaque
    if is_plain and launch is None and _find_launcher(match.invocation, program) in _RUNNERS:
        why = "the Trainer's ranks are data-parallel, as no setting splits the model"
        state_data_parallel_only(findings, why, match.invocation.line)
