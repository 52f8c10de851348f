"""A way to run the Lua hooks as Slurm does, and to see what they did."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from opsk_jobcheck.service.hooks import SETTINGS

HARNESS = Path(__file__).with_name("slurm_for_lua.lua")
INTERPRETERS = ("lua5.1", "lua5.3", "lua5.4")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Ran:
    """What a scenario emitted and printed."""

    emitted: list[tuple[str, str]]
    stderr: str

    def of(self, name: str) -> list[str]:
        return [value for key, value in self.emitted if key == name]

    def one(self, name: str) -> str:
        (value,) = self.of(name)
        return value

    @property
    def said(self) -> list[str]:
        return self.of("said")


@dataclass
class Hooks:
    """Both hooks installed in a directory, with settings, for one interpreter."""

    lua: str
    directory: Path
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"})
    user: int | None = None

    @property
    def socket(self) -> Path:
        return self.directory / "s"

    def settings(self, **values: object) -> None:
        lines = {"socket": self.socket, "submit_deadline_ms": 150, "cli_deadline_ms": 400, **values}
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        (self.directory / SETTINGS).write_text(text)

    def run(self, hook: str, scenario: str) -> Ran:
        script = self.directory / "scenario.lua"
        script.write_text(scenario)
        # A copy: the checkout may lie where only its owner can read.
        harness = shutil.copy(HARNESS, self.directory)
        done = subprocess.run(
            [shutil.which(self.lua) or self.lua, str(harness), str(self.directory / hook), str(script)],
            capture_output=True,
            timeout=60,
            cwd=self.directory,
            env=self.environ,
            check=False,
            user=self.user,
        )
        stderr = done.stderr.decode(errors="backslashreplace")
        assert done.returncode == 0, stderr
        pairs = [line.partition("\t") for line in done.stdout.decode().splitlines()]
        return Ran([(name, value) for name, _, value in pairs], stderr)

    def submit(self, scenario: str) -> Ran:
        return self.run("job_submit.lua", scenario)

    def filter(self, scenario: str) -> Ran:
        return self.run("cli_filter.lua", scenario)


def milliseconds(ran: Ran, name: str = "took_ms") -> float:
    """Return the shortest of the measured times: the others hold what the machine was busy with."""
    return min(float(value) for value in ran.of(name))
