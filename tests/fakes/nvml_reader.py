"""A child process that reads GPUs through the real pynvml, told line by line what to do and when it is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Self

from tests.fakes.nvml import Nvml

_PROGRAM = """
import dataclasses
import os
from pathlib import Path
from opsk.errors import OpskError
from opsk.telemetry.gpu.nvml.source import NvmlGpus

now = [0.0]
source = NvmlGpus(clock=lambda: now[0], sysfs=Path(os.environ.get("TEST_SYSFS", "/sys")))
for line in sys.stdin:
    now[0] += float(line)
    try:
        answer = dataclasses.asdict(source.gpus())
    except OpskError as error:
        answer = {"error": type(error).__name__, "message": str(error), "hint": error.hint}
    print(json.dumps(answer, default=sorted), flush=True)
"""


class NvmlReader:
    """Reads when it is asked to; its clock is the test's, and so is its sysfs where that matters."""

    def __init__(self, nvml: Nvml, sysfs: Path = Path("/sys")) -> None:
        root = Path(__file__).resolve().parents[2]
        self._child = nvml.start(_PROGRAM, extra={"PYTHONPATH": str(root), "TEST_SYSFS": str(sysfs)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()

    def read(self, *, later_s: float = 15.0) -> Any:
        """Return a reading ``later_s`` after the last one."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(f"{later_s}\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        if not line:
            _, complaint = self._child.communicate(timeout=10)
            raise AssertionError(complaint)
        return json.loads(line)

    @property
    def process(self) -> subprocess.Popen[str]:
        return self._child
