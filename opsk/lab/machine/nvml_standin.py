"""Builds a libnvidia-ml.so.1 for machines without a GPU, which the real nvidia-ml-py loads.

The C source is in ``opsk/lab/nvml``; gcc builds the library from it when a lab or a test needs one. A state file holds
what the library reports, see `opsk.lab.machine.nvml_state` and ``opsk/lab/nvml/README.md``.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path

from opsk.errors import LabError

LIBRARY = "libnvidia-ml.so.1"
"""The file name under which nvidia-ml-py and every other program loads NVML."""
STATE_VARIABLE = "OPSK_NVML_STATE"
"""The environment variable with the path of the state file."""

_STRICT = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")
_SHARED = ("-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
_SANITIZE = ("-g", "-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


def read_sources() -> dict[str, str]:
    """Return the C sources and headers of the stand-in by name."""
    folder = files("opsk.lab") / "nvml"
    return {
        entry.name: entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith((".c", ".h"))
    }


def hash_sources() -> str:
    """Return a hash of the sources: the same sources need building once."""
    digest = hashlib.sha256(" ".join((*_STRICT, *_SHARED)).encode())
    for name, text in read_sources().items():
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def build(folder: Path, *, sanitize: bool = False) -> Path:
    """Make the library in a folder; return its path.

    Parameters
    ----------
    folder
        Where the library goes; made where it is missing. Nothing else should be in it: it becomes a library path.
    sanitize
        With gcc's checks of addresses and undefined behaviour, for tests of the stand-in itself.

    Raises
    ------
    LabError
        There is no gcc, or it refuses the source.
    """
    compiler = shutil.which("gcc")
    if compiler is None:
        raise LabError("not installed: gcc (package gcc)", hint="as root: apt-get install gcc libc6-dev")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / LIBRARY
    half_made = folder / f".{LIBRARY}.{os.getpid()}"
    options = (*_STRICT, *(_SANITIZE if sanitize else ("-O1",)), *_SHARED, f"-Wl,-soname,{LIBRARY}")
    with as_file(files("opsk.lab") / "nvml") as source:
        command = [compiler, *options, "-o", str(half_made), *map(str, sorted(source.glob("*.c"))), "-lm"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise LabError(f"gcc on the NVML stand-in: {error}") from error
    if done.returncode != 0:
        half_made.unlink(missing_ok=True)
        raise LabError(f"gcc refuses the NVML stand-in: {done.stderr.strip()[-2000:]}")
    half_made.replace(library)
    return library


def build_environment(library: Path, state: Path, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment in which a program finds the stand-in as its NVML.

    The dynamic linker reads the library path once, when a program starts: give this to a child, or to a systemd unit;
    setting it in a running process does nothing.
    """
    variables = dict(os.environ if inherited is None else inherited)
    rest = variables.get("LD_LIBRARY_PATH", "")
    variables["LD_LIBRARY_PATH"] = f"{library.parent}:{rest}" if rest else str(library.parent)
    variables[STATE_VARIABLE] = str(state)
    return variables


def load_into_process(library: Path, state: Path) -> None:
    """Load the stand-in into this very process, before it first uses NVML.

    The library bears the name libnvidia-ml.so.1: once it is loaded from anywhere, the dynamic linker gives it to
    every program that asks for that name. This cannot be undone, so it is for programs of one purpose and not for
    a process of tests.

    Raises
    ------
    LabError
        The library cannot be loaded.
    """
    os.environ[STATE_VARIABLE] = str(state)
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise LabError(f"{library}: {error}") from error
