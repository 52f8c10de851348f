"""Recognises a submission: which program it starts, and with which settings.

Two keys name the program. The key of the script covers all its commands with every value masked, so that paths, dates,
seeds and job names make no difference. The key of the command covers the programs alone and the folder that it was
submitted from, for a script that was edited. Nothing of a key can be read back; settings are stored as short words.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opsk.history.commands import parse_assignment, read_commands

GPUS = "GPUs"
"""The setting that holds how many GPUs a job has."""
MAX_SETTINGS, MAX_NAME_CHARS, MAX_VALUE_CHARS = 64, 48, 40
_SETUP = frozenset((
    ".", ":", "clear", "pkill", "dcgmi", "sync", "((",
    "[", "[[", "alias", "apt", "awk", "break", "case", "cat", "cd", "chmod", "chown", "conda", "continue", "cp",
    "curl", "cut",
    "date", "declare", "df", "done", "du", "echo", "elif", "else", "env", "esac", "eval", "exit", "export",
    "false", "fi", "find", "for", "free", "function", "git", "grep", "head", "hostname", "if", "kill", "let",
    "ln", "local", "ls", "lscpu", "mamba", "micromamba", "mkdir", "mktemp", "ml", "module", "mv", "nvidia-smi",
    "pip", "pip3", "printenv", "printf", "pushd", "popd", "pwd", "read", "readonly", "return", "rm", "rsync",
    "sacct", "sbatch", "scontrol", "sed", "select", "seq", "set", "shift", "shopt", "sinfo", "sleep", "sort", "source",
    "spack", "squeue", "stat", "tail", "tar", "tee", "test", "touch", "tr", "trap", "true", "typeset", "ulimit",
    "umask", "uname", "unset", "unzip", "wait", "wc", "wget", "which", "whoami", "xargs",
))  # fmt: skip
"""Commands that prepare a job: no program of them is what the job is for."""
_LAUNCHERS = frozenset((
    "accelerate", "apptainer", "bash", "ch-run", "deepspeed", "docker", "enroot", "exec", "flux", "horovodrun",
    "java", "julia", "jsrun", "launch", "mpiexec", "mpiexec.hydra", "mpirun", "numactl", "orterun", "perl",
    "podman", "poetry", "prun", "python", "python3", "ray", "Rscript", "run", "sh", "shifter", "singularity",
    "srun", "stdbuf", "taskset", "time", "timeout", "torchrun", "torch.distributed.run",
    "torch.distributed.launch", "uv",
))  # fmt: skip
"""Commands that start the program that is named after them."""
_PROGRAM = re.compile(r"\.(?:py|jl|R|r|pl|sh|bash|lua|m|jar|exe|x|out|ipynb)$")
_FLAG = re.compile(r"-{1,2}[A-Za-z][\w.\-]*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_DIGITS = re.compile(r"\d+")
_IDLE_NAME = re.compile(
    r"seed|random|(?:^|[-_.])(?:name|id|port|tag|date|time|host|rank|out|log|dir|path|file|addr|url|user|group|project|note)s?(?:$|[-_.])"
    r"|output|logdir|resume|checkpoint|ckpt|wandb|experiment|exp_name|runid|timestamp|rdzv|master|outdir|workdir|logfile",
    re.IGNORECASE,
)
"""Names of settings that differ from run to run and change nothing of what a program needs."""
_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|cred|cookie", re.IGNORECASE)
_RUNTIME_NAME = re.compile(
    r"(?:CC|CONDA|CUDA|CXX|FI|HF|HIP|LD|LOGLEVEL|MELLANOX|MIOPEN|MKL|MPICH|NCCL|NVTE|OMP|OMPI|PATH|PYTHON\w*|RCCL|RDMAV|ROCR"
    r"|SINGULARITY|APPTAINER|SLURM|TOKENIZERS|TORCH|TRANSFORMERS|TRITON|UCX|WANDB|XDG)(?:_\w+)?"
)
"""Variables of libraries and tools: they change how a program runs, and hardly what it needs."""
_STARTS_PROGRAM = re.compile(r"[\w./$~]")
_DATE = re.compile(r"(?:19|20)\d{2}[-_.]?[01]\d[-_.]?[0-3]\d|\d{2}:\d{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a submission is, as far as earlier runs of it are concerned.

    Parameters
    ----------
    script_key, command_key
        The two keys of the program.
    command
        The programs that it starts, by name, for people.
    settings
        Flags and variables with their values: numbers and short words, and `GPUS`. Paths, dates, seeds, names and
        secrets are not among them.
    gpu_type, gpus
        The type of GPU as Slurm names it, and the number for the whole job; ``None`` where nothing says so.
    """

    script_key: str
    command_key: str
    command: str
    settings: Mapping[str, str] = field(default_factory=dict)
    gpu_type: str | None = None
    gpus: int | None = None


def read_submission(
    text: str,
    *,
    script_name: str = "",
    directory: str = "",
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    gpu_type: str | None = None,
    gpus: int | None = None,
) -> Submission:
    """Return what a batch script is.

    Parameters
    ----------
    script_name
        Its file, as typed.
    directory
        Where it was submitted.
    arguments, environment
        Its own arguments, and variables of the job.
    """
    commands = read_commands(text, arguments=arguments, environment=environment)
    parts = [part for words in commands if (part := _read_command(words)) is not None]
    settings: dict[str, str] = {} if gpus is None else {GPUS: str(gpus)}
    for words in commands:
        if words[0] == "export":
            settings |= _select_settings(pair for word in words[1:] if (pair := parse_assignment(word)) is not None)
    for part in parts:
        settings |= part.settings
    programs = [program for part in parts for program in part.programs]
    name = mask_digits(script_name.rpartition("/")[2])
    folder = mask_folders(directory)
    return Submission(
        script_key=_hash("script", [part.skeleton for part in parts] or [name, folder]),
        command_key=_hash("command", [programs or [name], folder]),
        command=" ".join(dict.fromkeys(programs))[:80] or name,
        settings=dict(list(settings.items())[:MAX_SETTINGS]),
        gpu_type=gpu_type,
        gpus=gpus,
    )


def mask_digits(text: str) -> str:
    """Return a name in which numbers make no difference."""
    return _DIGITS.sub("#", text)


def mask_folders(directory: str) -> str:
    """Return a folder in which numbers, and so dates and counters of runs, make no difference."""
    return "/".join(mask_digits(part) for part in directory.rstrip("/").split("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """One command that does work: the programs that it starts, its words with all values masked, its settings."""

    programs: tuple[str, ...]
    skeleton: tuple[str, ...]
    settings: Mapping[str, str]


def _read_command(words: Sequence[str]) -> _Command | None:
    """Return a command; ``None`` for one that only prepares the job."""
    position = 0
    pairs: list[tuple[str, str]] = []
    while position < len(words) and (pair := parse_assignment(words[position])) is not None:
        pairs.append(pair)
        position += 1
    body = [word for word in words[position:] if not word.startswith((">", "<", "2>", "1>", "&>"))]
    if not body or _base_name(body[0]) in _SETUP or not _STARTS_PROGRAM.match(body[0]):
        return None
    programs: list[str] = []
    skeleton = [name for name, _ in pairs]
    is_started, flag, index = False, "", -1
    for index, word in enumerate(body):
        name, has_value, value = word.partition("=")
        if _FLAG.fullmatch(name):
            skeleton.append(name)
            if has_value and is_started:
                pairs.append((name, value))
            elif is_started and (index + 1 == len(body) or _is_flag(body[index + 1])):
                pairs.append((name, "on"))
            flag = "" if has_value else name
            is_module = name == "-m"
            continue
        if not is_started and (not flag or is_module or _is_program(word)):
            base = mask_digits(_base_name(word))
            programs.append(base)
            skeleton.append(base)
            is_started = _base_name(word) not in _LAUNCHERS
        elif flag:
            skeleton.append("=")
            if is_started:
                pairs.append((flag, word))
        elif has_value and re.fullmatch(r"\+{0,2}[A-Za-z_][\w.\-]*", name):
            skeleton.append(name)
            pairs.append((name, value))
        else:
            skeleton.append("#" if _NUMBER.fullmatch(word) else "*")
            if is_started and re.fullmatch(r"[A-Za-z0-9_.+-]{1,20}", word) and "." not in word.strip("0123456789."):
                pairs.append((f"argument {sum(one == '*' or one == '#' for one in skeleton)}", word))
        flag = ""
    return _Command(programs=tuple(programs), skeleton=tuple(skeleton), settings=_select_settings(pairs))


def _is_flag(word: str) -> bool:
    return _FLAG.fullmatch(word.partition("=")[0]) is not None


def _is_program(word: str) -> bool:
    """Return whether a word after a launcher's flag starts a program, and is no value of the flag."""
    return word.startswith("./") or _PROGRAM.search(word) is not None


def _base_name(word: str) -> str:
    return word.rpartition("/")[2] or word


def _select_settings(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the settings that may change what a program needs, and that nobody minds to have stored."""
    return {
        name: value
        for name, value in pairs
        if len(name) <= MAX_NAME_CHARS
        and 0 < len(value) <= MAX_VALUE_CHARS
        and not _IDLE_NAME.search(name)
        and not _SECRET_NAME.search(name)
        and not _RUNTIME_NAME.fullmatch(name)
        and not _is_passing(value)
    }


def _is_passing(value: str) -> bool:
    """Return whether a value is a path, an address, a date or unknown: it belongs to one run."""
    if _NUMBER.fullmatch(value):
        return False
    return any(mark in value for mark in "/~$`@\\") or _DATE.search(value) is not None or not value.isprintable()


def _hash(kind: str, parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps([kind, parts]).encode()).hexdigest()[:32]
