"""Tells whether a program calls what goes backward, by the names of its functions alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence

from opsk_jobcheck.scripts.frameworks.own_models.values import File

MAX_NODES = 40_000
_GOES_BACK = frozenset({"backward", "manual_backward", "apply_gradients", "value_and_grad"})
_FITS = frozenset({"fit", "fit_generator"})
"""Methods of Lightning's trainer and of Keras' models; other packages fit what is no network."""
_TRAINERS = re.compile(r"(pytorch_)?lightning\b|tensorflow|keras|transformers\b")
_EVALUATION = re.compile(
    r"_?(run_|do_)?(val|vali|valid|validate|validation|test|eval|evaluate|evaluation|infer|inference|predict|sample"
    r"|generate|plot|visuali[sz]e|export)(_\w{1,40})?"
)
"""Functions that use a model, by their names."""
_STARTS = frozenset({"main", "automain", "command"})
"""What decorates the function that a package starts: ``@experiment.main`` of sacred."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Part = tuple[ast.FunctionDef | ast.AsyncFunctionDef, File]


def reaches_training(files: Sequence[File]) -> bool:
    """Return whether what the started file calls, or hands on to be called, goes backward.

    A method counts where its class is called, too. Tests are not looked at.
    """
    if any((name, False) in calls for file in files[:1] for calls in file.digest.calls.values() for name in _GOES_BACK):
        return True  # the file itself tells it
    return bool(files) and _Names(files).reach(_list_called(_list_outer(files[0].digest.tree.body)))


def starts_training_by_decorator(file: File) -> bool:
    """Return whether a package starts a function of a file that goes backward, or calls one that may."""
    starts = [
        part
        for part in file.digest.tree.body
        if isinstance(part, ast.FunctionDef) and any(map(_is_start, part.decorator_list))
    ]
    return bool(starts) and _Names([file]).reach([(part.name, True) for part in starts])


class _Names:
    """The functions, methods and classes of files by their names."""

    def __init__(self, files: Sequence[File]) -> None:
        self.functions: dict[str, list[_Part]] = {}
        self.classes: dict[str, list[tuple[ast.ClassDef, File]]] = {}
        for file in files:
            for row in file.nodes.values():
                for node in row:
                    if isinstance(node, _FUNCTIONS):
                        self.functions.setdefault(node.name, []).append((node, file))
                    elif isinstance(node, ast.ClassDef):
                        self.classes.setdefault(node.name, []).append((node, file))

    def reach(self, called: Iterable[tuple[str, bool]]) -> bool:
        """Return whether what is called by some names goes backward, or what that calls in turn."""
        seen: set[tuple[str, bool]] = set()
        methods: dict[str, list[_Part]] = {}
        waiting = list(called)
        while waiting:
            name, is_plain = waiting.pop()
            if name in _GOES_BACK:
                return True
            if (name, is_plain) in seen or _EVALUATION.fullmatch(name):
                continue
            seen.add((name, is_plain))
            reached = methods.pop(name, [])
            reached += self.functions.get(name, ()) if is_plain else ()
            for kind, file in self.classes.pop(name, ()):
                waiting += [(getattr(base, "attr", getattr(base, "id", "")), True) for base in kind.bases]
                for part in kind.body:
                    if isinstance(part, _FUNCTIONS):
                        is_called = part.name == "__init__" or not seen.isdisjoint(
                            ((part.name, False), (part.name, True))
                        )
                        (reached if is_called else methods.setdefault(part.name, [])).append((part, file))
            for node, file in reached:
                names = {row[0] for row in file.digest.calls.get(id(node), ())}
                if names & _FITS and _names_trainer(file):
                    return True
                waiting += _list_called([node])
        return False


def _names_trainer(file: File) -> bool:
    """Return whether a file imports a package whose ``fit`` trains a network."""
    return any(_TRAINERS.match(name) for name, _ in file.digest.imports)


def _is_start(decorator: ast.expr) -> bool:
    """Return whether a decorator hands a function to a package that starts it later."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute) and called.attr in _STARTS


def _list_outer(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a file that run when it is started, and functions that a package starts."""
    for statement in body:
        is_started = isinstance(statement, ast.FunctionDef) and any(map(_is_start, statement.decorator_list))
        if is_started or not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            yield statement


def _list_called(statements: Iterable[ast.stmt]) -> list[tuple[str, bool]]:
    """Return the names that statements call, or hand on, each with whether it may be a function.

    ``model.train()`` is none: it only switches a model.
    """
    names: list[tuple[str, bool]] = []
    left = MAX_NODES
    for statement in statements:
        for node in ast.walk(statement):
            left -= 1
            if left < 0:
                return names
            if isinstance(node, ast.Call):
                called = node.func
                is_plain = isinstance(called, ast.Name)
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                names.append((name, is_plain or bool(node.args or node.keywords)))
                names += ((handed, True) for handed in _list_handed(node))
    return names


def _list_handed(call: ast.Call) -> Iterator[str]:
    """Yield the names among the arguments of a call."""
    for value in (*call.args, *(word.value for word in call.keywords)):
        if isinstance(value, ast.Name):
            yield value.id
        elif isinstance(value, ast.Lambda) and isinstance(value.body, ast.Call):
            yield getattr(value.body.func, "attr", getattr(value.body.func, "id", ""))
