"""What do the ``#SBATCH`` lines of a script ask for, read as sbatch itself reads them?

sbatch stops at the first line that is neither blank nor a comment; wants ``#SBATCH`` in the first column; joins the
words of all these lines to one command line; expands nothing; drops the rest of a line from an unquoted ``#`` on; and
lets the last of several equal options win. Source: ``_opt_batch_script`` and ``get_argument`` in
``src/sbatch/opt.c`` of Slurm 22.05 to 26.05, and their ``getopt_long`` table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from opsk.workload.workload import Evidence, Problem, Unknown
from opsk_jobcheck.scripts.sbatch.directive_lines import (
    MAX_WORDS,
    SEPARATORS,
    SPACE,
    ArgumentKind,
    head_end,
    head_lines,
    long_option,
    other_scheduler,
    sbatch_words,
    short_option,
)
from opsk_jobcheck.submission.recent_texts import kept_if_short
from opsk_jobcheck.submission.requested import MAX_COUNT, gpus_of

MAX_HEAD_CHARACTERS = 1 << 20
_LATE = re.compile(r"^(#SBATCH[ \t]+-[^\n]*)", re.MULTILINE)
"""Directives stand at the top; behind a comment of this size nobody looks for more."""
MAX_TEXT = 200
"""Longest piece of a script that is kept as evidence or shown in a message."""

_MAGIC = ("#SBATCH", "#SLURM")
_PLACEHOLDER = re.compile(r"[{}<>]")
_NODES = re.compile(r"[ \t]*([0-9]{1,9})([kKmM]?)[ \t]*")
_COUNT = re.compile(r"[ \t]*([0-9]{1,9})")
_SUFFIX = {"": 1, "k": 1 << 10, "m": 1 << 20}
_FIELDS = {
    "nodes": "plan.nodes",
    "ntasks": "slurm.ntasks",
    "ntasks-per-node": "slurm.ntasks_per_node",
    "ntasks-per-gpu": "slurm.ntasks_per_gpu",
    "cpus-per-task": "slurm.cpus_per_task",
    "gpus": "plan.gpus",
    "gpus-per-node": "plan.gpus_per_node",
    "gres": "plan.gpus_per_node",
    "gpus-per-task": "slurm.gpus_per_task",
    "tres-per-task": "slurm.gpus_per_task",
    "partition": "slurm.partition",
    "constraint": "slurm.constraint",
    "job-name": "slurm.job_name",
}
"""Where each option ends; among options with the same end the first that is named here wins."""
_WORDS = frozenset({"slurm.partition", "slurm.constraint", "slurm.job_name"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What a script's own lines ask of the scheduler; ``None`` is "not asked for, or cannot be told".

    Parameters
    ----------
    scheduler
        ``slurm``, ``pbs``, ``lsf``, ``cobalt`` by the script's directives; ``None`` when it has none. Only Slurm's
        are read.
    is_heterogeneous
        True when the script asks for several components (``#SBATCH hetjob``); then no size is told, since each
        component has its own.
    evidence
        One entry a value, with the dotted field (``plan.nodes``, ``gpu``, ``slurm.ntasks``).
    unknown
        Sizes that are asked for and cannot be told, with the reason.
    problems
        What sbatch would refuse, or what does not mean what it looks like.
    """

    scheduler: str | None = None
    nodes: int | None = None
    ntasks: int | None = None
    ntasks_per_node: int | None = None
    ntasks_per_gpu: int | None = None
    cpus_per_task: int | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    gpus_per_task: int | None = None
    gpu_type: str | None = None
    partition: str | None = None
    constraint: str | None = None
    job_name: str | None = None
    is_heterogeneous: bool = False
    evidence: tuple[Evidence, ...] = ()
    unknown: tuple[Unknown, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Line:
    """One directive line: its number from 1, the whole of it, and the words that sbatch makes of it."""

    number: int
    text: str
    words: tuple[str, ...]
    unmatched: str = ""


@dataclass(frozen=True, slots=True)
class _Option:
    """One option as given, by its full long name."""

    name: str
    value: str
    line: _Line


def read_directives(text: str, *, file: str) -> Directives:
    """Return what the directive lines at the top of a script ask for; never raises.

    Parameters
    ----------
    text
        The script, or its start.
    file
        Its name, for evidence and messages.
    """
    return _read(_head(text), file)


def late_directives(text: str, *, file: str) -> tuple[Problem, ...]:
    """Return a problem for the directive lines below the first command, which sbatch does not read.

    Lines that a script writes into another one (a here-document) are left alone: no ``<<`` may stand before them.
    """
    head = text[:MAX_HEAD_CHARACTERS]
    start = head_end(head)
    found = _LATE.search(head, start)
    if found is None or "<<" in head[start : found.start()]:
        return ()
    line = head.count("\n", 0, found.start(1)) + 1
    first = head.count("\n", 0, start) + 1
    what = f"{found[1].strip()[:MAX_TEXT]} stands below the first command, line {first}: sbatch does not read it"
    return (Problem(what=what, file=file, line=line, hint="move #SBATCH lines above the first command"),)


@kept_if_short
def _read(head: str, file: str) -> Directives:
    """Return what the lines at the top of a script ask for."""
    return _Reading(file).read(head)


def directive_options(text: str) -> dict[str, str]:
    """Return all options of the directive lines by their long names, as text; the last of several equal ones wins."""
    return dict(_options_of(_head(text)))


@kept_if_short
def _options_of(head: str) -> tuple[tuple[str, str], ...]:
    """Return the options of one script in the order given."""
    reading = _Reading("")
    lines, _, _ = _directive_lines(head)
    return tuple((option.name, option.value) for option in reading._options(lines))


def read_words(words: Iterable[str], *, file: str) -> Directives:
    """Return what options ask for that were typed after ``sbatch``; never raises.

    Parameters
    ----------
    words
        One word each, as a shell hands them on: the last of equal options wins.
    file
        Where they are from, for evidence and messages.
    """
    return _Reading(file, stops=True).read_lines([_Line(0, "", tuple(words))], 0)


class _Reading:
    """Collects the values of one script; ``stops`` at the first word that is no option: behind it stands a command."""

    def __init__(self, file: str, *, stops: bool = False) -> None:
        self.file = file
        self.stops = stops
        self.values: dict[str, int | str] = {}
        self.evidence: dict[str, Evidence] = {}
        self.unknown: dict[str, Unknown] = {}
        self.problems: list[Problem] = []

    def read(self, head: str) -> Directives:
        """Return the directives of a script by its head."""
        lines, het_line, wrong = _directive_lines(head)
        for each in wrong:
            self._problem(*each)
        if not lines and not het_line:
            return Directives(scheduler=other_scheduler(head))
        return self.read_lines(lines, het_line)

    def read_lines(self, lines: Sequence[_Line], het_line: int) -> Directives:
        """Return what lines of options ask for; a heterogeneous job has a line where its second component starts."""
        options: dict[str, _Option] = {}
        for option in self._options(lines):
            options.pop(option.name, None)
            options[option.name] = option
        for name in reversed(_FIELDS):
            if name in options:
                self._take(options[name])
        if het_line:
            self._forget_sizes(het_line)
        return Directives(
            scheduler="slurm",
            is_heterogeneous=bool(het_line),
            evidence=tuple(self.evidence.values()),
            unknown=tuple(self.unknown.values()),
            problems=tuple(self.problems),
            **{_attribute(name): value for name, value in self.values.items()},  # type: ignore[arg-type]
        )

    def _options(self, lines: Sequence[_Line]) -> Iterator[_Option]:
        """Return the options in the order given, as ``getopt_long`` would take them from the joined words."""
        words = [(word, line) for line in lines if not line.unmatched for word in line.words][:MAX_WORDS]
        at, refused = 0, False
        while at < len(words):
            word, line = words[at]
            at += 1
            if word == "--" and at == len(words):
                return
            if len(word) < 2 or word[0] != "-" or word == "--":
                if not refused:
                    what = f"sbatch takes no word like {word[:MAX_TEXT]!r} here, and refuses the script"
                    self._problem(what, line.number, "write options as --name=value; quote values with blanks")
                if self.stops or word == "--":
                    return
                refused = True  # what else the lines ask for can be told all the same
                continue
            following = words[at][0] if at < len(words) else None
            found, taken = _long(word, following, line) if word[1] == "-" else _short(word, following, line)
            if following is None and taken:
                self._problem(f"{word[:MAX_TEXT]} has no value, and sbatch refuses the script", line.number)
                return
            at += taken
            yield from found

    def _take(self, option: _Option) -> None:
        """Keep one option's value, or say why it cannot be told."""
        field, value = _FIELDS[option.name], option.value
        if field in _WORDS:
            self._state(field, value[:MAX_TEXT], option)
        elif "$" in value or "`" in value:
            shown = value[:MAX_TEXT]
            why = f"sbatch does not expand {shown} in #SBATCH lines"
            hint = f"write the number, or give --{option.name} on sbatch's command line"
            self._cannot_tell(field, why, option, hint)
        elif _PLACEHOLDER.search(value):
            self._cannot_tell(field, f"{value[:MAX_TEXT]} is left to be filled in", option)
        elif option.name == "nodes":
            self._take_nodes(option)
        elif option.name in ("gpus", "gpus-per-node", "gpus-per-task", "gres", "tres-per-task"):
            self._take_gpus(option)
        else:
            found = _COUNT.fullmatch(value)
            count = int(found[1]) if found else 0
            if 0 < count < MAX_COUNT:
                self._state(field, count, option)
            else:
                self._cannot_tell(field, f"{value[:MAX_TEXT]!r} is no number that sbatch takes", option)

    def _take_nodes(self, option: _Option) -> None:
        """Keep the number of nodes when it is one: ``4``, ``4-4``, ``1k``."""
        least, dash, most = option.value.partition("-")
        low, high = _node_number(least), _node_number(most)
        if (low is None and not (dash and not least.strip())) or (dash and high is None):
            if re.fullmatch(r"[0-9,:\-]+", option.value):
                why = f"--nodes={option.value[:MAX_TEXT]} lets Slurm choose the number of nodes"
                self._unknown("plan.nodes", why, option)
            else:
                self._cannot_tell("plan.nodes", f"{option.value[:MAX_TEXT]!r} is no node count", option)
        elif not dash or low == high:
            self._state("plan.nodes", low or 0, option)
        elif low is not None and high is not None and low > high:
            self._cannot_tell("plan.nodes", f"{option.value[:MAX_TEXT]!r} is no range of nodes", option)
        else:
            why = f"--nodes={option.value[:MAX_TEXT]} is a range: only {low or 1} nodes are certain"
            self._unknown("plan.nodes", why, option)

    def _take_gpus(self, option: _Option) -> None:
        """Keep a number of GPUs and their type; a request for other resources only says nothing of GPUs."""
        bare = option.name.startswith("gpus")
        count, kind = gpus_of(option.value, bare=bare)
        if count is None and not bare and not re.search(r"\bgpu\b", option.value, re.IGNORECASE):
            return
        field = _FIELDS[option.name]
        if count is None or not 0 <= count < MAX_COUNT:
            self._cannot_tell(field, f"{option.value[:MAX_TEXT]!r} is no number of GPUs", option)
            return
        if count:
            self._state(field, count, option)
        if kind and count:
            self._state("gpu", kind[:MAX_TEXT], option)

    def _state(self, field: str, value: int | str, option: _Option) -> None:
        """Keep a value and where it stands."""
        line = option.line
        self.values[field] = value
        self.evidence[field] = Evidence(field=field, value=value, file=self.file, line=line.number, text=line.text)
        self.unknown.pop(field, None)

    def _unknown(self, field: str, why: str, option: _Option) -> None:
        """Keep that a value cannot be told."""
        self.values.pop(field, None)
        self.evidence.pop(field, None)
        self.unknown[field] = Unknown(field=field, why=why, file=self.file, line=option.line.number)

    def _cannot_tell(self, field: str, why: str, option: _Option, hint: str = "") -> None:
        """Keep that a value cannot be told, and that something is wrong with it."""
        self._unknown(field, why, option)
        self._problem(f"--{option.name}: {why}", option.line.number, hint or f"see --{option.name} in sbatch(1)")

    def _problem(self, what: str, line: int, hint: str = "") -> None:
        """Keep something that is wrong."""
        self.problems.append(Problem(what=what, file=self.file, line=line, hint=hint))

    def _forget_sizes(self, line: int) -> None:
        """Drop what differs between the components of a heterogeneous job."""
        kept = {name: value for name, value in self.values.items() if name == "slurm.job_name"}
        self.values = dict(kept)
        self.evidence = {name: entry for name, entry in self.evidence.items() if name in kept}
        why = "the job is heterogeneous (hetjob): every component has its own nodes and GPUs"
        self.unknown = {
            name: Unknown(field=name, why=why, file=self.file, line=line)
            for name in ("plan.nodes", "plan.gpus_per_node", "plan.gpus", "gpu")
        }


def _head(text: str) -> str:
    """Return a script up to its first command, or a little more: what is looked at here."""
    head = text[:MAX_HEAD_CHARACTERS]
    return head[: max(head_end(head), MAX_TEXT)]


@lru_cache(maxsize=4)
def _directive_lines(head: str) -> tuple[tuple[_Line, ...], int, tuple[tuple[str, int, str], ...]]:
    """Return the lines of the first component, where a second one starts (0 when none does), and what is wrong.

    What is wrong is said in words, with its line and what to do. One answer asks for the lines several times.
    """
    lines: list[_Line] = []
    wrong: list[tuple[str, int, str]] = []
    if "\r\n" in head[:MAX_TEXT]:
        what = "the script has DOS line ends, and sbatch refuses it"
        wrong.append((what, 1, "convert it with dos2unix, or sed -i 's/\\r$//'"))
    for number, line in enumerate(head_lines(head), start=1):
        if not line.startswith(_MAGIC):
            continue
        magic = next(word for word in _MAGIC if line.startswith(word))
        rest = line[len(magic) :].strip(SPACE)
        first = rest.split(maxsplit=1)
        if first and first[0].lower() in SEPARATORS:
            return tuple(lines), number, tuple(wrong)
        words, unmatched = sbatch_words(rest)
        lines.append(_Line(number, line.rstrip()[:MAX_TEXT], words, unmatched))
        if unmatched:
            wrong.append((f"a quote ({unmatched}) is not closed, and sbatch refuses the script", number, ""))
    return tuple(lines), 0, tuple(wrong)


def _long(word: str, following: str | None, line: _Line) -> tuple[list[_Option], int]:
    """Return the option that a word with two dashes is, and how many further words it takes."""
    name, equals, value = word[2:].partition("=")
    known = long_option(name)
    if known is None:
        # a plugin's option; whether it takes a word of its own only the site's sbatch knows
        return [], int(not equals and following is not None and not following.startswith("-"))
    full, kind = known
    if kind is ArgumentKind.REQUIRED and not equals:
        return [_Option(full, following or "", line)], 1
    return [_Option(full, value, line)], 0


def _short(word: str, following: str | None, line: _Line) -> tuple[list[_Option], int]:
    """Return the options that a word with one dash is (``-QN4``), and how many further words it takes."""
    for at in range(1, len(word)):
        known = short_option(word[at])
        if known is None or known[1] is ArgumentKind.NONE:
            continue
        name, kind = known
        if word[at + 1 :] or kind is ArgumentKind.OPTIONAL:
            return [_Option(name, word[at + 1 :], line)], 0
        return [_Option(name, following or "", line)], 1
    return [], 0


def _node_number(text: str) -> int | None:
    """Return a count of nodes, ``k`` and ``m`` for 1024 and its square."""
    found = _NODES.fullmatch(text)
    count = int(found[1]) * _SUFFIX[found[2].lower()] if found else 0
    return count if 0 < count < MAX_COUNT else None


def _attribute(field: str) -> str:
    """Return the attribute of `Directives` that a dotted field stands in."""
    return "gpu_type" if field == "gpu" else field.partition(".")[2]
