"""Detects files on network file systems, where SQLite's locks do not hold and its write-ahead log cannot be shared."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = re.compile(r"\\([0-7]{3})")
_NETWORK_WORDS = (
    "9p acfs afs beegfs ceph cifs coda cvmfs2 davfs gfs gfs2 glusterfs gpfs juicefs lustre mfs ncpfs nfs nfs4 ocfs2 "
    "orangefs panfs pvfs2 quobyte s3fs smb3 smbfs sshfs virtiofs weka wekafs"
)
"""Types of file systems that several machines share; FUSE's are recognised by the part after ``fuse.``."""
_NETWORK = frozenset(_NETWORK_WORDS.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Where a file system is mounted, and its type, as the kernel names it."""

    point: str
    kind: str

    @property
    def network(self) -> bool:
        """Whether other machines write the same files."""
        return self.kind.removeprefix("fuse.") in _NETWORK


def find_mount(path: str, mountinfo: str) -> Mount | None:
    """Return what is mounted where an absolute path leads, by the text of ``/proc/self/mountinfo``.

    Of several at one place the last counts, which hides the others; lines that are none are passed over.
    """
    mount: Mount | None = None
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        place, kind = before.split(), after.split()
        if not dash or len(place) < 5 or not kind:
            continue
        point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), place[4])
        if _within(path, point) and (mount is None or len(point) >= len(mount.point)):
            mount = Mount(point=point, kind=kind[0])
    return mount


def network_mount(path: Path) -> Mount | None:
    """Return the network file system that a file is on, or would be; ``None`` when it is on a disk of this machine."""
    try:
        # Names that are no UTF-8 are escaped there neither; bytes are compared as they are.
        text = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        mount = find_mount(str(path.resolve()), text)
    except (OSError, RuntimeError):
        return None
    return mount if mount is not None and mount.network else None


def _within(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")
