"""Collects the settings of a program that no framework's reader knows, with where each is given.

They are flags, ``key=value`` words, values of the files that these name, what the Python file passes to the classes
that it uses, and last the defaults of its parser.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from opsk.errors import InputError
from opsk.frameworks.settings.usual_settings import CONFIGS, OTHER_PARTS
from opsk.hardware.catalog import gpu as catalog_gpu
from opsk.hardware.catalog import resolve_gpu
from opsk_jobcheck.scripts.bash.values import Invocation, Scalar, Text, literal
from opsk_jobcheck.scripts.frameworks.program_files import compose_settings, list_programs, read_text
from opsk_jobcheck.scripts.frameworks.python.parts import list_parts
from opsk_jobcheck.scripts.frameworks.python.source import (
    HAS_BF16,
    OR,
    Call,
    PythonSource,
    Value,
    group_calls,
    join_sources,
)
from opsk_jobcheck.scripts.frameworks.python.statements import read_python
from opsk_jobcheck.scripts.launchers.programs import (
    Program,
    parse_assignments,
    parse_program_arguments,
    parse_program_flags,
)
from opsk_jobcheck.scripts.settings.arguments import get_arguments
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry, list_entries
from opsk_jobcheck.scripts.settings.findings import parse_boolean
from opsk_jobcheck.scripts.settings.reader import Reading, make_entry

MAX_PARTS = 3
"""Modules beside the program that are read with it."""
MAX_FILES = 3
"""Files of settings that one command names and that are read."""
_FILE_ALONE = re.compile(r"[\w-][\w.-]{0,100}\.(ya?ml|json|toml)")
_CONFIG_FOLDER = re.compile(r"[\"'](?:\./)?((?:[\w-]{1,40}/){0,2}conf\w{0,10})(?=/?[\"']|/\{)")
"""A folder of settings in the text of a program: ``"configs"``, ``f"configs/{name}"``."""
MAX_FOLDERS, MAX_LINE = 2, 400
MAX_ENTRIES = 2000
MAX_DEPTH = 8
_CONFIG = re.compile(r"[^=]*\.(ya?ml|json|toml)", re.DOTALL)
_POSITIONAL = re.compile(r"[^=]*\.(ya?ml|json|toml|py)", re.DOTALL)
_NOT_SHAPES = re.compile(
    r"(?i)(lora|peft|bitsandbytes|generation|quanto?|token|data|loader|vision|clip|eval|logg|sched|wandb|sampl|vae|unet"
    r"|collat|teacher|reward|critic|vllm|optimizer|checkpoint|profil)"
)
"""Classes whose arguments say nothing about the model that is trained, or about its batch."""


_SIXTEEN_BITS = frozenset({"bf16", "fp16", "bfloat16", "float16", "torch.bfloat16", "torch.float16", "torch.half"})


@dataclass(slots=True)
class ProgramSettings:
    """The settings of one program, by where they are given; ``closed`` is why what is not given is not known."""

    given: list[tuple[str, Entry]] = field(default_factory=list)
    of_files: list[tuple[str, Entry]] = field(default_factory=list)
    configs: list[ConfigFile] = field(default_factory=list)
    source: PythonSource | None = None
    file: str = ""
    closed: str = ""
    passed: dict[str, list[tuple[Call, Value]]] | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)

    def find(self, names: Sequence[str], *, with_attributes: bool = True) -> Entry | None:
        """Return the one value that the settings of these names have; unknown where there are several.

        Parameters
        ----------
        with_attributes
            Whether an attribute of a class of settings in the program counts (``class Config: batch_size = 32``).
        """
        for rows in (self.given, self.of_files):
            stated = [entry for name, entry in rows if get_last_name(name) in names and not _is_of_other_part(name)]
            if stated:
                return self._check(names, _unite(stated))
        if self.closed:
            return None
        return self._find_in_source(names, with_attributes=with_attributes)

    def find_each(self, names: Sequence[str]) -> list[Entry]:
        """Return the values that settings of these names have, where several state one in the program's own calls."""
        source, is_given = self.source, any(get_last_name(name) in names for name, _ in (*self.given, *self.of_files))
        if is_given or self.closed or source is None or not source.changed.keys().isdisjoint(names):
            return []
        return self._find_passed(names)

    def replace_calls(self, calls: Sequence[Call]) -> None:
        """Take other calls for those of the program."""
        if self.source is not None:
            self.source = replace(self.source, calls=tuple(calls), by_function=group_calls(calls))
            self.passed = None

    def find_unchanged(self, names: Sequence[str]) -> Entry | None:
        """Return the value that a setting has before the program changes it."""
        source, self.source = self.source, replace(self.source, changed={}) if self.source is not None else None
        try:
            return self.find(names)
        finally:
            self.source = source

    def _check(self, names: Sequence[str], entry: Entry) -> Entry:
        """Return a setting, unknown where the program changes it or gives another value to what it builds."""
        if self.source is None or entry.why:
            return entry
        line = next((self.source.changed[name] for name in names if name in self.source.changed), 0)
        if line:
            return replace(entry, value=None, why=f"the program sets it again ({self.file}, line {line})")
        fixed = [item for item in self._find_passed(names) if not item.why]
        if any(str(item.value) != str(entry.value) for item in fixed):
            why = f"the program passes another value ({self.file}, line {fixed[0].line})"
            return replace(entry, value=None, why=why)
        return entry

    def _find_in_source(self, names: Sequence[str], *, with_attributes: bool) -> Entry | None:
        """Return what the Python file passes, else the default of its parser, else a constant, else an attribute."""
        source = self.source
        if source is None:
            return None
        if passed := self._find_passed(names):
            return _unite(passed)
        rows = [
            self.resolve(value)
            if value.choice or (value.name and not value.is_known)
            else self._make_entry(value, f"default of --{name}" if is_flag else name)
            for table, is_flag in ((source.defaults, True), (source.constants, False))
            for name, value in table.items()
            if name.lower() in names
        ]
        rows = [entry for entry in rows if entry.why or entry.value is not None]
        if not rows and with_attributes:
            attributes = [value for name, value in source.attributes.items() if name.lower() in names]
            rows = [entry for entry in map(self.resolve, attributes) if entry.why or entry.value is not None]
        if not rows:
            return None
        line = next((source.changed[name] for name in names if name in source.changed), 0)
        why = f"the program sets it again ({self.file}, line {line})"
        return replace(rows[0], value=None, why=why) if line else _unite(rows)

    def _find_passed(self, names: Sequence[str]) -> list[Entry]:
        """Return what the program passes under these names to the classes that it makes objects of."""
        if self.source is None:
            return []
        if self.passed is None:
            self.passed = {}
            for call in filter(_passes_settings, self.source.calls):
                for name, value in call.keywords.items():
                    self.passed.setdefault(name, []).append((call, value))
        rows = [row for name in names for row in self.passed.get(name, ())]
        values = [value for call, value in rows if self.is_active(call) is not False]
        entries = [self.resolve(value) for value in values]
        return [entry for entry in entries if entry.why or entry.value is not None]

    def resolve(self, value: Value, depth: int = 0) -> Entry:
        """Return the value that the program takes from a setting, or has as a literal."""
        if value.is_known:
            return self._make_entry(value, "")
        if value.choice and depth < MAX_DEPTH and (is_first := self._holds(value.test, depth)) is not None:
            return self.resolve(value.choice[0 if is_first else 1], depth + 1)
        if value.choice and depth < MAX_DEPTH:
            first, second = (self.resolve(item, depth + 1) for item in value.choice)
            if not first.why and not second.why and {str(first.value), str(second.value)} <= _SIXTEEN_BITS:
                return first  # either takes the same memory
        if value.name and self.source is not None and value.name not in self.source.changed:
            for rows in (self.given, self.of_files):
                if stated := [entry for name, entry in rows if get_last_name(name) == value.name]:
                    return _unite(stated)
            for table in (self.source.defaults, self.source.constants, self.source.attributes):
                default = table.get(value.name)
                if default is None or self.closed:
                    continue
                if default.is_known:
                    return self._make_entry(default, f"default of {value.name}")
                is_taken = default.choice or default.name not in ("", value.name)  # from a constant, mostly
                if is_taken and depth < MAX_DEPTH:
                    return self.resolve(default, depth + 1)
        return Entry(file=self.file, line=value.line, why=f"it is computed in Python ({self.file}, line {value.line})")

    def is_active(self, call: Call) -> bool | None:
        """Return whether a call is made, as far as the settings in its conditions say; ``None`` where they do not."""
        if not call.conditions:
            return True
        return self._holds(call.conditions)

    def _holds(self, conditions: Sequence[str], depth: int = 0) -> bool | None:
        """Return whether all conditions hold."""
        results = [self._holds_any(condition.split(OR), depth) for condition in conditions]
        return False if False in results else None if None in results else True

    def _holds_any(self, alternatives: Sequence[str], depth: int) -> bool | None:
        """Return whether one of the alternatives of a condition holds."""
        results: list[bool | None] = []
        for condition in alternatives:
            name, equals, expected = condition.lstrip("-").partition("=")
            entry = self.resolve(Value(name=name), depth + 1) if condition != "?" else Entry(why="?")
            is_on = None if entry.why else str(entry.value) == expected if equals else _is_true(entry.value)
            results.append(is_on if is_on is None or not condition.startswith("-") else not is_on)
        return True if True in results else None if None in results else False

    def _make_entry(self, value: Value, text: str) -> Entry:
        """Return a value of the Python file with its line."""
        if value.file:
            return Entry(value=value.literal, file=value.file, line=value.line, text=value.text)
        shown = self.source.get_line(value.line) if self.source is not None else text
        if value.variable in self.environment:
            stated = self.environment[value.variable]
            why = "" if stated is not None else f"the variable {value.variable[:60]} states it, and is not known"
            return Entry(value=stated, file=self.file, line=value.line, text=shown, why=why)
        why = "" if value.is_known else f"it is computed in Python ({self.file}, line {value.line})"
        shown = f"{shown} ({text})" if text and text not in shown else shown
        return Entry(value=value.literal, file=self.file, line=value.line, text=shown[:200], why=why)


_TAKES_FLAGS = re.compile(
    r"argv|arg(s|parse|ument)|pars(e|er|ing)|opts\b|options?\b|flags|cli\b|click|fire|typer|tyro|hydra|absl|omegaconf"
    r"|import \*",
    re.IGNORECASE,
)
"""Words of programs that may read their command line, themselves or by a module of their own."""


_PARSES = re.compile(r"Parser\w*\(|argv|hydra|Fire\(|typer|tyro|click")
_FUNCTION = re.compile(r"(?:async )?def (\w+)")


def takes_flags(source: PythonSource) -> bool:
    """Return whether a program may read its command line; one that only hands numbers of its own on does not."""
    last = min(source.parts.values(), default=len(source.lines))
    return any(map(_TAKES_FLAGS.search, source.lines[:last])) or any(map(_PARSES.search, _iterate_taken(source, last)))


def _iterate_taken(source: PythonSource, first: int) -> Iterator[str]:
    """Yield the lines of the functions that a program takes from its modules, whose lines begin behind ``first``."""
    names = {name.rpartition(".")[2] for name in source.imports}
    is_taken = False
    for line in source.lines[first:]:
        if match := _FUNCTION.match(line):
            is_taken = match[1] in names
        elif line[:1].strip():
            is_taken = is_taken and line[0] in "#)"
        if is_taken:
            yield line


def collect_settings(program: Program, invocation: Invocation, reading: Reading) -> ProgramSettings:
    """Return the settings of a program."""
    flags = parse_program_flags(program)
    overrides = {name: make_entry(argument) for name, argument in get_arguments(invocation).overrides.items()}
    given = {**flags, **{name: entry for name, entry in overrides.items() if name not in flags}}
    given |= parse_assignments(program.words)
    source, file = read_source(program, invocation, reading)
    aliases = source.aliases if source is not None else {}
    given |= {aliases[name]: entry for name, entry in given.items() if aliases.get(name, name) not in given}
    composed = compose_settings(program, invocation, reading, given)
    if composed is not None:
        given = {name: entry for name, entry in given.items() if name not in composed.choices}
    settings = ProgramSettings(
        given=[(name.lstrip("+"), entry) for name, entry in given.items()] + _list_abilities(reading),
        source=source,
        file=file,
        environment=_list_variables(invocation, reading),
    )
    if source is None and (why := _explain_unread(program, invocation, reading)):
        settings.closed = why
    if composed is not None:
        settings.configs.append(composed.config)
        settings.of_files += [row for row in list_entries(composed.config, limit=MAX_ENTRIES) if row[0] not in given]
        settings.closed = settings.closed or composed.config.why
    for path in _list_files(program, given, aliases)[:MAX_FILES] if composed is None else ():
        if path.shown.endswith(".py"):
            text, shown = read_text(path, invocation, reading)
            constants = read_python(text) if text is not None else None
            settings.of_files += _list_constants(constants, shown) if constants is not None else []
            is_read = constants is not None and not constants.why
            why = "" if is_read else f"the settings are in {path.shown[:120]}, which opsk has not read"
        else:
            config = _read_config(path, source, invocation, reading)
            settings.configs.append(config)
            settings.of_files += list(list_entries(config, limit=MAX_ENTRIES))
            why = config.why
        settings.closed = settings.closed or why
    arguments = parse_program_arguments(program)
    values = {id(argument.value) for argument in arguments.flags.values()}
    opaque = [word for word in arguments.opaque if id(word) not in values or any(part.many for part in word.parts)]
    switches = source.switches if source is not None else ()
    opaque += [
        row.value
        for name, row in arguments.flags.items()
        if row.certain and row.value.why and get_last_name(name[2:]) in switches
    ]
    if opaque and not settings.closed:
        settings.closed = f"it may be among words that cannot be told: {opaque[0].why}"
    return settings


def _read_config(path: Text, source: PythonSource | None, invocation: Invocation, reading: Reading) -> ConfigFile:
    """Return the settings of a file; one that is named alone may lie in the folder of such files that a program names.

    ``train.py base.yaml`` with ``Path(__file__).parent / "configs"`` reads ``configs/base.yaml``.
    """
    config, name = reading.config(path, invocation), path.known or ""
    if not config.why or not _FILE_ALONE.fullmatch(name) or source is None:
        return config
    folders = dict.fromkeys(match[1] for line in source.lines for match in _CONFIG_FOLDER.finditer(line[:MAX_LINE]))
    for folder in list(folders)[:MAX_FOLDERS]:
        other = reading.config(literal(f"{folder}/{name}", path.line), invocation)
        if not other.why:
            return other
    return config


def _list_abilities(reading: Reading) -> list[tuple[str, Entry]]:
    """Return what programs ask of the GPU as settings, where the job names its type."""
    stated = reading.findings.evidence.get("gpu")
    try:
        spec, others = resolve_gpu(str(stated.value) if stated is not None else "")
    except InputError:
        return []
    formats = {"bf16" in gpu.peak_flop_per_s for gpu in (spec, *map(catalog_gpu, others))}
    return [(HAS_BF16, Entry(value=formats.pop(), text=f"the GPU is {spec.name}"))] if len(formats) == 1 else []


def _list_variables(invocation: Invocation, reading: Reading) -> Mapping[str, str | None]:
    """Return the variables that a script sets, ``None`` for what is not known."""
    variables = {**reading.run.variables, **invocation.facts.get("assigned", {})}
    return {name: row.text.known if isinstance(row, Scalar) else None for name, row in variables.items()}


def read_source(program: Program, invocation: Invocation, reading: Reading) -> tuple[PythonSource | None, str]:
    """Return what the program's file and its parts state, and the file's path."""
    for path in list_programs(program, invocation):
        text, file = read_text(path, invocation, reading)
        source = read_python(text) if text is not None else None
        if source is None or source.why:
            continue
        for part in list_parts(source)[:MAX_PARTS]:
            for place in _list_places(path, part, program):
                text, module = read_text(place, invocation, reading)
                if text is not None and not (other := read_python(text)).why:
                    source = join_sources(source, other, module)
                    break
        return source, file
    return None, ""


def _list_places(path: Text, part: str, program: Program) -> list[Text]:
    """Return the paths that a module may have which a program imports.

    It is next to the program, or below the root of the same package; one of another package of the project is below
    the folder that the program is started in.
    """
    last = path.parts[-1]
    folder = last.text[: last.text.rfind("/") + 1]
    package = program.name.partition(".")[0] if program.is_module else ""
    if package and part.partition(".")[0] == package:
        folder = "src/" if last.text.startswith("src/") else ""
    file = f"{part.replace('.', '/')}.py"
    places = [Text((*path.parts[:-1], last._replace(text=f"{folder}{file}")))]
    is_below = folder and len(path.parts) == 1 and not folder.startswith("/")
    if is_below and (program.is_module or "." in part):
        places.append(literal(file, last.line))
    return places


def _explain_unread(program: Program, invocation: Invocation, reading: Reading) -> str:
    """Return why a program whose text is at hand was not read; empty where there is no text."""
    name = _get_file(program)
    text, file = read_text(literal(name, invocation.line), invocation, reading) if name else (None, "")
    return f"it may be in {file[-80:]}, which opsk cannot read: {read_python(text).why}" if text is not None else ""


def _get_file(program: Program) -> str:
    """Return the path of a program's Python file; empty where it has none, or its name is cut."""
    name = f"{program.name.replace('.', '/')}.py" if program.is_module else program.name
    return name if name.endswith(".py") and "\N{HORIZONTAL ELLIPSIS}" not in name else ""


def _list_constants(source: PythonSource, file: str) -> list[tuple[str, Entry]]:
    """Return the constants of a file of settings that is Python."""
    return [
        (name, Entry(value=value.literal, file=file, line=value.line, text=source.get_line(value.line)))
        for name, value in source.constants.items()
    ]


def _list_files(program: Program, given: Mapping[str, Entry], aliases: Mapping[str, str]) -> list[Text]:
    """Return the paths of the files of settings that a command names."""
    folder, name = given.get("config_path"), given.get("config_name")
    if name is not None and name.value and folder is not None and folder.value:
        file = str(name.value) if _CONFIG.fullmatch(str(name.value)) else f"{name.value}.yaml"
        return [literal(posixpath.join(str(folder.value), file), name.line)]
    flags = dict(parse_program_arguments(program).flags)
    for other, place in aliases.items():
        if (short := flags.get(f"--{other.replace('_', '-')}")) is not None:
            flags.setdefault(f"--{place.replace('_', '-')}", short)
    named = [
        flags[flag].value
        for setting in CONFIGS
        if (flag := f"--{setting.replace('_', '-')}") in flags and _CONFIG.fullmatch(flags[flag].value.shown[:4096])
    ]
    values = {id(argument.value) for argument in flags.values()}
    words = [word for word in program.words if id(word) not in values and not word.shown.startswith("-")]
    return named + [word for word in words if word.known and _POSITIONAL.fullmatch(word.known[:4096])]


def _unite(entries: Sequence[Entry]) -> Entry:
    """Return the one value of several settings; unknown where they differ, or one is."""
    unknown = next((entry for entry in entries if entry.why), None)
    if unknown is not None:
        return unknown
    if len({str(entry.value) for entry in entries}) > 1:
        what = " and ".join(entry.text[:60] for entry in entries[:2])
        return replace(entries[0], value=None, why=f"several settings state it: {what}")
    return entries[0]


def _passes_settings(call: Call) -> bool:
    """Return whether a call's arguments are settings of the training: it makes an object, or loads the model."""
    if call.function == "from_pretrained":
        return "Model" in call.owner
    return call.function[:1].isupper() and not _NOT_SHAPES.search(call.function)


@lru_cache(maxsize=4096)
def get_last_name(name: str) -> str:
    """Return the last part of a dotted name as tables have it."""
    return name.rpartition(".")[2].replace("-", "_").lower()


def _is_of_other_part(name: str) -> bool:
    """Return whether a setting is one of another model, or of no training."""
    owners = name.lower().split(".")[:-1]
    return not OTHER_PARTS.isdisjoint(owners)


def _is_true(value: object) -> bool | None:
    """Return whether Python takes a setting's value as true."""
    if value is None:
        return False
    known = parse_boolean(value)
    return known if known is not None else bool(str(value))
