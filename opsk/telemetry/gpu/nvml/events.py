"""Which XID errors do the GPUs report while we listen? NVML's events, without any right on the kernel log.

A thread of its own waits in NVML and hands each event to a callback. It registers all GPUs anew when the driver went
away, when a GPU was lost (the others go on), and when it is told to let go of NVML for a while. GPUs that come back are
added to those that are listened to: nobody stops listening for them.
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

from opsk.telemetry.gpu.nvml.calls import TIMEOUT, code_of, load, text, whole
from opsk.telemetry.gpu.samples import GpuDriverMissingError, normalise_pci

_XID = 0x8
_WAIT_MS = 500
_PAUSE_S = 3.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 60.0
_LOOK_AGAIN_S = 600.0
"""This seldom it is asked whether a GPU has come back that could not be registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidEvent:
    """One XID; ``gpu`` and ``pci`` are ``None`` when NVML does not tell whose it is."""

    code: int
    at_unix_s: float
    gpu: str | None = None
    pci: str | None = None


class _End(Enum):
    """How a listening ended."""

    NOTHING_THERE = auto()
    NVML_FAILED = auto()
    WANTED = auto()


class NvmlEvents:
    """Listens for XIDs until it is stopped.

    Parameters
    ----------
    saw
        Called with each event, in the listener's thread.
    nvml
        The ``pynvml`` module; loaded when it is not given.
    clock
        Seconds since 1970.
    """

    def __init__(
        self, saw: Callable[[XidEvent], None], nvml: Any = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._saw = saw
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
        """End listening: the thread ends when NVML lets it go."""
        for each in (self._stopped, self._paused, self._resumed):
            each.set()

    def pause(self) -> bool:
        """Let go of NVML until ``resume``; return whether that is done: a hanging NVML lets nobody go."""
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
            # Nobody hears the events of a pause: there is none where nothing is wrong.
            if end is not _End.WANTED and not self._paused.is_set():
                self._stopped.wait(backoff_s)

    def _listen(self) -> _End:
        """Listen until something ends it; return what."""
        if self._paused.is_set():
            return _End.WANTED
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
        except Exception:  # noqa: BLE001 - the reader of the GPUs tells what is wrong with NVML; here it is begun anew
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
                if _address(handle) not in self._owners:
                    nvml.nvmlDeviceRegisterEvents(handle, _XID, events)
                    self._owners[_address(handle)] = self._owner(handle)
        return bool(self._owners)

    def _owner(self, handle: Any) -> tuple[str | None, str | None]:
        """Return UUID and PCI address of a GPU: asked while it is well, since a lost one tells neither."""
        uuid = pci = None
        with contextlib.suppress(Exception):
            uuid = text(self._nvml.nvmlDeviceGetUUID(handle))
        with contextlib.suppress(Exception):
            pci = normalise_pci(text(self._nvml.nvmlDeviceGetPciInfo(handle).busId) or "")
        return uuid, pci

    def _wait(self, events: Any) -> _End:
        """Hand on events until NVML fails or somebody wants it."""
        look_at = time.monotonic() + _LOOK_AGAIN_S
        while not (self._paused.is_set() or self._stopped.is_set()):
            try:
                if time.monotonic() >= look_at:
                    self._register(events)
                    look_at = time.monotonic() + _LOOK_AGAIN_S
                event = self._nvml.nvmlEventSetWait_v2(events, _WAIT_MS)
            except Exception as error:  # noqa: BLE001 - whatever pynvml raises
                if code_of(error) == TIMEOUT:
                    continue
                return _End.NVML_FAILED
            code = whole(int(event.eventData))
            if int(event.eventType) & _XID and code is not None:
                gpu, pci = self._owners.get(_address(event.device), (None, None))
                self._saw(XidEvent(code=code, at_unix_s=self._clock(), gpu=gpu, pci=pci))
        return _End.WANTED


def _address(handle: Any) -> int:
    """Return what identifies a handle: the pointer behind it."""
    contents = getattr(handle, "contents", None)
    if contents is None:
        return id(handle)
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
