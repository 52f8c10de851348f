"""Reads ``package.toml``, with the release of Python and of the C library filled in."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parent / "package.toml"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The release that builds is the one that the packages need: compiled parts are made for one release."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What other packages one kind of package asks for."""

    required: tuple[str, ...]
    recommended: tuple[str, ...]
    suggested: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Files of ``share/opsk`` that the system's own programs look for elsewhere."""

    patterns: tuple[str, ...]
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """One package, whatever its form."""

    name: str
    version: str
    summary: str
    text: str
    license: str
    maintainer: str
    section: str
    group: str
    home: str
    deb: Needs
    rpm: Needs
    files: tuple[Placed, ...]
    links: Mapping[str, str]
    settings: tuple[str, ...]
    records: tuple[str, ...]
    passing: tuple[str, ...]


def read(version: str, glibc: str, file: Path = FILE) -> Description:
    """Return what the file says of this version.

    Parameters
    ----------
    version
        Version of opsk.
    glibc
        Oldest release of the C library that the compiled parts run on, as ``2.28``.
    file
        The description.
    """
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    values = {"python": PYTHON, "glibc": glibc}

    def needs(kind: str, required: str) -> Needs:
        part = data[kind]
        return Needs(
            required=tuple(line.format(**values) for line in part[required]),
            recommended=tuple(part["recommends"]),
            suggested=tuple(part["suggests"]),
        )

    return Description(
        name=data["name"],
        version=version,
        summary=data["summary"],
        text=data["description"].strip(),
        license=data["license"],
        maintainer=data["maintainer"],
        section=data["section"],
        group=data["group"],
        home=data["home"],
        deb=needs("deb", "depends"),
        rpm=needs("rpm", "requires"),
        files=tuple(Placed(patterns=tuple(part["from"]), folder=part["to"]) for part in data["files"]),
        links=dict(data["links"]),
        settings=tuple(data["written"]["settings"]),
        records=tuple(data["written"]["records"]),
        passing=tuple(data["written"]["passing"]),
    )
