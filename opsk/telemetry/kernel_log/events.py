"""Defines the types of events in a kernel log; what a line does not state is ``None``.

Text that a process or a device chose (names, paths) is escaped and truncated; see `sanitise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from opsk.hardware.xids import RecoveryAction, Sxid, Xid, nvlink5_xid, parse_recovery_action, sxid, xid
from opsk.telemetry.kernel_log.lines import Stamp
from opsk.text import escape

_LONGEST_TEXT = 400


def sanitise(text: str, limit: int = _LONGEST_TEXT) -> str:
    """Return hostile text cut to ``limit`` characters, with escapes in place of what cannot be printed."""
    return escape(text[:limit])


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEvent:
    """The fields that all events have.

    Parameters
    ----------
    at
        When it was written, and by which clock.
    text
        The message, cut.
    host
        Host that the line names.
    sequence, line
        Number of the record in the kernel's buffer; of the line in its file.
    """

    at: Stamp
    text: str
    host: str | None = None
    sequence: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NvlinkFields:
    """The fields of an NVLink 5 Xid message.

    Parameters
    ----------
    unit
        Part of the link that reports (``NETIR_LINK_EVT``).
    fatal
        Whether the message states fatal or not; ``None`` when it states neither.
    cross_contain, injected
        Whether errors were contained across the link; whether the error was injected by a test.
    link
        Number of the link; ``None`` when it is none in particular (-1).
    words
        Interrupt information, status, and details.
    """

    unit: str
    fatal: bool | None = None
    cross_contain: bool | None = None
    injected: bool | None = None
    link: int | None = None
    words: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent(KernelEvent):
    """An Xid of a GPU.

    Parameters
    ----------
    pci
        Address of the GPU in the kernel's form (``0000:1a:00.0``).
    code
        The Xid.
    pid, process
        Process that the message names.
    mig_instance
        GPU instance (MIG) that the message names.
    rest
        The rest of the message.
    gpu_uuid
        ``GPU-...``, where an earlier line of the log gave the address's UUID.
    """

    pci: str
    code: int
    pid: int | None = None
    process: str | None = None
    mig_instance: int | None = None
    rest: str = ""
    nvlink: NvlinkFields | None = None
    gpu_uuid: str | None = None

    @property
    def entry(self) -> Xid:
        """The catalogue's entry, unit and words of NVLink 5 included."""
        if self.nvlink is None:
            return xid(self.code)
        return nvlink5_xid(self.code, self.nvlink.unit, self.nvlink.words, fatal=self.nvlink.fatal)

    @property
    def recovery(self) -> RecoveryAction | None:
        """The recovery action that an Xid 154 names."""
        return parse_recovery_action(self.rest) if self.code == 154 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FallenOffBusEvent(KernelEvent):
    """A GPU no longer answers on PCIe, reported without an Xid."""

    pci: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SxidEvent(KernelEvent):
    """An error of an NVSwitch, from the kernel or from the fabric manager's log.

    ``fatal`` is as the message states; ``switch`` is the driver's number of it, ``link`` the port.
    """

    pci: str
    code: int
    fatal: bool | None = None
    switch: int | None = None
    link: int | None = None
    rest: str = ""

    @property
    def entry(self) -> Sxid:
        """The catalogue's entry."""
        return sxid(self.code)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverEvent(KernelEvent):
    """An error of the NVIDIA driver that is no Xid.

    Parameters
    ----------
    kind
        ``init_failed``, ``probe_failed``, ``assert``, ``gsp``, ``gsp_timeout``, ``peermem`` or ``uvm``.
    pci, gpu
        Address, or the driver's own number of the GPU.
    error
        Error codes that the message names.
    """

    kind: str
    pci: str | None = None
    gpu: int | None = None
    error: str | None = None


class Severity(StrEnum):
    """How bad an error of PCIe or memory was."""

    CORRECTED = "corrected"
    NON_FATAL = "non_fatal"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class PcieErrorEvent(KernelEvent):
    """An error that a PCIe port or device reported.

    Parameters
    ----------
    kind
        ``error`` (the device's own account), ``received`` (a port passed on that there is one: most often followed by
        the account), ``recovery_failed``, ``recovered``, ``containment`` (DPC took the link down) or ``link_down``.
    pci, driver
        Device with the error, and the driver that holds it (``nvidia``, ``mlx5_core``).
    layer
        ``Physical Layer``, ``Data Link Layer``, ``Transaction Layer``.
    """

    kind: str
    pci: str | None = None
    driver: str | None = None
    severity: Severity | None = None
    layer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryErrorEvent(KernelEvent):
    """An error of host memory or processor: ``kind`` is ``edac``, ``mce``, ``apei`` or ``page`` (taken out of use)."""

    kind: str
    severity: Severity | None = None
    count: int = 1
    where: str = ""


class LinkState(StrEnum):
    """State of a network port."""

    UP = "up"
    INIT = "init"
    """The port trains, or waits for its subnet manager: at start this is no loss."""
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class NicEvent(KernelEvent):
    """What happened to a network port.

    Parameters
    ----------
    kind
        ``link``, ``health``, ``cable`` (module or cable error), ``module`` (plugged or not), ``power``,
        ``temperature`` or ``command`` (the firmware did not answer).
    pci, device, netdev
        Whatever the line names it by; device is the RDMA device (``mlx5_0``).
    port
        Number of the port.
    state
        For links.
    """

    kind: str
    pci: str | None = None
    device: str | None = None
    netdev: str | None = None
    port: int | None = None
    state: LinkState | None = None


class OomScope(StrEnum):
    """Whose memory ran out."""

    CGROUP = "cgroup"
    NODE = "node"
    NUMA = "numa"
    """Of the NUMA nodes that the process may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OomEvent(KernelEvent):
    """The kernel ended a process because memory ran out.

    Parameters
    ----------
    pid, process, uid
        The victim.
    scope
        Whose memory ran out.
    cgroup, limit_cgroup
        Cgroup of the victim; cgroup whose limit was reached (for ``OomScope.CGROUP``).
    rss_bytes
        Anonymous memory that the victim held [bytes].
    """

    pid: int | None = None
    process: str | None = None
    uid: int | None = None
    scope: OomScope | None = None
    cgroup: str | None = None
    limit_cgroup: str | None = None
    rss_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HungTaskEvent(KernelEvent):
    """A task or processor is stuck.

    ``kind`` is ``hung_task``, ``soft_lockup``, ``hard_lockup`` or ``rcu_stall``.
    """

    kind: str
    pid: int | None = None
    process: str | None = None
    blocked_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashEvent(KernelEvent):
    """A process broke a rule of the processor: ``kind`` is ``segfault`` or the name of the trap."""

    kind: str
    pid: int
    process: str
    library: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PanicEvent(KernelEvent):
    """The kernel gave up."""
