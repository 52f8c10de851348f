"""Checks that slurmctld answers and that its clock agrees with this host's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsk.app.doctor.finding import Finding, Site, note, sound, unknown, wrong
from opsk.errors import SlurmError
from opsk.lab.programs import build_search_path
from opsk.lab.slurm_files import find_deploy_folder
from opsk.slurm.commands.command import CommandClient, build_command_environment
from opsk.slurm.topology.release import Release, format_release
from opsk.units import MIB

_NAME = re.compile(r"opsk-(\d{2})\.(\d{2})\.conf")


def find_snippets(folder: Path | None = None) -> dict[Release, Path]:
    """Return the files by the first release that each is for, the oldest first."""
    place = folder or find_deploy_folder() / "slurm"
    matches = ((_NAME.fullmatch(path.name), path) for path in place.iterdir())
    return dict(sorted(((int(name[1]), int(name[2])), path) for name, path in matches if name is not None))


def read_slurm_lines(release: Release) -> tuple[str, ...]:
    """Return the lines for a release; an older Slurm than any gets those of the oldest."""
    known = find_snippets()
    suitable = [path for since, path in known.items() if since <= release]
    return tuple((suitable[-1] if suitable else next(iter(known.values()))).read_text(encoding="utf-8").splitlines())


PROGRAMS = ("slurmctld", "slurmd", "srun")
"""The first installed one is run with -V; daemons print their release without any configuration."""
OLDEST: Release = (22, 5)
PLUGINS = ("job_submit_lua.so", "cli_filter_lua.so")
PLUGIN_FOLDERS = ("usr/lib/*/slurm*", "usr/lib*/slurm*", "usr/local/lib*/slurm", "opt/slurm/lib*/slurm")
LUA_FOLDERS = ("usr/lib/*/lua", "usr/lib*/lua", "usr/local/lib/*/lua", "usr/local/lib*/lua")
_PROGRAM_DEADLINE_S = 10.0
_RELEASE = re.compile(r"\bslurm\S*\s+(\d{2})\.(\d{2})\b")
_LUA = re.compile(rb"liblua(?:-?(5\.\d)\.so|\.so\.(5\.\d))")
_MAX_PLUGIN_BYTES = 8 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledSlurm:
    """The installed Slurm: ``release`` of the programs, ``plugins`` by name, ``lua`` that they were built with."""

    release: Release | None = None
    program: str = ""
    plugins: Mapping[str, Path] = field(default_factory=dict)
    lua: tuple[str, ...] = ()
    lua_socket: Path | None = None


def find_installed_slurm(root: Path) -> InstalledSlurm:
    """Find Slurm on PATH, and its plugins and their Lua below ``root``."""
    release, program = _find_release()
    plugins = {name: path for name in PLUGINS if (path := _find_first(root, PLUGIN_FOLDERS, name)) is not None}
    lua = _find_lua_releases(plugins.get(PLUGINS[0]) or plugins.get(PLUGINS[1]))
    sockets = (_find_first(root, LUA_FOLDERS, f"{version}/socket/unix.so") for version in lua)
    return InstalledSlurm(
        release=release,
        program=program,
        plugins=plugins,
        lua=lua,
        lua_socket=next((path for path in sockets if path), None),
    )


def _find_release() -> tuple[Release | None, str]:
    for name in PROGRAMS:
        program = shutil.which(name, path=build_search_path())
        if program is None:
            continue
        try:
            result = subprocess.run(
                [program, "-V"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROGRAM_DEADLINE_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        match = _RELEASE.search(result.stdout.decode("utf-8", errors="replace"))
        if match is not None:
            return (int(match[1]), int(match[2])), program
    return None, ""


def _find_first(root: Path, folders: tuple[str, ...], name: str) -> Path | None:
    """Return the first file of a name, in the order of the folders."""
    places = (place for pattern in folders for place in sorted(root.glob(pattern)))
    return next((place / name for place in places if (place / name).is_file()), None)


def _find_lua_releases(plugin: Path | None) -> tuple[str, ...]:
    """Return the Lua releases whose library a plugin names."""
    if plugin is None:
        return ()
    try:
        with plugin.open("rb") as file:
            text = file.read(_MAX_PLUGIN_BYTES)
    except OSError:
        return ()
    return tuple(sorted({(first or second).decode("ascii") for first, second in _LUA.findall(text)}))


def check_installed_slurm(slurm: InstalledSlurm) -> Iterator[Finding]:
    """Check the Slurm programs, and what the submit hooks need."""
    if slurm.release is None:
        yield wrong("slurm", "none of slurmctld, slurmd and srun is on PATH", hint="install Slurm's client commands")
        return
    shown = format_release(slurm.release)
    if slurm.release < OLDEST:
        yield wrong(
            "slurm",
            f"Slurm {shown} is older than 22.05, the oldest release that opsk supports",
            slurm.program,
            "update Slurm",
        )
    else:
        yield sound("slurm", f"Slurm {shown}", slurm.program)
    for name in PLUGINS:
        if name in slurm.plugins:
            yield sound("plugins", f"{name} is installed", slurm.plugins[name])
        else:
            hint = "install Slurm's Lua plugins (Debian: slurm-wlm-plugins), or build Slurm where Lua's headers are"
            yield wrong("plugins", f"{name} is missing: hooks cannot be loaded", hint=hint)
    if not slurm.plugins:
        return
    yield check_lua_socket(slurm)


def check_lua_socket(slurm: InstalledSlurm) -> Finding:
    """Check that the Lua of the plugins has lua-socket."""
    plugin = slurm.plugins.get(PLUGINS[0], "")
    if not slurm.lua:
        return note("lua-socket", "the Lua release of the plugins is unknown", plugin, "ldd job_submit_lua.so")
    if slurm.lua_socket is None:
        hint = (
            "apt-get install lua-socket (Debian has it for each Lua), or luarocks --lua-version=5.x install luasocket"
        )
        what = f"lua-socket is missing for Lua {' or '.join(slurm.lua)}, which Slurm was built with: hooks do nothing"
        return wrong("lua-socket", what, plugin, hint)
    return sound("lua-socket", f"installed for Lua {', '.join(slurm.lua)}", slurm.lua_socket)


DEADLINE_S = 5.0
SKEW_LIMIT_S = 5.0
"""More than this, and step times, failures and records of different hosts no longer line up; munge bears 300 s."""
_MOMENT = re.compile(r"sdiag output at .*\((\d{9,11})\)")


def check_slurmctld() -> tuple[Mapping[str, str] | None, list[Finding]]:
    """Return slurmctld's configuration, and whether it answers."""
    client = CommandClient(deadline_s=DEADLINE_S)
    try:
        config = client.config()
    except SlurmError as error:
        hint = "systemctl status slurmctld munge; scontrol ping. Many other checks need slurmctld"
        return None, [wrong("slurm", f"slurmctld does not answer: {error.message}", hint=hint)]
    version = config.get("SLURM_VERSION", "(unknown release)")
    return config, [sound("slurm", f"slurmctld {version} answers", config.get("SLURM_CONF", ""))]


def check_clock(site: Site) -> Iterator[Finding]:
    """Compare slurmctld's clock with ours."""
    if site.slurm is None:
        return
    before_s = time.time()
    try:
        result = subprocess.run(
            ["sdiag"], env=build_command_environment(os.environ), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        yield unknown("clock", f"sdiag does not answer: {getattr(error, 'strerror', None) or 'too slow'}")
        return
    after_s = time.time()
    match = _MOMENT.search(result.stdout.decode("utf-8", errors="replace"))
    if match is None:
        yield unknown("clock", "sdiag does not show the time of slurmctld")
        return
    yield check_skew("clock", "slurmctld's clock", float(match[1]), before_s, after_s)


def check_skew(check: str, whose: str, theirs_s: float, before_s: float, after_s: float) -> Finding:
    """Return how far a clock that was read between two moments of ours, in whole seconds, is off."""
    off_s = max(theirs_s - after_s, before_s - (theirs_s + 1.0), 0.0)
    if off_s <= SKEW_LIMIT_S:
        return sound(check, f"{whose} agrees with this host's")
    direction = "ahead of" if theirs_s > after_s else "behind"
    hint = (
        "run chronyc tracking on both hosts; munge refuses credentials from 300 s on, and times of reports do not match"
    )
    return wrong(check, f"{whose} is {off_s:.0f} s {direction} this host's", hint=hint)


def is_controller_host(slurm: Mapping[str, str], hostname: str) -> bool:
    """Return whether a slurmctld of this cluster runs on this host, by slurm.conf."""
    short = hostname.partition(".")[0]
    named = (
        value.partition("(")[0].partition(".")[0] for key, value in slurm.items() if key.startswith("SlurmctldHost")
    )
    return short in named


def find_slurm_folder(slurm: Mapping[str, str]) -> Path:
    """Return the folder of slurm.conf and of the hooks."""
    return Path(slurm.get("SLURM_CONF") or "/etc/slurm/slurm.conf").parent
