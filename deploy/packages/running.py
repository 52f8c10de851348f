"""Runs the programs of the build, and reports what failed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# What steers a program's messages, hashes and caches is the same in every build.
_SAME = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


class StepError(Exception):
    """A program of the build failed; the text says which, and its last words."""


def call(*words: str | Path, folder: Path | None = None, more: Mapping[str, str] | None = None) -> str:
    """Run a program to its end and return its stdout."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **_SAME, **(more or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise StepError(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-12:])
        raise StepError(f"{' '.join(command[:4])} … ended with {done.returncode}:\n{last}")
    return done.stdout


def say(text: str) -> None:
    """Tell who waits what is being done."""
    print(f"packages: {text}", file=sys.stderr, flush=True)
