"""Reads the statements of a Python program, in order, with the conditions around them.

The text is parsed by ``ast`` and never run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from opsk_jobcheck.scripts.frameworks.python.expressions import (
    get_name,
    get_path,
    negate,
    parse_condition,
    parse_value,
)
from opsk_jobcheck.scripts.frameworks.python.parsing import parse_program
from opsk_jobcheck.scripts.frameworks.python.source import (
    FREEZES,
    UNPACKED,
    Assignment,
    Call,
    Name,
    PythonSource,
    Value,
    group_calls,
)

MAX_CHARS = 1 << 17
"""Longest program that is read."""
MAX_BRACES = 8000
"""Python's parser takes a time that grows with the square of the fields of one f-string."""
MAX_NODES = 60_000
MAX_NESTING = 60
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
_SETTINGS_OWNERS = re.compile(
    r"(?i)conf(ig(uration)?s?)?$|cfg$|hparams?$|hyper_?param(eter)?s?$|params$|settings$|arg(ument)?s$|opts?$|options$|defaults?$"
)
"""Names of classes and tables that hold settings."""
_NOT_OF_TRAINING = re.compile(
    r"(?i)eval|test|valid|infer|lora|peft|token|generat|vision|vae|teacher|reward|critic|retriev|search|data|log|optim"
    r"|sched|infer|serv|path|plot|model|net|encoder|decoder"
)
"""Names of those that hold other settings, or those of one of several models."""
_DIVISIONS = (ast.Div, ast.FloorDiv)
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
_ASSIGNED = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_NO_VALUE = Value()
_EMPTY: Mapping[str, Value] = MappingProxyType({})


@lru_cache(maxsize=32)
def read_python(text: str) -> PythonSource:
    """Return what a program's text states; one that cannot be parsed has a ``why``; never raises."""
    if text.count("{", 0, MAX_CHARS) > MAX_BRACES:
        return PythonSource(why="it has more braces than opsk reads")
    if len(text) > MAX_CHARS:
        return PythonSource(why=f"it is longer than the {MAX_CHARS} characters that opsk reads")
    try:
        tree = parse_program(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return PythonSource(why="it is no Python 3, or nested too deep")
    reader = _Reader(text)
    reader.read_block(tree.body, (), depth=0)
    if reader.nodes > MAX_NODES:
        return PythonSource(why="it has more, or deeper, statements than opsk reads")
    return reader.build()


class _Reader:
    """Collects statements, in order, with the conditions around them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nodes = 0
        self.imports: set[str] = set()
        self.flags: dict[str, list[Value]] = {}
        self.spelled: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
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
        self.tables: dict[str, dict[str, Value] | None] = {}

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
            test = parse_condition(statement.test)
            self.read_block(statement.body, (*conditions, *test), depth=depth + 1)
            self.read_block(statement.orelse, (*conditions, *negate(test)), depth=depth + 1)
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
        decorators = {get_name(item.func if isinstance(item, ast.Call) else item) for item in function.decorator_list}
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
                test = parse_condition(node.test) or ("?",)
                self.nodes = MAX_NODES + 1 - room
                self._read_expressions([node.body], (*conditions, *test))
                self._read_expressions([node.orelse], (*conditions, *negate(test)))
                room = MAX_NODES + 1 - self.nodes
                push(node.test)
            else:
                if kind is ast.BinOp and node.op.__class__ in _DIVISIONS:
                    self.divided.add(get_name(node.left))
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
            name = get_name(target)
            if isinstance(target, ast.Name):
                self._read_table(name, value if len(targets) == 1 else None)
            elif isinstance(target, ast.Subscript):
                self.tables[get_name(target.value)] = None
            if isinstance(target, ast.Attribute) and name == "requires_grad":
                if isinstance(value, ast.Constant) and value.value is False:
                    self.calls.append(Call(function=FREEZES, line=statement.lineno, conditions=conditions))
            elif isinstance(statement, ast.AugAssign):
                self.changed.setdefault(name, statement.lineno)
                if isinstance(statement.op, ast.Div | ast.FloorDiv):
                    self.divided.add(name)
            elif isinstance(target, ast.Name) and is_top and isinstance(value, ast.expr) and len(targets) == 1:
                self.constants.setdefault(name, []).append(parse_value(value))
                if isinstance(value, ast.Dict) and _is_of_settings(name):
                    entries = self.class_values.setdefault(name, [])
                    for key, part in zip(value.keys, value.values, strict=True):
                        if isinstance(key, ast.Constant) and isinstance(key.value, str):
                            entries.append((key.value, part))
            elif isinstance(target, ast.Attribute | ast.Subscript) and name:
                if id(statement) not in self.initial and get_name(value) != name:
                    self.changed.setdefault(name, statement.lineno)
                if (path := get_path(target)) and isinstance(value, ast.expr):
                    assignment = Assignment(path=path, value=parse_value(value), conditions=conditions)
                    self.assignments.append(assignment)
            elif isinstance(target, ast.Name):
                is_plain = isinstance(value, ast.expr) and len(targets) == 1 and isinstance(targets[0], ast.Name)
                self.assigned.setdefault(name, []).append(parse_value(value) if is_plain and value else Value())

    def _read_call(self, call: ast.Call, conditions: Name) -> None:
        """Read one call."""
        function = get_name(call.func)
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
            keywords = {word.arg: parse_value(word.value) for word in call.keywords if word.arg}
            if len(keywords) < len(call.keywords):
                self.filled.add(function)
                keywords = self._unpack(call) | keywords
        first = parse_value(call.args[0]) if call.args else _NO_VALUE
        owner = get_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
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

    def _unpack(self, call: ast.Call) -> dict[str, Value]:
        """Return the arguments that a call takes from tables (``**settings``), a mark for those that are not known."""
        unpacked: dict[str, Value] = {}
        for word in call.keywords:
            table = self.tables.get(get_name(word.value)) if not word.arg else {}
            unpacked |= {UNPACKED: Value(line=call.lineno)} if table is None else table
        return unpacked

    def _read_table(self, name: str, value: ast.expr | None) -> None:
        """Read a table of arguments with plain names, that is set once."""
        is_call = isinstance(value, ast.Call) and get_name(value.func) == "dict" and not value.args
        rows: list[tuple[Any, ast.expr]] = []
        if isinstance(value, ast.Dict):
            rows = [(getattr(key, "value", None), part) for key, part in zip(value.keys, value.values, strict=True)]
        elif is_call and isinstance(value, ast.Call):
            rows = [(word.arg, word.value) for word in value.keywords]
        is_plain = bool(rows) and all(isinstance(key, str) for key, _ in rows) and name not in self.tables
        self.tables[name] = {key: parse_value(part) for key, part in rows} if is_plain else None

    def _read_flag(self, function: str, call: ast.Call) -> None:
        """Read the default of one flag of a parser."""
        words = [word.value for word in call.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        keywords = {word.arg: word.value for word in call.keywords if word.arg}
        default: ast.expr | None = keywords.get("default")
        if function.startswith("DEFINE"):
            default = call.args[1] if len(call.args) > 1 else None
        action = keywords.get("action")
        kind = action.value if isinstance(action, ast.Constant) else None
        if default is not None:
            value = parse_value(default)
        elif kind in ("store_true", "store_false"):
            value = Value(literal=kind == "store_false", line=call.lineno, is_known=True)
        else:
            value = Value(line=call.lineno, is_known=True)
        names = words[:1] if function.startswith("DEFINE") else self._name_flag(words, keywords, value)
        for name in names:
            written = name.partition("/")[0]
            plain = written.replace("-", "_")
            self.flags.setdefault(plain, []).append(value)
            if kind != "store_false":
                self.spelled[plain] = f"-{written}" if f"-{name}" in words else f"--{written}"
            if kind == "store_true" or get_name(action) == "BooleanOptionalAction":
                self.switches.add(plain)

    def _name_flag(self, words: list[str], keywords: Mapping[str, ast.expr], value: Value) -> list[str]:
        """Return the long names of a flag, and note where its value is: ``config`` of ``-c, --config``, or ``dest``."""
        long = [word[2:] for word in words if word.startswith("--")]
        short = [word[1:] for word in words if word[:1] == "-" and word[:2] != "--"]
        names, stored = long or short, keywords.get("dest")
        is_named = isinstance(stored, ast.Constant) and isinstance(stored.value, str)
        place = str(stored.value) if is_named and isinstance(stored, ast.Constant) else (names or [""])[0]
        place = place.replace("-", "_")
        if is_named:
            self.flags.setdefault(place, []).append(value)
        for name in (*short, *long):
            if (plain := name.replace("-", "_")) != place:
                self.aliases[plain] = place
        return names

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
            aliases=MappingProxyType(self.aliases),
            switches=frozenset(self.switches),
            constants=MappingProxyType(constants),
            attributes=MappingProxyType(self._list_attributes()),
            lists=MappingProxyType(lists),
            changed=MappingProxyType(self.changed),
            calls=tuple(self.calls),
            by_function=group_calls(self.calls),
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
                stated.setdefault(name, []).append(parse_value(value))
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
                if isinstance(value, ast.Call) and get_name(value.func) == "field":
                    default = next((word.value for word in value.keywords if word.arg == "default"), None)
                    self.flags.setdefault(part.target.id, []).append(
                        Value(line=part.lineno) if default is None else parse_value(default)
                    )
                else:
                    self.flags.setdefault(part.target.id, []).append(parse_value(value))

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
                self.flags.setdefault(name.arg, []).append(parse_value(default))


def _is_of_settings(name: str) -> bool:
    """Return whether a class or a table of this name holds settings of the training: ``Config``, ``TRAIN_ARGS``."""
    return _SETTINGS_OWNERS.search(name) is not None and not _NOT_OF_TRAINING.search(name)
