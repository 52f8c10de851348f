"""Are the submit hooks in force, and does the advisor answer them? What ``opsk doctor`` looks at on the submit path."""

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
from opsk.app.doctor.slurm import controller_here, slurm_folder
from opsk.units import MIB
from opsk_jobcheck.cluster_state.heading import MAX_AGE_S, LiveHead
from opsk_jobcheck.service.hooks import ADVICE, HOOKS, SETTINGS, hook_settings, hook_text
from opsk_jobcheck.submission.protocol import HEADER_BYTES, VERSION, frame

INSTALL = "opsk advisor --install-hooks {folder}"
PLUGINS = {"job_submit.lua": "JobSubmitPlugins", "cli_filter.lua": "CliFilterPlugins"}
SETTLED = ("socket", "submit_deadline_ms", "cli_deadline_ms", "policy")
"""Settings of the hooks that follow from the site configuration."""
DEADLINE_S = 1.0
PINGS = 5
SLOW_OF_DEADLINE = 0.5
"""An advisor that takes more of the hooks' deadline for nothing at all is slow."""
LOG_TAIL_BYTES = 4 * MIB
RECENT_S = 3600.0
_BREAKER = re.compile(r"opsk: the advisor gives no answer \((.{0,300})\): not asked for (\d{1,4}) s")
_LINE_TIME = re.compile(r"^\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:[+-]\d\d:?\d\d|Z)?)\]")
_SETTING = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_PLUGIN_LINE = re.compile(
    r"^[ \t]*(JobSubmitPlugins|CliFilterPlugins)[ \t]*=[ \t]*([^\s#]+)", re.MULTILINE | re.IGNORECASE
)
_INCLUDE = re.compile(r"^[ \t]*Include[ \t]+(\S+)", re.MULTILINE | re.IGNORECASE)
_MOST_INCLUDES = 32
_MOST_CONF_BYTES = 4 * MIB


def submit_checks(site: Site) -> Iterator[Finding]:
    """Look at hooks, their settings, the advisor's socket, the advisor, and the hooks' circuit breaker."""
    if site.slurm is not None:
        yield from _hooks(site, site.slurm)
        yield from _breaker(site, site.slurm)
    yield from _advisor(site)
    if site.config.advisor.live_folder is not None:
        yield watcher_finding(site.config.advisor.live_folder)


def watcher_finding(folder: Path) -> Finding:
    """Say how old what the watcher handed over is; the advisor leaves out what is too old."""
    hint = "systemctl enable --now opsk-watcher; journalctl -u opsk-watcher"
    if not folder.is_dir():
        return wrong("watcher", "live_folder is not there: advice knows no running jobs", folder, hint)
    if not os.access(folder, os.R_OK | os.X_OK):
        return unknown("watcher", "cannot be looked at", folder, "run opsk doctor as root")
    age_s = LiveHead(folder, time.monotonic).age_s()
    if age_s is None:
        return wrong("watcher", "has handed nothing over: advice knows no running jobs", folder, hint)
    if age_s > MAX_AGE_S:
        return wrong("watcher", f"has heard nothing of Slurm for {age_s / 60:.0f} min", folder, hint)
    return sound("watcher", f"heard of Slurm {age_s:.0f} s ago", folder)


def _hooks(site: Site, slurm: Mapping[str, str]) -> Iterator[Finding]:
    """Say which hooks are missing, old, not opsk's, or not loaded."""
    folder = slurm_folder(slurm)
    written = plugins_written(folder / "slurm.conf")
    here = controller_here(slurm, socket.gethostname())
    for name in HOOKS:
        wanted = name == "cli_filter.lua" or here
        is_loaded = "lua" in _plugins(slurm.get(PLUGINS[name], ""))
        yield from _loaded(
            name, folder, is_loaded=is_loaded, is_written="lua" in written.get(PLUGINS[name].lower(), ())
        )
        if wanted:
            yield from _hook(name, folder, is_loaded=is_loaded)
    if any((folder / name).is_file() for name in HOOKS):
        yield from _settings(site, folder)
    if (folder / "cli_filter.lua").is_file():
        yield from _what_follows(folder)


def _loaded(name: str, folder: Path, *, is_loaded: bool, is_written: bool) -> Iterator[Finding]:
    line = f"{PLUGINS[name]}=lua"
    if is_loaded:
        return
    if is_written:
        what = f"{name} is not loaded: slurm.conf says {line}, and slurmctld has not read that"
        yield wrong("hook-not-loaded", what, folder / "slurm.conf", "systemctl restart slurmctld")
    else:
        hint = f"{line} in slurm.conf (beside plugins of your own, with a comma), then restart slurmctld"
        yield wrong(
            "hook-not-loaded", f"{name} is not loaded: slurm.conf does not say {line}", folder / "slurm.conf", hint
        )


def _hook(name: str, folder: Path, *, is_loaded: bool) -> Iterator[Finding]:
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
    if text == hook_text(name):
        yield sound("hook", f"{name} is that of opsk {__version__}", path)
    elif "of opsk:" in text[:200]:
        yield wrong("hook-old", f"{name} is not that of opsk {__version__}", path, install)
    elif "opsk" in text:
        yield note("hook-own", f"{name} is this site's own, and speaks of opsk", path, "compare with the hook's head")
    else:
        hint = f"the head of opsk's {name} shows the lines that load it from a script of your own"
        yield wrong("hook-own", f"{name} is this site's own, and does not load opsk's", path, hint)


def _what_follows(folder: Path) -> Iterator[Finding]:
    """Look at what ``cli_filter.lua`` goes on with, where it looks for it."""
    path = _first_of(ADVICE, folder)
    try:
        is_ours = path.read_text(encoding="utf-8", errors="replace") == hook_text(ADVICE)
    except FileNotFoundError:
        what = "is missing: cli_filter.lua lets all through and says nothing"
        hint = f"{INSTALL.format(folder=folder)}, or where Slurm is configless {INSTALL.format(folder='/etc/opsk')}"
        yield wrong("hook-missing", what, path, hint)
    except OSError as error:
        yield wrong("hook-missing", f"cannot be read: {error.strerror}", path, INSTALL.format(folder=folder))
    else:
        if is_ours:
            yield sound("hook", f"{ADVICE} is that of opsk {__version__}", path)
        else:
            what = f"{ADVICE} is not that of opsk {__version__}"
            yield wrong("hook-old", what, path, INSTALL.format(folder=path.parent))


def _first_of(name: str, folder: Path) -> Path:
    """Return which file the hooks read: the one beside them, else that of this host."""
    return next((each for each in (folder / name, Path("/etc/opsk") / name) if each.is_file()), folder / name)


def _settings(site: Site, folder: Path) -> Iterator[Finding]:
    """Compare the settings of the hooks with the site configuration that they came from."""
    path = _first_of(SETTINGS, folder)
    try:
        present = dict(_SETTING.findall(path.read_text(encoding="utf-8", errors="replace")))
    except OSError as error:
        yield wrong("hook-settings", f"cannot be read: {error.strerror}", path, INSTALL.format(folder=folder))
        return
    expected = dict(_SETTING.findall(hook_settings(site.config)))
    other = [
        f"{key} = {present.get(key, 'nothing')}, not {expected[key]}"
        for key in SETTLED
        if present.get(key) != expected[key]
    ]
    if other:
        what = f"the hooks' settings are not those of {site.config_path}: {'; '.join(other)}"
        yield wrong("hook-settings", what, path, INSTALL.format(folder=folder))
    else:
        yield sound("hook-settings", "as the site configuration has them", path)


def _plugins(value: str) -> tuple[str, ...]:
    return tuple(word.strip().rpartition("/")[2] for word in value.split(","))


def plugins_written(conf: Path) -> dict[str, tuple[str, ...]]:
    """Return the plugins that slurm.conf and the files it includes name, by parameter in small letters."""
    found: dict[str, tuple[str, ...]] = {}
    left = [conf]
    for _ in range(_MOST_INCLUDES):
        if not left:
            break
        path = left.pop(0)
        try:
            with path.open("rb") as file:
                text = file.read(_MOST_CONF_BYTES).decode("utf-8", errors="replace")
        except OSError:
            continue
        found |= {name.lower(): _plugins(value) for name, value in _PLUGIN_LINE.findall(text)}
        left += [conf.parent / name for name in _INCLUDE.findall(text)]
    return found


def _breaker(site: Site, slurm: Mapping[str, str]) -> Iterator[Finding]:
    """Look in slurmctld's log for the hook's circuit breaker."""
    path = Path(slurm.get("SlurmctldLogFile", ""))
    if not path.is_absolute() or not controller_here(slurm, socket.gethostname()):
        hint = "run opsk doctor on slurmctld's host" if path.is_absolute() else "journalctl -u slurmctld | grep opsk:"
        yield note("breaker", "whether slurmctld's hook has stopped asking is not known here", hint=hint)
        return
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            lines = file.read(LOG_TAIL_BYTES).decode("utf-8", errors="replace").splitlines()
    except OSError as error:
        yield unknown("breaker", f"slurmctld's log cannot be read: {error.strerror}", path, "run opsk doctor as root")
        return
    for line in reversed(lines):
        found = _BREAKER.search(line)
        if found is not None:
            yield breaker_finding(line, found[1], int(found[2]), path, site.now_s)
            return
    yield sound("breaker", "slurmctld's hook has always got answers, as far as the log goes back", path)


def breaker_finding(line: str, why: str, pause_s: int, path: Path, now_s: float) -> Finding:
    """Return what the breaker's last line in the log says of now."""
    at_s = _line_s(line)
    if at_s is None:
        return note("breaker", f"slurmctld's hook stopped asking once: {why}; its log does not say when", path)
    ago_s = now_s - at_s
    hint = "see what is said of the advisor; without an answer slurmctld asks again after the pause"
    if "lua-socket" in why:
        hint = "install lua-socket for the Lua that slurmctld was built with: opsk setup names it"
    if ago_s <= pause_s:
        return wrong("breaker", f"open: slurmctld's hook does not ask for {pause_s} s: {why}", path, hint)
    ago = f"{ago_s / 60:.0f} min ago" if ago_s < RECENT_S else f"{ago_s / 3600:.0f} h ago"
    if ago_s <= RECENT_S:
        return note("breaker", f"was open {ago}: {why}", path, hint)
    return sound("breaker", f"last open {ago}: {why}", path)


def _line_s(line: str) -> float | None:
    """Return when a line of slurmctld's log was written; its times are those of this host's zone unless they say so."""
    found = _LINE_TIME.match(line)
    try:
        return datetime.fromisoformat(found[1]).astimezone(UTC).timestamp() if found else None
    except (ValueError, OverflowError):
        return None


def _advisor(site: Site) -> Iterator[Finding]:
    """Look at the socket, then ask."""
    path = site.config.advisor.socket
    try:
        found = path.lstat()
    except FileNotFoundError:
        hint = f"systemctl enable --now opsk-advisor; journalctl -u opsk-advisor. Is {path.parent} there?"
        yield wrong("advisor", "does not run: its socket is not there", path, hint)
        return
    except OSError as error:
        yield wrong("socket", f"cannot be reached: {error.strerror}", path, f"chmod 0755 {path.parent}")
        return
    if not stat.S_ISSOCK(found.st_mode):
        yield wrong("socket", "there is something else than a socket", path, "remove it, and restart opsk-advisor")
        return
    yield from socket_modes(path, found.st_mode, site.config.advisor.socket_mode)
    yield from asked(path, site.config.advisor.submit_deadline_s)


def socket_modes(path: Path, mode: int, expected: int) -> Iterator[Finding]:
    """Say who can connect that should not, or the other way round, and which folder above bars users."""
    if stat.S_IMODE(mode) != expected:
        hint = "systemctl restart opsk-advisor sets it; socket_mode under [advisor] says which"
        yield wrong("socket-mode", f"mode {stat.S_IMODE(mode):#o}, the site says {expected:#o}", path, hint)
    if not expected & 0o006:
        return
    for folder in path.parents:
        try:
            if not folder.stat().st_mode & stat.S_IXOTH:
                hint = f"chmod o+x {folder}; RuntimeDirectoryMode=0755 in the unit, 0755 in tmpfiles.d/opsk.conf"
                yield wrong("socket-folder", "users cannot enter it, and so not ask", folder, hint)
        except OSError:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinged:
    """What came of a few pings: the time that the middle one took, and which opsk answered; or why none did."""

    took_s: float = 0.0
    release: str = ""
    problem: str = ""
    is_other: bool = False


def ping(path: Path, *, deadline_s: float = DEADLINE_S) -> Pinged:
    """Ask the advisor whether it is there."""
    body = json.dumps({"v": VERSION, "kind": "ping"}).encode("ascii")
    took, answer = [], b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(deadline_s)
            peer.connect(str(path))
            for _ in range(PINGS):
                began = time.monotonic()
                peer.sendall(frame(body))
                length = int.from_bytes(_exactly(peer, HEADER_BYTES), "big")
                answer = _exactly(peer, min(length, 1 << 16))
                took.append(time.monotonic() - began)
    except TimeoutError:
        return Pinged(problem=f"takes connections and gives no answer within {deadline_s:g} s")
    except ConnectionRefusedError:
        return Pinged(problem="does not run: its socket is there, and nobody listens")
    except OSError as error:
        return Pinged(problem=f"does not answer: {error.strerror or error}")
    try:
        said = json.loads(answer)
        if said["v"] != VERSION or said["status"] != "pong":
            return Pinged(problem=f"speaks another version: {str(said.get('error', said))[:120]}", is_other=True)
        return Pinged(took_s=sorted(took)[len(took) // 2], release=str(said.get("release", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Pinged(problem="answers what is no answer of an advisor", is_other=True)


def _exactly(peer: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = peer.recv(count - len(data))
        if not part:
            raise ConnectionError("closed without an answer")
        data += part
    return data


def asked(path: Path, submit_deadline_s: float) -> Iterator[Finding]:
    """Ask the advisor, and say how it answers."""
    found = ping(path)
    if found.problem:
        check = "advisor-version" if found.is_other else "advisor"
        yield wrong(check, found.problem, path, "systemctl restart opsk-advisor; journalctl -u opsk-advisor")
        return
    if found.release != __version__:
        what = f"is opsk {found.release or 'of another release'}, this is {__version__}"
        yield wrong("advisor-version", what, path, "systemctl restart opsk-advisor, after an upgrade")
    if found.took_s > submit_deadline_s * SLOW_OF_DEADLINE:
        waits_ms = submit_deadline_s * 1e3
        what = f"takes {found.took_s * 1e3:.0f} ms to answer a ping; the hook in slurmctld waits {waits_ms:.0f}"
        yield wrong(
            "advisor-slow", what, path, "is the host busy, or the advisor's unit held down (CPUQuota, MemoryMax)?"
        )
    else:
        yield sound("advisor", f"answers a ping in {found.took_s * 1e3:.1f} ms", path)
