"""Builds the ``.rpm``: a spec from the description, then ``rpmbuild``."""

from __future__ import annotations

import platform
import shutil
import tempfile
from pathlib import Path

from deploy.packages.description import Description
from deploy.packages.layout import steps
from deploy.packages.running import call
from deploy.packages.tree import walk

# Script to what it does: $1 is how many of the package are there afterwards (0: it goes for good).
SCRIPTS = {
    "post": "place",
    "preun": '[ "$1" != 0 ] || retire',
    "postun": 'if [ "$1" = 0 ]; then clear_passing; tell_left; fi',
}
# The files are finished: nothing is stripped, compiled or looked through for what they provide or need. All that tells
# one build from another (time, machine, job) is fixed.
MACROS = {
    "__os_install_post": "%{nil}",
    "debug_package": "%{nil}",
    "_build_id_links": "none",
    "_buildhost": "localhost",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "source_date_epoch_from_changelog": "0",
}

# rpmbuild notes the type of each file, which has a meaning for ELF files only: a 64-bit system prefers theirs. To try
# all of libmagic's list (magic(5)) takes most of the build.
MAGIC = r"""
0 string \177ELF\001 ELF 32-bit
0 string \177ELF\002 ELF 64-bit
"""


def build(stage: Path, out: Path, described: Description, epoch: int, level: int) -> Path:
    """Make the package from a stage, and return it."""
    # Not beside the stage: rpmbuild cannot work below a folder with a space in its name.
    with tempfile.TemporaryDirectory(prefix="opsk-rpm-") as top:
        return _build_in(Path(top), stage, out, described, epoch, level)


def _build_in(top: Path, stage: Path, out: Path, described: Description, epoch: int, level: int) -> Path:
    """Make the package in a folder of its own."""
    spec = top / f"{described.name}.spec"
    spec.write_text(spec_file(stage, described), encoding="utf-8")
    magic = top / "magic"
    magic.write_text(MAGIC, encoding="ascii")
    macros = {**MACROS, "_binary_payload": f"w{max(level, 1)}.zstdio"}
    defined = [word for name, value in macros.items() for word in ("--define", f"{name} {value}")]
    call(
        *("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {top}", "--define", f"stage {stage}", *defined),
        *("--define", f"_tmppath {top}", spec),
        more={"SOURCE_DATE_EPOCH": str(epoch), "HOME": str(top), "MAGIC": str(magic)},
    )
    (made,) = (top / "RPMS").glob("*/*.rpm")
    package = out / made.name
    shutil.move(made, package)
    return package


def spec_file(stage: Path, described: Description) -> str:
    """Return the text of the spec."""
    needs = described.rpm
    head = {
        "Name": described.name,
        "Version": described.version,
        "Release": "1",
        "Summary": described.summary,
        "License": described.license,
        "Group": described.group,
        "Packager": described.maintainer,
        "BuildArch": platform.machine(),
        "AutoReqProv": "no",
    }
    lines = [f"{name}: {value}" for name, value in head.items()]
    lines += [f"Requires: {name}" for name in needs.required]
    lines += [f"Recommends: {name}" for name in needs.recommended]
    lines += [f"Suggests: {name}" for name in needs.suggested]
    lines += ["", "%description", described.text, ""]
    lines += ["%install", 'mkdir -p "%{buildroot}"', 'cp -a "%{stage}/." "%{buildroot}/"', ""]
    shared = escape(steps(stage, described))
    for name, body in SCRIPTS.items():
        lines += [f"%{name}", shared, body, "exit 0", ""]
    lines += ["%files", "%defattr(-,root,root,-)", *files(stage, described)]
    return "\n".join(lines) + "\n"


def files(stage: Path, described: Description) -> list[str]:
    """Return the lines of ``%files``: folders of our own as a whole, in the system's folders each file by itself."""
    own = {described.home.lstrip("/"), f"usr/share/{described.name}", f"usr/share/doc/{described.name}"}
    lines = [f'"/{folder}"' for folder in sorted(own)]
    for path in walk(stage):
        inner = path.relative_to(stage).as_posix()
        is_ours = any(inner == folder or inner.startswith(f"{folder}/") for folder in own)
        if not is_ours and (path.is_symlink() or not path.is_dir()):
            lines.append(f'"/{inner}"')
    return lines


def escape(text: str) -> str:
    """Return text of which rpm takes nothing for a macro."""
    return text.replace("%", "%%")
