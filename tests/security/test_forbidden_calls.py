"""Is there no place in opsk where text of others could be run, unpickled or made into objects?

The modules are read, not run: whatever would do it has to be named here, with the reason.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

PARTS = ("opsk", "exporters/opsk_exporters", "jobcheck/opsk_jobcheck", "tui/opsk_tui", "deploy")
UNPICKLERS = {"opsk/postmortem/evidence/recorder_child.py"}
"""Subclasses ``pickle.Unpickler`` so that no class is found; ``test_flight_recorder`` attacks it."""
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "xml.sax", "xml.dom", "telnetlib"}
CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
         "pickle.load", "pickle.loads", "subprocess.getoutput", "tempfile.mktemp", "numpy.load", "np.load"}  # fmt: skip


def named(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{named(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """What a module imports and calls."""

    imported: frozenset[str]
    calls: tuple[ast.Call, ...]


def read_module(path: Path) -> Module:
    imported: set[str] = set()
    calls = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            calls.append(node)
        elif isinstance(node, ast.Import):
            imported |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported.add(node.module)
    return Module(imported=frozenset(imported), calls=tuple(calls))


@pytest.fixture(scope="module")
def parsed(root: Path) -> dict[str, Module]:
    """All modules by path; each is walked once, which takes longer than all else here."""
    paths = (path for part in PARTS for path in sorted((root / part).rglob("*.py")))
    found = {path.relative_to(root).as_posix(): read_module(path) for path in paths}
    assert len(found) > 500
    return found


def test_pickles_are_known_to_one_module_that_makes_no_object(parsed: dict[str, Module]) -> None:
    assert {name for name, module in parsed.items() if module.imported & MODULES} == UNPICKLERS


def test_nothing_is_evaluated_or_given_to_a_shell(parsed: dict[str, Module]) -> None:
    found = []
    for name, module in parsed.items():
        for node in module.calls:
            if named(node.func) in CALLS:
                found.append(f"{name}:{node.lineno} {named(node.func)}")
            found += [
                f"{name}:{node.lineno} shell="
                for given in node.keywords
                if given.arg == "shell" and not (isinstance(given.value, ast.Constant) and given.value.value is False)
                and named(node.func).startswith("subprocess")
            ]  # fmt: skip
    assert found == []


def test_nothing_is_unpacked_to_disk(parsed: dict[str, Module]) -> None:
    """No name in an archive decides where a file lies."""
    found = [
        f"{name}:{node.lineno}"
        for name, module in parsed.items()
        if not name.startswith("deploy/")  # unpacks wheels that were checked by hash
        for node in module.calls
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("extractall", "extract", "unpack_archive")
    ]
    assert found == []
