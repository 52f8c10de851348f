"""Recognises the training framework and the launcher of a script by the words of its commands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.launchers.programs import (
    MAX_PATH_CHARS,
    MODE_FLAGS,
    Program,
    find_program,
    list_base_names,
    parse_program_arguments,
)
from opsk_jobcheck.scripts.launchers.ranks import BUILTIN_LAUNCHER, is_opsk_launch

_FRAMEWORKS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("axolotl", r"(^|/)axolotl$|axolotl\.cli"),
        ("llama-factory", r"llamafactory-cli|llama-factory-cli|LLaMA-Factory"),
        ("torchtitan", r"torchtitan|--job\.config_file|(^|/)run_train\.sh$"),
        ("nemo", r"(^|/)nemo(_run)?$|megatron_gpt_pretraining\.py|NeMo|nemo\.collections"),
        ("gpt-neox", r"gpt-neox(?!-?\d)|(^|/)deepy\.py$"),
        ("nanotron", r"nanotron"),
        ("picotron", r"picotron"),
        ("composer", r"(^|/)composer$|llm-foundry|llmfoundry"),
        ("fms-fsdp", r"fms[-_]fsdp|main_training(_llama)?\.py"),
        ("llama-cookbook", r"llama[-_]recipes|llama[-_]cookbook"),
        ("verl", r"verl\.trainer|(^|/)verl/"),
        ("openrlhf", r"openrlhf"),
        ("trl", r"(^|/)trl$|sft_trainer|(^|/)(run_)?(sft|dpo|orpo|grpo)\.py$"),
        ("hf-trainer", r"run_(clm|mlm|seq2seq|translation)[\w-]*\.py$"),
        ("torchtune", r"torchtune|(^|/)tune$"),
        ("litgpt", r"(^|/)litgpt$"),
        ("open-clip", r"open_clip_train"),
        ("olmo", r"(^|/)OLMo(-core)?(/|$)|(^|[./])olmo(_core)?[./]"),
        ("pytorch-fsdp", r"[Ff][Ss][Dd][Pp]"),
        ("lightning", r"lightning"),
        ("megatron-bridge", r"Megatron[- ]Bridge"),
        ("megatron-deepspeed", r"Megatron-DeepSpeed|ALCF/helpers\.sh"),
        ("megatron-lm", r"Megatron-LM|megatron-lm"),
    )
)
_CONSOLES: Mapping[str, tuple[str, frozenset[str]]] = MappingProxyType(
    {
        "swift": ("ms-swift", frozenset({"sft", "pt", "rlhf"})),
        # ms-swift's command on Megatron Core
        "megatron": ("", frozenset({"sft", "pt", "rlhf"})),
        "xtuner": ("xtuner", frozenset({"train"})),
        "oumi": ("oumi", frozenset({"train"})),
        "automodel": ("nemo-automodel", frozenset({"finetune", "pretrain"})),
        **dict.fromkeys(("fabric", "lightning"), ("lightning", frozenset({"run"}))),
        "ludwig": ("", frozenset({"train", "experiment"})),
        "ilab": ("", frozenset({"model"})),
        "yolo": ("ultralytics", frozenset({"train", "detect", "segment", "classify", "pose", "obb"})),
        **dict.fromkeys(("nnUNetv2_train", "nnUNet_train"), ("nnunet", frozenset())),
        **dict.fromkeys(("dp", "chemprop"), ("", frozenset({"train"}))),
        **dict.fromkeys(
            ("fairseq-train", "fairseq-hydra-train", "nequip-train", "mace_run_train"),
            ("", frozenset()),
        ),
    }
)
"""Commands that train: the framework where it is known by its own name, and the words of which one must follow."""
_TESTER = "pytest"
_TRAIN_WORDS = frozenset({"train", "mode=train"})
_PROGRAM_TRAINS = tuple((word,) for word in ("train", "fit", "finetune", "fine-tune", "pretrain", "train_model"))
"""First words with which a program of many tasks trains."""
_TRAIN_MODES = frozenset({*_PROGRAM_TRAINS, ("training",)})
_COMMAND = re.compile(r"[a-z][\w.-]{0,60}")
_TRAIN_COMMAND = re.compile(r"[a-z][\w.]{0,60}[_-](train|pretrain|finetune)")
_BEFORE_COMMANDS = frozenset({"srun", "uv", "run", "exec", "time", "nohup", "poetry", "pixi", "pdm", "hatch", "rye"})
_FILE_COMMANDS = frozenset(
    {
        *("tar", "rsync", "unzip", "zip", "find", "du", "head", "tail", "wc", "touch", "gzip", "gunzip", "scp", "test"),
        *("diff", "stat", "tree", "split", "shuf", "sort", "curl", "wget", "gsutil", "aws", "rclone", "dvc", "make"),
    }
)
"""Commands whose next word is a folder, which is often called ``train``."""
MAX_LAUNCHER_WORDS = 16
"""Words of a command in which its own name is looked for."""
_NEED_TRAIN = frozenset({"yolo", "ilab"})
"""Commands with further words for what they do: ``train`` must be among them."""
_RELATIVES = {
    "open_lm": ("hf-trainer",),
    "bionemo": ("megatron-lm", "nemo"),
    "openrlhf": ("hf-trainer", "hf-trainer+deepspeed", "deepspeed"),
}
"""Frameworks whose flags are read as those of others, by the name in their programs' paths."""
NAMED_BY_WORDS = (
    frozenset(name for name, _ in _FRAMEWORKS) | _RELATIVES.keys() | {name for name, _ in _CONSOLES.values() if name}
)
"""The frameworks that are recognised by words alone, whether or not a reader knows their settings."""
_DEEPSPEED_HELPERS = re.compile(r"(^|/)ALCF/helpers\.sh$")
_ANY_FRAMEWORK = re.compile("|".join(f"(?:{pattern.pattern})" for _, pattern in _FRAMEWORKS))
_TRAINER = re.compile(
    r"(^|\.)open_clip_train\.main$|(pre)?train(?!ed)\w*\.py$|finetune(?!d)\w*\.py$|fine_tun(?!ed)\w*\.py$|(^|/)(pre)?train[\w-]*\.sh$"
    r"|(^|[/_])(sft|dpo|orpo|kto|grpo|ppo)(_(q?lora|full|vlm|trl))?\.py$"
)
MAX_RULE_WORDS = 12
_RULE = re.compile(r"((?!test|eval|check)\w+-)?(train|training|pretrain|finetune|sft|dpo|grpo)([-_]\w{1,40}){0,4}")
"""Rules of a Makefile that train, by their names."""
_TRAINER_MODULE = re.compile(
    r"(pre_?)?train(er|ing)?(_\w+)?|fine_?tun(e|ing)(_\w+)?|(run_)?(sft|dpo|orpo|kto|grpo|ppo)"
)
_RUNNERS = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "deepspeed",
    "mpirun",
    "mpiexec",
    "torchrun_jsc",
    "composer",
    "colossalai",
    "torchx",
    "horovodrun",
    "flux",
    "tune",
    "accelerate.commands.launch",
)
_SHOWN = {
    "accelerate.commands.launch": "accelerate launch",
    "tune": "tune run",
    "accelerate": "accelerate launch",
    "colossalai": "colossalai run",
    "torchx": "torchx run",
    "flux": "flux run",
}
_NEED_RUN = ("colossalai", "torchx", "flux", "tune")
"""Names of other things too: they are launchers where ``run`` follows."""
_PROFILERS = ("nsys", "ncu", "rocprof", "rocprofv3")
_PROFILED = re.compile(rf"(?:^|[\s/;&])({'|'.join(_PROFILERS)})(?=\s)")
_LOOKS = frozenset(
    {"hostname", "nvidia-smi", "rocm-smi", "ip", "uname", "env", "date", "true", "sleep", "df", "ibstat"}
)
_CONTAINERS = ("singularity", "apptainer", "docker", "podman", "enroot")
_SETUP_COMMANDS = frozenset(
    {
        *("echo", "printf", "tee", "export", "mkdir", "cd", "module", "ls", "cp", "rm", "ln", "pip", "source"),
        *("cat", "grep", "sed", "awk", "git", "scancel", "sbatch", "scontrol", "chmod", "mv", "pushd", "popd"),
    }
)

_INSTALLERS = frozenset({"pip", "pip3", "conda", "mamba", "micromamba", "uv", "poetry", "pdm", "pixi"})
_INSTALLS = frozenset({"install", "add", "uninstall", "download", "sync", "create", "update"})


def select_commands(invocations: Sequence[Invocation]) -> list[Invocation]:
    """Return the invocations that do something: without output and set-up commands and cut-off flags."""
    return [
        invocation
        for invocation in invocations
        if invocation.words
        and invocation.known_words[0].rpartition("/")[2] not in _SETUP_COMMANDS
        and not is_cut_off(invocation)
        and not _installs_packages(invocation)
    ]


def _installs_packages(invocation: Invocation) -> bool:
    """Return whether a command installs packages, whose names are those of launchers too (``accelerate``)."""
    names = list_base_names(invocation)[:MAX_LAUNCHER_WORDS]
    return any(first in _INSTALLERS and second in _INSTALLS for first, second in pairwise(names))


def is_cut_off(invocation: Invocation) -> bool:
    r"""Return whether a command is nothing but the flags of another, cut off by a comment or a blank.

    Behind ``\\`` and a blank, or a line that is a comment, a shell begins a new command, and does not find it.
    """
    return invocation.known_words[0].startswith("--")


def find_console(invocation: Invocation) -> str | None:
    """Return the framework whose command trains here (``swift sft``), empty for one without a name, else ``None``."""
    names = list_base_names(invocation)
    for index, name in enumerate(names):
        if name not in _CONSOLES:
            continue
        framework, following = _CONSOLES[name]
        rest = names[index + 1 :]
        is_followed = not following or (bool(rest) and rest[0] in following)
        if is_followed and (name not in _NEED_TRAIN or not _TRAIN_WORDS.isdisjoint(rest)):
            return framework
    return None


def find_framework(invocations: Sequence[Invocation]) -> str | None:
    """Return the name of the training framework, ``None`` when none is recognised."""
    if console := next(filter(None, map(find_console, select_commands(invocations))), ""):
        return console
    printers = ("echo", "printf")
    words = [
        word
        for invocation in invocations
        if invocation.words and invocation.words[0].known not in printers and _TESTER not in invocation.known_words
        for word in invocation.shown_words
    ]
    named = [word for word in words if len(word) <= MAX_PATH_CHARS and _ANY_FRAMEWORK.search(word)]
    for name, pattern in _FRAMEWORKS:
        if any(pattern.search(word) for word in named):
            return name
    return None


def refine_framework(framework: str | None, invocations: Sequence[Invocation]) -> str | None:
    """Return the framework that a reader recognised, or that the words of a script name.

    An unknown program under accelerate is TRL if the script names TRL elsewhere; Megatron is Megatron-DeepSpeed if the
    script loads that, and not all of its flags are known. Other frameworks take the flags of a related one.
    """
    if framework == "megatron-lm" and any(
        _DEEPSPEED_HELPERS.search(word) for entry in invocations for word in entry.shown_words[1:2]
    ):
        return "megatron-deepspeed"
    for name, others in _RELATIVES.items():
        if framework in others and any(
            name in program.name.lower() for entry in select_commands(invocations) if (program := find_program(entry))
        ):
            return name
    if framework == "accelerate" and find_framework(invocations) == "trl":
        return "trl + accelerate"
    return framework or find_framework(invocations)


def looks_like_training(invocations: Sequence[Invocation]) -> bool:
    """Return whether a script starts ranks by a training launcher, or a program that is named like a trainer."""
    return find_training_command(invocations) is not None


def find_training_command(invocations: Sequence[Invocation]) -> Invocation | None:
    """Return the first command with a training launcher, or a program that is named like a trainer.

    A word with blanks is a text for a shell (``bash -c "..."``), and a script that is named like a trainer starts one:
    their known commands are listed separately, and come first.
    """
    shells: list[Invocation] = []
    for invocation in select_commands(invocations):
        if _TESTER in invocation.known_words:
            continue
        if find_console(invocation) is not None or has_train_word(invocation) or _is_trainer_module(invocation):
            return invocation
        if _starts_rule_or_sweep(invocation):
            return invocation
        for text in invocation.shown_words:
            if len(text) <= MAX_PATH_CHARS and (text.rpartition("/")[2] in _RUNNERS[:5] or _TRAINER.search(text)):
                if " " not in text and not text.endswith(".sh"):
                    return invocation
                shells.append(invocation)
    return shells[0] if shells else None


def _starts_rule_or_sweep(invocation: Invocation) -> bool:
    """Return whether a command starts a rule that is named like a trainer (``make train-sft``), or runs of a sweep."""
    words = [word.rpartition("/")[2] for word in invocation.shown_words[:MAX_RULE_WORDS] if len(word) <= MAX_PATH_CHARS]
    if words and words[0] in ("make", "just"):
        return any(map(_RULE.fullmatch, words[1:]))
    return any(first == "wandb" and second == "agent" for first, second in pairwise(words))


def _is_trainer_module(invocation: Invocation) -> bool:
    """Return whether a command starts a module that is named like a trainer (``python -m mine.train_sft``)."""
    program = find_program(invocation)
    name = program.name.rpartition(".")[2] if program is not None and program.is_module else ""
    return len(name) <= MAX_PATH_CHARS and _TRAINER_MODULE.fullmatch(name) is not None


def has_train_word(invocation: Invocation) -> bool:
    """Return whether a word or mode tells a program to train: ``main.py train``, ``main.py --mode train``.

    So do commands that an installed project has: ``mine train``, ``mine_train``, under ``srun`` or ``uv run`` as well.
    """
    program = find_program(invocation)
    if program is not None:
        return program.known_words[:1] in _PROGRAM_TRAINS or _has_train_mode(program)
    name, after = _find_console_command(invocation) if invocation.certain else ("", "")
    is_command = _COMMAND.fullmatch(name) is not None and name not in _FILE_COMMANDS
    return is_command and ((after,) in _PROGRAM_TRAINS or _TRAIN_COMMAND.fullmatch(name) is not None)


def _has_train_mode(program: Program) -> bool:
    """Return whether a flag tells a program of many tasks to train."""
    flags = parse_program_arguments(program).flags
    given = [flags[name] for name in MODE_FLAGS if name in flags]
    return any(entry.certain and (entry.value.known,) in _TRAIN_MODES for entry in given)


def _find_console_command(invocation: Invocation) -> tuple[str, str]:
    """Return the name of the command behind launchers and their options, and the word after it; empty for none."""
    words = list_base_names(invocation)[:MAX_LAUNCHER_WORDS]
    for index, name in enumerate(words):
        before = words[index - 1] if index else ""
        is_value = before.startswith("-") and "=" not in before
        if not is_value and not name.startswith("-") and name not in _BEFORE_COMMANDS:
            return name, words[index + 1] if index + 1 < len(words) else ""
    return "", ""


def find_launcher(invocations: Sequence[Invocation], *, ntasks_per_node: int | None) -> str | None:
    """Return how ranks are started, in words: ``srun + torchrun``; ``None`` when it is unknown."""
    acting = [entry for entry in select_commands(invocations) if not _only_inspects(entry)]
    names = [name for entry in acting for name in list_base_names(entry)]
    known = set(names)
    parts = [BUILTIN_LAUNCHER] if any(map(is_opsk_launch, acting)) else ["srun"] if "srun" in known else []
    starters = {name for entry in acting for name in _list_names_before_program(entry)}
    runner = next((name for name in _RUNNERS if name in starters), None)
    profilers = known | _find_profilers(acting)
    profiler = next((f", under {name}" for name in _PROFILERS if name in profilers), "")
    if "axolotl" in known and runner and f"--launcher {runner}" in " ".join(names):
        # axolotl starts the runner itself
        parts.append(f"axolotl --launcher {runner}")
    elif runner:
        parts += [name for name in _CONTAINERS if name in known][:1]
        parts.append(_SHOWN.get(runner, runner))
    elif parts and (ntasks_per_node or 0) > 1:
        return f"{' + '.join(parts)}, one task per GPU{profiler}"
    elif parts and _starts_script(acting):
        return f"{parts[0]} of a second script"
    return (" + ".join(parts) + profiler) if parts else None


def _list_names_before_program(invocation: Invocation) -> list[str]:
    """Return the names before a program of Python, whose own words name no launcher (``--strategy deepspeed``)."""
    result: list[str] = []
    names = list_base_names(invocation)
    for index, name in enumerate(names):
        if name not in _NEED_RUN or names[index + 1 : index + 2] == ("run",):
            result.append(name)
        if name.endswith(".py"):
            break
    return result


def _only_inspects(invocation: Invocation) -> bool:
    """Return whether a step only inspects a node: ``srun -N1 hostname``."""
    names = list_base_names(invocation)
    if "srun" not in names or _LOOKS.isdisjoint(names):
        return False
    is_shell = any(name.endswith((".py", ".sh", ".bash")) or name in ("-c", "-lc", "-m") for name in names)
    return not is_shell and not any(name in names for name in _RUNNERS)


def _find_profilers(invocations: Sequence[Invocation]) -> set[str]:
    """Return the profilers that a shell's text (``bash -c "..."``) starts."""
    words = [text for entry in invocations for text in entry.shown_words]
    everything = "\n".join(words)
    if not any(name in everything for name in _PROFILERS):  # nearly all scripts
        return set()
    texts = [text[:65536] for text in words if " " in text or "\n" in text or "\t" in text]
    speaking = [text for text in texts if any(name in text for name in _PROFILERS)]
    return {name for text in speaking for name in _PROFILED.findall(text)}


def _starts_script(invocations: Sequence[Invocation]) -> bool:
    """Return whether what ``srun`` starts is a script, of which nothing more was read."""
    last = invocations[-1].shown_words if invocations else ()
    is_step = bool(last) and last[0].rpartition("/")[2] == "srun"
    return is_step and any(text.endswith((".sh", ".bash")) for text in last[1:])
