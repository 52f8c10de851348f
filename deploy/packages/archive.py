"""Packs the tree into one archive that is the same, byte for byte, in every build."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

from deploy.packages.tree import walk


def build(tree: Path, file: Path, top: str, epoch: int, level: int) -> Path:
    """Write the tree as a ``.tar.gz`` whose only folder at the top is ``top``; return the file."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = epoch
        return member

    with (
        file.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=min(level, 6), mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        tar.add(tree, top, recursive=False, filter=plain)
        for path in walk(tree):
            tar.add(path, f"{top}/{path.relative_to(tree)}", recursive=False, filter=plain)
    return file
