"""What do kernel logs say that is no event of a GPU, link or memory: file systems and disks, by signatures as data?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC
from functools import cache

from opsk.postmortem.logs.gathering import TEXT_CHARS, Gathered
from opsk.postmortem.logs.lines import fields_of
from opsk.postmortem.signatures.signature import Signature, signatures
from opsk.postmortem.values import Origin, Place, Sign
from opsk.telemetry.kernel_log import LineReader
from opsk.telemetry.kernel_log.lines import KernelLine

_DAEMONS = ("mmfs",)
"""Programs that speak for a file system of the kernel, in the journal."""


@cache
def _of_kernels() -> tuple[Signature, ...]:
    """Return the signatures that are looked for in kernel logs."""
    return tuple(each for each in signatures() if each.origin is Origin.KERNEL)


class KernelTexts:
    """Looks at the lines of a kernel log as they pass by.

    Parameters
    ----------
    reader
        Takes lines apart.
    source, node
        The log, and the node whose log it is, where lines name none.
    """

    def __init__(self, reader: LineReader, *, source: str, node: str = "") -> None:
        self._reader = reader
        self._source = source
        self._node = node
        self._gathered = Gathered()

    def passing(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines as they are."""
        for number, line in enumerate(lines, 1):
            for signature in _of_kernels():
                if any(fragment in line for fragment in signature.fragments):
                    self._take(signature, self._reader.read(line, number))
            yield line

    @property
    def signs(self) -> tuple[Sign, ...]:
        """Return what was seen so far, the same counted."""
        return tuple(self._gathered.signs.values())

    def _take(self, signature: Signature, line: KernelLine) -> None:
        """Take in a line that has a fragment, where the kernel wrote it."""
        fields = fields_of(signature, line.message)
        if fields is None or not (line.from_kernel or line.ident in _DAEMONS):
            return
        stamp, number = line.stamp, line.number or 0
        unix_s = stamp.unix_s
        if unix_s is None and stamp.wall is not None:
            unix_s = stamp.wall.replace(tzinfo=UTC).timestamp()
        self._gathered.add(
            Sign(
                signature=signature.id, role=signature.role, origin=Origin.KERNEL, failure=signature.failure,
                time_s=unix_s, place=Place(node=line.host or self._node, peer=fields.get("peer", "")), order=number,
                source=self._source, line=number, text=line.message[:TEXT_CHARS], fields=fields,
            )
        )  # fmt: skip
