"""Writes the bill of materials: every wheel by name, version, hash and licence, as CycloneDX 1.6."""

from __future__ import annotations

import hashlib
import json
import uuid
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from deploy.packages.wheels import EXTRAS, Wheel

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
"""That of URLs (RFC 9562, 6.6): the document's number follows from its content."""
_PREFIX = "License :: OSI Approved :: "


def document(wheels: list[Wheel], epoch: int) -> dict[str, Any]:
    """Return the bill of materials of these wheels, the first of which is opsk's."""
    own, *others = wheels
    components = [component(wheel, "library") for wheel in others]
    content = {
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(own, "application"),
        },
        "components": components,
        "dependencies": dependencies(wheels),
    }
    number = uuid.uuid5(_NAMESPACE, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        **content,
    }


def component(wheel: Wheel, kind: str) -> dict[str, Any]:
    """Return what is said of one wheel; shared libraries that it brings along are named in it."""
    said: dict[str, Any] = {
        "type": kind,
        "bom-ref": reference(wheel),
        "name": wheel.name,
        "version": wheel.version,
        "description": " ".join((wheel.metadata["Summary"] or "").split()),
        "purl": reference(wheel),
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.path.read_bytes()).hexdigest()}],
    }
    licenses = licences(wheel)
    if licenses:
        said["licenses"] = licenses
    inner = libraries(wheel)
    if inner:
        said["components"] = inner
    return said


def licences(wheel: Wheel) -> list[dict[str, Any]]:
    """Return a wheel's licences: the expression where it has one, else the names that it gives."""
    expression = wheel.metadata["License-Expression"]
    if expression:
        return [{"expression": expression}]
    classified = [
        line.removeprefix(_PREFIX) for line in wheel.metadata.get_all("Classifier") or [] if line.startswith(_PREFIX)
    ]
    words = (wheel.metadata["License"] or "").strip()
    # Some put the whole text there: its first line is as good a name as there is.
    given = [words.splitlines()[0]] if words else []
    return [{"license": {"name": name}} for name in classified or given]


def libraries(wheel: Wheel) -> list[dict[str, Any]]:
    """Return the shared libraries of others that a wheel brings along (``NAME.libs``, as auditwheel leaves them)."""
    found = []
    with zipfile.ZipFile(wheel.path) as archive:
        for name in sorted(archive.namelist()):
            folder, _, file = name.rpartition("/")
            if folder.endswith(".libs") and ".so" in file:
                digest = hashlib.sha256(archive.read(name)).hexdigest()
                found.append({"type": "file", "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]})
    return found


def dependencies(wheels: list[Wheel]) -> list[dict[str, Any]]:
    """Return who needs whom among the wheels, with all extras that anybody asks for."""
    by_name = {wheel.name: wheel for wheel in wheels}
    extras: dict[str, set[str]] = {name: set() for name in by_name}
    extras[wheels[0].name].update(EXTRAS)
    needed: dict[str, set[str]] = {}
    todo = [wheels[0].name]
    while todo:
        name = todo.pop()
        needed[name] = set()
        for need in by_name[name].needs(frozenset(extras[name])):
            other = canonicalize_name(need.name)
            is_news = other not in needed or not set(need.extras) <= extras[other]
            extras[other].update(need.extras)
            if other != name:
                needed[name].add(other)
            if is_news:
                todo.append(other)
    return [
        {"ref": reference(by_name[name]), "dependsOn": sorted(reference(by_name[other]) for other in needed[name])}
        for name in sorted(needed)
    ]


def reference(wheel: Wheel) -> str:
    """Return the package URL of a wheel."""
    return f"pkg:pypi/{wheel.name}@{wheel.version}"


def write(wheels: list[Wheel], file: Path, epoch: int) -> Path:
    """Write the document, and return its file."""
    file.write_text(json.dumps(document(wheels, epoch), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return file
