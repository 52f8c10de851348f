"""Follows calls of the classes and functions of the program itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from opsk_jobcheck.scripts.frameworks.own_models.builtin_calls import (
    Builtins,
)
from opsk_jobcheck.scripts.frameworks.own_models.copies import CannotCopyError, copy_module, describe_arguments
from opsk_jobcheck.scripts.frameworks.own_models.expressions import get_item
from opsk_jobcheck.scripts.frameworks.own_models.files import find_method
from opsk_jobcheck.scripts.frameworks.own_models.layers import (
    LAYERS,
    make_container,
    make_layer,
)
from opsk_jobcheck.scripts.frameworks.own_models.machine import MAX_DEPTH, End
from opsk_jobcheck.scripts.frameworks.own_models.names import BUILTINS
from opsk_jobcheck.scripts.frameworks.own_models.packages import (
    PLAIN_BASES,
    is_model_base,
)
from opsk_jobcheck.scripts.frameworks.own_models.values import (
    ABSENT,
    DATA,
    OPEN,
    CannotCountError,
    Choice,
    ClassValue,
    External,
    File,
    Frame,
    FunctionValue,
    Module,
    OuterConstructor,
    Settings,
    Super,
    list_modules,
    list_options,
)

NAMED = re.compile(
    r"(\w*_)?(model|net|network|encoder|decoder|generator|discriminator|student|policy|unet|vae|actor|critic|backbone)"
    r"(_(?!name|path|dir|id|args?|cfg|conf|type|size|file|fn|kw|opts?|key|url|tag|dims?|len|lr|num|seed|ckpt)\w{1,4})?"
)
"""Names that programs give to models, and to no settings of them."""
MAX_LINES = 30
"""Longest function that is followed although it makes no model."""
MAX_CALLS = 3
MAX_RECURSION = 6
_MAKES = re.compile(
    r"(?i)(model|net|encoder|decoder|unet|backbone|vit|transformer)$|^(build|create|get|make|init)_\w*(model|net)|from_pretrained|parse_\w*args"
    r"|^(\w+_)?tokeni[sz]er$|TrainingArguments$|^(SFT|DPO|KTO|ORPO|CPO|Reward|GRPO|RLOO|Lora)Config$"
)
_LATER = ("forward", "training_step", "setup", "configure_model", "on_fit_start", "build", "prepare")
"""Methods that run when a module is used."""
_DATA = (
    "Dataset",
    "DataModule",
    "Dataloader",
    "DataLoader",
    "Sampler",
    "Loss",
    "Criterion",
    "Meter",
    "Logger",
    "Metric",
)
"""Bases of classes of data, which make no models."""


def is_own_model(value: Module | Choice) -> bool:
    """Return whether a value is a module of a class of the program, or of PyTorch."""
    return any(
        isinstance(option, Module)
        and option.is_model
        and (option.definition is not None or "?" not in option.attributes)
        for option in list_options(value)
    )


def _is_started_by_hydra(function: FunctionValue) -> bool:
    """Return whether a function gets the settings that Hydra composes."""
    rows = getattr(function.node, "decorator_list", ())
    names = [ast.unparse(row.func) for row in rows if isinstance(row, ast.Call)]
    return any(name == "hydra.main" or (name == "main" and "main" in function.file.imports) for name in names)


def _makes_later(kind: ClassValue) -> bool:
    """Return whether a class makes layers when it is used, not when it is made."""
    methods = (find_method(kind.node, name) for name in _LATER)
    return any(
        name in LAYERS
        for method in methods
        if method is not None
        for name, _ in kind.file.digest.calls.get(id(method), ())
    )


class OwnCalls(Builtins):
    """Follows calls of what the program defines."""

    def make_instance(
        self, kind: ClassValue, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Return an object of a class of the program, after its constructor."""
        bases = self.list_bases(kind)
        outer = [base for this in bases for base in self.list_outer_bases(this)]
        is_model = any(isinstance(base, External) and is_model_base(base.name) for base in outer)
        if not is_model and not self._is_worth_following(kind):
            self.use_arguments(positional, keywords, node, frame)
            return OPEN
        key = self._describe_making(kind, bases, positional, keywords) if is_model and self.tape is None else None
        known = self._make_again(key, (*positional, *keywords.values())) if key is not None else None
        if known is not None:
            return known
        instance = self.bear(Module(kind.node.name, definition=kind, is_model=is_model))
        before = (len(self.unknown), len(self.noted), len(self.used), len(self.places))
        self._construct(instance, kind, bases, outer, positional, keywords, node, frame)
        if before == (len(self.unknown), len(self.noted), len(self.used), len(self.places)):
            self._keep(key, instance, (*positional, *keywords.values()))
        return instance

    def _describe_making(
        self, kind: ClassValue, bases: Sequence[ClassValue], positional: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Hashable | None:
        """Return what tells a module from others that are made with other arguments; ``None`` where that may change."""
        constructor = next((row for this in bases if (row := find_method(this.node, "__init__")) is not None), None)
        names = [row.arg for row in constructor.args.args[1:]] if constructor is not None else []
        given = describe_arguments(positional, keywords, names)
        return None if given is None else (id(kind.node), given)

    def _make_again(self, key: Hashable, shared: Sequence[Any]) -> Module | None:
        """Return another module that is made as one before; ``None`` where none is known."""
        known = self.made_before.get(key)
        if known is None:
            return None
        copy, made = copy_module(known, shared)
        if self.born:
            self.born[-1] |= {id(value) for value in made}
        return copy

    def _keep(self, key: Hashable | None, instance: Module, shared: Sequence[Any]) -> None:
        """Keep a copy of a module that was made twice: what is changed in the module itself does not count."""
        if key is None:
            return
        if key not in self.made_before:
            self.made_before[key] = None
            return
        with suppress(CannotCopyError):
            self.made_before[key], _ = copy_module(instance, shared)

    def _construct(
        self,
        instance: Module,
        kind: ClassValue,
        bases: Sequence[ClassValue],
        outer: Sequence[Any],
        positional: list[Any],
        keywords: dict[str, Any],
        node: ast.Call,
        frame: Frame,
    ) -> None:
        """Follow the constructor of an object."""
        is_model = instance.is_model
        if any(base is OPEN for base in outer) or (is_model and any(map(_makes_later, bases))):
            instance.attributes["?"] = OPEN
        for this in bases:
            constructor = find_method(this.node, "__init__")
            if constructor is not None:
                function = FunctionValue(constructor, this.file, None, instance, this)
                self.follow(function, positional, keywords, node, frame)
                return
        if is_model:
            self.construct_outer(instance, outer, positional, keywords)
        else:
            self._fill_record(instance, bases, positional, keywords)

    def list_outer_bases(self, kind: ClassValue) -> list[Any]:
        """Return the bases of a class that are not of the program."""
        values = [self.evaluate(base, Frame(kind.file)) for base in kind.node.bases]
        rows = [value if isinstance(value, External | ClassValue) else OPEN for value in values]
        return [
            OPEN
            if isinstance(row, External) and not (is_model_base(row.name) or PLAIN_BASES.fullmatch(row.name))
            else row
            for row in rows
            if not isinstance(row, ClassValue)
        ]

    def construct_outer(
        self, instance: Module, bases: Sequence[Any], positional: Sequence[Any], keywords: Mapping[str, Any]
    ) -> None:
        """Give an object the layers of a class of ``torch.nn`` that it inherits from."""
        for base in bases:
            name = base.name.rpartition(".")[2] if isinstance(base, External) else ""
            made = make_container(name, positional) or (make_layer(name, positional, keywords) if name else None)
            if made is not None and name != "Module":
                for key, value in made.attributes.items():
                    self.write(instance.attributes, key, value)
                self.write_row(instance.parts, made.parts)
                instance.layer = made.layer or (name, None)

    def _fill_record(
        self, instance: Module, bases: Sequence[ClassValue], positional: Sequence[Any], keywords: Mapping[str, Any]
    ) -> None:
        """Set the fields of a class of data, by their defaults and by what is given."""
        fields: dict[str, Any] = {}
        for this in reversed(bases):
            for part in this.node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    fields[part.target.id] = self._find_default(part.value, this)
        instance.attributes |= fields | dict(zip(fields, positional, strict=False)) | dict(keywords)

    def _find_default(self, value: ast.expr | None, kind: ClassValue) -> Any:
        """Return the default of a field of a class of data."""
        if isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) == "field":
            words = {word.arg: word.value for word in value.keywords}
            if "default" in words:
                return self.evaluate(words["default"], Frame(kind.file))
            if "default_factory" in words:
                factory = self.evaluate(words["default_factory"], Frame(kind.file))
                return self.call(factory, [], {}, value, Frame(kind.file))
            return DATA
        return self.evaluate(value, Frame(kind.file)) if value is not None else DATA

    def _is_worth_following(self, kind: ClassValue) -> bool:
        """Return whether objects of a class that is no model may hold models, or settings."""
        names = [getattr(base, "attr", getattr(base, "id", "")) for base in kind.node.bases]
        return not any(name.endswith(_DATA) for name in (*names, kind.node.name))

    def follow(
        self, function: FunctionValue, positional: list[Any], keywords: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Follow a function and return its result."""
        owner, given = function.owner, positional
        if not given and not keywords and _is_started_by_hydra(function):
            given = [Settings(of_file=True)]
        if owner is not None:
            given = [owner, *positional]
        elif function.kind is not None and positional and isinstance(positional[0], Module):
            owner = positional[0]  # Base.__init__(self, ...)
        inner = Frame(function.file, self.bear({}), owner, function.kind, function.frame)
        if self.depth >= MAX_DEPTH:
            raise CannotCountError("functions call each other deeper than opsk follows")
        code = function.node
        is_main = function.kind is None or not function.kind.node.bases
        gets_settings = any(isinstance(value, Settings) for value in (*given, *keywords.values()))
        if (
            not isinstance(code, ast.Lambda)
            and is_main
            and not self.is_followed(code, function.file, gets_settings=gets_settings)
        ):
            self.use_arguments(positional, keywords, node, frame)
            if id(code) in function.file.digest.trains:
                self.finish()
            return OPEN
        self._bind(code.args, given, keywords, inner)
        if self.active.get(id(code), 0) >= MAX_RECURSION:
            return OPEN
        self.depth += 1
        self.active[id(code)] = self.active.get(id(code), 0) + 1
        try:
            if isinstance(code, ast.Lambda):
                return self.evaluate(code.body, inner)
            kind, value = self.run(code.body, inner)
        finally:
            self.depth -= 1
            self.active[id(code)] -= 1
        if id(code) in function.file.digest.yields:
            return OPEN
        return None if value is ABSENT or kind not in (End.RETURN, End.MAYBE) else value

    def is_followed(self, code: ast.FunctionDef | ast.AsyncFunctionDef, file: File, *, gets_settings: bool) -> bool:
        """Return whether a function is followed: a short one, or one of settings, that does not train, or a maker."""
        is_short = (code.end_lineno or 0) - code.lineno <= MAX_LINES
        return ((is_short or gets_settings) and id(code) not in file.digest.trains) or self.may_make(code, file)

    def may_make(self, code: ast.AST, file: File, depth: int = 0) -> bool:
        """Return whether a function may make models, by what it calls."""
        if id(code) in self.makers:
            return self.makers[id(code)]
        self.makers[id(code)] = False
        for name, is_plain in sorted(file.digest.calls.get(id(code), ())):
            if not name or name in BUILTINS:
                continue
            is_known = is_plain and (name in file.nodes or name in file.imports)
            known = self.look_up_in_file(name, file) if is_known else DATA
            if isinstance(known, FunctionValue) and not isinstance(known.node, ast.Lambda):
                makes = depth < MAX_CALLS and self.may_make(known.node, known.file, depth + 1)
            elif isinstance(known, ClassValue):
                makes = self._is_worth_following(known)
            else:
                makes = _MAKES.search(name) is not None
            if makes:
                self.makers[id(code)] = True
                break
        return self.makers[id(code)]

    def may_train(self, code: ast.AST, file: File) -> bool:
        """Return whether a loop calls a function of the program that trains."""
        if id(code) not in self.trainers:
            self.trainers[id(code)] = False
            calls = sorted(file.digest.calls.get(id(code), ()))
            self.trainers[id(code)] = any(self._does_train(name, file) for name, is_plain in calls if is_plain)
        return self.trainers[id(code)]

    def _does_train(self, name: str, file: File) -> bool:
        """Return whether a function, by its name in a file, goes backward."""
        if name in BUILTINS or (name not in file.nodes and name not in file.imports and not file.whole):
            return False
        known = self.look_up_in_file(name, file)
        if not isinstance(known, FunctionValue) or isinstance(known.node, ast.Lambda):
            return False
        calls = {name for name, _ in known.file.digest.calls.get(id(known.node), ())}
        return bool(calls & {"backward", "manual_backward", "zero_grad"}) or self.may_train(known.node, known.file)

    def _bind(
        self, arguments: ast.arguments, positional: Sequence[Any], keywords: Mapping[str, Any], frame: Frame
    ) -> None:
        """Give parameters their arguments, else their defaults."""
        rows = [*arguments.posonlyargs, *arguments.args]
        names = [row.arg for row in rows]
        defaults = dict(zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True))
        defaults |= {
            row.arg: value
            for row, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if value is not None
        }
        names += [row.arg for row in arguments.kwonlyargs]
        top = Frame(frame.file, outer=frame.outer)
        is_open = "?" in keywords
        for index, name in enumerate(names):
            if name in keywords:
                value = keywords[name]
            elif index < len(positional) and index < len(rows):
                value = positional[index]
            elif name in defaults and not is_open:
                value = self.evaluate(defaults[name], top)
            else:
                value = self._get_hidden(keywords.get("?"), name, frame) if is_open else OPEN
            frame.names[name] = value
        if arguments.vararg is not None:
            frame.names[arguments.vararg.arg] = list(positional[len(rows) :])
        if arguments.kwarg is not None:
            frame.names[arguments.kwarg.arg] = {key: item for key, item in keywords.items() if key not in names}

    def _get_hidden(self, table: Any, name: str, frame: Frame) -> Any:
        """Return an argument that is given in a table (``**cfg``)."""
        value = get_item(self, table, name, frame) if isinstance(table, Settings) else OPEN
        return OPEN if isinstance(value, Settings) else value

    def use_arguments(
        self, positional: Sequence[Any], keywords: Mapping[str, Any], node: ast.Call, frame: Frame
    ) -> None:
        """Note the modules that are handed on, where that is not in the constructor of another one."""
        if frame.owner is None or not frame.owner.is_model:
            given = [module for value in (*positional, *keywords.values()) for module in list_modules(value)]
            self.use(node, [module for module in given if is_own_model(module)])
            named = [
                (getattr(part, "attr", getattr(part, "id", "")), value)
                for part, value in zip(node.args, positional, strict=False)
            ]
            for name, value in (*named, *keywords.items()):
                if NAMED.fullmatch(name):
                    self.use_unknown(node, value)

    def find_super(self, frame: Frame) -> Any:
        """Return the next base of a class, bound to the object."""
        scope: Frame | None = frame
        while scope is not None and scope.kind is None:
            scope = scope.outer
        if scope is None or scope.kind is None or scope.owner is None:
            return DATA
        return Super(scope.kind, scope.owner)

    def get(self, owner: Any, name: str, frame: Frame) -> Any:
        """Return an attribute of a value; of ``super()`` one of its bases."""
        if isinstance(owner, Super):
            for base in owner.kind.node.bases:
                known = self.evaluate(base, Frame(owner.kind.file))
                if isinstance(known, ClassValue):
                    value = self.get_of_class(known, name, owner.owner)
                    if value is not DATA:
                        return value
            return OuterConstructor(owner) if name == "__init__" else DATA
        return super().get(owner, name, frame)
