"""Builds a tree that holds opsk with everything it needs, and that works wherever it is moved.

It is a virtual environment made by hand: ``bin/python3`` links to the system's Python, which finds ``pyvenv.cfg``
beside ``bin`` and with it the tree. No file in the tree holds the tree's own path.
"""

from __future__ import annotations

import csv
import gzip
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from deploy.packages.description import PYTHON
from deploy.packages.running import StepError, call
from deploy.packages.wheels import Wheel

HERE = Path(__file__).resolve().parent
SYSTEM_PYTHON = f"/usr/bin/python{PYTHON}"
SITE = f"lib/python{PYTHON}/site-packages"
# Where bash-completion and man look, by themselves, for what belongs to a command that a module put on PATH.
_NEXT_TO_COMMAND = {"man": "../../../man", "bash-completion": "../../../bash-completion"}


def build(tree: Path, wheels: Iterable[Wheel], documents: Iterable[Path], epoch: int) -> None:
    """Make the tree in a folder that does not exist yet.

    Parameters
    ----------
    tree
        The folder.
    wheels
        Opsk's own and all that it needs.
    documents
        Files for ``share/doc/opsk``.
    epoch
        Time that all files get [s since 1970].
    """
    if not Path(SYSTEM_PYTHON).exists():
        raise StepError(
            f"{SYSTEM_PYTHON} is missing: packages run on the system's own Python, and are built by the same release "
            "(make setup PYTHON=/usr/bin/python3, in a checkout without .venv)"
        )
    site = tree / SITE
    site.mkdir(parents=True)
    install(site, list(wheels))
    (tree / "share").mkdir()
    shutil.move(site / "share" / "opsk", tree / "share" / "opsk")
    # Of use in a checkout only.
    shutil.rmtree(tree / "share" / "opsk" / "deploy" / "packages", ignore_errors=True)
    for unused in ("bin", "share"):
        shutil.rmtree(site / unused, ignore_errors=True)
    drop_tests(site)
    for record in sorted(site.glob("*.dist-info/RECORD")):
        drop_missing(record)
    _write_commands(tree)
    compile_all(tree)
    _write_manuals(tree, epoch)
    folder = tree / "share" / "doc" / "opsk"
    folder.mkdir(parents=True)
    for document in documents:
        shutil.copy(document, folder)
    # Where an administrator looks first, and where the README's links lead.
    (folder / "docs").symlink_to("../../opsk/docs")
    same_everywhere(tree, epoch)


def install(site: Path, wheels: list[Wheel]) -> None:
    """Let pip install these wheels, and only these, into a folder.

    They are named by version, not by path: pip would write the path down in ``direct_url.json``.
    """
    folders = sorted({wheel.path.parent for wheel in wheels})
    sources: list[str] = [word for folder in folders for word in ("--find-links", str(folder))]
    call(
        *(sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-index", *sources, "--no-deps", "--no-compile", "--target", str(site)),
        *(f"{wheel.name}=={wheel.version}" for wheel in wheels),
    )


def drop_tests(site: Path) -> None:
    """Remove the tests that libraries bring along: a seventh of all files, and nothing imports them."""
    for folder in sorted(site.glob("*/**/tests")):
        if folder.is_dir():
            shutil.rmtree(folder)


def drop_missing(record: Path) -> None:
    """Take lines out of a RECORD whose files were moved or left out, and sort the rest."""
    with record.open(newline="", encoding="utf-8") as file:
        rows = sorted(row for row in csv.reader(file) if row and (record.parent.parent / row[0]).exists())
    with record.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def _write_commands(tree: Path) -> None:
    """Write what stands in ``bin``, and what makes the tree a virtual environment."""
    programs = tree / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(SYSTEM_PYTHON)
    (programs / "opsk").write_text((HERE / "launcher.in").read_text(encoding="utf-8"), encoding="utf-8")
    (programs / "opsk").chmod(0o755)
    (programs / "opsk-srun").symlink_to("../share/opsk/deploy/bin/opsk-srun")
    (tree / "pyvenv.cfg").write_text(
        f"home = {Path(SYSTEM_PYTHON).parent}\ninclude-system-site-packages = false\nversion = {PYTHON}\n",
        encoding="utf-8",
    )
    links = tree / "share" / "opsk" / "deploy" / "share"
    links.mkdir()
    for name, target in _NEXT_TO_COMMAND.items():
        (links / name).symlink_to(target)


def compile_all(tree: Path) -> None:
    """Compile every module, so that nobody who runs opsk needs to write into the tree.

    The compiled files carry no time and are not checked against their sources, which nobody changes in place. Templates
    that are no Python of this release stay as they are.
    """
    call(
        *(tree / "bin" / "python3", "-m", "compileall", "-q", "-q", "-f", "--invalidation-mode", "unchecked-hash"),
        *("-s", tree, "-p", "/", "-x", "/templates/", tree / SITE),
    )


def _write_manuals(tree: Path, epoch: int) -> None:
    """Have the opsk in the tree describe itself: manual pages and completions."""
    python = tree / "bin" / "python3"
    pages = tree / "share" / "man" / "man1"
    call(python, "-I", "-B", HERE / "manual.py", pages, str(epoch))
    for page in sorted(pages.iterdir()):
        page.with_name(f"{page.name}.gz").write_bytes(gzip.compress(page.read_bytes(), 9, mtime=0))
        page.unlink()
    call(python, "-I", "-B", HERE / "completion.py", tree / "share")


def same_everywhere(folder: Path, epoch: int) -> None:
    """Give everything below a folder the rights and the time that do not depend on who built it when."""
    for path in (*walk(folder), folder):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def walk(folder: Path) -> Iterator[Path]:
    """Yield all that lies below a folder, in one order on every machine."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from walk(path)
