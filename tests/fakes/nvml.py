"""A libnvidia-ml.so.1 for tests, made once for one source, and Python programs that use it through the real pynvml.

pynvml keeps the library and its handles in globals, and the dynamic linker reads its path once: so whatever calls NVML
runs in a child.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from opsk.lab.machine.nvml_standin import StandInState, build, build_environment, hash_sources, write_state, write_text
from tests.fakes.nvml_gpus import make_h100_node

REAL = os.environ.get("OPSK_TEST_REAL_NVML", "") not in ("", "0")
"""Whether tests of readers are to use this machine's own library and GPUs (read here: fixtures clear OPSK_*)."""


_started: list[subprocess.Popen[str]] = []


@atexit.register
def _end_programs() -> None:
    """A program that hangs as its test wanted must not outlive a test that failed."""
    for process in _started:
        if process.poll() is None:
            process.kill()


@cache
def library() -> Path:
    """The stand-in, built once for its source and kept in the folder of temporary files."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to make the NVML stand-in with (package gcc)")
    folder = Path(tempfile.gettempdir()) / f"opsk-nvml-{os.getuid()}-{hash_sources()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    assert folder.stat().st_uid == os.getuid(), f"{folder} is somebody else's"
    path = folder / "libnvidia-ml.so.1"
    return path if path.exists() else build(folder)


def real_nvml() -> Nvml:
    """This machine's own GPUs, for tests that a person has sent there; else the test is skipped."""
    if not REAL:
        pytest.skip("no NVIDIA GPU is told to be here (OPSK_TEST_REAL_NVML=1)")
    return RealNvml()


class Nvml:
    """A machine with the GPUs of a state file, which a test may change while programs read it."""

    def __init__(self, folder: Path, state: StandInState | None = None, *, at: Path | None = None) -> None:
        self.library = at or library()
        self.path = folder / "nvml.state"
        self.write(make_h100_node() if state is None else state)

    def write(self, state: StandInState) -> None:
        self.state = state
        write_state(self.path, state)

    def write_text(self, text: str | bytes) -> None:
        write_text(self.path, text)

    @property
    def environment(self) -> dict[str, str]:
        return build_environment(self.library, self.path)

    def start(self, program: str, *, extra: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a Python program that finds ``pynvml`` imported; it is the caller's to end."""
        process = subprocess.Popen(
            [sys.executable, "-c", f"import json, sys, pynvml\n{program}"],
            env={**self.environment, **(extra or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        _started.append(process)
        return process

    def run(self, program: str, *, timeout_s: float = 60.0, extra: dict[str, str] | None = None) -> str:
        """Run a program to its end; return what it printed."""
        process = self.start(program, extra=extra)
        try:
            printed, complaint = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        assert process.returncode == 0, complaint
        return printed

    def ask(self, expression: str, *, before: str = "", timeout_s: float = 60.0) -> Any:
        """Return the value of an expression after Init, ``gpu`` being a function from index to handle.

        An NVML error is returned as ``{"error": number}``, by ``attempt`` in the expression or for the whole of it.
        """
        return json.loads(self.run(f"{_PRELUDE}\n{before}\n_print({expression!r})", timeout_s=timeout_s))


class RealNvml(Nvml):
    """This machine's own library and GPUs; nothing can be written."""

    def __init__(self) -> None:
        self.path = Path(os.devnull)

    @property
    def environment(self) -> dict[str, str]:
        return dict(os.environ)


_PRELUDE = """
import ctypes
def gpu(index): return pynvml.nvmlDeviceGetHandleByIndex(index)
def attempt(name, *arguments):
    try:
        return plain(getattr(pynvml, name)(*arguments))
    except pynvml.NVMLError as error:
        return {"error": error.value}
def plain(value):
    if hasattr(value, "_fields_"):
        return {field[0]: plain(getattr(value, field[0])) for field in value._fields_}
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    if type(value).__name__ == "nvmlFriendlyObject":
        return plain(value.__dict__)
    if hasattr(value, "__iter__") or hasattr(value, "_length_"):
        return [plain(inner) for inner in value]
    return repr(type(value).__name__)
def _print(expression):
    try:
        pynvml.nvmlInit()
        value = plain(eval(expression, globals()))
    except pynvml.NVMLError as error:
        value = {"error": error.value}
    print(json.dumps(value))
"""
