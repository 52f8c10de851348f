"""Listens for XID errors of the GPUs through NVML's events, which need no right to read the kernel log.

A thread of its own waits in NVML and passes each event to a callback. It registers all GPUs again when the driver went
away, when a GPU was lost (the others continue), and after it was told to release NVML for a while. GPUs that come back
are added to those that are registered, without interrupting the others.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from opsk.telemetry.gpu.nvml.caller import TIMEOUT, clean_text, clean_whole, get_error_code, load
from opsk.telemetry.gpu.samples import GpuDriverMissingError, normalise_pci

_XID = 0x8
_WAIT_MS = 500
_PAUSE_S = 3.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 60.0
_LOOK_AGAIN_S = 600.0
"""Interval at which GPUs that could not be registered are tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """One XID; ``gpu`` and ``pci`` are ``None`` when NVML does not report the GPU."""

    code: int
    at_unix_s: float
    gpu: str | None = None
    pci: str | None = None


class _End(Enum):
    """Why listening ended."""

    NOTHING_THERE = auto()
    NVML_FAILED = auto()
    REQUESTED = auto()


class NvmlEvents:
    """Listens for XIDs until it is stopped.

    Parameters
    ----------
    on_event
        Called with each event, in the listener's thread.
    nvml
        The ``pynvml`` module; loaded when it is not given.
    clock
        Seconds since 1970.
    """

    def __init__(
        self, on_event: Callable[[XidEvent], None], nvml: Any = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._on_event = on_event
        self._nvml = nvml
        self._clock = clock
        self._paused = threading.Event()
        self._idle = threading.Event()
        self._resumed = threading.Event()
        self._stopped = threading.Event()
        self._idle.set()
        self._resumed.set()
        self._thread: threading.Thread | None = None
        self._owners: dict[int, tuple[str | None, str | None]] = {}

    def start(self) -> None:
        """Begin to listen."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gpu-events", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End listening: the thread ends when NVML returns."""
        for each in (self._stopped, self._paused, self._resumed):
            each.set()

    def pause(self) -> bool:
        """Release NVML until ``resume``; return whether that succeeded: it cannot while NVML hangs."""
        self._resumed.clear()
        self._paused.set()
        return self._idle.wait(_PAUSE_S)

    def resume(self) -> None:
        """Listen again."""
        self._paused.clear()
        self._resumed.set()

    def _work(self) -> None:
        """Listen, over and over."""
        backoff_s = _FIRST_BACKOFF_S
        while not self._stopped.is_set():
            self._resumed.wait()
            if self._stopped.is_set():
                return
            self._idle.clear()
            try:
                end = self._listen()
            except GpuDriverMissingError:
                end = _End.NOTHING_THERE
            finally:
                self._idle.set()
            backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S) if end is _End.NOTHING_THERE else _FIRST_BACKOFF_S
            # Events during a pause are lost: there is no pause where nothing is wrong.
            if end is not _End.REQUESTED and not self._paused.is_set():
                self._stopped.wait(backoff_s)

    def _listen(self) -> _End:
        """Listen until something ends it; return the reason."""
        if self._paused.is_set():
            return _End.REQUESTED
        if self._nvml is None:
            self._nvml = load()
        nvml, events = self._nvml, None
        try:
            nvml.nvmlInit()
        except Exception:  # noqa: BLE001 - whatever pynvml raises: no driver, no events
            return _End.NOTHING_THERE
        try:
            events, self._owners = nvml.nvmlEventSetCreate(), {}
            return self._wait(events) if self._register(events) else _End.NOTHING_THERE
        except Exception:  # noqa: BLE001 - the reader of the GPUs reports errors of NVML; the listener just restarts
            return _End.NOTHING_THERE
        finally:
            with contextlib.suppress(Exception):
                if events is not None:
                    nvml.nvmlEventSetFree(events)
            with contextlib.suppress(Exception):
                nvml.nvmlShutdown()

    def _register(self, events: Any) -> bool:
        """Register all GPUs that answer and are not registered yet; return whether there is one."""
        nvml = self._nvml
        for index in range(int(nvml.nvmlDeviceGetCount())):
            with contextlib.suppress(Exception):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                if _get_address(handle) not in self._owners:
                    nvml.nvmlDeviceRegisterEvents(handle, _XID, events)
                    self._owners[_get_address(handle)] = self._owner(handle)
        return bool(self._owners)

    def _owner(self, handle: Any) -> tuple[str | None, str | None]:
        """Read UUID and PCI address of a GPU while it is healthy, since a lost one reports neither."""
        uuid = pci = None
        with contextlib.suppress(Exception):
            uuid = clean_text(self._nvml.nvmlDeviceGetUUID(handle))
        with contextlib.suppress(Exception):
            pci = normalise_pci(clean_text(self._nvml.nvmlDeviceGetPciInfo(handle).busId) or "")
        return uuid, pci

    def _wait(self, events: Any) -> _End:
        """Pass on events until NVML fails or its release is requested."""
        look_at = time.monotonic() + _LOOK_AGAIN_S
        while not (self._paused.is_set() or self._stopped.is_set()):
            try:
                if time.monotonic() >= look_at:
                    self._register(events)
                    look_at = time.monotonic() + _LOOK_AGAIN_S
                event = self._nvml.nvmlEventSetWait_v2(events, _WAIT_MS)
            except Exception as error:  # noqa: BLE001 - whatever pynvml raises
                if get_error_code(error) == TIMEOUT:
                    continue
                return _End.NVML_FAILED
            code = clean_whole(int(event.eventData))
            if int(event.eventType) & _XID and code is not None:
                gpu, pci = self._owners.get(_get_address(event.device), (None, None))
                self._on_event(XidEvent(code=code, at_unix_s=self._clock(), gpu=gpu, pci=pci))
        return _End.REQUESTED


def _get_address(handle: Any) -> int:
    """Return what identifies a handle: the pointer behind it."""
    contents = getattr(handle, "contents", None)
    if contents is None:
        return id(handle)
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
