"""Fetches the wheels that opsk runs on: exactly those of ``requirements.lock``, by hash.

The lock pins what developers need as well, so the wheels' own metadata is followed from opsk's wheel, extra ``all``:
what they need is fetched level by level. No resolver decides anything here.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import sys_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from deploy.packages.running import StepError, call

EXTRAS = ("all",)
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_")
_OLD_MANYLINUX = {"manylinux2014": (2, 17), "manylinux2010": (2, 12), "manylinux1": (2, 5)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One wheel, and what it says of itself."""

    path: Path
    name: str
    version: str
    metadata: Message

    def needs(self, extras: frozenset[str]) -> Iterator[Requirement]:
        """Yield what this wheel needs here, with these extras asked for."""
        for line in self.metadata.get_all("Requires-Dist") or []:
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*sorted(extras), "")):
                yield requirement


def build(source: Path, out: Path, epoch: int) -> tuple[Path, Path]:
    """Build opsk's source archive and, from that, its wheel; return both."""
    out.mkdir(parents=True, exist_ok=True)
    call(
        *(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source),
        more={"SOURCE_DATE_EPOCH": str(epoch)},
    )
    (archive,) = out.glob("opsk-*.tar.gz")
    (wheel,) = out.glob("opsk-*.whl")
    return archive, wheel


def read(path: Path) -> Wheel:
    """Read a wheel's metadata."""
    name, version, _, _ = parse_wheel_filename(path.name)
    with zipfile.ZipFile(path) as archive:
        (inner,) = [entry for entry in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", entry)]
        metadata = HeaderParser().parsestr(archive.read(inner).decode("utf-8"))
    return Wheel(path=path, name=name, version=str(version), metadata=metadata)


def pins(lock: str) -> dict[str, str]:
    """Return name to what a lock says of it, pin and hashes; what is pinned for another Python is left out."""
    blocks: dict[str, str] = {}
    name = ""
    for line in lock.splitlines():
        if line and not line.startswith((" ", "#")):
            pin = Requirement(line.rstrip("\\ "))
            name = canonicalize_name(pin.name) if pin.marker is None or pin.marker.evaluate() else ""
        if name:
            blocks[name] = blocks.get(name, "") + line + "\n"
    return blocks


def gather(own: Path, lock: Path, folder: Path) -> list[Wheel]:
    """Fetch what opsk's wheel needs into ``folder``, as pinned; return all wheels, opsk's first, others by name."""
    folder.mkdir(parents=True, exist_ok=True)
    pinned = pins(lock.read_text(encoding="utf-8"))
    known = {"opsk": read(own)}
    done: set[tuple[str, frozenset[str]]] = set()
    pending: set[tuple[str, frozenset[str]]] = {("opsk", frozenset(EXTRAS))}
    while pending:
        fetch(sorted({name for name, _ in pending} - set(known)), pinned, folder, known)
        done |= pending
        pending = {
            (str(canonicalize_name(need.name)), frozenset(need.extras))
            for name, extras in pending
            for need in known[name].needs(extras)
        } - done
    return [known.pop("opsk"), *(known[name] for name in sorted(known))]


def fetch(names: list[str], pinned: dict[str, str], folder: Path, known: dict[str, Wheel]) -> None:
    """Fetch the wheels of these names that ``folder`` lacks, checked against the lock, and note all in ``known``."""
    absent = [name for name in names if name not in pinned]
    if absent:
        raise StepError(f"requirements.lock does not pin {', '.join(absent)}: run make lock")
    missing = [name for name in names if not _is_cached(pinned[name], name, folder)]
    if missing:
        part = folder / "part.lock"
        part.write_text("".join(pinned[name] for name in missing), encoding="utf-8")
        call(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--require-hashes", "--only-binary", ":all:", "--dest", folder, "--requirement", part),
        )
        part.unlink()
    for path in folder.glob("*.whl"):
        wheel = read(path)
        if wheel.name in names:
            known[wheel.name] = wheel


def _is_cached(pin: str, name: str, folder: Path) -> bool:
    """Return whether a folder holds one wheel of that name, for this Python and as pinned."""
    wheels = [path for path in folder.glob("*.whl") if parse_wheel_filename(path.name)[0] == name]
    if len(wheels) != 1:
        return False
    tags = parse_wheel_filename(wheels[0].name)[3]
    digest = hashlib.sha256(wheels[0].read_bytes()).hexdigest()
    return f"--hash=sha256:{digest}" in pin and not tags.isdisjoint(sys_tags())


def oldest_glibc(wheels: list[Wheel]) -> str:
    """Return the oldest C library that all wheels run on, from what their names promise."""
    newest = (2, 17)
    for wheel in wheels:
        _, _, _, tags = parse_wheel_filename(wheel.path.name)
        promised = [
            (int(named[1]), int(named[2])) if (named := _MANYLINUX.match(tag.platform)) else _old(tag.platform)
            for tag in tags
        ]
        least = min(promised)
        newest = max(newest, least)
    return f"{newest[0]}.{newest[1]}"


def _old(platform: str) -> tuple[int, int]:
    """Return what an old name of a platform promises; ``(0, 0)`` where nothing is compiled."""
    return _OLD_MANYLINUX.get(platform.partition("_")[0], (0, 0))
