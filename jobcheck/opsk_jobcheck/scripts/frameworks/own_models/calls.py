"""Follows calls of functions and methods of PyTorch, other packages and the program."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Sequence
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.builtin_calls import (
    MATH,
    call_of_text,
    compute,
    make_record,
    merge_tables,
    multiply_sizes,
)
from opsk_jobcheck.scripts.frameworks.own_models.layers import (
    copy_module,
    make_container,
    make_layer,
    make_parameter,
)
from opsk_jobcheck.scripts.frameworks.own_models.machine import GO_ON, MAX_DEPTH
from opsk_jobcheck.scripts.frameworks.own_models.names import BUILTINS
from opsk_jobcheck.scripts.frameworks.own_models.own_calls import NAMED, OwnCalls, is_own_model
from opsk_jobcheck.scripts.frameworks.own_models.packages import (
    HARMLESS,
    KEEPS_SIZE,
    LOADS_SETTINGS,
    NO_LAYERS,
    NO_MODULES,
    PARSES,
    RECORDS,
    ROWS,
    SAME,
    TENSORS,
    TRAINS,
    USES,
    WRAPPERS,
)
from opsk_jobcheck.scripts.frameworks.own_models.public_parts import is_opaque, make_public
from opsk_jobcheck.scripts.frameworks.own_models.statements import iterate
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    ANY_SIZE,
    CALLABLE,
    DATA,
    OPEN,
    Children,
    Choice,
    ClassValue,
    External,
    Frame,
    FunctionValue,
    Module,
    OpenFile,
    OuterConstructor,
    Parameter,
    Partial,
    Settings,
    Tensor,
    choose,
    is_unknown,
    list_modules,
    list_options,
)

_STARTERS = frozenset({"absl.app.run", "tensorflow.app.run", "tensorflow.compat.v1.app.run", "typer.run", "tyro.cli"})
"""Functions of packages that start the function that they are given."""
_SETS = re.compile(r"(?i)update|merge|overrid|overwrit|process_|config|default|adjust|setup_args")
"""Names of functions that may set settings again."""
_ROW = "a class of named tuples"


class Calls(OwnCalls):
    """Follows calls."""

    def call(self, target: Any, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the result of a call."""
        self.take_step()
        if isinstance(target, Choice):
            return self._call_choice(target, positional, keywords, node, frame)
        if isinstance(target, Partial):
            given = {**target.keywords, **keywords}
            return self.call(target.function, [*target.positional, *positional], given, node, frame)
        if isinstance(target, ClassValue):
            return self.make_instance(target, positional, keywords, node, frame)
        if isinstance(target, FunctionValue):
            return self.follow(target, positional, keywords, node, frame)
        if isinstance(target, External):
            return self.call_external(target.name, positional, keywords, node, frame)
        if isinstance(target, OuterConstructor):
            bases = self.list_outer_bases(target.of.kind)
            return self.construct_outer(target.of.owner, bases, positional, keywords)
        if isinstance(target, Module) and target.is_model:
            return DATA  # what it computes
        self.note_call(getattr(node.func, "attr", getattr(node.func, "id", "")), positional, keywords, node, frame)
        self.use_arguments(positional, keywords, node, frame)
        return OPEN

    def _call_choice(
        self, target: Choice, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of calling one of several functions."""
        values: list[Any] = []
        for option in target.options:
            if isinstance(option, CALLABLE):

                def follow(option: Any = option) -> Any:
                    values.append(self.call(option, positional, keywords, node, frame))
                    return GO_ON

                self.branch(follow, lambda: GO_ON)
            else:
                values.append(OPEN)
        return choose(part for value in values for part in list_options(value))

    # ---- packages

    def call_external(
        self, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a function of a package."""
        last = name.rpartition(".")[2]
        self.note_call(name, positional, keywords, node, frame)
        if name == "super":
            return self.find_super(frame)
        if name in BUILTINS:
            return self.call_builtin(name, positional, keywords, node, frame)
        if name.startswith("torch.nn.") and name.count(".") >= 2 and not name.startswith(NO_LAYERS):
            return self._make_torch(last, positional, keywords, node, frame)
        if TENSORS.fullmatch(name):
            return Tensor(multiply_sizes(positional[:1] if last == "full" else positional, keywords))
        if ROWS.fullmatch(name):
            return Tensor(ANY_SIZE)
        if last in PARSES:
            return Settings()
        if LOADS_SETTINGS.fullmatch(name):
            return self._load_settings(last, positional)
        if name in ("pathlib.Path", "os.path.abspath", "os.path.expanduser") and len(positional) == 1:
            return positional[0] if isinstance(positional[0], str) else DATA
        if name == "os.path.join" and positional and all(isinstance(part, str) for part in positional):
            return posixpath.join(*positional)
        if name in ("copy.deepcopy", "copy.copy", "deepcopy") and positional:
            return self.bear(copy_module(positional[0]))
        if name in ("importlib.import_module", "import_module") and positional and isinstance(positional[0], str):
            return self.files.find(positional[0], frame.file) or OPEN
        if name in ("functools.partial", "partial") and positional:
            return Partial(positional[0], positional[1:], keywords)
        if name == "collections.namedtuple":
            return External(_ROW)
        if name == _ROW:
            return (*positional, *keywords.values())
        if name in ("collections.OrderedDict", "collections.defaultdict"):
            return self.call_builtin("dict", positional, keywords, node, frame)
        if name.startswith(("math.", "numpy.")) and last in MATH and positional:
            return compute(last, positional[0])
        if name in ("numpy.prod", "math.prod", "math.pow", "numpy.cumsum", "numpy.linspace"):
            return DATA
        if name in ("os.environ.get", "os.getenv") and positional and isinstance(positional[0], str):
            value = self.settings.find_variable(positional[0])
            return (positional[1] if len(positional) > 1 else None) if value is ABSENT else value
        return self._call_unknown(name, positional, keywords, node, frame)

    def _load_settings(self, last: str, positional: Sequence[Any]) -> Any:
        """Return the settings of a file, or those that are joined of several."""
        values = [value.path if isinstance(value, OpenFile) else value for value in positional]
        if last in ("merge", "create", "to_container") and values:
            tables = [value for value in values if isinstance(value, dict)]
            return merge_tables(tables) if len(tables) == len(values) else values[0] if len(values) == 1 else OPEN
        is_path = bool(values) and isinstance(values[0], str)
        return self.bear(self.settings.find_file(values[0])) if is_path else DATA

    def _call_unknown(
        self, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return what a function makes of which only the name is known."""
        last = name.rpartition(".")[2]
        modules = [module for value in (*positional, *keywords.values()) for module in list_modules(value)]
        if last == "initialize" and modules:  # of DeepSpeed, or of apex.amp
            self.use(node, modules)
            return (modules[0], DATA, DATA, DATA) if name.startswith("deepspeed") else tuple(positional)
        if modules and WRAPPERS.fullmatch(name):
            self.use(node, modules)
            return modules[0] if len(positional) < 2 or last != "prepare" else tuple(positional)
        self.use_arguments(positional, keywords, node, frame)
        if _SETS.search(last):
            for value in (*positional, *keywords.values()):
                if isinstance(value, Settings):
                    self.doubt(value)
        if last in ("spawn", "launch", "notebook_launcher") and positional and isinstance(positional[0], FunctionValue):
            given = keywords.get("args", positional[1] if len(positional) > 1 else ())
            rest = list(given) if isinstance(given, list | tuple) else []
            return self.follow(positional[0], [DATA, *rest] if last == "spawn" else rest, {}, node, frame)
        if name in _STARTERS and positional and isinstance(positional[0], FunctionValue):
            return self.follow(positional[0], [DATA] if name.endswith(".run") else [], {}, node, frame)
        if name in ("hydra.utils.instantiate", "hydra.utils.call") and positional:
            return self.instantiate(positional[0], keywords, node, frame)
        if name == "fire.Fire" and (started := self._find_started(positional, frame)) is not None:
            return self.follow_started(started, node, frame)
        if HARMLESS.match(name):
            return True if name == "torch.cuda.is_available" else DATA  # the job has GPUs
        if RECORDS.fullmatch(name):
            return self.bear(make_record(last, positional, keywords))
        public = make_public(name, positional, keywords)
        if public is not None or not last[:1].isupper():
            return public or (DATA if name.startswith("torch.") and not name.startswith("torch.hub") else OPEN)
        return self.bear(Module(last, {"?": OPEN}, is_model=NO_MODULES.search(last) is None))

    def instantiate(self, table: Any, keywords: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """Return the object that a table of settings describes: its class, and what that is made with."""
        rows = self.list_rows(table)
        target = rows.pop("_target_", None) if rows is not None else None
        if rows is None or not isinstance(target, str) or self.depth >= MAX_DEPTH:
            return OPEN
        module, _, name = target.rpartition(".")
        known = self.files.resolve(f"{module}:{name}", frame.file) if module else OPEN
        value = self.look_up_in_file(known[1], known[0]) if isinstance(known, tuple) else known
        is_partial, is_nested = rows.pop("_partial_", False), rows.pop("_recursive_", True) is not False
        self.depth += 1
        try:
            given = {
                key: self._make_nested(row, node, frame) if is_nested else row
                for key, row in rows.items()
                if isinstance(key, str) and not key.startswith("_")
            }
            if is_partial is True:
                return Partial(value, rows.get("_args_", []), {**given, **keywords})
            return self.call(value, [], {**given, **keywords}, node, frame) if isinstance(value, CALLABLE) else OPEN
        finally:
            self.depth -= 1

    def _make_nested(self, value: Any, node: ast.Call, frame: Frame) -> Any:
        """Return a value of a table, made where it describes an object."""
        rows = self.list_rows(value)
        return self.instantiate(value, {}, node, frame) if rows is not None and "_target_" in rows else value

    def _find_started(self, positional: Sequence[Any], frame: Frame) -> FunctionValue | None:
        """Return the function that Fire starts: one that it is given, or that the first word of the command names."""
        target = positional[0] if positional else None
        words = self.settings.find_words() or [DATA]
        if not positional and isinstance(words[0], str):
            target = self.look_up_in_file(words[0], frame.file)
        elif isinstance(target, dict) and isinstance(words[0], str):
            target = target.get(words[0])
        return target if isinstance(target, FunctionValue) else None

    def follow_started(self, function: FunctionValue, node: ast.Call, frame: Frame) -> Any:
        """Follow a function whose parameters are flags of the command line."""
        code = function.node.args
        names = [row.arg for row in (*code.posonlyargs, *code.args, *code.kwonlyargs)]
        given = {name: self.settings.find_given(name) for name in names}
        return self.follow(function, [], {key: x for key, x in given.items() if x is not ABSENT}, node, frame)

    def _make_torch(
        self, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return a layer, a list of modules or a weight."""
        if name in ("Parameter", "UninitializedParameter"):
            return make_parameter(positional[0] if positional else keywords.get("data"))
        if (made := make_container(name, positional)) is not None:
            return self.bear(made)
        if "?" in keywords:
            return OPEN
        if (layer := make_layer(name, positional, keywords)) is not None:
            return self.bear(layer)
        if WRAPPERS.fullmatch(name) and positional:
            self.use(node, positional[:1])
            return positional[0]
        return OPEN if name[:1].isupper() else DATA

    # ---- methods

    def call_method(
        self, owner: Any, name: str, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return the result of a method that is not the program's."""
        if is_unknown(owner) and (frame.owner is None or not frame.owner.is_model):
            base = node.func.value if isinstance(node.func, ast.Attribute) else None
            named = getattr(base, "attr", getattr(base, "id", ""))
            if name in TRAINS or (name in USES and NAMED.fullmatch(named)):
                self.use_unknown(node, owner)
        if isinstance(owner, Module | Choice) and any(isinstance(x, Module) for x in list_options(owner)):
            return self._call_of_module(owner, name, positional, keywords, node, frame)
        if isinstance(owner, list):
            return self.call_of_list(owner, name, positional)
        if isinstance(owner, dict):
            return self.call_of_table(owner, name, positional, keywords)
        if isinstance(owner, OpenFile):
            return owner
        if name == "map" and positional and isinstance(positional[0], FunctionValue):
            self.follow(positional[0], [DATA], {}, node, frame)  # of a data set
        if owner is DATA and name not in PARSES:
            self.note_call(name, positional, keywords, node, frame)
            self.use_arguments(positional, keywords, node, frame)
            return DATA
        if isinstance(owner, Tensor | Parameter):
            return Tensor(owner.size) if KEEPS_SIZE.match(name) else DATA
        if isinstance(owner, Settings):
            if name in ("update", "merge_from_file", "merge_from_list", "from_dict", "update_from_dict"):
                self.doubt(owner)
                return None
            if name in ("get", "getint", "pop") and positional and isinstance(positional[0], str):
                value = self.find_setting(owner, positional[0])
                is_open = isinstance(value, Settings)
                return DATA if is_open else value
            return owner if name in ("copy", "to_dict", "dict") else DATA
        if isinstance(owner, str):
            return call_of_text(owner, name, positional)
        if name in PARSES:
            return (Settings(), []) if name == "parse_known_args" else Settings()
        modules = [module for value in (*positional, *keywords.values()) for module in list_modules(value)]
        if modules and WRAPPERS.fullmatch(f".{name}"):
            self.use(node, modules)
            return modules[0] if len(positional) < 2 or name != "prepare" else tuple(positional)
        self.use_arguments(positional, keywords, node, frame)
        return OPEN

    def _call_of_module(
        self,
        owner: Module | Choice,
        name: str,
        positional: list[Any],
        keywords: dict[str, Any],
        node: ast.Call,
        frame: Frame,
    ) -> Any:
        """Return the result of a method that every module has."""
        is_outside = frame.owner is None or not frame.owner.is_model
        if is_outside and (name in TRAINS or (name in USES and is_own_model(owner))):
            self.use(node, [owner], trains=name in TRAINS)
        if name in SAME:
            return owner
        if not isinstance(owner, Module):
            return OPEN if name in ("append", "extend", "insert", "add_module") else DATA
        if name == "get" and not owner.is_model and positional and isinstance(positional[0], str):
            default = positional[1] if len(positional) > 1 else None
            return owner.attributes.get(positional[0], owner.attributes.get("?", default))
        if name in ("add_module", "register_module", "register_parameter") and len(positional) == 2:
            key = positional[0] if isinstance(positional[0], str) else f"? {id(node)} {len(owner.attributes)}"
            self.write(owner.attributes, key, positional[1])
        elif name == "append" and positional:
            self.write_row(owner.parts, [*owner.parts, positional[0]])
        elif name == "insert" and len(positional) == 2 and isinstance(positional[0], int):
            place, part = positional
            self.write_row(owner.parts, [*owner.parts[:place], part, *owner.parts[place:]])
        elif name in ("extend", "insert") and positional:
            items = iterate(positional[0]) if name == "extend" else [OPEN]
            self.write_row(owner.parts, [*owner.parts, *(items if items is not None else [OPEN])])
        elif name in ("children", "modules", "named_children", "named_modules") and is_opaque(owner):
            return Children(owner) if name == "children" else [OPEN]
        elif name in ("children", "modules"):
            return [x for x in (*owner.attributes.values(), *owner.parts) if isinstance(x, Module | Choice)]
        elif name == "items":
            return [(key, value) for key, value in owner.attributes.items()]
        elif name == "values":
            return list(owner.attributes.values())
        elif name == "update" and positional and isinstance(positional[0], dict):
            for key, value in positional[0].items():
                self.write(owner.attributes, key, value)
        else:
            self.use_arguments(positional, keywords, node, frame)
            return OPEN if owner.attributes.get("?") is OPEN and not owner.definition else DATA
        return None
