"""Reads NVIDIA GPUs through NVML, the library ``nvidia-ml-py``, and listens for its XID events.

A lost GPU ends its own reading only; it stays in the reading as lost until it answers again or the process ends. When
the driver goes away (reloaded, upgraded), NVML is initialised again. There are no timeouts here: a caller with a
deadline wraps this in ``opsk.telemetry.gpu.shared_source``.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Protocol

from opsk.errors import TelemetryError
from opsk.telemetry.gpu.nvidia_pci import is_responding
from opsk.telemetry.gpu.nvml.caller import (
    TIMEOUT,
    GpuLostError,
    NvmlCaller,
    SessionLostError,
    clean_text,
    clean_whole,
    format_error_code,
    get_error_code,
    load,
)
from opsk.telemetry.gpu.nvml.device import NvmlDevice
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading, GpuSample, LostGpu, Unreadable, normalise_pci

_XID = 0x8
_WAIT_MS = 500
_PAUSE_S = 3.0
_FIRST_BACKOFF_S, _LONGEST_BACKOFF_S = 1.0, 60.0
_LOOK_AGAIN_S = 600.0
"""Interval at which GPUs that could not be registered are tried again."""
_DRIVER_NOT_LOADED, _LIBRARY_MISSING, _MISMATCH = 9, 12, 18
_FIRST_RETRY_S, _LONGEST_RETRY_S = 10.0, 600.0


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

    They need no right to read the kernel log. A thread waits in NVML and passes each event to a callback. It registers
    all GPUs again when the driver went away, when a GPU was lost (the others continue), and after it released NVML for
    a while. GPUs that come back are added to those that are registered, without interrupting the others.

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


class Events(Protocol):
    """A listener for NVML's events, which must release NVML before it can be initialised again."""

    def pause(self) -> bool:
        """Release NVML; return whether that succeeded."""
        ...

    def resume(self) -> None:
        """Resume."""
        ...


@dataclass(slots=True, kw_only=True)
class _Known:
    """The properties of a GPU that has answered once."""

    index: int
    pci: str | None
    minor: int | None
    model: str | None


class NvmlGpus:
    """Reads all NVIDIA GPUs of the node.

    Parameters
    ----------
    nvml
        The ``pynvml`` module; loaded at the first reading when it is not given.
    clock
        Monotonic seconds.
    events
        Waits for events of the same NVML.
    sysfs
        Where sysfs is mounted.
    """

    def __init__(
        self,
        nvml: Any = None,
        clock: Callable[[], float] = time.monotonic,
        events: Events | None = None,
        sysfs: Path = Path("/sys"),
    ) -> None:
        self._nvml = nvml
        self._clock = clock
        self._events = events
        self._sysfs = sysfs
        self._off_bus: set[str] = set()
        self._started = False
        self._devices: dict[str, NvmlDevice] = {}
        self._gone: dict[str, str] = {}
        self._without_handle: dict[int, str] = {}
        self._known: dict[str, _Known] = {}
        self._versions: dict[str, str | None] = {}
        self._failed: list[Unreadable] = []
        self._retry_s = _FIRST_RETRY_S
        self._listed_at = 0.0

    def gpus(self) -> GpuReading:
        """Return all GPUs: those that answer, and those that no longer do.

        Raises
        ------
        GpuDriverMissingError
            There is no NVML on this node, or no driver loaded.
        TelemetryError
            NVML is there and cannot be used.
        """
        try:
            return self._read()
        except SessionLostError:
            self._release(of_no_use=True)
        try:
            return self._read()
        except SessionLostError as error:
            self._stop()
            raise TelemetryError(f"NVML lost its driver while it was read: {error}") from error

    def close(self) -> None:
        """Release NVML."""
        self._stop()

    def _read(self) -> GpuReading:
        """Read all GPUs with NVML as it is, initialised if need be."""
        self._start()
        self._list_again_if_needed()
        samples: list[GpuSample] = []
        for uuid, device in list(self._devices.items()):
            try:
                samples.append(device.sample(self._known[uuid].index))
            except GpuLostError as error:
                self._gone[uuid] = str(error)
                self._devices.pop(uuid).close()
        failed = self._failed + [fault for device in self._devices.values() for fault in device.failures()]
        return GpuReading(
            read_at_s=self._clock(),
            driver=self._versions.get("driver"),
            nvml=self._versions.get("nvml"),
            cuda=self._versions.get("cuda"),
            gpus=tuple(samples),
            lost=self._list_lost(),
            unreadable=tuple(failed),
        )

    def _start(self) -> None:
        """Initialise NVML if it is not, and list the GPUs."""
        if self._started:
            return
        if self._nvml is None:
            self._nvml = load()
        try:
            self._nvml.nvmlInit()
        except Exception as error:
            raise _build_init_error(get_error_code(error)) from error
        self._started = True
        ask = NvmlCaller(self._nvml)
        self._versions = {
            "driver": clean_text(ask("driver version", "nvmlSystemGetDriverVersion")),
            "nvml": clean_text(ask("nvml version", "nvmlSystemGetNVMLVersion")),
            "cuda": _format_cuda(clean_whole(ask("cuda version", "nvmlSystemGetCudaDriverVersion_v2"))),
        }
        self._failed = list(ask.failures())
        self._list()

    def _stop(self) -> None:
        """Shut NVML down as far as possible."""
        for device in self._devices.values():
            device.close()
        self._devices, self._gone, self._without_handle = {}, {}, {}
        if self._started:
            self._started = False
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()

    def _release(self, *, of_no_use: bool) -> None:
        """Shut NVML down so that it restarts: it counts its users, and the listener must release it too.

        When the listener hangs, NVML is shut down only if it is of no use as it is.
        """
        free = self._events is None or self._events.pause()
        if free or of_no_use:
            self._stop()
        if self._events is not None:
            self._events.resume()

    def _list_again_if_needed(self) -> None:
        """List the GPUs again when their number changed; restart NVML, seldom, when GPUs are lost.

        A GPU that was reset or came back keeps answering "lost" to a process that has NVML open. One that had fallen
        off the bus and answers there again is tried at once.
        """
        count = self._count()
        if count != len(self._devices) + len(self._gone) + len(self._without_handle):
            self._list()
        complete = set(self._devices) >= set(self._known) and not self._without_handle
        is_back = self._is_back()
        if complete:
            self._retry_s = _FIRST_RETRY_S
        elif is_back or self._clock() - self._listed_at >= self._retry_s:
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            self._release(of_no_use=False)
            self._start()
            self._listed_at = self._clock()

    def _is_back(self) -> bool:
        """Return whether a lost GPU that did not answer on the bus does so again."""
        lost = {known.pci for uuid, known in self._known.items() if uuid not in self._devices and known.pci}
        off = {pci for pci in lost if is_responding(pci, self._sysfs) is False}
        back, self._off_bus = (self._off_bus & lost) - off, off
        return bool(back)

    def _list(self) -> None:
        """Get a handle of each GPU; one without an answer is recorded by its index."""
        for device in self._devices.values():
            device.close()
        self._devices, self._gone, self._without_handle = {}, {}, {}
        for index in range(self._count()):
            try:
                uuid, device = self._device(index)
            except GpuLostError as error:
                self._without_handle[index] = str(error)
                continue
            self._devices[uuid] = device
            facts = device.facts
            self._known[uuid] = _Known(index=index, pci=facts.pci, minor=facts.minor, model=facts.model)
        self._listed_at = self._clock()

    def _device(self, index: int) -> tuple[str, NvmlDevice]:
        """Return UUID and reader of the GPU with an index."""
        ask = NvmlCaller(self._nvml)
        handle = ask("handle", "nvmlDeviceGetHandleByIndex", index)
        uuid = None if handle is None else clean_text(ask("uuid", "nvmlDeviceGetUUID", handle))
        if uuid is None:
            raise GpuLostError(next((fault.error for fault in ask.failures()), "no_handle"))
        return uuid, NvmlDevice(self._nvml, handle, uuid, self._clock)

    def _count(self) -> int:
        """Return how many GPUs NVML counts."""
        ask = NvmlCaller(self._nvml)
        count = clean_whole(ask("count", "nvmlDeviceGetCount"))
        if count is None:
            why = next((fault.error for fault in ask.failures()), "no answer")
            raise TelemetryError(f"NVML cannot count the GPUs: {why}", hint="try nvidia-smi; see the kernel log")
        return count

    def _list_lost(self) -> tuple[LostGpu, ...]:
        """Return the GPUs that do not answer.

        An index without an answer is that of a GPU that was known there, else of any that is missing, else of a GPU
        that never answered. A GPU that is no longer listed has no index any more: the one that it had is shown.
        """
        reasons = dict(self._without_handle)
        missing = {uuid: known for uuid, known in self._known.items() if uuid not in self._devices}
        why = {uuid: self._gone.get(uuid) or reasons.pop(known.index, None) for uuid, known in missing.items()}
        lost = []
        for uuid, known in sorted(missing.items(), key=lambda item: item[1].index):
            reason = why[uuid] or (reasons.pop(min(reasons)) if reasons else "not_listed")
            lost.append(
                LostGpu(uuid=uuid, index=known.index, pci=known.pci, minor=known.minor, model=known.model, why=reason)
            )
        return (*lost, *(LostGpu(uuid=None, index=index, why=reason) for index, reason in sorted(reasons.items())))


def _build_init_error(code: int) -> TelemetryError:
    """Build the error for a failed initialisation of NVML."""
    if code == _LIBRARY_MISSING:
        return GpuDriverMissingError("NVML is not installed: no libnvidia-ml.so.1 on this node")
    if code == _DRIVER_NOT_LOADED:
        return GpuDriverMissingError("the NVIDIA driver is not loaded", hint="modprobe nvidia; see the kernel log")
    if code == _MISMATCH:
        return TelemetryError(
            "NVML and the loaded driver are of different versions: the driver was upgraded under a running system",
            hint="reload the driver or reboot the node, then restart the exporter",
        )
    return TelemetryError(
        f"NVML cannot be initialised: {format_error_code(code)}", hint="try nvidia-smi; see the kernel log"
    )


def _format_cuda(version: int | None) -> str | None:
    """Return ``12.8`` for 12080."""
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"
