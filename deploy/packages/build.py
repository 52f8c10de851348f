"""Builds a release: ``python -m deploy.packages.build --out DIST``: wheel, sources, tree, .deb, .rpm, SBOM, sums.

What comes out depends on the checkout, the lock, the release of Python and ``SOURCE_DATE_EPOCH`` (default: the time of
the last commit), not on when, where and by whom it is built.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from deploy.packages import archive, deb, description, layout, rpm, sbom, tree, wheels
from deploy.packages.running import StepError, call, say

ROOT = Path(__file__).resolve().parent.parent.parent
MAX_LEVEL = 9
"""The level at which a release is compressed."""
DOCUMENTS = ("LICENSE", "CHANGELOG.md", "README.md")
PROGRAMS = {".deb": "dpkg-deb", ".rpm": "rpmbuild"}
"""Kind of package to the program that makes it; without the program that kind is left out, and that is said."""


def source_epoch(root: Path) -> int:
    """Return the time that all files get [s since 1970]: ``SOURCE_DATE_EPOCH``, else that of the last commit."""
    stated = os.environ.get("SOURCE_DATE_EPOCH")
    if stated:
        return int(stated)
    return int(call("git", "-C", root, "log", "-1", "--format=%ct"))


def build(root: Path, out: Path, cache: Path, epoch: int, level: int = MAX_LEVEL) -> list[Path]:
    """Build everything from a checkout into ``out``; return the files, sums last.

    Parameters
    ----------
    root
        The checkout.
    out
        Folder of what is built; what an earlier build left there goes first.
    cache
        Folder of the wheels of others; what is there already is not fetched again.
    epoch
        Time that all files get [s since 1970].
    level
        How hard to compress, 1 to 9; 0 stores the tree as it is.
    """
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("opsk[-_]*"), out / "SHA256SUMS"):
        old.unlink(missing_ok=True)
    say("wheel and sources")
    sources, own = wheels.build(root, out, epoch)
    say("wheels of requirements.lock")
    packed = wheels.gather(own, root / "requirements.lock", cache)
    version = packed[0].version
    files = [sources, own, sbom.write(packed, out / f"opsk-{version}.cdx.json", epoch)]
    described = description.read(version, wheels.oldest_glibc(packed))
    with tempfile.TemporaryDirectory(prefix="opsk-packages-", dir=out) as work:
        place = Path(work)
        documents = place / "documents"
        documents.mkdir()
        for name in DOCUMENTS:
            shutil.copy(root / name, documents)
        shutil.copy(files[-1], documents / "sbom.cdx.json")
        (documents / "LICENSE").rename(documents / "copyright")
        say("tree")
        tree.build(place / "tree", packed, sorted(documents.iterdir()), epoch)
        top = f"opsk-{version}-python{description.PYTHON}-{platform.machine()}"
        files.append(archive.build(place / "tree", out / f"{top}.tar.gz", top, epoch, level))
        layout.stage_package(place / "tree", place / "stage", described, epoch)
        for module, suffix in ((deb, ".deb"), (rpm, ".rpm")):
            if shutil.which(PROGRAMS[suffix]) is None:
                say(f"no {suffix}: {PROGRAMS[suffix]} is not installed")
                continue
            say(suffix)
            files.append(module.build(place / "stage", out, described, epoch, level))
    return [*files, write_sums(files, out / "SHA256SUMS")]


def write_sums(files: list[Path], file: Path) -> Path:
    """Write what ``sha256sum --check`` reads, and return its file."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(files)]
    file.write_text("".join(lines), encoding="utf-8")
    return file


def main() -> int:
    """Build, and print what came out."""
    parser = argparse.ArgumentParser(description="Build wheel, tree, .deb, .rpm and SBOM from this checkout.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of what is built")
    parser.add_argument("--cache", type=Path, default=ROOT / "build" / "wheels", help="folder of fetched wheels")
    parser.add_argument(
        "--level", type=int, default=MAX_LEVEL, choices=range(MAX_LEVEL + 1), help="how hard to compress"
    )
    chosen = parser.parse_args()
    try:
        files = build(ROOT, chosen.out.resolve(), chosen.cache.resolve(), source_epoch(ROOT), chosen.level)
    except StepError as error:
        print(f"packages: {error}", file=sys.stderr)
        return 1
    for path in files:
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
