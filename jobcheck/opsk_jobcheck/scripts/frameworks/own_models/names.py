"""Finds what the names, attributes and settings of a program stand for."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.files import find_method, get_definition
from opsk_jobcheck.scripts.frameworks.own_models.public_parts import WHOLE, make_features
from opsk_jobcheck.scripts.frameworks.own_models.stand_ins import find_stand_in, make_stand_ins
from opsk_jobcheck.scripts.frameworks.own_models.statements import Statements
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    DATA,
    MAX_OPTIONS,
    OPEN,
    Choice,
    ClassValue,
    External,
    File,
    Frame,
    FunctionValue,
    Module,
    Settings,
    Unread,
    choose,
    list_options,
)

BUILTINS = frozenset(
    {
        *("int", "float", "str", "bool", "abs", "round", "len", "max", "min", "sum", "list", "tuple", "zip", "range"),
        *("enumerate", "sorted", "reversed", "dict", "set", "getattr", "setattr", "hasattr", "isinstance", "vars"),
        *(
            "map",
            "super",
            "print",
            "type",
            "any",
            "all",
            "open",
            "id",
            "filter",
            "iter",
            "next",
            "callable",
            "eval",
            "exec",
            "locals",
            "globals",
        ),
    }
)
_NUMBERS: Mapping[str, float] = {
    **dict.fromkeys(("math.pi", "numpy.pi", "torch.pi"), math.pi),
    **{"math.e": math.e, "math.inf": math.inf, "numpy.inf": math.inf, "math.tau": math.tau},
}
"""Constants of packages."""
_ANY = ("?",)
"""The name of all settings that the program may set."""
NO_CALL = ast.Call(func=ast.Name(id="", ctx=ast.Load()), args=[], keywords=[])


class Names(Statements):
    """Finds what names stand for."""

    def look_up(self, name: str, frame: Frame) -> Any:
        """Return what a name stands for."""
        scope: Frame | None = frame
        while scope is not None:
            if name in scope.names:
                value = scope.names[name]
                return DATA if value is ABSENT else value
            scope = scope.outer
        return self.look_up_in_file(name, frame.file)

    def look_up_in_file(self, name: str, file: File) -> Any:
        """Return what a name stands for at the top of a file."""
        if name in file.names:
            value = file.names[name]
            return DATA if value is ABSENT else value
        if len(file.nodes.get(name, ())) > 1 and not file.is_run and not self.logs:
            file.is_run = True  # which of several counts is known where the tests around them are
            self.run(file.digest.tree.body, Frame(file, file.names))
            return self.look_up_in_file(name, file)
        if name in file.nodes and name not in file.followed:
            file.followed.add(name)
            frame = Frame(file, file.names)
            rows = [self._evaluate_definition(node, frame) for node in file.nodes[name]]
            file.followed.discard(name)
            if name in file.imports:  # tried, and defined where that failed
                rows.append(self._import(file.imports[name], file))
            file.names[name] = value = choose(option for row in rows for option in list_options(row))
            return value
        if name in file.imports:
            return self._import(file.imports[name], file)
        if name in BUILTINS:
            return External(name)
        return DATA if name.startswith("__") else self._look_up_in_whole(name, file)

    def _look_up_in_whole(self, name: str, file: File) -> Any:
        """Return what a name stands for in the modules of which a file takes all names."""
        for module in file.whole:
            other = self.files.find(module, file)
            if other is None or (name not in other.nodes and name not in other.imports and not other.whole):
                continue
            value = self._import(f"{module}:{name}", file)
            if value is not OPEN:
                return value
        return OPEN

    def _evaluate_definition(self, node: ast.stmt | ast.expr, frame: Frame) -> Any:
        """Return the class, function or value that a file defines at its top."""
        return self.evaluate(node, frame) if isinstance(node, ast.expr) else get_definition(node, frame.file)

    def _import(self, target: str, file: File) -> Any:
        """Return what an import stands for."""
        meaning = self.files.resolve(target, file)
        if isinstance(meaning, tuple):
            other, name = meaning
            key = f"{other.path}:{name}"
            if key in file.followed:
                return OPEN
            file.followed.add(key)
            try:
                value = self.look_up_in_file(name, other)
            finally:
                file.followed.discard(key)
            return OPEN if value is DATA and name not in other.nodes else value
        return self._stand_in(meaning)

    def _stand_in(self, meaning: File | External) -> Any:
        """Return what stands for a class of a package, where there is a text for it."""
        name = find_stand_in(meaning.name) if isinstance(meaning, External) else None
        if name is None or not isinstance(meaning, External):
            return meaning
        if name not in self.stand_ins:
            self.stand_ins[name] = make_stand_ins(name)
        file = self.stand_ins[name]
        return self.look_up_in_file(meaning.name.rpartition(".")[2], file) if file is not None else meaning

    def get(self, owner: Any, name: str, frame: Frame) -> Any:
        """Return an attribute of a value."""
        if isinstance(owner, Module):
            return self.get_of_module(owner, name)
        if isinstance(owner, File):
            return owner if name == "__dict__" else self.look_up_in_file(name, owner)
        if isinstance(owner, External):
            whole = f"{owner.name}.{name}"
            if whole in _NUMBERS:
                return _NUMBERS[whole]
            if whole == "sys.argv" and (words := self.settings.find_words()) is not None:
                return [DATA, *words]
            return self.files.find_own(whole) or self._stand_in(External(whole))
        if isinstance(owner, Settings):
            return self.find_setting(owner, name)
        if isinstance(owner, ClassValue):
            return self.get_of_class(owner, name)
        if isinstance(owner, Choice):
            return choose(option for part in owner.options for option in list_options(self.get(part, name, frame)))
        if isinstance(owner, dict):
            return owner.get(name, DATA)
        return OPEN if owner is OPEN else DATA

    def get_of_module(self, owner: Module, name: str) -> Any:
        """Return an attribute of an object: its own, a method, or one of its class."""
        if name == "__dict__":
            return owner.attributes
        if name in owner.attributes:
            value = owner.attributes[name]
            return DATA if value is ABSENT else value
        if name == "module":  # of a wrapper, which is left out
            return owner
        if name == "features" and (made := self._find_features(owner)) is not None:
            return made
        if owner.definition is not None:
            value = self.get_of_class(owner.definition, name, owner)
            if value is not DATA:
                return value
        return OPEN if owner.attributes.get("?") is OPEN else DATA

    def _find_features(self, owner: Module) -> Module | None:
        """Return the convolutions of a public model whose layers are known; ``None`` for anything else."""
        if owner.layer is None or owner.layer[0] != WHOLE:
            return None
        if id(owner) not in self.features:
            self.features[id(owner)] = (owner, make_features(owner.name))
        return self.features[id(owner)][1]

    def get_of_class(self, kind: ClassValue, name: str, owner: Module | None = None) -> Any:
        """Return what a class, or one that it inherits from, defines under a name."""
        for this in self.list_bases(kind):
            method = find_method(this.node, name)
            if method is not None:
                names = {part.id for part in method.decorator_list if isinstance(part, ast.Name)}
                bound = None if "staticmethod" in names else owner
                function = FunctionValue(method, this.file, None, bound, this)
                return self.call(function, [], {}, NO_CALL, Frame(this.file)) if "property" in names else function
            for part in this.node.body:
                value = part.value if isinstance(part, ast.Assign | ast.AnnAssign) else None
                targets = part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]
                if value is not None and any(isinstance(row, ast.Name) and row.id == name for row in targets):
                    return self.evaluate(value, Frame(this.file))
                if isinstance(part, ast.ClassDef) and part.name == name:
                    return ClassValue(part, this.file)
        return DATA

    def list_bases(self, kind: ClassValue) -> list[ClassValue]:
        """Return a class and those of the program that it inherits from."""
        if id(kind.node) in self.bases:
            return self.bases[id(kind.node)]
        rows, seen = [kind], {id(kind.node)}
        for this in rows:
            for base in this.node.bases:
                known = self.evaluate(base, Frame(this.file))
                if isinstance(known, ClassValue) and id(known.node) not in seen and len(rows) < MAX_OPTIONS:
                    seen.add(id(known.node))
                    rows.append(known)
        self.bases[id(kind.node)] = rows
        return rows

    def list_rows(self, table: Any) -> dict[Any, Any] | None:
        """Return the rows of a table of settings; ``None`` for anything else."""
        if isinstance(table, Settings) and table.of_file:
            return {name: self.find_setting(table, name) for name in self.settings.list_names(table.path)}
        if isinstance(table, Module) and not table.is_model and table.definition is None:
            return dict(table.attributes)
        return dict(table) if isinstance(table, dict) else None

    def find_setting(self, owner: Settings, name: str) -> Any:
        """Return a setting, by what the program sets it to, else by what it is started with."""
        path = (*owner.path, name)
        if name == "__dict__":
            return owner
        if path in owner.changed:
            return owner.changed[path]
        if _ANY in owner.changed:
            return DATA
        value = self.settings.find(path, of_file=owner.of_file)
        if isinstance(value, Unread):
            known = self.evaluate(value.node, Frame(value.file))
            return known if known is None or isinstance(known, str | int | float | list) else DATA
        return Settings(path, owner.of_file, owner.changed) if value is ABSENT else value

    def doubt(self, owner: Settings) -> None:
        """Note that any setting may have been set again."""
        for key in list(owner.changed):
            self.write(owner.changed, key, DATA)
        self.write(owner.changed, _ANY, DATA)
