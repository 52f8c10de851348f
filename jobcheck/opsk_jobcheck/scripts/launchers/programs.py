"""Finds the program that a command starts, under launchers and containers, its arguments, and whether it trains.

Programs that do not train (data preparation, conversion, evaluation, serving, network tests) are recognised by their
names; a name that mentions training (``train_eval.py``) trains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from opsk.workload.public_models.measured import is_public
from opsk_jobcheck.scripts.bash.values import Invocation, Text, get_known_words
from opsk_jobcheck.scripts.settings.arguments import (
    Arguments,
    drop_prefix,
    get_arguments,
    parse_arguments,
    select_arguments_from,
)
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.deepspeed_config import STEPS_OPTION
from opsk_jobcheck.scripts.settings.findings import (
    MAX_NUMBER,
    Findings,
    mark_all_unknown,
    state_data_parallel_only,
    state_derived,
    state_number,
)
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading, find_best_match, make_entry

MAX_PROGRAM_CHARS = 4096
MAX_NAME_CHARS = 255
"""Longest name of a file (NAME_MAX of Linux): patterns of programs' names are tried on no longer ones."""
MAX_PATH_CHARS = 512
"""Longest path that patterns are tried on anywhere within: their work may grow with its square."""
SURE = 3
"""The weight of a program that can be nothing else."""
SHAPE = ("model.layers", "model.hidden", "model.heads")
RECOMPUTE_WORDS: Mapping[str, str] = MappingProxyType(
    {**dict.fromkeys(("1", "true", "yes", "on"), "full"), **dict.fromkeys(("0", "false", "no", "off"), "none")}
)
"""Values of a switch that recomputes all layers, or none."""
_LAUNCHERS = re.compile(
    r"torch\.distributed(\.(run|launch))?|accelerate\.commands\.\w+|deepspeed\.launcher\.\w+|mpi4py(\.\w+)?"
    r"|torchrun|pdb|cProfile|torch_xla\.distributed\.xla_dist"
)
_ASSIGNED = re.compile(r"\+{0,2}([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)=")
MAX_OTHERS = 8
"""Other commands that are read for this."""
_GROUPS = ("model.", "plan.")
CONNECTIVITY = "none: a connectivity test"
_PROGRAM = re.compile(r"torch[-_]distributed[-_]gpu[-_]test\.py")
_WORDS = (
    *(
        "pre_?process",
        "pre_?processing",
        "pre_?compute",
        "annotate",
        "tokeni[sz]e",
        "tokeni[sz]er",
        "convert",
        "converter",
        "convertor",
        "conversion",
        "round_?trip",
        "reshard",
    ),
    *("consolidate", "consolidation", "merge", "dedup", "deduplicate", "download", "upload", "sync", "export", "pack"),
    *("eval", "evaluate", "evaluation", "evalharness", "infer", "inference", "generate", "generation", "serve"),
    *(
        "predict",
        "prediction",
        "server",
        "vllm",
        "bandwidth",
        "all_?reduce",
        "nccl",
        "analy[sz]e",
        "plot",
        "visuali[sz]e",
        "test",
    ),
    *("pytest", "coverage", r"hf2\w+", r"\w{1,40}2hf", r"\w{1,40}2mcore", r"mcore2\w+"),
)
_OTHER = re.compile(rf"(^|[_.-])({'|'.join(_WORDS)})s?(?=[_.-]|$)", re.IGNORECASE)
_HARNESS = re.compile(r"(^|/)(lm_eval|[\w.-]*eval(uation)?[_-]harness)([./]|$)|(^|\.)lm_eval(\.|$)")
_FOLDER = re.compile(r"(^|/)[\w.-]{0,60}(conversions?|convert(er|or)?s?)/")
_EVALUATES = (
    "--eval",
    "--evaluate",
    "--eval-only",
    "--evaluate-only",
    "--test-only",
    "--only-eval",
    "--inference-only",
)
"""Switches with which a training program does not train: as in DINO, torchvision, and MAE and DeiT (``--eval``)."""
MODE_FLAGS = ("--mode", "--run-mode", "--phase", "--action")
"""Flags with which a program of many tasks is told what to do, as ``main.py --mode train`` of score-based models."""
_OTHER_MODES = frozenset({"eval", "evaluate", "evaluation", "test", "infer", "inference", "predict", "sample"})
_OTHER_TASKS = frozenset((word,) for word in (*_OTHER_MODES, "generate", "export", "convert", "preprocess", "serve"))
"""First words with which a program of many tasks does not train: ``main.py evaluate``."""
_ONLY_EVALUATES = re.compile(r"(^|\.)(val|eval|test|validate|evaluate)_only$")
"""Overrides with which a trainer only evaluates: ``trainer.val_only=true`` of verl."""
_TRAINS_AS_TEXT = re.compile(r"\.backward\(|Trainer\b[^\n]{0,400}\n?[^\n]{0,100}\.(fit|train)\(")
MAX_TEXT_CHARS = 1 << 14
_TOOLS = frozenset(
    {
        *(
            "wandb",
            "pip",
            "venv",
            "virtualenv",
            "ipykernel",
            "jupyter",
            "notebook",
            "json",
            "http",
            "zipfile",
            "tarfile",
        ),
        *("nltk", "spacy", "site", "compileall", "timeit", "dask", "bitsandbytes", "xformers"),
    }
)
"""Packages whose modules are tools: ``python -m wandb sync``."""
_TOKENIZERS = re.compile(r"train\w{0,20}_(tokeni[sz]er|bpe|sentencepiece|spm|vocab)s?$", re.IGNORECASE)
"""Programs that count words on CPUs."""
_SHOWS = re.compile(r"(plot|draw|visuali[sz]e|analy[sz]e|summari[sz]e|inspect|compare|report)_", re.IGNORECASE)
"""Programs that show what was trained: ``plot_training.py``."""
_PREPARES = re.compile(
    r"(prepare|make|build|create|generate|download|collect|split|sample|filter|clean)_\w{0,60}?"
    r"(data|datasets?|splits?|corpus|samples|pairs|jsonl|shards)$",
    re.IGNORECASE,
)
"""Programs that write what is trained on: ``prepare_finetune_data.py``."""
_TRAINS = re.compile(
    r"train(?!ed)|finetun(?!ed)|fine_tun(?!ed)|(^|[_.-])(sft|dpo|orpo|grpo|ppo|clm|mlm)(?=[_.-]|$)", re.IGNORECASE
)
_IMAGES = frozenset({"build", "pull", "push", "import", "create"})
_CONTAINERS = frozenset({"docker", "podman", "enroot", "singularity", "apptainer"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program of a command: its path or module as far as known, and the words after it.

    ``invocation`` is the command that they are the last words of. ``facts`` caches values that many readers use, as in
    `Invocation`.
    """

    name: str
    is_module: bool
    words: tuple[Text, ...]
    invocation: Invocation | None = field(default=None, repr=False, compare=False)
    facts: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def known_words(self) -> tuple[str, ...]:
        """Its words as far as they are known, empty strings in the place of others."""
        if self.invocation is None:
            return get_known_words(self.words)
        return self.invocation.known_words[len(self.invocation.words) - len(self.words) :]

    @property
    def file(self) -> str:
        """The last part of its path; of a module, the whole name."""
        return self.name if self.is_module else self.name.rpartition("/")[2]


def list_base_names(invocation: Invocation) -> tuple[str, ...]:
    """Return the last part of each word's path (``/opt/bin/torchrun`` → ``torchrun``), empty where it is very long."""
    names: tuple[str, ...] | None = invocation.facts.get("names")
    if names is None:
        names = tuple(
            [
                _get_last_part(text) if "/" in text or len(text) > MAX_NAME_CHARS else text
                for text in invocation.shown_words
            ]
        )
        invocation.facts["names"] = names
    return names


def _get_last_part(text: str) -> str:
    """Return the last part of a path, nothing where it is too long for one."""
    name = text.rpartition("/")[2] if len(text) <= MAX_PROGRAM_CHARS else ""
    return name if len(name) <= MAX_NAME_CHARS else ""


def find_program(invocation: Invocation) -> Program | None:
    """Return the Python program or module that a command trains with, ``None`` where there is none."""
    if "program" not in invocation.facts:
        invocation.facts["program"] = _find_program(invocation)
    program: Program | None = invocation.facts["program"]
    return program


def _find_program(invocation: Invocation) -> Program | None:
    previous = ""
    for index, (name, known) in enumerate(zip(list_base_names(invocation), invocation.known_words, strict=True)):
        is_module, previous = previous in ("-m", "--module"), known
        if not is_module and not name.endswith(".py"):
            continue
        shown = invocation.shown_words[index]
        if is_module and name and not _LAUNCHERS.fullmatch(shown):
            return Program(name=shown, is_module=True, words=invocation.words[index + 1 :], invocation=invocation)
        if name.endswith(".py") and not shown.startswith("-"):
            return Program(name=shown, is_module=False, words=invocation.words[index + 1 :], invocation=invocation)
    return None


def find_python_text(invocation: Invocation) -> str:
    """Return the program that a command hands to Python as text (``python -c``), empty where it hands none."""
    for (name, flag), text in zip(pairwise(list_base_names(invocation)), invocation.shown_words[2:], strict=False):
        if name.startswith("python") and flag == "-c":
            return text
    return ""


def trains_as_text(invocation: Invocation) -> bool:
    """Return whether the program that a command hands to Python as text starts a trainer, or goes backward.

    It is not parsed: Python's parser tries to open a file that is named like the text's where that has an error.
    """
    return _TRAINS_AS_TEXT.search(find_python_text(invocation)[:MAX_TEXT_CHARS]) is not None


def parse_program_arguments(program: Program) -> Arguments:
    """Return the flags and overrides of a program's own words, computed once."""
    cached: Arguments | None = program.facts.get("arguments")
    if cached is None:
        cached = program.facts["arguments"] = _parse_program_arguments(program)
    return cached


def _parse_program_arguments(program: Program) -> Arguments:
    if program.invocation is None:
        return parse_arguments(program.words)
    words = program.invocation.words
    return select_arguments_from(get_arguments(program.invocation), words, len(words) - len(program.words))


def list_setting_names(program: Program) -> frozenset[str]:
    """Return the names that a program's own words set, as flags or ``key=value``; computed once."""
    cached: frozenset[str] | None = program.facts.get("names")
    if cached is None:
        cached = list_flag_names(program)
        if program.invocation is None or "=" in "".join(program.invocation.shown_words):  # few commands have any
            cached |= parse_assignments(program.words).keys()
        program.facts["names"] = cached
    return cached


def list_flag_names(program: Program) -> frozenset[str]:
    """Return the names of the flags of a program's own words, as in `parse_program_flags`; computed once."""
    cached: frozenset[str] | None = program.facts.get("flag names")
    if cached is None:
        cached = frozenset([flag[2:].replace("-", "_") for flag in parse_program_arguments(program).flags])
        program.facts["flag names"] = cached
    return cached


def parse_program_flags(program: Program) -> Mapping[str, Entry]:
    """Return the flags of a program's own words by name, as `collect_flags` does, computed once."""
    cached: Mapping[str, Entry] | None = program.facts.get("flags")
    if cached is None:
        cached = program.facts["flags"] = MappingProxyType(collect_flags(parse_program_arguments(program)))
    return cached


def find_command(invocation: Invocation, *names: str) -> Program | None:
    """Return the first command with one of these names (the last part of its path), and the words after it."""
    cached: frozenset[str] | None = invocation.facts.get("set of names")
    if cached is None:
        cached = invocation.facts["set of names"] = frozenset(list_base_names(invocation))
    if cached.isdisjoint(names):
        return None
    for index, name in enumerate(list_base_names(invocation)):
        if name in names:
            shown = invocation.words[index].shown
            return Program(name=shown, is_module=False, words=invocation.words[index + 1 :], invocation=invocation)
    return None


def parse_assignments(words: Iterable[Text]) -> dict[str, Entry]:
    """Return the words ``key=value`` and ``key.sub=value``, those with dashes before left out; the last one counts."""
    entries: dict[str, Entry] = {}
    for word in words:
        head = word.parts[0].text if word.parts and not word.parts[0].why else ""
        if "=" in head and (match := _ASSIGNED.match(head)):
            entries[match[1]] = _make_entry(drop_prefix(word, match.end()), shown=word.shown, line=word.line)
    return entries


def collect_flags(arguments: Arguments) -> dict[str, Entry]:
    """Return the flags by name, dashes within written as underscores; one that has no value is switched on."""
    entries: dict[str, Entry] = {}
    for argument in arguments.flags.values():
        entry = make_entry(argument)
        if argument.certain and not argument.value.parts:
            entry = Entry(value="true", line=argument.line, text=argument.flag)
        entries[argument.flag[2:].replace("-", "_")] = entry
    return entries


def parse_settings(words: Iterable[Text]) -> dict[str, Entry]:
    """Return the settings of a program's words by name, ``key=value`` and ``--key value`` alike."""
    row = tuple(words)
    return collect_flags(parse_arguments(row)) | parse_assignments(row)


def state_flags(findings: Findings, given: Mapping[str, Entry], table: Mapping[str, str]) -> None:
    """State the numbers of flags: ``table`` has the field by the name of the flag."""
    for name, number in table.items():
        state_number(findings, number, given.get(name))


def is_open(findings: Findings, *fields: str) -> bool:
    """Return whether nothing has been stated about any of these fields."""
    return all(field not in findings.values and field not in findings.unknown for field in fields)


def _make_entry(value: Text, *, shown: str, line: int) -> Entry:
    known = value.known
    return Entry(value=known, line=value.line or line, text=shown, why="" if known is not None else value.why)


def name_shape(reading: Reading, name: str | None, *, why: str, line: int) -> None:
    """Set the name of the model; if no public model has it, mark the shape as unknown."""
    reading.model_name = name or reading.model_name
    if not name or not is_public(name):
        mark_all_unknown(reading.findings, SHAPE, why, line)


def find_first_entry(config: ConfigFile, *keys: str) -> Entry | None:
    """Return the first of these keys that a file or its overrides hold: the names of one setting over the years.

    Where the file was not read, the entry has the reason.
    """
    return next((config.entry(key) for key in keys if config.has(key)), config.entry(keys[0]))


def state_global_batch(findings: Findings, steps: int) -> None:
    """State the global batch from steps of accumulation, where micro-batch and replicas are stated; keep the steps."""
    findings.options[STEPS_OPTION] = str(steps)
    micro, dp = findings.get("plan.micro_batch"), findings.get("plan.dp")
    if micro and dp and micro * steps * dp <= MAX_NUMBER:
        text = f"{micro} × {steps} × dp {dp}"
        state_derived(findings, "plan.global_batch", micro * steps * dp, text, "plan.micro_batch")


def doubt_what_differs(
    chosen: Match, readers: Sequence[Reader], invocations: Sequence[Invocation], reading: Reading
) -> None:
    """Mark values as unknown where another command that may train differs and the chosen one may not run.

    Parameters
    ----------
    chosen
        The command that was read into ``reading``.
    invocations
        The commands of the script that may train.
    """
    if chosen.invocation.certain:
        return
    others = [entry for entry in invocations if entry is not chosen.invocation][:MAX_OTHERS]
    for pair in filter(None, (find_best_match(readers, [entry]) for entry in others)):
        reader, match = pair
        separate = replace(
            reading, findings=Findings(reading.findings.file, places=reading.findings.places), missing_files=[]
        )
        reader.read(match, separate)
        _take_back(separate.findings, reading.findings)


def _take_back(other: Findings, findings: Findings) -> None:
    """Mark the values as unknown that differ in another command."""
    for name, value in other.values.items():
        if name.startswith(_GROUPS) and name in findings.values and findings.values[name] != value:
            entry = other.evidence.get(name)
            alternative = f", another has {entry.text[:80]}" if entry is not None else ""
            line = findings.evidence[name].line if name in findings.evidence else 0
            findings.mark_unknown(name, f"it depends on which command runs{alternative}", line)


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that starts such a test."""
    program = find_program(invocation)
    if program is None or not _PROGRAM.fullmatch(program.file):
        return None
    return Match(framework=CONNECTIVITY, weight=SURE, invocation=invocation, arguments=get_arguments(invocation))


def read_connectivity(match: Match, reading: Reading) -> None:
    """State that ranks are data-parallel only."""
    state_data_parallel_only(reading.findings, "all ranks meet in the same barriers", match.invocation.line)


CONNECTIVITY_READER = Reader(frameworks=(CONNECTIVITY,), recognise=recognise, read=read_connectivity)


def does_other_work(invocation: Invocation) -> bool:
    """Return whether a command's program is certainly not a trainer, by its name; computed once."""
    cached: bool | None = invocation.facts.get("other work")
    if cached is None:
        cached = invocation.facts["other work"] = _does_other_work(invocation)
    return cached


def denies_training(invocation: Invocation) -> bool:
    """Return whether the flags of a command say that its program does not train now."""
    arguments, program = get_arguments(invocation), find_program(invocation)
    flags = arguments.flags
    if program is not None and program.known_words[:1] in _OTHER_TASKS:
        return True
    if any(
        row.certain and _ONLY_EVALUATES.search(name) and (row.value.known or "").lower() in ("true", "1", "yes")
        for name, row in arguments.overrides.items()
    ):
        return True
    given = flags.get("--do-train")
    if given is not None and given.certain and (given.value.known or "").lower() in ("false", "0", "no"):
        return True
    if any(name in flags and not flags[name].value.parts and flags[name].certain for name in _EVALUATES):
        return True
    return any(flags[name].certain and flags[name].value.known in _OTHER_MODES for name in MODE_FLAGS if name in flags)


def _does_other_work(invocation: Invocation) -> bool:
    if denies_training(invocation):
        return True
    first_names = list_base_names(invocation)[:8]
    if any(first in _CONTAINERS and second in _IMAGES for first, second in pairwise(first_names)):
        return True
    program = find_program(invocation)
    if program is None:
        return False
    return _is_other(program.name, is_module=program.is_module)


@lru_cache(maxsize=1024)
def _is_other(name: str, *, is_module: bool) -> bool:
    """Return whether a program of this name, or a module, does other work; scripts start the same ones."""
    if _HARNESS.search(name) or (is_module and name.partition(".")[0] in _TOOLS):
        return True
    names = name.split(".") if is_module else [name.rpartition("/")[2].removesuffix(".py")]
    if _TOKENIZERS.search(names[-1]) or _PREPARES.match(names[-1]) or _SHOWS.match(names[-1]):
        return True
    is_other = any(_OTHER.search(name) for name in names) or (not is_module and _FOLDER.search(name) is not None)
    return is_other and not _TRAINS.search(names[-1])


def filter_training(invocations: Sequence[Invocation]) -> list[Invocation]:
    """Return the commands without those that do other work."""
    return [invocation for invocation in invocations if not does_other_work(invocation)]
