"""Bare Debian roots: made once, copied for a test, and entered as a machine of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# Read here: what is in the environment later is cleaned away for each test.
BARE_ROOT = os.environ.get("OPSK_BARE_ROOT")
CACHE = Path(os.environ.get("XDG_CACHE_HOME", f"{os.environ.get('HOME', '/root')}/.cache"))
NETWORK_VARIABLES = re.compile(r"(PIP_.*|(https?|no|all)_proxy)", re.IGNORECASE)
MAKING_TIMEOUT_S = 900.0
_CA_FILE = "/etc/ssl/ca-of-host.crt"
_ENTER = """
root=$0
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777,size=4g tmpfs "$root/tmp"
mkdir -p "$PIP_CACHE" "$root/srv/.cache/pip" && mount --bind "$PIP_CACHE" "$root/srv/.cache/pip"
cd "$root"
pivot_root . .
umount -l .
exec /usr/bin/env -i $VARIABLES "$@"
"""
_LIST_PROCESSES = r"""
for file in /proc/[0-9]*/status; do
  sed -n 's/^Name:\t//p; s/^State:\t\(.\).*/\1/p; s/^Pid:\t//p' "$file" 2>/dev/null | tr '\n' ' '; echo
done
"""


def make_bare_root(*arguments: str) -> Path:
    """Return a bare root, which nobody may write to; skip where there can be none. See ``make-bare-root``."""
    if os.geteuid() != 0:
        pytest.skip("only root may enter another root")
    chosen = {"OPSK_BARE_ROOT": BARE_ROOT} if BARE_ROOT else {}
    made = subprocess.run(
        [HERE / "make-bare-root", *arguments],
        env={**os.environ, "XDG_CACHE_HOME": str(CACHE), **chosen},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAKING_TIMEOUT_S,
        check=False,
    )
    if made.returncode:
        pytest.skip(made.stderr.strip())
    return Path(made.stdout.strip())


def copy_root(root: Path, to: Path) -> Path:
    """Copy a root so that a test may write to it."""
    copied = subprocess.run(
        ["cp", "-a", "--reflink=auto", root, to], capture_output=True, text=True, timeout=280, check=False
    )
    assert copied.returncode == 0, copied.stderr
    return to


@dataclass(frozen=True, slots=True, kw_only=True)
class BareMachine:
    """A root that is entered in process and mount namespaces of its own, and reaches packages as this machine does.

    Parameters
    ----------
    root
        Its top folder; all that a test leaves is in it.
    suite
        The release of Debian.
    """

    root: Path
    suite: str

    def connect(self) -> None:
        """Let its apt and pip reach what this machine's reach: mirror, proxy, certificates; none of it is kept."""
        apt = self.root / "etc" / "apt"
        apt_config = _print("apt-config", "dump")
        (apt / "apt.conf.d" / "zz-host").write_text("".join(_acquire_lines(apt_config)), encoding="utf-8")
        (apt / "sources.list").write_text(f"deb {_mirror()} {self.suite} main\n", encoding="utf-8")
        # A copy for a test need not outlive a power failure, and nobody reads its manuals: slim images have none.
        unread = "".join(f"path-exclude=/usr/share/{folder}/*\n" for folder in ("doc", "man", "locale", "info"))
        (self.root / "etc" / "dpkg" / "dpkg.cfg.d" / "test").write_text(f"force-unsafe-io\n{unread}", encoding="ascii")
        # Nor does anything here run the system's Python programs, all of which Debian compiles as it installs them.
        (self.root / "usr" / "bin" / "py3compile").write_text("#!/bin/sh\n", encoding="ascii")
        home = Path(os.environ.get("HOME", "/root"))
        for source, target in (
            (Path("/etc/resolv.conf"), "etc/resolv.conf"), (Path("/etc/hosts"), "etc/hosts"),
            (Path("/etc/pip.conf"), "etc/pip.conf"), (home / ".config/pip/pip.conf", "srv/.config/pip/pip.conf"),
            (Path(os.environ.get("PIP_CERT", "/nonexistent")), _CA_FILE.lstrip("/")),
        ):  # fmt: skip
            if source.is_file():
                (self.root / target).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, self.root / target)

    def take_cached_packages(self) -> None:
        """Put the Debian packages that earlier tests fetched where apt looks for them."""
        self._archives.mkdir(parents=True, exist_ok=True)
        for package in self._package_cache.glob("*.deb"):
            shutil.copyfile(package, self._archives / package.name)

    def cache_packages(self) -> None:
        """Keep the Debian packages that apt fetched for the next time; other runs may do the same meanwhile."""
        self._package_cache.mkdir(parents=True, exist_ok=True)
        for package in self._archives.glob("*.deb"):
            kept = self._package_cache / package.name
            if not kept.exists():
                part = kept.with_name(f".{kept.name}.{os.getpid()}")
                shutil.copyfile(package, part)
                part.replace(kept)

    def run(self, command: str, timeout_s: float, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a shell command as root, with no variable of ours; all that it started is ended with it."""
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
        environment = {
            "PATH": os.environ["PATH"],
            "PIP_CACHE": str(CACHE / "pip"),
            "VARIABLES": " ".join(f"{name}={value}" for name, value in (self._variables() | variables).items()),
        }
        return subprocess.run(
            [*words, "sh", "-ec", _ENTER, self.root, "sh", "-c", command],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip

    def run_and_list_processes(
        self, command: str, timeout_s: float
    ) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        """Run a command; return it, and the names of the processes that still run 5 s after its end."""
        mark = "processes after the command:"
        # What the command has told to end may take a moment on a busy machine.
        listing = f"sleep 5\necho '{mark}'\n{_LIST_PROCESSES}"
        done = self.run(f"{command}\nended=$?\n{listing}\nexit $ended", timeout_s)
        done.stdout, _, listed = done.stdout.rpartition(f"{mark}\n")
        return done, list(_running(listed))

    @property
    def _archives(self) -> Path:
        return self.root / "var" / "cache" / "apt" / "archives"

    @property
    def _package_cache(self) -> Path:
        return CACHE / "opsk" / f"packages-{self.suite}"

    def _variables(self) -> Mapping[str, str]:
        passed = {name: value for name, value in os.environ.items() if NETWORK_VARIABLES.fullmatch(name)}
        if (self.root / _CA_FILE.lstrip("/")).exists():
            passed["PIP_CERT"] = _CA_FILE
        # Byte code is made when a module is first imported: most of what pip installs no test imports.
        passed["PIP_NO_COMPILE"] = "1"
        return {"HOME": "/srv", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **passed}


def _running(listing: str) -> Iterator[str]:
    """Yield the names of processes that neither have ended nor are the shell that lists them."""
    for line in listing.splitlines():
        name, state, pid = [*line.split(), "", "", ""][:3]
        if pid and pid != "1" and state != "Z" and name not in {"sed", "tr", "sh"}:
            yield name


def _print(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def _acquire_lines(apt_config: str) -> Iterator[str]:
    return (f"{line}\n" for line in apt_config.splitlines() if line.startswith("Acquire::"))


def _mirror() -> str:
    """Return where this machine's apt gets Debian from."""
    lines = _print("apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages")
    return next((line.removeprefix("Debian|Debian|") for line in lines.splitlines() if "Debian|Debian|" in line), "")
