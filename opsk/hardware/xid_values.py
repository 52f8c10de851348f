"""Defines the values that describe Xids, NVLink 5 errors, recovery actions and SXids."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class XidClass(StrEnum):
    """The action that an Xid requires of the operators, mildest first."""

    INFO = "info"
    """Nothing to do."""
    CASCADE = "cascade"
    """Follows another fault; never a root cause."""
    APP = "app"
    """Most likely an application fault: restart the job, no drain unless repeated on one GPU."""
    WATCH = "watch"
    """Record; act if it comes again."""
    RESET_WHEN_IDLE = "reset_when_idle"
    """Jobs may go on; the GPU is reset once it is idle."""
    RESET = "reset"
    """Drain the GPU's jobs, reset it, return it if diagnostics pass."""
    DRAIN = "drain"
    """Drain the node now; reset and diagnostics before it returns."""
    REBOOT = "reboot"
    """Drain and restart (power-cycle) the node."""
    SERVICE = "service"
    """Hardware must be serviced."""
    NVLINK = "nvlink"
    """Depends on unit and status word; see `nvlink5`."""
    SUMMARY = "summary"
    """The driver's own summary: see `parse_recovery_action`."""
    UNUSED = "unused"
    """NVIDIA calls the code unused from Ampere on."""
    UNKNOWN = "unknown"
    """Not in the catalogue."""


class Suspect(StrEnum):
    """The most likely faulty component."""

    APPLICATION = "application"
    DRIVER = "driver"
    FIRMWARE = "firmware"
    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"
    NVLINK = "nvlink"
    C2C = "c2c"
    PCIE = "pcie"
    POWER = "power"
    NONE = "none"
    """The code does not identify a cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One code of the catalogue, or a placeholder for a code that is not in it.

    Parameters
    ----------
    code, name
        Number, and NVIDIA's mnemonic (empty when it is not known).
    meaning
        One line.
    class_, suspect
        The classification of opsk.
    immediate, follow_up
        NVIDIA's resolution buckets (``RESET_GPU``); empty where NVIDIA states none. `guidance` describes one.
    action
        Description of what to do.
    source
        Where it was read.
    """

    code: int
    name: str
    meaning: str
    class_: XidClass
    suspect: Suspect
    immediate: str
    follow_up: str
    action: str
    source: str

    @property
    def known(self) -> bool:
        """Whether the catalogue has the code."""
        return self.class_ is not XidClass.UNKNOWN

    @property
    def may_be_root(self) -> bool:
        """Whether the code can be a root cause, not a consequence or a notice."""
        return self.class_ not in {XidClass.CASCADE, XidClass.INFO, XidClass.SUMMARY, XidClass.UNUSED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvlink5:
    """The row of NVIDIA's table for one Xid from 144 to 150, by its unit and words.

    Parameters
    ----------
    severity
        ``fatal`` (the GPU), ``link_fatal`` (all links of the GPU are drained) or ``non_fatal``.
    origin
        ``hw``, ``sw``, ``hw_sw`` (either), ``fw`` or ``na``.
    immediate, follow_up
        NVIDIA's resolution buckets.
    peer
        Whether to inspect the device at the other end of the link, not this GPU.
    class_
        The class that follows from severity and immediate action.
    """

    severity: str
    origin: str
    immediate: str
    follow_up: str
    peer: bool
    class_: XidClass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryAction:
    """The recovery action that the driver requests: value and name as in NVML (``node_reboot``), and its class."""

    value: int | None
    name: str
    class_: XidClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sxid:
    """One error code of an NVSwitch; ``severity`` is ``non_fatal``, ``fatal`` (a port), ``always_fatal`` or unknown."""

    code: int
    name: str
    severity: str
    source: str

    @property
    def known(self) -> bool:
        """Whether the catalogue has the code."""
        return bool(self.source)
