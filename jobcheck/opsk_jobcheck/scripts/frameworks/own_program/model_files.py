"""Finds the files in which a program's models are defined: modules beside it from which it takes classes."""

from __future__ import annotations

import heapq
import posixpath
import re
from collections.abc import Iterator, Sequence

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.own_models.files import parse_file
from opsk_jobcheck.scripts.frameworks.own_models.values import File
from opsk_jobcheck.scripts.frameworks.program_files import ask_for, list_programs, read_text
from opsk_jobcheck.scripts.frameworks.python.parts import SETTINGS_MODULES, is_installed
from opsk_jobcheck.scripts.launchers.programs import Program
from opsk_jobcheck.scripts.settings.reader import Reading

_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]+")
MAX_FILES = 24
MAX_CHARS = 1 << 18
"""Longest files together."""
MAX_ASKED = 12
MAX_TRIED = 2
"""Paths that are asked for at a time, all together and for a module: where one is tells where the others are."""
_MODELS = re.compile(
    r"model|net|arch|llm|backbone|encoder|decoder|layer|module|block|former|vit|gan|diffusion|policy|agent",
    re.IGNORECASE,
)
_NO_MODELS = re.compile(
    r"util|metric|log|eval|test|optim|sched|tokeni[sz]|plot|visual|callback|checkpoint", re.IGNORECASE
)
_STEPS = re.compile(r"engine|train|solver|learner|loop|fit|runner|experiment|^exp_|\.exp_", re.IGNORECASE)
"""Modules that may hold the training loop."""
_DATA = re.compile(r"data|loader|transform|augment", re.IGNORECASE)
"""Modules that may define data sets, which say what a model gets."""


def read_model_files(
    program: Program, invocation: Invocation, reading: Reading, targets: Sequence[str] = ()
) -> list[File]:
    """Return the program's file and those of its models, as far as they are at hand; others are asked for.

    Parameters
    ----------
    targets
        Classes that files of settings name, with their modules.
    """
    files: dict[str, File] = {}
    for path in list_programs(program, invocation):
        text, place = read_text(path, invocation, reading)
        if text is not None and (file := parse_file(place, text)) is not None:
            files[place] = file
            break
    if not files:
        return []
    first = next(iter(files.values()))
    named = [(module, name) for module, _, name in (target.rpartition(".") for target in targets) if module]
    words = frozenset(program.known_words)
    _add_imported(files, first, reading, words, named)
    _ask_for_others(list(files.values()), first, reading, words, named)
    return list(files.values())


def _add_imported(
    files: dict[str, File], first: File, reading: Reading, words: frozenset[str], named: Sequence[tuple[str, str]]
) -> None:
    """Add the modules that are at hand: those that are imported, the likeliest to define models first, then others."""
    waiting: list[tuple[int, int, str]] = []
    seen: set[str] = set()
    room = [MAX_CHARS]

    def list_imported(file: File) -> None:
        for module, name in (*(named if file is first else ()), *_list_modules(file, words)):
            places = (place for place in _list_places(module, name, file, first) if place in reading.files)
            place = next(places, "")
            if place and place not in seen:
                seen.add(place)
                heapq.heappush(waiting, (_rank(f"{module}.{name}"), len(seen), place))

    list_imported(first)
    while waiting and len(files) < MAX_FILES:
        _, _, place = heapq.heappop(waiting)
        if (other := _parse(place, files, room, reading)) is not None:
            list_imported(other)
    for place in sorted(reading.files):
        if len(files) < MAX_FILES:
            _parse(place, files, room, reading)


def _parse(place: str, files: dict[str, File], room: list[int], reading: Reading) -> File | None:
    """Add a file of Python to the others and return it; ``None`` where it is there already, or does not fit."""
    text = reading.files[place]
    if not place.endswith(".py") or place in files or len(text) > room[0]:
        return None
    file = parse_file(place, text)
    if file is not None:
        files[place] = file
        room[0] -= len(text)
    return file


def _ask_for_others(
    files: Sequence[File], first: File, reading: Reading, words: frozenset[str], named: Sequence[tuple[str, str]]
) -> None:
    """Ask for modules that may define models and are not at hand."""
    known = {file.path for file in files}
    missing: list[tuple[int, list[str]]] = []
    for file in files:
        for module, name in (*(named if file is first else ()), *_list_modules(file, words)):
            places = _list_places(module, name, file, first)
            if known.isdisjoint(places):
                missing.append((_rank(f"{module}.{name}"), places))
    roots = _find_roots(files, first)
    asked: list[str] = []
    for _, places in sorted(missing, key=lambda row: row[0]):
        likely = [place for place in places if roots and place.startswith(tuple(roots))]
        left = [place for place in (*likely, *places) if place not in reading.unread]
        asked += [place for place in left[: 1 if likely else MAX_TRIED] if place not in asked]
    for place in asked[:MAX_ASKED]:
        if place not in reading.files:
            ask_for(place, reading)


def _rank(name: str) -> int:
    """Return how late a module is asked for: those of models first, those of data last."""
    module, _, last = name.rpartition(".")
    if _NO_MODELS.search(module.rpartition(".")[2]) and not _MODELS.search(last):
        return 2 if name.startswith(".") else 4  # what is taken from a module beside it is part of a model, mostly
    if _DATA.search(name) and not _MODELS.search(last):
        return 3
    return 0 if _MODELS.search(name) else 1 if _STEPS.search(name) else 2


def _find_roots(files: Sequence[File], first: File) -> list[str]:
    """Return the folders in which modules of the program were found that it imports by their whole names."""
    roots: dict[str, None] = {}
    for file in files:
        for module, _ in _list_modules(file):
            path = module.replace(".", "/")
            for other in files:
                for ending in (f"{path}.py", f"{path}/__init__.py"):
                    if path and other is not first and f"/{other.path}".endswith(f"/{ending}"):
                        roots[f"{other.path.removesuffix(ending)}{path.partition('/')[0]}"] = None
    return list(roots)


def _list_modules(file: File, words: frozenset[str] = frozenset()) -> Iterator[tuple[str, str]]:
    """Yield the modules that may define models, or functions that make them, with the first name taken from each.

    A module whose name is a word of the command is the one that is used of several: ``--model unet``.
    """
    seen: set[str] = set()
    for module, name in file.digest.imports:
        if name in words and not is_installed(module):
            yield f"{module}{'' if module.endswith('.') else '.'}{name}", ""
        if module in seen or is_installed(module):
            continue
        is_near = module.startswith(".") and _MODELS.search(posixpath.basename(posixpath.dirname(file.path)))
        is_one = is_near or _MODELS.search(name) or _CONSTANT.fullmatch(name) or _DATA.search(f"{module}.{name}")
        if is_one or _may_define(module, name):
            seen.add(module)
            yield module, name


def _may_define(module: str, name: str) -> bool:
    """Return whether a module may define models, by its name and that of what is taken from it."""
    last = module.rpartition(".")[2]
    if name == "*" or SETTINGS_MODULES.search(last) or SETTINGS_MODULES.search(name):
        return True  # which model is made may be stated there
    if name[:1].isupper() or (not name and "." in module.strip(".") and not _NO_MODELS.search(last)):
        return True
    is_other = _NO_MODELS.search(last) is not None and last != name  # from Evaluation import Evaluation
    return not is_other and (_MODELS.search(module) or _STEPS.search(f"{last}.{name}")) is not None


def _list_places(module: str, name: str, file: File, first: File) -> list[str]:
    """Return the paths that a module may have, the likeliest first."""
    level = len(module) - len(module.lstrip("."))
    path = module.lstrip(".").replace(".", "/")
    folder, top = posixpath.dirname(file.path), posixpath.dirname(first.path)
    for _ in range(max(0, level - 1)):
        folder = posixpath.dirname(folder)
    if not path:  # from . import unet
        return [posixpath.join(folder, f"{name}.py")]
    roots = [folder] if level else [*_find_package(path, first), top, posixpath.dirname(top), folder]
    if not level and "/" in path:  # a package that is installed from the folder around the one that the job starts in
        roots += [posixpath.normpath(posixpath.join(top, *[".."] * count)) for count in (2, 3)]
        roots.append(posixpath.join(top, "src"))
    endings = (
        ("/__init__.py", ".py") if level and "/" not in path and not name[:1].isupper() else (".py", "/__init__.py")
    )
    places = [posixpath.normpath(posixpath.join(root, f"{path}{ending}")) for ending in endings for root in roots]
    return list(dict.fromkeys(places))


def _find_package(path: str, first: File) -> list[str]:
    """Return the folder that holds the package of a module, where the started file is in the same package."""
    folders = posixpath.dirname(first.path).split("/")
    package = path.partition("/")[0]
    return ["/".join(folders[: folders.index(package)])] if package in folders and "/" in path else []
