"""Builds the ``.deb``: control files from the description, then ``dpkg-deb --build``."""

from __future__ import annotations

import hashlib
import platform
import shutil
from pathlib import Path

from deploy.packages.description import Description
from deploy.packages.layout import size_bytes, steps
from deploy.packages.running import call
from deploy.packages.tree import same_everywhere, walk

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64el"}
# Script of the package to what it does, by what dpkg calls it with (deb-postinst(5), deb-prerm(5), deb-postrm(5)).
SCRIPTS = {
    "postinst": "case $1 in configure | abort-*) place ;; esac",
    "prerm": "case $1 in remove | deconfigure) retire ;; esac",
    "postrm": "case $1 in\nremove) clear_passing ;;\npurge) clear_passing; clear_all ;;\nesac",
}


def build(stage: Path, out: Path, described: Description, epoch: int, level: int) -> Path:
    """Make the package from a stage, and return it."""
    architecture = ARCHITECTURES.get(platform.machine(), platform.machine())
    package = out / f"{described.name}_{described.version}_{architecture}.deb"
    control = stage / "DEBIAN"
    sums = md5sums(stage)
    size = size_bytes(stage)
    control.mkdir()
    (control / "control").write_text(control_file(described, architecture, size), encoding="utf-8")
    (control / "md5sums").write_text(sums, encoding="utf-8")
    for name, body in SCRIPTS.items():
        script = control / name
        script.write_text(f"#!/bin/sh\n{steps(stage, described)}\n{body}\nexit 0\n", encoding="utf-8")
        script.chmod(0o755)
    same_everywhere(control, epoch)
    call(
        *("dpkg-deb", "--root-owner-group", "-Zzstd", f"-z{max(level, 1)}", "--build", stage, package),
        more={"SOURCE_DATE_EPOCH": str(epoch)},
    )
    shutil.rmtree(control)
    return package


def control_file(described: Description, architecture: str, size_bytes: int) -> str:
    """Return the text of ``control`` (deb-control(5))."""
    needs = described.deb
    fields = {
        "Package": described.name,
        "Version": described.version,
        "Architecture": architecture,
        "Maintainer": described.maintainer,
        "Installed-Size": str(-(-size_bytes // 1024)),
        "Depends": ", ".join(needs.required),
        "Recommends": ", ".join(needs.recommended),
        "Suggests": ", ".join(needs.suggested),
        "Section": described.section,
        "Priority": "optional",
        "Description": described.summary,
    }
    lines = [f"{name}: {value}" for name, value in fields.items() if value]
    lines += [f" {line}" if line else " ." for line in described.text.splitlines()]
    return "\n".join(lines) + "\n"


def md5sums(stage: Path) -> str:
    """Return what ``dpkg --verify`` compares files with."""
    lines = []
    for path in walk(stage):
        if path.is_file() and not path.is_symlink():
            digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
            lines.append(f"{digest}  {path.relative_to(stage)}\n")
    return "".join(lines)
