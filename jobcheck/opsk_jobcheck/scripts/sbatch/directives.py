"""Parses the ``#SBATCH`` lines of a script as sbatch itself does.

sbatch stops at the first line that is neither blank nor a comment; requires ``#SBATCH`` in the first column; joins the
words of all these lines to one command line; expands nothing; drops the rest of a line from an unquoted ``#`` on; and
lets the last of several equal options win. Source: ``_opt_batch_script`` and ``get_argument`` in
``src/sbatch/opt.c`` of Slurm 22.05 to 26.05, and their ``getopt_long`` table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from opsk.workload.workload import Evidence, Problem, Unknown
from opsk_jobcheck.submission.request import MAX_COUNT, parse_gpus

_NONE = """
consolidate-segments contiguous external get-user-env help hold ignore-pbs no-requeue overcommit oversubscribe parsable
quiet reboot share spread-job spread-segments stepmgr test-only usage use-min-nodes verbose version wait
"""
_OPTIONAL = "exclusive nice no-kill oom-kill-step propagate requeue resv-ports"
_REQUIRED = """
account acctg-freq array autocomplete batch bb bbf begin chdir cluster cluster-constraint clusters comment constraint
container container-id context core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline delay-boot
dependency distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus gpus-per-node
gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses mail-type mail-user
mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile nodelist nodes ntasks
ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output partition power
prefer priority profile qos reservation resources runtime segment signal sockets-per-node switches tasks-per-node
thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
"""
_SAME = {"tasks-per-node": "ntasks-per-node"}
_SHORT = {
    "A": "account", "a": "array", "b": "begin", "D": "chdir", "M": "clusters", "C": "constraint", "S": "core-spec",
    "c": "cpus-per-task", "d": "dependency", "m": "distribution", "e": "error", "x": "exclude",
    "B": "extra-node-info", "G": "gpus", "h": "help", "H": "hold", "i": "input", "J": "job-name", "L": "licenses",
    "k": "no-kill", "F": "nodefile", "w": "nodelist", "N": "nodes", "n": "ntasks", "o": "output", "O": "overcommit",
    "s": "oversubscribe", "p": "partition", "q": "qos", "Q": "quiet", "t": "time", "V": "version", "v": "verbose",
    "W": "wait",
}  # fmt: skip
MAX_WORDS = 4096
SEPARATORS = ("hetjob", "packjob")
"""Words between the components of a heterogeneous job."""
SPACE = " \t\r\v\f"
"""What C's ``isspace`` takes, but for the end of a line."""
_SPECIAL_CHARACTERS = re.compile(r"[\\\"'#]")
_LINE_START = re.compile(rf"[{SPACE}]*(?=[#\n]|\Z)")
"""A line that is blank or a comment, up to its ``#``."""
_WORD = re.compile(rf"[^{SPACE}]+")
_OTHER_SCHEDULERS = (("#PBS", "pbs"), ("#BSUB", "lsf"), ("#COBALT", "cobalt"))
MAX_HEAD_CHARACTERS = 1 << 20
_LATE = re.compile(r"^(#SBATCH[ \t]+-[^\n]*)", re.MULTILINE)
"""Directives are at the top; after a comment of this size no more are read."""
MAX_LATE_LINES = 64
MAX_TEXT = 200
"""Longest piece of a script in evidence or in a message."""
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
    "nodelist": "slurm.nodelist",
    "nodefile": "slurm.nodelist",
    "job-name": "slurm.job_name",
}
"""Where each option ends; among options with the same end the first that is named here wins."""
_WORDS = frozenset({"slurm.partition", "slurm.constraint", "slurm.nodelist", "slurm.job_name"})


class ArgumentKind(Enum):
    """Whether an option takes a value."""

    NONE = "none"
    REQUIRED = "required"
    OPTIONAL = "optional"
    """Only after ``=``, or for a short option only without a blank."""


_LONG = {
    **dict.fromkeys(_NONE.split(), ArgumentKind.NONE),
    **dict.fromkeys(_OPTIONAL.split(), ArgumentKind.OPTIONAL),
    **dict.fromkeys(_REQUIRED.split(), ArgumentKind.REQUIRED),
}


def find_long_option(name: str) -> tuple[str, ArgumentKind] | None:
    """Return the full name and kind of a long option, or ``None`` when sbatch itself has none such."""
    if name not in _LONG:
        starts = [full for full in _LONG if full.startswith(name)] if name else []
        if len(starts) != 1:
            return None
        name = starts[0]
    return _SAME.get(name, name), _LONG[name]


def find_short_option(letter: str) -> tuple[str, ArgumentKind] | None:
    """Return the full name and kind of a one-letter option, or ``None`` when sbatch itself has none such."""
    name = _SHORT.get(letter)
    return (name, _LONG[name]) if name else None


def split_sbatch_words(line: str) -> tuple[tuple[str, ...], str]:
    """Return the words that sbatch makes of a directive line, and the quote that it does not close (or nothing).

    Quotes group; a backslash takes the next character as it is; an unquoted ``#`` ends the line wherever it stands;
    so do an empty word and a separator of components. Nothing is expanded. An escaped blank belongs to the word, as in
    Slurm 26.05; 22.05 ends the word there.
    """
    if _SPECIAL_CHARACTERS.search(line) is None:
        return _split_at_blanks(line), ""
    words: list[str] = []
    position, size = 0, len(line)
    while True:
        while position < size and line[position] in SPACE:
            position += 1
        word: list[str] = []
        quote = ""
        while position < size and (quote or line[position] not in SPACE):
            character = line[position]
            position += 1
            if character == "\\":
                if position < size and (line[position] == " " or line[position] not in SPACE):
                    word.append(line[position])
                    position += 1
            elif quote and character == quote:
                quote = ""
            elif not quote and character in "\"'":
                quote = character
            elif not quote and character == "#":
                position = size
            else:
                word.append(character)
        if quote:
            return (), quote
        text = "".join(word)
        if not text or text.lower() in SEPARATORS or len(words) >= MAX_WORDS:
            return tuple(words), ""
        words.append(text)


def _split_at_blanks(line: str) -> tuple[str, ...]:
    """Return the words of a line without quoting characters: most have none."""
    words = _WORD.findall(line)[:MAX_WORDS]
    end = next((index for index, word in enumerate(words) if word.lower() in SEPARATORS), len(words))
    return tuple(words[:end])


def find_head_end(text: str) -> int:
    """Return where the first command of a script begins, the length of the text where there is none."""
    start = 0
    while match := _LINE_START.match(text, start):
        newline = text.find("\n", match.end())
        if newline < 0:
            return len(text)
        start = newline + 1
    return start


def iterate_head_lines(head: str) -> Iterator[str]:
    """Return the lines of a script up to its first command."""
    start = 0
    while start < len(head):
        end = head.find("\n", start)
        end = len(head) if end < 0 else end
        line = head[start:end]
        if line.lstrip(SPACE)[:1] not in ("", "#"):
            return
        yield line
        start = end + 1


def find_other_scheduler(head: str) -> str | None:
    """Return the scheduler whose directives a script has that has none for Slurm."""
    for line in iterate_head_lines(head):
        for magic, name in _OTHER_SCHEDULERS:
            if line.startswith(magic) and line[len(magic) : len(magic) + 1] in ("", " ", "\t"):
                return name
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """The request of a script's own lines; ``None`` is "not requested, or unknown".

    Parameters
    ----------
    scheduler
        ``slurm``, ``pbs``, ``lsf``, ``cobalt`` by the script's directives; ``None`` when it has none. Only Slurm's
        are read.
    is_heterogeneous
        True when the script requests several components (``#SBATCH hetjob``); then sizes are unknown, since each
        component has its own.
    evidence
        One entry a value, with the dotted field (``plan.nodes``, ``gpu``, ``slurm.ntasks``).
    unknown
        Sizes that are requested and unknown, with the reason.
    problems
        Lines that sbatch would refuse, or that do not mean what they seem to.
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
    nodelist: str | None = None
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
    """Return the request of the directive lines at the top of a script; never raises.

    Parameters
    ----------
    text
        The script, or its start.
    file
        Its name, for evidence and messages.
    """
    return _read(_cut_head(text), file)


def find_late_directives(text: str, *, file: str) -> tuple[Problem, ...]:
    """Return a problem for the directive lines below the first command, which sbatch does not read."""
    lines = list_late_lines(text)
    if not lines:
        return ()
    head = text[:MAX_HEAD_CHARACTERS]
    first = head.count("\n", 0, find_head_end(head)) + 1
    shown = head.split("\n", lines[0])[lines[0] - 1].strip()[:MAX_TEXT]
    more = f" and {len(lines) - 1} more #SBATCH {'line' if len(lines) == 2 else 'lines'}" if len(lines) > 1 else ""
    verb, them = ("is", "it") if len(lines) == 1 else ("are", "them")
    what = f"{shown}{more} {verb} below the first command, line {first}: sbatch does not read {them}"
    return (Problem(what=what, file=file, line=lines[0], hint="move #SBATCH lines above the first command"),)


def list_late_lines(text: str) -> tuple[int, ...]:
    """Return the numbers of the directive lines below the first command.

    Lines that a script writes into another one (a here-document) are left out: no ``<<`` may stand before them.
    """
    head = text[:MAX_HEAD_CHARACTERS]
    start = find_head_end(head)
    end = head.find("<<", start)
    lines: list[int] = []
    position, line = 0, 1
    for match in _LATE.finditer(head, start, len(head) if end < 0 else end):
        line += head.count("\n", position, match.start(1))
        position = match.start(1)
        lines.append(line)
        if len(lines) >= MAX_LATE_LINES:
            break
    return tuple(lines)


def _read(head: str, file: str) -> Directives:
    """Return the request of the lines at the top of a script."""
    return _DirectiveReader(file).read(head)


def read_directive_options(text: str) -> dict[str, str]:
    """Return all options of the directive lines by their long names, as text; the last of several equal ones wins."""
    return dict(_read_options(_cut_head(text)))


@lru_cache(maxsize=4)
def _read_options(head: str) -> tuple[tuple[str, str], ...]:
    """Return the options of one script in the order given; cached, as one analysis asks for them several times."""
    reading = _DirectiveReader("")
    lines, _, _ = _split_directive_lines(head)
    return tuple((option.name, option.value) for option in reading._iterate_options(lines))


def read_words(words: Iterable[str], *, file: str) -> Directives:
    """Return the request of options that were typed after ``sbatch``; never raises.

    Parameters
    ----------
    words
        Words as a shell passes them: the last of equal options wins.
    file
        Where they are from, for evidence and messages.
    """
    return _DirectiveReader(file, stops=True).read_lines([_Line(0, "", tuple(words))], 0)


class _DirectiveReader:
    """Collects the values of one script; ``stops`` at the first word that is no option: the command."""

    def __init__(self, file: str, *, stops: bool = False) -> None:
        self.file = file
        self.stops = stops
        self.values: dict[str, int | str] = {}
        self.evidence: dict[str, Evidence] = {}
        self.unknown: dict[str, Unknown] = {}
        self.problems: list[Problem] = []

    def read(self, head: str) -> Directives:
        """Return the directives of a script by its head."""
        lines, het_line, wrong = _split_directive_lines(head)
        for problem in wrong:
            self._report_problem(*problem)
        if not lines and not het_line:
            return Directives(scheduler=find_other_scheduler(head))
        return self.read_lines(lines, het_line)

    def read_lines(self, lines: Sequence[_Line], het_line: int) -> Directives:
        """Return the request of lines of options; a heterogeneous job has a line where its second component starts."""
        options: dict[str, _Option] = {}
        for option in self._iterate_options(lines):
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
            **{_get_attribute_name(name): value for name, value in self.values.items()},  # type: ignore[arg-type]
        )

    def _iterate_options(self, lines: Sequence[_Line]) -> Iterator[_Option]:
        """Return the options in the order given, as ``getopt_long`` would take them from the joined words."""
        words = [(word, line) for line in lines if not line.unmatched for word in line.words][:MAX_WORDS]
        index, refused = 0, False
        while index < len(words):
            word, line = words[index]
            index += 1
            if word == "--" and index == len(words):
                return
            if len(word) < 2 or word[0] != "-" or word == "--":
                if not refused:
                    what = f"sbatch does not accept {word[:MAX_TEXT]!r} here and refuses the script"
                    self._report_problem(what, line.number, "write options as --name=value; quote values with blanks")
                if self.stops or word == "--":
                    return
                refused = True  # the rest of the lines is known all the same
                continue
            following = words[index][0] if index < len(words) else None
            options, taken = (
                _parse_long(word, following, line) if word[1] == "-" else _parse_short(word, following, line)
            )
            if following is None and taken:
                self._report_problem(f"{word[:MAX_TEXT]} has no value, and sbatch refuses the script", line.number)
                return
            index += taken
            yield from options

    def _take(self, option: _Option) -> None:
        """Keep one option's value, or report why it is unknown."""
        field, value = _FIELDS[option.name], option.value
        if option.name == "nodefile" or (option.name == "nodelist" and "/" in value):
            self._mark_unknown(field, f"the nodes are in a file: {value[:MAX_TEXT]}", option)
        elif field in _WORDS:
            self._state(field, value[:MAX_TEXT], option)
        elif "$" in value or "`" in value:
            shown = value[:MAX_TEXT]
            why = f"sbatch does not expand {shown} in #SBATCH lines"
            hint = f"write the number, or give --{option.name} on sbatch's command line"
            self._report_unknown(field, why, option, hint)
        elif _PLACEHOLDER.search(value):
            self._report_unknown(field, f"{value[:MAX_TEXT]} is still to be filled in", option)
        elif option.name == "nodes":
            self._take_nodes(option)
        elif option.name in ("gpus", "gpus-per-node", "gpus-per-task", "gres", "tres-per-task"):
            self._take_gpus(option)
        else:
            match = _COUNT.fullmatch(value)
            count = int(match[1]) if match else 0
            if 0 < count < MAX_COUNT:
                self._state(field, count, option)
            else:
                self._report_unknown(field, f"{value[:MAX_TEXT]!r} is not a number that sbatch accepts", option)

    def _take_nodes(self, option: _Option) -> None:
        """Keep the number of nodes when it is one: ``4``, ``4-4``, ``1k``."""
        lower, dash, upper = option.value.partition("-")
        low, high = _parse_node_count(lower), _parse_node_count(upper)
        if (low is None and not (dash and not lower.strip())) or (dash and high is None):
            if re.fullmatch(r"[0-9,:\-]+", option.value):
                why = f"--nodes={option.value[:MAX_TEXT]} lets Slurm choose the number of nodes"
                self._mark_unknown("plan.nodes", why, option)
            else:
                self._report_unknown("plan.nodes", f"{option.value[:MAX_TEXT]!r} is not a node count", option)
        elif not dash or low == high:
            self._state("plan.nodes", low or 0, option)
        elif low is not None and high is not None and low > high:
            self._report_unknown("plan.nodes", f"{option.value[:MAX_TEXT]!r} is not a range of nodes", option)
        else:
            why = f"--nodes={option.value[:MAX_TEXT]} is a range: only {low or 1} nodes are certain"
            self._mark_unknown("plan.nodes", why, option)

    def _take_gpus(self, option: _Option) -> None:
        """Keep a number of GPUs and their type; a request for other resources only states no GPUs."""
        bare = option.name.startswith("gpus")
        count, kind = parse_gpus(option.value, bare=bare)
        if count is None and not bare and not re.search(r"\bgpu\b", option.value, re.IGNORECASE):
            return
        field = _FIELDS[option.name]
        if count is None or not 0 <= count < MAX_COUNT:
            self._report_unknown(field, f"{option.value[:MAX_TEXT]!r} is not a number of GPUs", option)
            return
        if count and self.values.get(field, count) != count:
            self._report_two_counts(field, count, option)
        elif count:
            self._state(field, count, option)
        if kind and count:
            self._state("gpu", kind[:MAX_TEXT], option)

    def _report_two_counts(self, field: str, count: int, option: _Option) -> None:
        """Keep the larger of two counts of GPUs, as slurmctld does up to 24.11; 26.05 refuses them."""
        other = int(self.values[field])
        what = f"--{option.name} asks for {count} GPUs of a node, and another option for {other}"
        self._report_problem(what, option.line.number, "leave out one of them: newer releases of Slurm refuse both")
        if count > other:
            self._state(field, count, option)

    def _state(self, field: str, value: int | str, option: _Option) -> None:
        """Keep a value and where it stands."""
        line = option.line
        self.values[field] = value
        self.evidence[field] = Evidence(field=field, value=value, file=self.file, line=line.number, text=line.text)
        self.unknown.pop(field, None)

    def _mark_unknown(self, field: str, why: str, option: _Option) -> None:
        """Mark a value as unknown."""
        self.values.pop(field, None)
        self.evidence.pop(field, None)
        self.unknown[field] = Unknown(field=field, why=why, file=self.file, line=option.line.number)

    def _report_unknown(self, field: str, why: str, option: _Option, hint: str = "") -> None:
        """Mark a value as unknown, and report the problem."""
        self._mark_unknown(field, why, option)
        self._report_problem(f"--{option.name}: {why}", option.line.number, hint or f"see --{option.name} in sbatch(1)")

    def _report_problem(self, what: str, line: int, hint: str = "") -> None:
        """Add a problem."""
        self.problems.append(Problem(what=what, file=self.file, line=line, hint=hint))

    def _forget_sizes(self, line: int) -> None:
        """Drop what differs between the components of a heterogeneous job."""
        remaining = {name: value for name, value in self.values.items() if name == "slurm.job_name"}
        self.values = dict(remaining)
        self.evidence = {name: entry for name, entry in self.evidence.items() if name in remaining}
        why = "the job is heterogeneous (hetjob): every component has its own nodes and GPUs"
        self.unknown = {
            name: Unknown(field=name, why=why, file=self.file, line=line)
            for name in ("plan.nodes", "plan.gpus_per_node", "plan.gpus", "gpu")
        }


def _cut_head(text: str) -> str:
    """Return a script up to its first command, or a little more."""
    head = text[:MAX_HEAD_CHARACTERS]
    return head[: max(find_head_end(head), MAX_TEXT)]


@lru_cache(maxsize=4)
def _split_directive_lines(head: str) -> tuple[tuple[_Line, ...], int, tuple[tuple[str, int, str], ...]]:
    """Return the lines of the first component, where a second one starts (0 when none does), and what is wrong.

    Problems have a text, a line and a hint. Cached, as one analysis reads the lines several times.
    """
    lines: list[_Line] = []
    wrong: list[tuple[str, int, str]] = []
    if "\r\n" in head[:MAX_TEXT]:
        what = "the script has DOS line ends, and sbatch refuses it"
        wrong.append((what, 1, "convert it with dos2unix, or sed -i 's/\\r$//'"))
    for number, line in enumerate(iterate_head_lines(head), start=1):
        if not line.startswith(_MAGIC):
            continue
        magic = next(word for word in _MAGIC if line.startswith(word))
        rest = line[len(magic) :].strip(SPACE)
        first = rest.split(maxsplit=1)
        if first and first[0].lower() in SEPARATORS:
            return tuple(lines), number, tuple(wrong)
        words, unmatched = split_sbatch_words(rest)
        lines.append(_Line(number, line.rstrip()[:MAX_TEXT], words, unmatched))
        if unmatched:
            wrong.append((f"a quote ({unmatched}) is not closed, and sbatch refuses the script", number, ""))
    return tuple(lines), 0, tuple(wrong)


def _parse_long(word: str, following: str | None, line: _Line) -> tuple[list[_Option], int]:
    """Return the option that a word with two dashes is, and how many further words it takes."""
    name, equals, value = word[2:].partition("=")
    known = find_long_option(name)
    if known is None:
        # a plugin's option; only the site's sbatch knows whether it takes a value
        return [], int(not equals and following is not None and not following.startswith("-"))
    full, kind = known
    if kind is ArgumentKind.REQUIRED and not equals:
        return [_Option(full, following or "", line)], 1
    return [_Option(full, value, line)], 0


def _parse_short(word: str, following: str | None, line: _Line) -> tuple[list[_Option], int]:
    """Return the options that a word with one dash is (``-QN4``), and how many further words it takes."""
    for index in range(1, len(word)):
        known = find_short_option(word[index])
        if known is None or known[1] is ArgumentKind.NONE:
            continue
        name, kind = known
        if word[index + 1 :] or kind is ArgumentKind.OPTIONAL:
            return [_Option(name, word[index + 1 :], line)], 0
        return [_Option(name, following or "", line)], 1
    return [], 0


def _parse_node_count(text: str) -> int | None:
    """Return a count of nodes, ``k`` and ``m`` for 1024 and its square."""
    match = _NODES.fullmatch(text)
    count = int(match[1]) * _SUFFIX[match[2].lower()] if match else 0
    return count if 0 < count < MAX_COUNT else None


def _get_attribute_name(field: str) -> str:
    """Return the attribute of `Directives` that a dotted field stands in."""
    return "gpu_type" if field == "gpu" else field.partition(".")[2]
