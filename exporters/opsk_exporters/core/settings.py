"""Loads the exporter's settings from section ``[exporter]`` of the site configuration.

The file is read without pydantic, which the other commands use: its 9 MB would stay on every node permanently. The
error messages are the same. Command-line options override the file.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from opsk.errors import ConfigError

SITE_FILE = Path("/etc/opsk/opsk.toml")
KMSG = Path("/dev/kmsg")
KEYS_PAGE = "docs/reference/site-configuration.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the exporter of a node works.

    Parameters
    ----------
    collectors
        Only these; ``None`` is all.
    without
        These not.
    listen
        Where to serve; sockets that systemd passes come first.
    web_config
        File of the exporter-toolkit's format with TLS and passwords; ``None`` is neither.
    deadline_s
        How long a collector may take [s].
    deadlines_s
        The same for single collectors [s].
    rails_file
        Which port is on which rail, as ``opsk fabric --rails-file`` wrote it.
    tick_bytes
        Bytes that a port could have sent in one tick of ``port_xmit_wait``.
    jobs_folder
        Where the prolog writes which job has which GPUs.
    gres_conf
        Slurm's gres.conf, where it is not next to the prolog's slurm.conf.
    training_logs
        Read the progress of jobs from their logs.
    kernel_log
        Where XIDs and other events are read besides NVML; ``None``: nowhere.
    ipmi_interval_s
        How often the node's controller is read for power [s]; 0 never: only the timer's file is read.
    slurm_on
        The node that queries Slurm for queue and nodes: its name, ``auto`` for the one whose slurmctld is in charge,
        ``off`` for none.
    slurm_interval_s
        How often it queries [s].
    slurm_users
        For how many users, the largest first, it exports separate series.
    reports_folder
        Where the node that queries Slurm counts reports on failed jobs; by default ``folder`` of ``[postmortem]``.
    sysfs, procfs, cgroups
        Where these are mounted.
    """

    collectors: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    listen: str = "127.0.0.1:9876"
    web_config: Path | None = None
    deadline_s: float = 5.0
    deadlines_s: Mapping[str, float] = field(default_factory=dict)
    rails_file: Path = Path("/etc/opsk/rails.json")
    tick_bytes: float = 4.0
    jobs_folder: Path = Path("/run/opsk-jobs")
    gres_conf: Path | None = None
    training_logs: bool = True
    kernel_log: Path | None = KMSG
    ipmi_interval_s: float = 30.0
    slurm_on: str = "auto"
    slurm_interval_s: float = 60.0
    slurm_users: int = 0
    reports_folder: Path | None = None
    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    cgroups: Path | None = None

    def get_deadline_s(self, collector: str) -> float:
        """Return how long one collector may take [s]."""
        return self.deadlines_s.get(collector, self.deadline_s)

    @property
    def cgroup_root(self) -> Path:
        """Where control groups are mounted."""
        return self.cgroups or self.sysfs / "fs" / "cgroup"


class _WrongError(Exception):
    """A value has the wrong type or range; the text says what it should be."""


def _parse_words(value: Any) -> tuple[str, ...]:
    """Read one word or a list of words."""
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise _WrongError("should be a word or a list of words")
    return tuple(dict.fromkeys(words))


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _WrongError("should be a text in quotes")
    return value


def _parse_path(value: Any) -> Path:
    if not isinstance(value, str) or not value.startswith("/"):
        raise _WrongError("should be a path that begins with /")
    return Path(value)


def _parse_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongError("should be true or false")
    return value


def _parse_log(value: Any) -> Path | None:
    if isinstance(value, bool):
        return KMSG if value else None
    try:
        return _parse_path(value)
    except _WrongError as error:
        raise _WrongError("should be true, false, or a path that begins with /") from error


def _number_parser(minimum: float, maximum: float) -> Callable[[Any], float]:
    """Return a parser for a number within bounds."""

    def read(value: Any) -> float:
        wrong = not isinstance(value, int | float) or isinstance(value, bool)
        if wrong or not math.isfinite(value) or not minimum <= value <= maximum:
            raise _WrongError(f"should be a number from {minimum:g} to {maximum:g}")
        return float(value)

    return read


def _whole_parser(minimum: int, maximum: int) -> Callable[[Any], int]:
    """Return a parser for a whole number within bounds."""

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise _WrongError(f"should be a whole number from {minimum} to {maximum}")
        return value

    return read


_DEADLINE = _number_parser(0.01, 60)


def _parse_deadlines(value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise _WrongError("should be a table: collector = seconds")
    deadlines = {}
    for name, seconds in value.items():
        try:
            deadlines[name] = _DEADLINE(seconds)
        except _WrongError as error:
            raise _WrongError(f"{name}: {error}") from error
    return deadlines


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "collectors": _parse_words,
    "without": _parse_words,
    "listen": _parse_text,
    "web_config": _parse_path,
    "deadline_s": _DEADLINE,
    "deadlines_s": _parse_deadlines,
    "rails_file": _parse_path,
    "tick_bytes": _number_parser(0.001, 1e6),
    "jobs_folder": _parse_path,
    "gres_conf": _parse_path,
    "training_logs": _parse_flag,
    "kernel_log": _parse_log,
    "ipmi_interval_s": _number_parser(0, 86400),
    "slurm_on": _parse_text,
    "slurm_interval_s": _number_parser(1, 86400),
    "slurm_users": _whole_parser(0, 1000),
    "reports_folder": _parse_path,
    "sysfs": _parse_path,
    "procfs": _parse_path,
    "cgroups": _parse_path,
}
"""Every key of the section, and the parser of its value."""


def load_settings(path: Path | None = None) -> Settings:
    """Read ``[exporter]`` of the site configuration; a site without a file or section gets the defaults.

    Raises
    ------
    ConfigError
        Names the file and every violation in the section.
    """
    named = path or (Path(os.environ["OPSK_CONFIG"]) if os.environ.get("OPSK_CONFIG") else None)
    chosen = named or SITE_FILE
    try:
        document = tomllib.loads(chosen.read_text(encoding="utf-8"))
    except OSError as error:
        if named is None and isinstance(error, FileNotFoundError):
            return Settings()
        raise ConfigError(f"{chosen}: {error.strerror}", hint="name another file in OPSK_CONFIG") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{chosen}: {error}") from error
    settings = parse_settings(document.get("exporter", {}), chosen)
    postmortem = document.get("postmortem")
    if settings.reports_folder is None and isinstance(postmortem, dict) and isinstance(postmortem.get("folder"), str):
        return replace(settings, reports_folder=Path(postmortem["folder"]))
    return settings


def parse_settings(section: Any, where: Path) -> Settings:
    """Return the settings of a section, or raise with all of its errors.

    Raises
    ------
    ConfigError
        Names every violation.
    """
    if not isinstance(section, dict):
        raise ConfigError(f"{where}: exporter: should be a section, [exporter]", hint=f"all keys: {KEYS_PAGE}")
    values: dict[str, Any] = {}
    wrong = []
    for key, value in section.items():
        try:
            values[key] = _READERS[key](value)
        except KeyError:
            wrong.append(f"exporter.{key}: {_describe_unknown_key(key)}")
        except _WrongError as error:
            wrong.append(f"exporter.{key}: {error}")
    if wrong:
        raise ConfigError(f"{where}: {'; '.join(wrong)}", hint=f"all keys: {KEYS_PAGE}")
    return Settings(**values)


def _describe_unknown_key(key: str) -> str:
    """Describe an unknown key, as the other sections do."""
    known = [setting.name for setting in fields(Settings)]
    closest = difflib.get_close_matches(key, known, n=1)
    return f"unknown key, closest: {closest[0]}" if closest else f"unknown key, known: {', '.join(known)}"
