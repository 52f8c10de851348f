"""Reads the power of the whole node from its management controller (BMC) by IPMI DCMI.

Runs the first of ``ipmitool``, ``ipmi-dcmi`` (FreeIPMI) and ``ipmiutil`` that is installed, in a child with a deadline,
and parses the output of any of them (and of Cray's ``capmc``). All need root, and a second or more: `DcmiFile` reads
what a timer of root's wrote into a file instead, and the file's time gives the age of the reading.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import TelemetryError
from opsk.text import format_duration
from opsk.units import KIB

DEFAULT_DEADLINE_S = 10.0
COMMANDS = (
    ("ipmitool", "dcmi", "power", "reading"),
    ("ipmi-dcmi", "--get-system-power-statistics"),
    ("ipmiutil", "dcmi", "power"),
)
DEFAULT_FILE = Path("/run/opsk-dcmi/power")
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/local/bin", "/usr/bin", "/bin")
_LONGEST_BYTES = 64 * KIB
_LONGEST_LINE = 200
_MAX_ERROR_CHARS = 2000
_LINE = re.compile(r"\s*(?P<key>[A-Za-z][A-Za-z ]*?)\s*:\s*(?P<value>.*?)\s*")
_NUMBER = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,6})?)\s*([A-Za-z]+)\.?.*")
_KEYS = {
    "instantaneous power reading": "current",
    "current power": "current",
    "minimum during sampling period": "minimum",
    "minimum power over sampling duration": "minimum",
    "min power over sample duration": "minimum",
    "maximum during sampling period": "maximum",
    "maximum power over sampling duration": "maximum",
    "max power over sample duration": "maximum",
    "average power reading over sample period": "average",
    "average power over sampling duration": "average",
    "avg power over sample duration": "average",
    "sampling period": "period",
    "statistics reporting time period": "period",
    "power reading state is": "state",
    "power measurement": "state",
}
_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "ms": 1e-3, "millisecond": 1e-3, "min": 60.0, "minute": 60.0}
_ACTIVE = {"active", "activated"}
_NO_CONTROLLER = re.compile(
    r"/dev/ipmi\S*.*no such (file|device)|could not find inband device|no such device", re.I | re.S
)
_NOT_ALLOWED = re.compile(r"permission denied|operation not permitted|must be root|not allowed", re.I)


class NoControllerError(TelemetryError):
    """The node has no IPMI tool, or no management controller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DcmiPower:
    """Power of the node, as its controller measures it.

    Parameters
    ----------
    current_w
        Now [W].
    minimum_w, maximum_w, average_w
        Over the controller's sampling period [W].
    period_s
        Sampling period [s].
    """

    current_w: float | None = None
    minimum_w: float | None = None
    maximum_w: float | None = None
    average_w: float | None = None
    period_s: float | None = None

    @property
    def watts(self) -> float | None:
        """Return the power now, or its average where only that is reported."""
        return self.current_w if self.current_w is not None else self.average_w


def parse_dcmi(text: str) -> DcmiPower:
    """Read what an IPMI tool printed.

    Raises
    ------
    TelemetryError
        There is no power in it, or the controller reports that it does not measure.
    """
    fields = _parse_json(text) if text.lstrip().startswith("{") else _parse_lines(text)
    state = fields.pop("state", "")
    if state and state.lower() not in _ACTIVE:
        raise TelemetryError(f"DCMI: the controller does not measure power now: {state}")
    values = {key: _parse_quantity(key, value) for key, value in fields.items()}
    # A node that answers draws power: the zero of a controller that cannot measure is no value.
    power = DcmiPower(
        current_w=values.get("current") or None,
        minimum_w=values.get("minimum") or None,
        maximum_w=values.get("maximum") or None,
        average_w=values.get("average") or None,
        period_s=values.get("period") or None,
    )
    if power.watts is None:
        raise TelemetryError(
            "DCMI: no power reading in the answer", hint="run the IPMI tool by hand and read its output"
        )
    return power


def _parse_lines(text: str) -> dict[str, str]:
    """Read ``key : value`` lines; the first of two equal keys is the reading's, the second a limit's."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line) if len(line) <= _LONGEST_LINE else None
        key = _KEYS.get(" ".join(match["key"].lower().split())) if match else None
        if match and key:
            fields.setdefault(key, match["value"])
    return fields


def _parse_json(text: str) -> dict[str, str]:
    """Read capmc's answer: averages over a window in seconds, and an error code."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TelemetryError(f"DCMI: damaged JSON in the answer: {error}") from error
    if not isinstance(answer, dict) or answer.get("e"):
        raise TelemetryError("DCMI: capmc answers with an error")
    names = {"avg": ("average", "watts"), "min": ("minimum", "watts"), "max": ("maximum", "watts")}
    names["window_len"] = ("period", "seconds")
    return {key: f"{answer[name]} {unit}" for name, (key, unit) in names.items() if name in answer}


def _parse_quantity(key: str, text: str) -> float | None:
    """Read ``2578 Watts``, ``00000300 Seconds.``, ``1000 ms``."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    number, unit = float(match[1]), match[2].lower()
    if key == "period":
        factor = _SECONDS.get(unit) or _SECONDS.get(unit.removesuffix("s"))
        return None if factor is None else number * factor
    return number if unit in ("w", "watt", "watts") else None


class DcmiTool:
    """Runs an IPMI tool.

    Parameters
    ----------
    command
        What to run; the first of `COMMANDS` that is installed when ``None``.
    deadline_s
        How long the tool may take [s].
    environ
        Environment in which the tool is searched.
    """

    def __init__(
        self,
        command: tuple[str, ...] | None = None,
        deadline_s: float = DEFAULT_DEADLINE_S,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._command = command
        self._deadline_s = deadline_s
        self._path = os.pathsep.join(filter(None, (environ.get("PATH"), *_SYSTEM_FOLDERS)))

    def read(self) -> tuple[DcmiPower, float]:
        """Return the power, and the age of the answer: 0.

        Raises
        ------
        NoControllerError
            No tool is installed, or the node has no controller.
        TelemetryError
            The tool fails, lacks the rights, does not answer in time, or reports no power.
        """
        command = self._find_command()
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=self._deadline_s,
                env={"PATH": self._path, "LC_ALL": "C"},
                start_new_session=True,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise TelemetryError(f"{command[0]}: no answer within {self._deadline_s:g} s") from error
        except OSError as error:
            raise TelemetryError(f"{command[0]}: {error.strerror}") from error
        text, errors = (part[:_LONGEST_BYTES].decode("utf-8", "replace") for part in (done.stdout, done.stderr))
        try:
            return parse_dcmi(text), 0.0
        except TelemetryError as error:
            raise _build_error(command[0], (errors or text)[-_MAX_ERROR_CHARS:], error) from error

    def _find_command(self) -> tuple[str, ...]:
        """Return the command to run."""
        for command in COMMANDS if self._command is None else (self._command,):
            program = shutil.which(command[0], path=self._path)
            if program:
                return (program, *command[1:])
        raise NoControllerError("no IPMI tool is installed", hint="install ipmitool or FreeIPMI's ipmi-dcmi")


def _build_error(program: str, output: str, error: TelemetryError) -> TelemetryError:
    """Build the error: no controller, no rights, or the tool's own message."""
    last = output.strip().splitlines()[-1:] or [error.message]
    if _NOT_ALLOWED.search(output):
        return TelemetryError(f"{program}: {last[0]}", hint="docs/howto/measure-power.md: let a timer of root's ask")
    if _NO_CONTROLLER.search(output):
        return NoControllerError(f"{program}: {last[0]}")
    return TelemetryError(f"{program}: {last[0]}")


class DcmiFile:
    """Reads what a timer of root's had an IPMI tool write into a file.

    Parameters
    ----------
    path
        The file.
    clock
        Seconds since 1970, as the file's time is.
    oldest_s
        An older file is no answer: its timer has stopped [s].
    """

    def __init__(
        self, path: Path = DEFAULT_FILE, clock: Callable[[], float] = time.time, oldest_s: float = 600.0
    ) -> None:
        self._path = path
        self._clock = clock
        self._oldest_s = oldest_s

    def read(self) -> tuple[DcmiPower, float]:
        """Return the power, and the age of the answer [s].

        Raises
        ------
        NoControllerError
            There is no such file.
        TelemetryError
            It cannot be read, is too old, or has no power.
        """
        try:
            with self._path.open("rb") as file:
                age_s = max(0.0, self._clock() - os.fstat(file.fileno()).st_mtime)
                text = file.read(_LONGEST_BYTES).decode("utf-8", "replace")
        except FileNotFoundError as error:
            raise NoControllerError(f"{self._path}: not there") from error
        except OSError as error:
            raise TelemetryError(f"{self._path}: {error.strerror}") from error
        if age_s > self._oldest_s:
            raise TelemetryError(
                f"{self._path}: written {format_duration(age_s)} ago", hint="does opsk-dcmi.timer still run?"
            )
        return parse_dcmi(text), age_s


class DcmiReader:
    """Reads the file where there is one, and runs a tool where there is none."""

    def __init__(self, file: DcmiFile | None = None, tool: DcmiTool | None = None) -> None:
        self._file = file or DcmiFile()
        self._tool = tool or DcmiTool()

    def read(self) -> tuple[DcmiPower, float]:
        """Return the power, and the age of the answer [s]; raises what `DcmiTool.read` raises."""
        try:
            return self._file.read()
        except NoControllerError:
            return self._tool.read()
