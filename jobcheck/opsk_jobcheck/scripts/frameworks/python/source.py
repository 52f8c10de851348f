"""Reads what the text of a Python program states about its training: defaults, models that it names, what it calls.

The text is parsed by ``ast`` and never run. A value that may be another one when the program runs is unknown.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

MAX_CHARS = 1 << 17
"""Longest program that is read."""
MAX_BRACES = 8000
"""Python's parser takes a time that grows with the square of the fields of one f-string."""
_NO_FILE = ""
"""The name under which a text is parsed: Python opens the file of that name to cite a wrong line of it, ``<unknown>``
where none is given."""
MAX_NODES = 60_000
MAX_NESTING = 60
MAX_CHOICES = 4
MAX_TEXT_CHARS = 200
MAX_WORDS = 64
MAX_PATH = 8
FREEZES = "requires_grad_(False)"
"""The name of a call, or an assignment, that freezes parameters."""
Scalar = str | int | float | bool | None
Name = tuple[str, ...]
_CLI_CLASSES = frozenset(
    {
        *(
            "HfArgumentParser",
            "TrlParser",
            "cli",
            "parse",
            "wrap",
            "structured",
            "add_arguments",
            "CLI",
            "DataClassParser",
        )
    }
)
"""Calls that make flags of the fields of the classes that they are given."""
_CLI_FUNCTIONS = frozenset({"Fire", "run", "CLI", "cli", "auto_cli", "entrypoint"})
"""Calls that make flags of the parameters of the function that they are given."""
_COMMANDS = frozenset({"command", "main", "wrap"})
"""Decorators of functions whose parameters are flags."""
_SETTINGS_MODULES = re.compile(r"conf|args|argument|option|opts|param|setting|parser|flags", re.IGNORECASE)
_SETTINGS_NAMES = re.compile(
    r"(\w{1,20}_)?(config|settings|constants|cfg|params|hparams|hyperparameters|options|defaults)"
)
"""Names of modules of settings."""
_SETTINGS_OWNERS = re.compile(
    r"(?i)conf(ig(uration)?s?)?$|cfg$|hparams?$|hyper_?param(eter)?s?$|params$|settings$|arg(ument)?s$|opts?$|options$|defaults?$"
)
"""Names of classes and tables that hold settings."""
_NOT_OF_TRAINING = re.compile(
    r"(?i)eval|test|valid|infer|lora|peft|token|generat|vision|vae|teacher|reward|critic|retriev|search|data|log|optim"
    r"|sched|infer|serv|path|plot|model|net|encoder|decoder"
)
"""Names of those that hold other settings, or those of one of several models."""
_PROGRAM_MODULES = re.compile(
    r"conf|args|argument|option|opts|param|setting|parser|flags|train|main|run", re.IGNORECASE
)
_PACKAGES = frozenset(
    {
        *("torch", "transformers", "numpy", "accelerate", "deepspeed", "datasets", "peft", "trl", "lightning", "tqdm"),
        *("pytorch_lightning", "omegaconf", "hydra", "wandb", "jax", "flax", "optax", "tensorflow", "keras", "timm"),
        *("torchvision", "torchaudio", "sklearn", "scipy", "pandas", "matplotlib", "yaml", "fire", "tyro", "click"),
        *("absl", "megatron", "apex", "fairscale", "diffusers", "open_clip", "tokenizers", "huggingface_hub", "ray"),
        *("configargparse", "ml_collections", "simple_parsing", "jsonargparse", "torchmetrics", "einops", "PIL", "cv2"),
    }
)
"""Packages that are installed, not beside a program."""
_DIVISIONS, _SEQUENCES = (ast.Div, ast.FloorDiv), (ast.List, ast.Tuple, ast.Set)
_PARTS: Mapping[type[ast.AST], Name] = MappingProxyType(
    {
        ast.BinOp: ("left", "right"),
        ast.BoolOp: ("values",),
        ast.Compare: ("left", "comparators"),
        ast.Dict: ("keys", "values"),
        ast.FormattedValue: ("value", "format_spec"),
        ast.List: ("elts",),
        ast.Set: ("elts",),
        ast.Starred: ("value",),
        ast.Subscript: ("value", "slice"),
        ast.Tuple: ("elts",),
        ast.UnaryOp: ("operand",),
    }
)
"""Fields of the usual expressions that hold expressions; all fields of others are looked at."""
_TESTS = frozenset({ast.Call, ast.BoolOp, ast.UnaryOp})
HAS_BF16 = "is_bf16_supported"
"""The setting that says whether the GPU computes in bf16."""
_ASKS_FOR_BF16 = frozenset({HAS_BF16, "is_bfloat16_supported", "is_torch_bf16_gpu_available"})
_ASSIGNED = (ast.Assign, ast.AnnAssign, ast.AugAssign)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value of a program: a literal, or the ``name`` of the setting that it is taken from; else it is not known.

    ``words`` are the texts of a list of nothing else, ``choice`` the two values of ``a if test else b``, under the
    conditions ``test``. ``variable`` is the one of the environment whose default the literal is.
    """

    literal: Scalar = None
    name: str = ""
    line: int = 0
    is_known: bool = False
    words: Name = ()
    variable: str = ""
    test: Name = ()
    choice: tuple[Value, ...] = ()

    @property
    def is_dtype(self) -> bool:
        """Whether it is, or may be, a number format of less than 32 bits."""
        return str(self.literal) in ("torch.bfloat16", "torch.float16", "torch.half") or "dtype" in self.name


_NO_VALUE = Value()
_EMPTY: Mapping[str, Value] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call: the last part of the function's name, its arguments, and the conditions under which it runs.

    A condition is the name of a setting, with a dash before where it must be off, and ``=`` and a value behind where it
    must have that one (``kind=lora``); one that is anything else is ``?``.
    """

    function: str
    line: int
    owner: str = ""
    first: Value = field(default_factory=Value)
    keywords: Mapping[str, Value] = field(default_factory=dict)
    conditions: Name = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A value that is set inside of an object: ``path`` is ``trainer.strategy.x`` of ``recipe.trainer.strategy.x``."""

    path: str
    value: Value
    conditions: Name = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonSource:
    """What a program states.

    ``imports`` are dotted names of modules; ``defaults`` the defaults of its parser by the names of flags; ``flags``
    how these are spelled, and ``switches`` those that take no value;
    ``constants`` are set once, at the top of the module, as are the texts in ``lists``; ``attributes`` are those of a
    class, or a table, of settings (``Config.batch_size``, ``CONFIG["batch_size"]``); ``changed`` are the names of
    settings that the program sets again, to another value. ``why`` is the reason where the text could not be read.
    """

    imports: frozenset[str] = frozenset()
    defaults: Mapping[str, Value] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    constants: Mapping[str, Value] = field(default_factory=dict)
    attributes: Mapping[str, Value] = field(default_factory=dict)
    lists: Mapping[str, Name] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    by_function: Mapping[str, tuple[Call, ...]] = field(default_factory=dict)
    assignments: tuple[Assignment, ...] = ()
    divided: frozenset[str] = frozenset()
    lines: tuple[str, ...] = ()
    why: str = ""

    @property
    def functions(self) -> Iterable[str]:
        """The names of the functions that are called, each once."""
        return self.by_function.keys()

    def find_calls(self, *functions: str) -> Iterator[Call]:
        """Yield the calls of functions of these names, in their order."""
        names = [name for name in functions if name in self.by_function]
        if len(names) < 2:
            return iter(self.by_function[names[0]] if names else ())
        return (call for call in self.calls if call.function in names)

    def get_line(self, line: int) -> str:
        """Return the text of a line."""
        return self.lines[line - 1].strip()[:MAX_TEXT_CHARS] if 0 < line <= len(self.lines) else ""


@lru_cache(maxsize=32)
def read_python(text: str) -> PythonSource:
    """Return what a program's text states; one that cannot be parsed has a ``why``; never raises."""
    if text.count("{", 0, MAX_CHARS) > MAX_BRACES:
        return PythonSource(why="it has more braces than opsk reads")
    if len(text) > MAX_CHARS:
        return PythonSource(why=f"it is longer than the {MAX_CHARS} characters that opsk reads")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.removeprefix("\ufeff"), filename=_NO_FILE)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return PythonSource(why="it is no Python 3, or nested too deep")
    reader = _Reader(text)
    reader.read_block(tree.body, (), depth=0)
    if reader.nodes > MAX_NODES:
        return PythonSource(why="it has more, or deeper, statements than opsk reads")
    return reader.build()


def list_parts(source: PythonSource) -> list[str]:
    """Return the modules beside a program that may hold its settings, and its loop where the program has none.

    A function ``train`` that is called as it is was imported, mostly, and its loop with it.
    """
    calls = source.find_calls("backward", "train", "fit")
    has_loop = any(call.function == "backward" or call.owner for call in calls)
    modules = {name.rpartition(".")[0].lstrip(".") or name for name in source.imports}
    modules |= {name.lstrip(".") for name in source.imports if _is_settings_module(name)}
    own = sorted(name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names | _PACKAGES)
    named = [name for name in own if _SETTINGS_MODULES.search(name.rpartition(".")[2])]
    if has_loop:
        return named
    programs = [name for name in own if _PROGRAM_MODULES.search(name.rpartition(".")[2]) and name not in named]
    return [*programs, *named, *(name for name in own if name not in (*programs, *named))]


def _is_settings_module(name: str) -> bool:
    """Return whether what is imported from a package is a module of settings: ``from project import config``."""
    package, _, last = name.rpartition(".")
    is_named = _SETTINGS_NAMES.fullmatch(last) is not None
    return is_named and bool(package.strip(".")) and not _SETTINGS_MODULES.search(package.rpartition(".")[2])


def join_sources(source: PythonSource, other: PythonSource) -> PythonSource:
    """Return a program together with a module that it imports; a name that both define is not known."""

    def join(first: Mapping[str, Value], second: Mapping[str, Value]) -> Mapping[str, Value]:
        both = {name for name in first.keys() & second.keys() if first[name].literal != second[name].literal}
        return MappingProxyType({name: value for name, value in {**second, **first}.items() if name not in both})

    shift = len(source.lines)
    moved = tuple(_shift_call(call, shift) for call in other.calls)
    return PythonSource(
        imports=source.imports | other.imports,
        defaults=join(source.defaults, _shift(other.defaults, shift)),
        flags=MappingProxyType({**other.flags, **source.flags}),
        switches=source.switches | other.switches,
        constants=join(source.constants, _shift(other.constants, shift)),
        attributes=join(source.attributes, _shift(other.attributes, shift)),
        lists=MappingProxyType({**other.lists, **source.lists}),
        changed=MappingProxyType({**other.changed, **source.changed}),
        calls=(*source.calls, *moved),
        by_function=_group((*source.calls, *moved)),
        assignments=(*source.assignments, *other.assignments),
        divided=source.divided | other.divided,
        lines=(*source.lines, *other.lines),
    )


def _group(calls: Iterable[Call]) -> Mapping[str, tuple[Call, ...]]:
    """Return calls by the name of their function."""
    groups: dict[str, list[Call]] = {}
    for call in calls:
        groups.setdefault(call.function, []).append(call)
    return MappingProxyType({name: tuple(rows) for name, rows in groups.items()})


def _shift(values: Mapping[str, Value], lines: int) -> dict[str, Value]:
    """Return values with the lines that they have behind another text."""
    return {name: replace(value, line=value.line + lines) for name, value in values.items()}


def _shift_call(call: Call, lines: int) -> Call:
    """Return a call with the lines that it has behind another text."""
    first = replace(call.first, line=call.first.line + lines)
    return replace(call, line=call.line + lines, first=first, keywords=_shift(call.keywords, lines))


class _Reader:
    """Collects statements, in order, with the conditions around them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = 0
        self.imports: set[str] = set()
        self.flags: dict[str, list[Value]] = {}
        self.spelled: dict[str, str] = {}
        self.switches: set[str] = set()
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.cli_names: set[str] = set()
        self.constants: dict[str, list[Value]] = {}
        self.assigned: dict[str, list[Value]] = {}
        self.bound: set[str] = set()
        self.changed: dict[str, int] = {}
        self.divided: set[str] = set()
        self.calls: list[Call] = []
        self.assignments: list[Assignment] = []
        self.class_values: dict[str, list[tuple[str, ast.expr]]] = {}
        self.initial: set[int] = set()
        self.filled: set[str] = set()

    def read_block(self, body: Iterable[ast.stmt], conditions: Name, *, depth: int) -> None:
        """Read statements that run under the same conditions."""
        if depth > MAX_NESTING or self.nodes > MAX_NODES:
            self.nodes = MAX_NODES + 1
            return
        for statement in body:
            self._read_statement(statement, conditions, depth)

    def _read_statement(self, statement: ast.stmt, conditions: Name, depth: int) -> None:
        if isinstance(statement, ast.Expr):
            self._read_expressions((statement.value,), conditions)
        elif isinstance(statement, ast.Assign):
            self._read_assignment(statement, conditions, is_top=depth == 0)
            self._read_expressions((*statement.targets, statement.value), conditions)
        elif isinstance(statement, ast.Import):
            self.imports.update(name.name for name in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            self.imports.update(f"{statement.module or ''}.{name.name}" for name in statement.names)
        elif isinstance(statement, ast.ClassDef):
            self.classes[statement.name] = statement
            if _is_of_settings(statement.name):
                self._read_settings_class(statement)
            self._read_expressions(statement.decorator_list, conditions)
            self.read_block(
                [part for part in statement.body if not isinstance(part, _ASSIGNED)], conditions, depth=depth + 1
            )
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            self._read_function(statement, conditions, depth)
        elif isinstance(statement, ast.If):
            self._read_expressions([statement.test], conditions)
            test = _parse_condition(statement.test)
            self.read_block(statement.body, (*conditions, *test), depth=depth + 1)
            self.read_block(statement.orelse, (*conditions, *_negate(test)), depth=depth + 1)
        else:
            if isinstance(statement, _ASSIGNED):
                self._read_assignment(statement, conditions, is_top=depth == 0)
            self._read_parts(statement, conditions, depth)

    def _read_settings_class(self, kind: ast.ClassDef) -> None:
        """Read the attributes of a class of settings: ``class Config: batch_size = 32``, and those of its ``self``."""
        values = self.class_values.setdefault(kind.name, [])
        for part in kind.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
                values.append((part.target.id, part.value))
            elif isinstance(part, ast.Assign) and len(part.targets) == 1 and isinstance(part.targets[0], ast.Name):
                values.append((part.targets[0].id, part.value))
            elif isinstance(part, ast.FunctionDef) and part.name == "__init__":
                for row in part.body:
                    if isinstance(row, ast.Assign) and len(row.targets) == 1 and isinstance(row.value, ast.Constant):
                        target = row.targets[0]
                        if isinstance(target, ast.Attribute):
                            self.initial.add(id(row))
                            values.append((target.attr, row.value))

    def _read_function(self, function: ast.FunctionDef | ast.AsyncFunctionDef, conditions: Name, depth: int) -> None:
        """Read a function: its decorators may make flags of its parameters."""
        self.functions[function.name] = function
        arguments = function.args
        self.bound.update(row.arg for row in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))
        decorators = {_get_name(item.func if isinstance(item, ast.Call) else item) for item in function.decorator_list}
        if decorators & _COMMANDS:
            self.cli_names.add(function.name)
        self._read_expressions(function.decorator_list, conditions)
        self.read_block(function.body, conditions, depth=depth + 1)

    def _read_parts(self, statement: ast.stmt, conditions: Name, depth: int) -> None:
        """Read the expressions and blocks of a statement."""
        if isinstance(statement, ast.For | ast.AsyncFor):
            targets: list[Any] = [statement.target]
            for target in targets:
                targets += getattr(target, "elts", ())
                if isinstance(target, ast.Name):
                    self.bound.add(target.id)
        for name in statement._fields:
            part = getattr(statement, name, None)
            if part is None or part.__class__ is str:
                continue
            for row in part if part.__class__ is list else (part,):
                if isinstance(row, ast.expr):
                    self._read_expressions([row], conditions)
                elif isinstance(row, ast.stmt):
                    self._read_statement(row, conditions, depth + 1)
                elif isinstance(row, ast.withitem):
                    self._read_expressions([row.context_expr], conditions)
                elif isinstance(row, ast.ExceptHandler):
                    self.read_block(row.body, (*conditions, "?"), depth=depth + 1)

    def _read_expressions(self, expressions: Iterable[ast.expr], conditions: Name) -> None:
        """Read the calls and divisions in expressions."""
        waiting: list[Any] = list(expressions)
        pop, push, room = waiting.pop, waiting.append, MAX_NODES + 1 - self.nodes
        while waiting and room > 0:
            node = pop()
            room -= 1
            kind = node.__class__
            if kind is ast.Name or kind is ast.Constant:
                continue
            if kind is ast.Attribute:
                push(node.value)
            elif kind is ast.Call:
                self._read_call(node, conditions)
                push(node.func)
                waiting += node.args
                for word in node.keywords:
                    push(word.value)
            elif kind is ast.IfExp and len(conditions) < MAX_NESTING:
                test = _parse_condition(node.test) or ("?",)
                self.nodes = MAX_NODES + 1 - room
                self._read_expressions([node.body], (*conditions, *test))
                self._read_expressions([node.orelse], (*conditions, *_negate(test)))
                room = MAX_NODES + 1 - self.nodes
                push(node.test)
            else:
                if kind is ast.BinOp and node.op.__class__ in _DIVISIONS:
                    self.divided.add(_get_name(node.left))
                for name in _PARTS.get(kind) or kind._fields:  # as ast.iter_child_nodes, in a third of its time
                    part = getattr(node, name, None)
                    if part.__class__ is list:
                        waiting += [item for item in part if item is not None]
                    elif isinstance(part, ast.AST):
                        push(part)
        self.nodes = MAX_NODES + 1 - room

    def _read_assignment(
        self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign, conditions: Name, *, is_top: bool
    ) -> None:
        """Read what an assignment sets: a constant at the top of the module, or a setting that is set again."""
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        value = statement.value
        for target in [part for row in targets for part in (row.elts if isinstance(row, ast.Tuple) else [row])]:
            name = _get_name(target)
            if isinstance(target, ast.Attribute) and name == "requires_grad":
                if isinstance(value, ast.Constant) and value.value is False:
                    self.calls.append(Call(function=FREEZES, line=statement.lineno, conditions=conditions))
            elif isinstance(statement, ast.AugAssign):
                self.changed.setdefault(name, statement.lineno)
                if isinstance(statement.op, ast.Div | ast.FloorDiv):
                    self.divided.add(name)
            elif isinstance(target, ast.Name) and is_top and isinstance(value, ast.expr) and len(targets) == 1:
                self.constants.setdefault(name, []).append(_parse_value(value))
                if isinstance(value, ast.Dict) and _is_of_settings(name):
                    entries = self.class_values.setdefault(name, [])
                    for key, part in zip(value.keys, value.values, strict=True):
                        if isinstance(key, ast.Constant) and isinstance(key.value, str):
                            entries.append((key.value, part))
            elif isinstance(target, ast.Attribute | ast.Subscript) and name:
                if id(statement) not in self.initial and _get_name(value) != name:
                    self.changed.setdefault(name, statement.lineno)
                if (path := _get_path(target)) and isinstance(value, ast.expr):
                    assignment = Assignment(path=path, value=_parse_value(value), conditions=conditions)
                    self.assignments.append(assignment)
            elif isinstance(target, ast.Name):
                is_plain = isinstance(value, ast.expr) and len(targets) == 1 and isinstance(targets[0], ast.Name)
                self.assigned.setdefault(name, []).append(_parse_value(value) if is_plain and value else Value())

    def _read_call(self, call: ast.Call, conditions: Name) -> None:
        """Read one call."""
        function = _get_name(call.func)
        if not function:
            return
        if function in ("add_argument", "option", "DEFINE_integer", "DEFINE_string", "DEFINE_bool", "DEFINE_float"):
            self._read_flag(function, call)
            return
        if function in _CLI_CLASSES or function in _CLI_FUNCTIONS:
            given = [*call.args, *(word.value for word in call.keywords)]
            rows = [part for row in given for part in (row.elts if isinstance(row, ast.Tuple | ast.List) else [row])]
            self.cli_names |= {part.id for part in rows if isinstance(part, ast.Name)}
        if function == "requires_grad_" and call.args and getattr(call.args[0], "value", True) is False:
            function = FREEZES
        keywords: Mapping[str, Value] = _EMPTY
        if call.keywords:
            keywords = {word.arg: _parse_value(word.value) for word in call.keywords if word.arg}
            if len(keywords) < len(call.keywords):
                self.filled.add(function)
        first = _parse_value(call.args[0]) if call.args else _NO_VALUE
        owner = _get_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        self.calls.append(
            Call(
                function=function,
                line=call.lineno,
                owner=owner,
                first=first,
                keywords=keywords,
                conditions=conditions,
            )
        )

    def _read_flag(self, function: str, call: ast.Call) -> None:
        """Read the default of one flag of a parser."""
        words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        keywords = {word.arg: word.value for word in call.keywords if word.arg}
        if function.startswith("DEFINE"):
            names, default = words[:1], call.args[1] if len(call.args) > 1 else None
        else:
            names, default = [word[2:] for word in words if word.startswith("--")], keywords.get("default")
        action = keywords.get("action")
        kind = action.value if isinstance(action, ast.Constant) else None
        if default is not None:
            value = _parse_value(default)
        elif kind in ("store_true", "store_false"):
            value = Value(literal=kind == "store_false", line=call.lineno, is_known=True)
        else:
            value = Value(line=call.lineno, is_known=True)
        for name in names:
            written = name.partition("/")[0]
            plain = written.replace("-", "_")
            self.flags.setdefault(plain, []).append(value)
            if kind != "store_false":
                self.spelled[plain] = f"--{written}"
            if kind == "store_true" or _get_name(action) == "BooleanOptionalAction":
                self.switches.add(plain)

    def build(self) -> PythonSource:
        """Return what was read."""
        for name in self.cli_names:
            if name in self.classes:
                self._read_fields(self.classes[name])
            elif name in self.functions:
                self._read_parameters(self.functions[name])
        defaults = {name: row[0] for name, row in self.flags.items() if len({(v.literal, v.name) for v in row}) == 1}
        constants = {
            name: row[0]
            for name, row in self.constants.items()
            if len(row) == 1 and (row[0].is_known or row[0].choice) and name not in self.assigned
        }
        lists = {name: row[0].words for name, row in self.constants.items() if len(row) == 1 and row[0].words}
        once = {
            name: row[0] for name, row in self.assigned.items() if len(row) == 1 and (row[0].is_known or row[0].choice)
        }
        constants |= {name: value for name, value in once.items() if name not in self.constants.keys() | self.bound}
        return PythonSource(
            imports=frozenset(self.imports),
            defaults=MappingProxyType(defaults),
            flags=MappingProxyType(self.spelled),
            switches=frozenset(self.switches),
            constants=MappingProxyType(constants),
            attributes=MappingProxyType(self._list_attributes()),
            lists=MappingProxyType(lists),
            changed=MappingProxyType(self.changed),
            calls=tuple(self.calls),
            by_function=_group(self.calls),
            assignments=tuple(self.assignments),
            divided=frozenset(self.divided),
            lines=tuple(self.text.split("\n")),
        )

    def _list_attributes(self) -> dict[str, Value]:
        """Return the attributes of settings by name, where nothing fills in others by their names."""
        stated: dict[str, list[Value]] = {}
        updated = {
            call.owner for call in self.calls if call.function in ("update", "merge_from_file", "load_state_dict")
        }
        is_any_set = any(call.function == "setattr" or "__dict__" in call.owner for call in self.calls)
        for owner, rows in self.class_values.items():
            if is_any_set or owner in self.filled | updated | self.cli_names or len(self.constants.get(owner, ())) > 1:
                continue
            for name, value in rows:
                stated.setdefault(name, []).append(_parse_value(value))
        return {
            name: row[0]
            for name, row in stated.items()
            if (row[0].is_known or row[0].choice) and len({(value.literal, value.choice) for value in row}) == 1
        }

    def _read_fields(self, kind: ast.ClassDef) -> None:
        """Read the defaults of a class whose fields are flags."""
        for part in kind.body:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.value is not None:
                value = part.value
                if isinstance(value, ast.Call) and _get_name(value.func) == "field":
                    default = next((word.value for word in value.keywords if word.arg == "default"), None)
                    self.flags.setdefault(part.target.id, []).append(
                        Value(line=part.lineno) if default is None else _parse_value(default)
                    )
                else:
                    self.flags.setdefault(part.target.id, []).append(_parse_value(value))

    def _read_parameters(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Read the defaults of a function whose parameters are flags."""
        arguments = function.args
        row = [*arguments.posonlyargs, *arguments.args]
        pairs = [
            *zip(row[len(row) - len(arguments.defaults) :], arguments.defaults, strict=True),
            *((name, default) for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)),
        ]
        for name, default in pairs:
            if default is not None:
                self.flags.setdefault(name.arg, []).append(_parse_value(default))


def _is_of_settings(name: str) -> bool:
    """Return whether a class or a table of this name holds settings of the training: ``Config``, ``TRAIN_ARGS``."""
    return _SETTINGS_OWNERS.search(name) is not None and not _NOT_OF_TRAINING.search(name)


def _get_name(node: Any) -> str:
    """Return the last part of a name, an attribute or a key; empty for anything else."""
    kind = node.__class__
    if kind is ast.Name:
        return str(node.id)
    if kind is ast.Attribute:
        return str(node.attr)
    if kind is ast.Subscript and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return node.slice.value
    return ""


def _get_path(node: ast.expr) -> str:
    """Return the names below an object, with dots between them; empty for what is no attribute, or one of ``self``."""
    names: list[str] = []
    while isinstance(node, ast.Attribute) and len(names) < MAX_PATH:
        names.append(node.attr)
        node = node.value
    is_object = isinstance(node, ast.Name) and node.id not in ("self", "cls", "args")
    return ".".join(reversed(names)) if is_object else ""


def _parse_value(node: Any, depth: int = 0) -> Value:
    """Return a literal, the name that a value is taken from, or one of two that a test decides between."""
    line, kind = node.lineno, node.__class__
    if kind is ast.Name:
        return Value(name=node.id, line=line)
    if kind is ast.Constant:
        is_scalar = node.value is None or isinstance(node.value, str | int | float)
        return Value(literal=node.value, line=line, is_known=True) if is_scalar else Value(line=line)
    if kind is ast.Attribute:
        return _parse_attribute(node)
    if kind in _TESTS and (answer := _parse_test(node)) is not None:
        return answer
    if kind is ast.Call:
        variable = _parse_variable(node, depth) if depth < MAX_CHOICES else None
        return Value(line=line) if variable is None else variable
    if kind is ast.UnaryOp and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        number = node.operand.value
        return Value(literal=-number, line=line, is_known=True) if isinstance(number, int | float) else Value(line=line)
    if kind is ast.BinOp and (product := _multiply(node)) is not None:
        return Value(literal=product, line=line, is_known=True)
    if kind in _SEQUENCES and 0 < len(node.elts) <= MAX_WORDS:
        words = [part.value for part in node.elts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        return Value(line=line, words=tuple(words) if len(words) == len(node.elts) else ())
    if kind is ast.IfExp and depth < MAX_CHOICES:
        choice = (_parse_value(node.body, depth + 1), _parse_value(node.orelse, depth + 1))
        return Value(line=line, test=_parse_condition(node.test), choice=choice)
    return Value(name=_get_name(node), line=line)


def _parse_test(node: ast.Call | ast.BoolOp | ast.UnaryOp) -> Value | None:
    """Return whether the GPU computes in bf16, or the opposite of a setting (``not args.full``); else ``None``."""
    opposite = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else None
    test, is_on = _parse_condition(opposite or node), opposite is None
    if "?" in test or (is_on and HAS_BF16 not in test):
        return None
    choice = tuple(Value(literal=which, line=node.lineno, is_known=True) for which in (is_on, not is_on))
    return Value(line=node.lineno, test=test, choice=choice)


def _parse_attribute(node: ast.Attribute) -> Value:
    """Return a number format or a strategy of sharding, which are literals, else the name of the attribute."""
    owner = node.value
    if isinstance(owner, ast.Name) and owner.id == "torch":
        return Value(literal=f"torch.{node.attr}", line=node.lineno, is_known=True)
    if _get_name(owner) == "ShardingStrategy":
        return Value(literal=node.attr, line=node.lineno, is_known=True)
    return Value(name=node.attr, line=node.lineno)


def _parse_variable(call: ast.Call, depth: int) -> Value | None:
    """Return a variable of the environment with its default, as text or as a number; ``None`` for any other call."""
    name = _get_name(call.func)
    if name in ("int", "float", "str") and len(call.args) == 1 and isinstance(call.args[0], ast.Call):
        inner = _parse_variable(call.args[0], depth + 1) if depth < MAX_CHOICES else None
        return None if inner is None else replace(inner, line=call.lineno)
    is_get = name == "getenv" or (isinstance(call.func, ast.Attribute) and _get_name(call.func.value) == "environ")
    words = [word.value for word in call.args if isinstance(word, ast.Constant)]
    if not is_get or name not in ("getenv", "get") or len(words) != 2 or not isinstance(words[0], str):
        return None
    default = words[1] if isinstance(words[1], str | int | float) else None
    return Value(literal=default, line=call.lineno, is_known=default is not None, variable=words[0])


def _multiply(node: ast.expr, depth: int = 0) -> int | None:
    """Return a product of whole numbers (``8 * 1024``)."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int and 0 <= node.value < 1 << 40 else None
    if depth > 4 or not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    left, right = _multiply(node.left, depth + 1), _multiply(node.right, depth + 1)
    return left * right if left is not None and right is not None and left * right < 1 << 40 else None


def _parse_condition(test: ast.expr) -> Name:
    """Return a test as conditions: names of settings, or a question mark."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return tuple(part for value in test.values[:8] for part in _parse_condition(value))
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _parse_condition(test.operand)
        return _negate(inner) or ("?",)
    if isinstance(test, ast.Call):
        name = _get_name(test.func)
        return () if name == "is_available" else (HAS_BF16,) if name in _ASKS_FOR_BF16 else ("?",)
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return _parse_comparison(test.left, test.ops[0], test.comparators[0])
    return (_get_name(test) or "?",)


def _parse_comparison(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Name:
    """Return a comparison with a constant as a condition."""
    name = _get_name(left)
    if isinstance(left, ast.Name) and name == "__name__":
        return ()
    if not name or not isinstance(right, ast.Constant):
        return ("?",)
    if right.value is None and isinstance(operator, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        return (name if isinstance(operator, ast.IsNot | ast.NotEq) else f"-{name}",)
    if isinstance(right.value, str | int) and isinstance(operator, ast.Eq | ast.NotEq):
        return (f"{'' if isinstance(operator, ast.Eq) else '-'}{name}={right.value}"[:MAX_TEXT_CHARS],)
    return ("?",)


def _negate(test: Name) -> Name:
    """Return the conditions of the other branch."""
    if len(test) != 1 or test[0] == "?":
        return ("?",) if test else ()
    return (test[0][1:],) if test[0].startswith("-") else (f"-{test[0]}",)
