"""Indexes the definitions of the Python files of one program."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from opsk_jobcheck.scripts.frameworks.own_models.digest import digest
from opsk_jobcheck.scripts.frameworks.own_models.values import ClassValue, External, File, FunctionValue

_BLOCKS = (ast.If, ast.Try, ast.With)
_CHANGED = ast.Name(id="__changed__", ctx=ast.Load())
"""The definition of a name that is set again to what is not followed."""


def parse_file(path: str, text: str) -> File | None:
    """Return a file; ``None`` where it cannot be parsed, or is too long; never raises."""
    known = digest(text)
    if known is None:
        return None
    file = File(path=path, digest=known)
    for statement in _list_top(known.tree.body):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            file.nodes.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.Assign):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    file.nodes.setdefault(target.id, []).append(statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value and isinstance(statement.target, ast.Name):
            file.nodes.setdefault(statement.target.id, []).append(statement.value)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            file.imports |= dict(list_imported(statement))
            if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
                file.whole.append(f"{'.' * statement.level}{statement.module or ''}")
        elif isinstance(statement, ast.AugAssign | ast.For | ast.While):
            for part in ast.walk(statement):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    file.nodes.setdefault(part.id, []).append(_CHANGED)
    return file


def list_imported(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """Yield the names that an import sets, and the dotted names that they stand for; dots before them count folders."""
    for name in statement.names:
        if isinstance(statement, ast.ImportFrom) and name.name == "*":
            continue
        if isinstance(statement, ast.ImportFrom):
            yield name.asname or name.name, f"{'.' * statement.level}{statement.module or ''}:{name.name}"
        elif name.asname:
            yield name.asname, name.name
        else:
            first = name.name.partition(".")[0]
            yield first, first


def _list_top(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a file, those under its conditions as well."""
    for statement in body:
        yield statement
        if isinstance(statement, _BLOCKS):
            yield from _list_top(statement.body)
            yield from _list_top(getattr(statement, "orelse", ()))


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a program, the one that is started first."""

    rows: Sequence[File]
    resolved: dict[tuple[str, str], File | None] = field(default_factory=dict)

    def find(self, name: str, file: File) -> File | None:
        """Return the file of a module by its dotted name, as another file names it; ``None`` for none."""
        key = (name, file.path)
        if key not in self.resolved:
            self.resolved[key] = self._find(name, file)
        return self.resolved[key]

    def _find(self, name: str, file: File) -> File | None:
        path = name.lstrip(".").replace(".", "/")
        level = len(name) - len(name.lstrip("."))
        folder = posixpath.dirname(file.path)
        for _ in range(max(0, level - 1)):
            folder = posixpath.dirname(folder)
        roots = [folder] if level else [folder, posixpath.dirname(self.rows[0].path)]
        for root in roots:
            base = posixpath.normpath(posixpath.join(root, path))
            for row in self.rows:
                if row.path in (f"{base}.py", f"{base}/__init__.py"):
                    return row
        endings = (f"/{path}.py", f"/{path}/__init__.py")
        known = [row for row in self.rows if path and not level and f"/{row.path}".endswith(endings)]
        return known[0] if len(known) == 1 else None

    def find_own(self, name: str) -> File | None:
        """Return the file of a module that is named with the packages around it (``import models.unet``)."""
        key = (name, "")
        if key not in self.resolved:
            ending = f"/{name.replace('.', '/')}.py"
            known = [row for row in self.rows if f"/{row.path}".endswith(ending)]
            self.resolved[key] = known[0] if len(known) == 1 else None
        return self.resolved[key]

    def resolve(self, target: str, file: File) -> File | External | tuple[File, str]:
        """Return what an import stands for: a file, a name in a file, or something of a package."""
        module, _, name = target.partition(":")
        if not name:
            return self.find(module, file) or External(module)
        package = self.find(module, file)
        if package is not None and package is not file and (name in package.nodes or name in package.imports):
            return package, name  # a package may give the class of a module the name of the module
        dot = "" if module.endswith(".") or not module else "."
        if (whole := self.find(f"{module}{dot}{name}", file)) is not None:
            return whole
        if package is not None:
            return package, name
        return External(f"{module.lstrip('.')}.{name}")


def get_definition(node: ast.stmt | ast.expr, file: File) -> ClassValue | FunctionValue | None:
    """Return the class or function that a statement defines; ``None`` for any other."""
    if isinstance(node, ast.ClassDef):
        return ClassValue(node, file)
    return FunctionValue(node, file) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def find_method(kind: ast.ClassDef, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return a method that a class itself defines."""
    for part in kind.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name == name:
            return part
    return None
