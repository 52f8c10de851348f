"""Checks the submit path for ``opsk doctor``: whether the hooks are in force, and whether the advisor answers them."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from opsk import __version__
from opsk.app.doctor.finding import Finding, Site, note, sound, unknown, wrong
from opsk.app.doctor.slurm import find_slurm_folder, is_controller_host
from opsk.units import MIB
from opsk_jobcheck.cluster_state.state_header import MAX_AGE_S, LiveHead
from opsk_jobcheck.service.hooks import ADVICE, HOOKS, SETTINGS, read_hook, render_hook_settings
from opsk_jobcheck.submission.protocol import HEADER_BYTES, VERSION, frame

INSTALL = "opsk advisor --install-hooks {folder}"
PLUGINS = {"job_submit.lua": "JobSubmitPlugins", "cli_filter.lua": "CliFilterPlugins"}
DERIVED_SETTINGS = ("socket", "submit_deadline_ms", "cli_deadline_ms", "policy")
"""Settings of the hooks that follow from the site configuration."""
DEADLINE_S = 1.0
PINGS = 5
SLOW_OF_DEADLINE = 0.5
"""An advisor that takes more of the hooks' deadline for a ping is slow."""
LOG_TAIL_BYTES = 4 * MIB
RECENT_S = 3600.0
_BREAKER = re.compile(r"opsk: the advisor gives no answer \((.{0,300})\): not asked for (\d{1,4}) s")
_LINE_TIME = re.compile(r"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:?\d\d|Z)?)\]")
_SETTING = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_PLUGIN_LINE = re.compile(
    r"^[ \t]*(JobSubmitPlugins|CliFilterPlugins)[ \t]*=[ \t]*([^\s#]+)", re.MULTILINE | re.IGNORECASE
)
_INCLUDE = re.compile(r"^[ \t]*Include[ \t]+(\S+)", re.MULTILINE | re.IGNORECASE)
_MAX_INCLUDES = 32
_MAX_CONF_BYTES = 4 * MIB


def submit_checks(site: Site) -> Iterator[Finding]:
    """Check the hooks, their settings, the advisor's socket, the advisor, and the hooks' circuit breaker."""
    if site.slurm is not None:
        yield from _check_hooks(site, site.slurm)
        yield from _check_breaker(site, site.slurm)
    yield from _check_advisor(site)
    if site.config.advisor.live_folder is not None:
        yield check_watcher(site.config.advisor.live_folder)


def check_watcher(folder: Path) -> Finding:
    """Return the age of the watcher's state; the advisor ignores states that are too old."""
    hint = "systemctl enable --now opsk-watcher; journalctl -u opsk-watcher"
    if not folder.is_dir():
        return wrong("watcher", "live_folder is missing: advice does not include running jobs", folder, hint)
    if not os.access(folder, os.R_OK | os.X_OK):
        return unknown("watcher", "cannot be read", folder, "run opsk doctor as root")
    age_s = LiveHead(folder, time.monotonic).age_s()
    if age_s is None:
        return wrong("watcher", "has written no state: advice does not include running jobs", folder, hint)
    if age_s > MAX_AGE_S:
        return wrong("watcher", f"has had no answer from Slurm for {age_s / 60:.0f} min", folder, hint)
    return sound("watcher", f"last answer from Slurm {age_s:.0f} s ago", folder)


def _check_hooks(site: Site, slurm: Mapping[str, str]) -> Iterator[Finding]:
    """Yield which hooks are missing, old, not opsk's, or not loaded."""
    folder = find_slurm_folder(slurm)
    written = read_plugins(folder / "slurm.conf")
    is_controller = is_controller_host(slurm, socket.gethostname())
    for name in HOOKS:
        is_needed = name == "cli_filter.lua" or is_controller
        is_loaded = "lua" in _parse_plugins(slurm.get(PLUGINS[name], ""))
        yield from _check_loaded(
            name, folder, is_loaded=is_loaded, is_written="lua" in written.get(PLUGINS[name].lower(), ())
        )
        if is_needed:
            yield from _check_hook(name, folder, is_loaded=is_loaded)
    if any((folder / name).is_file() for name in HOOKS):
        yield from _check_settings(site, folder)
    if (folder / "cli_filter.lua").is_file():
        yield from _check_advice_file(folder)


def _check_loaded(name: str, folder: Path, *, is_loaded: bool, is_written: bool) -> Iterator[Finding]:
    line = f"{PLUGINS[name]}=lua"
    if is_loaded:
        return
    if is_written:
        what = f"{name} is not loaded: slurm.conf has {line}, which slurmctld has not read yet"
        yield wrong("hook-not-loaded", what, folder / "slurm.conf", "systemctl restart slurmctld")
    else:
        hint = f"{line} in slurm.conf (after plugins of your own, separated by a comma), then restart slurmctld"
        yield wrong(
            "hook-not-loaded", f"{name} is not loaded: slurm.conf does not have {line}", folder / "slurm.conf", hint
        )


def _check_hook(name: str, folder: Path, *, is_loaded: bool) -> Iterator[Finding]:
    path, install = folder / name, INSTALL.format(folder=folder)
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        refused = is_loaded and name == "cli_filter.lua"
        what = "is missing" + (": Slurm itself refuses every submission without it" if refused else "")
        yield wrong("hook-missing", what, path, install)
        return
    except OSError as error:
        yield unknown("hook", f"cannot be read: {error.strerror}", path, "run opsk doctor as root")
        return
    if text == read_hook(name):
        yield sound("hook", f"{name} belongs to opsk {__version__}", path)
    elif "of opsk:" in text[:200]:
        yield wrong("hook-old", f"{name} belongs to another release than opsk {__version__}", path, install)
    elif "opsk" in text:
        yield note("hook-own", f"{name} is this site's own, and mentions opsk", path, "compare with the hook's head")
    else:
        hint = f"the head of opsk's {name} shows the lines that load it from a script of your own"
        yield wrong("hook-own", f"{name} is this site's own, and does not load opsk's", path, hint)


def _check_advice_file(folder: Path) -> Iterator[Finding]:
    """Check the file that ``cli_filter.lua`` loads, in its search path."""
    path = _find_first(ADVICE, folder)
    try:
        is_ours = path.read_text(encoding="utf-8", errors="replace") == read_hook(ADVICE)
    except FileNotFoundError:
        what = "is missing: cli_filter.lua lets every job through without advice"
        hint = f"{INSTALL.format(folder=folder)}, or where Slurm is configless {INSTALL.format(folder='/etc/opsk')}"
        yield wrong("hook-missing", what, path, hint)
    except OSError as error:
        yield wrong("hook-missing", f"cannot be read: {error.strerror}", path, INSTALL.format(folder=folder))
    else:
        if is_ours:
            yield sound("hook", f"{ADVICE} belongs to opsk {__version__}", path)
        else:
            what = f"{ADVICE} belongs to another release than opsk {__version__}"
            yield wrong("hook-old", what, path, INSTALL.format(folder=path.parent))


def _find_first(name: str, folder: Path) -> Path:
    """Return the file that the hooks read: the one beside them, else that of this host."""
    return next(
        (candidate for candidate in (folder / name, Path("/etc/opsk") / name) if candidate.is_file()), folder / name
    )


def _check_settings(site: Site, folder: Path) -> Iterator[Finding]:
    """Compare the settings of the hooks with the site configuration that they came from."""
    path = _find_first(SETTINGS, folder)
    try:
        present = dict(_SETTING.findall(path.read_text(encoding="utf-8", errors="replace")))
    except OSError as error:
        yield wrong("hook-settings", f"cannot be read: {error.strerror}", path, INSTALL.format(folder=folder))
        return
    expected = dict(_SETTING.findall(render_hook_settings(site.config)))
    other = [
        f"{key} = {present.get(key, 'nothing')}, not {expected[key]}"
        for key in DERIVED_SETTINGS
        if present.get(key) != expected[key]
    ]
    if other:
        what = f"the hooks' settings differ from {site.config_path}: {'; '.join(other)}"
        yield wrong("hook-settings", what, path, INSTALL.format(folder=folder))
    else:
        yield sound("hook-settings", "same as in the site configuration", path)


def _parse_plugins(value: str) -> tuple[str, ...]:
    return tuple(word.strip().rpartition("/")[2] for word in value.split(","))


def read_plugins(conf: Path) -> dict[str, tuple[str, ...]]:
    """Return the plugins that slurm.conf and the files it includes name, by parameter in lower case."""
    plugins: dict[str, tuple[str, ...]] = {}
    pending = [conf]
    for _ in range(_MAX_INCLUDES):
        if not pending:
            break
        path = pending.pop(0)
        try:
            with path.open("rb") as file:
                text = file.read(_MAX_CONF_BYTES).decode("utf-8", errors="replace")
        except OSError:
            continue
        plugins |= {name.lower(): _parse_plugins(value) for name, value in _PLUGIN_LINE.findall(text)}
        pending += [conf.parent / name for name in _INCLUDE.findall(text)]
    return plugins


def _check_breaker(site: Site, slurm: Mapping[str, str]) -> Iterator[Finding]:
    """Search slurmctld's log for the hook's circuit breaker."""
    path = Path(slurm.get("SlurmctldLogFile", ""))
    if not path.is_absolute() or not is_controller_host(slurm, socket.gethostname()):
        hint = "run opsk doctor on slurmctld's host" if path.is_absolute() else "journalctl -u slurmctld | grep opsk:"
        yield note("breaker", "the state of slurmctld's hook is not known on this host", hint=hint)
        return
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = file.read(LOG_TAIL_BYTES).decode("utf-8", errors="replace").splitlines()
    except OSError as error:
        yield unknown("breaker", f"slurmctld's log cannot be read: {error.strerror}", path, "run opsk doctor as root")
        return
    for line in reversed(lines):
        match = _BREAKER.search(line)
        if match is not None:
            yield interpret_breaker(line, match[1], int(match[2]), path, site.now_s)
            return
    yield sound("breaker", "not open in the part of slurmctld's log that was read", path)


def interpret_breaker(line: str, why: str, pause_s: int, path: Path, now_s: float) -> Finding:
    """Return the present state of the breaker from its last line in the log."""
    at_s = _parse_line_time(line)
    if at_s is None:
        return note("breaker", f"was open once: {why}; the log gives no time", path)
    ago_s = now_s - at_s
    hint = "see the findings on the advisor; slurmctld asks again after the pause"
    if "lua-socket" in why:
        hint = "install lua-socket for the Lua that slurmctld was built with: opsk setup names it"
    if ago_s <= pause_s:
        return wrong("breaker", f"open: slurmctld's hook asks nothing for {pause_s} s: {why}", path, hint)
    ago = f"{ago_s / 60:.0f} min ago" if ago_s < RECENT_S else f"{ago_s / 3600:.0f} h ago"
    if ago_s <= RECENT_S:
        return note("breaker", f"was open {ago}: {why}", path, hint)
    return sound("breaker", f"last open {ago}: {why}", path)


def _parse_line_time(line: str) -> float | None:
    """Return when a line of slurmctld's log was written; times without a zone are in this host's zone."""
    match = _LINE_TIME.match(line)
    try:
        return datetime.fromisoformat(match[1]).astimezone(UTC).timestamp() if match else None
    except (ValueError, OverflowError):
        return None


def _check_advisor(site: Site) -> Iterator[Finding]:
    """Check the socket, then ping the advisor."""
    path = site.config.advisor.socket
    try:
        facts = path.lstat()
    except FileNotFoundError:
        hint = f"systemctl enable --now opsk-advisor; journalctl -u opsk-advisor. Does {path.parent} exist?"
        yield wrong("advisor", "does not run: its socket is missing", path, hint)
        return
    except OSError as error:
        yield wrong("socket", f"cannot be reached: {error.strerror}", path, f"chmod 0755 {path.parent}")
        return
    if not stat.S_ISSOCK(facts.st_mode):
        yield wrong("socket", "is not a socket", path, "remove it, and restart opsk-advisor")
        return
    yield from check_socket_modes(path, facts.st_mode, site.config.advisor.socket_mode)
    yield from check_answers(path, site.config.advisor.submit_deadline_s)


def check_socket_modes(path: Path, mode: int, expected: int) -> Iterator[Finding]:
    """Yield who can connect that should not, or the other way round, and which parent folder bars users."""
    if stat.S_IMODE(mode) != expected:
        hint = "systemctl restart opsk-advisor sets socket_mode of [advisor]"
        yield wrong("socket-mode", f"mode {stat.S_IMODE(mode):#o}, the configuration has {expected:#o}", path, hint)
    if not expected & 0o006:
        return
    for folder in path.parents:
        try:
            if not folder.stat().st_mode & stat.S_IXOTH:
                hint = f"chmod o+x {folder}; RuntimeDirectoryMode=0755 in the unit, 0755 in tmpfiles.d/opsk.conf"
                yield wrong("socket-folder", "users cannot enter it, so their hooks get no advice", folder, hint)
        except OSError:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class PingResult:
    """The result of a few pings: the median time, and the opsk release that answered; or why none did."""

    took_s: float = 0.0
    release: str = ""
    problem: str = ""
    is_other: bool = False


def ping(path: Path, *, deadline_s: float = DEADLINE_S) -> PingResult:
    """Ping the advisor."""
    body = json.dumps({"v": VERSION, "kind": "ping"}).encode("ascii")
    took, answer = [], b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(deadline_s)
            peer.connect(str(path))
            for _ in range(PINGS):
                began = time.monotonic()
                peer.sendall(frame(body))
                length = int.from_bytes(_receive_exactly(peer, HEADER_BYTES), "big")
                answer = _receive_exactly(peer, min(length, 1 << 16))
                took.append(time.monotonic() - began)
    except TimeoutError:
        return PingResult(problem=f"accepts connections but gives no answer within {deadline_s:g} s")
    except ConnectionRefusedError:
        return PingResult(problem="does not run: its socket exists, but no process listens")
    except OSError as error:
        return PingResult(problem=f"does not answer: {error.strerror or error}")
    try:
        document = json.loads(answer)
        if document["v"] != VERSION or document["status"] != "pong":
            return PingResult(
                problem=f"uses another protocol version: {str(document.get('error', document))[:120]}", is_other=True
            )
        return PingResult(took_s=sorted(took)[len(took) // 2], release=str(document.get("release", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return PingResult(problem="does not answer as an advisor does", is_other=True)


def _receive_exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError("closed without an answer")
        data += part
    return data


def check_answers(path: Path, submit_deadline_s: float) -> Iterator[Finding]:
    """Ping the advisor, and yield the findings on its answer."""
    result = ping(path)
    if result.problem:
        check = "advisor-version" if result.is_other else "advisor"
        yield wrong(check, result.problem, path, "systemctl restart opsk-advisor; journalctl -u opsk-advisor")
        return
    if result.release != __version__:
        what = f"is opsk {result.release or 'of another release'}, this is {__version__}"
        yield wrong("advisor-version", what, path, "systemctl restart opsk-advisor, after an upgrade")
    if result.took_s > submit_deadline_s * SLOW_OF_DEADLINE:
        waits_ms = submit_deadline_s * 1e3
        what = f"takes {result.took_s * 1e3:.0f} ms to answer a ping; the hook in slurmctld waits {waits_ms:.0f}"
        yield wrong(
            "advisor-slow", what, path, "is the host busy, or is the advisor's unit limited (CPUQuota, MemoryMax)?"
        )
    else:
        yield sound("advisor", f"answers a ping in {result.took_s * 1e3:.1f} ms", path)
