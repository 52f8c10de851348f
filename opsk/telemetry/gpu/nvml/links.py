"""Reads the NVLinks of a GPU and its place in its NVLink domain from NVML.

States, speeds, bytes and errors of all links are in the one call for fields. Hopper and newer have one field a counter,
with the link as its scope; older GPUs have field numbers for each link (and no state, version or bytes among them).
NVLink 5 counts packets and bytes as InfiniBand ports do.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from opsk import units
from opsk.telemetry.gpu.nvml.caller import (
    NO_ANSWER_NOW,
    UNSUPPORTED,
    VERSION_MISMATCH,
    NvmlCaller,
    clean_text,
    clean_whole,
    format_error_code,
    get_error_code,
)
from opsk.telemetry.gpu.nvml.fields import LINK_COUNT, Field, FieldReader, get_count
from opsk.telemetry.gpu.samples import FabricSample, NvLinkSample, normalise_pci

_STRUCTURES = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo_v4", "c_nvmlGpuFabricInfo_v4_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)
_FABRIC_STATES = ("not_supported", "not_started", "in_progress", "completed")
_COMPLETED = 3
_FAULTS = {
    "degraded_bandwidth": (0, 1),
    "route_recovery": (2, 1),
    "route_unhealthy": (4, 1),
    "access_timeout_recovery": (6, 1),
    "partition_missing": (12, 2),
    "manager_disconnected": (14, 2),
}
"""Two-bit fields of the mask: shift, and the value that means a fault; the other of 1 and 2 means none."""
_CONFIGURATION_SHIFT, _CONFIGURATION_WIDTH, _CONFIGURATION_NONE = 8, 0xF, 1
_CONFIGURATIONS = {
    2: "incorrect_system_guid",
    3: "incorrect_chassis_serial",
    4: "no_partition",
    5: "insufficient_nvlinks",
    6: "incompatible_gpu_firmware",
    7: "invalid_location",
    8: "gpu_state_invalid",
}
_SUMMARIES = {1: "healthy", 2: "unhealthy", 3: "limited_capacity"}
_POINTER_CLIQUE = 0
MAX_LINKS = 36
_SENT_KIB, _RECEIVED_KIB, _REMOTE_LINK = 138, 139, 146
_SPEED, _STATE, _VERSION = 164, 165, 166
_SENT_BYTES, _RECEIVED_BYTES = 202, 204
_SPEED_COMMON = 90
_ERRORS = {
    161: "replay",
    162: "recovery",
    163: "crc",
    206: "malformed_packet",
    207: "buffer_overrun",
    208: "receive",
    209: "receive_remote",
    210: "receive_general",
    211: "local_integrity",
    212: "transmit_discard",
    214: "recovery_failed",
    215: "recovery",
    219: "effective",
    221: "symbol",
}
"""Error counters with the link as their scope."""
_OLD_ERRORS = {"crc_flit": (32, 96), "crc_data": (39, 102), "replay": (46, 108), "recovery": (53, 114)}
"""Error counters with a number a link: of link 0 (for links 0 to 5), and of link 6 (for links 6 to 11)."""
_OLD_LINKS, _OLD_HALF = 12, 6
_STATES = ("inactive", "active", "sleep", "traffic_disabled")
_VERSIONS = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
_REMOTE_KINDS = {0: "gpu", 1: "npu", 2: "switch"}
_MOVING = (_SENT_KIB, _RECEIVED_KIB, _STATE, _SENT_BYTES, _RECEIVED_BYTES, *_ERRORS)
_STILL = (_REMOTE_LINK, _SPEED, _VERSION)
_STILL_S = 60.0
"""Interval at which properties that hardly change are read."""
_BYTES_PER_MB = 10**6


class FabricReader:
    """The fabric information of one GPU.

    NVML's structure has grown: version 3 has a health mask and its summary, version 2 the mask, the first neither;
    version 4 has a list of cliques. The newest that the driver supports is used. The mask packs small fields, each with
    a value for "not supported", which adds nothing to the sample.

    Parameters
    ----------
    ask
        Calls NVML for the GPU.
    handle
        NVML's handle of the GPU.
    """

    def __init__(self, ask: NvmlCaller, handle: object) -> None:
        self._ask = ask
        self._handle = handle
        self._forms = [form for form in _STRUCTURES if hasattr(ask.nvml, form[0]) and hasattr(ask.nvml, form[1])]

    def fabric(self) -> FabricSample | None:
        """Return the GPU's place in its fabric; ``None`` where the driver does not support it.

        Raises
        ------
        GpuLostError, SessionLostError
            As ``NvmlCaller``.
        """
        while self._forms:
            function, form = self._forms[0]
            info = getattr(self._ask.nvml, form)()
            try:
                getattr(self._ask.nvml, function)(self._handle, ctypes.byref(info))
            except Exception as error:  # noqa: BLE001 - whatever pynvml raises
                code = get_error_code(error)
                if code in UNSUPPORTED or code == VERSION_MISMATCH:
                    self._forms.pop(0)
                    continue
                if code not in NO_ANSWER_NOW:
                    self._ask.note_failure("fabric", code)
                return None
            return parse_fabric(info)
        return None


def parse_fabric(info: Any) -> FabricSample:
    """Parse one of NVML's structures."""
    state = info.state & 0xFF
    mask = getattr(info, "healthMask", 0)
    identity = uuid.UUID(bytes=bytes(info.clusterUuid))
    known = state == _COMPLETED
    return FabricSample(
        state=_FABRIC_STATES[state] if state < len(_FABRIC_STATES) else f"state_{state}",
        # Until the state is completed, status and cluster are not filled in (nvml.h).
        status=("success" if info.status == 0 else format_error_code(info.status)) if known else None,
        cluster_uuid=str(identity) if known and identity.int else None,
        clique=_find_clique(info) if known else None,
        health=parse_health(mask),
        configuration=parse_configuration(mask),
        summary=_SUMMARIES.get(getattr(info, "healthSummary", 0)),
    )


def parse_health(mask: int) -> dict[str, bool]:
    """Return the fields of a health mask that the GPU supports; true is a fault."""
    health = {
        name: value == bad for name, (shift, bad) in _FAULTS.items() if (value := (mask >> shift) & 0x3) in (1, 2)
    }
    configuration = (mask >> _CONFIGURATION_SHIFT) & _CONFIGURATION_WIDTH
    if configuration:
        health["incorrect_configuration"] = configuration != _CONFIGURATION_NONE
    return health


def parse_configuration(mask: int) -> str | None:
    """Return the fault of the configuration."""
    value = (mask >> _CONFIGURATION_SHIFT) & _CONFIGURATION_WIDTH
    return None if value <= _CONFIGURATION_NONE else _CONFIGURATIONS.get(value, f"configuration_{value}")


def _find_clique(info: Any) -> int | None:
    """Return the clique; from a list of cliques the one for pointers, which is what the single number was."""
    if hasattr(info, "cliqueId"):
        return int(info.cliqueId)
    cliques = [info.cliques[place] for place in range(min(info.numCliques, len(info.cliques)))]
    return next((int(clique.id) for clique in cliques if clique.type == _POINTER_CLIQUE), None)


class _LinkFacts(TypedDict):
    """Properties of a link that hardly change, as in ``NvLinkSample``."""

    version: str | None
    bytes_per_s: float | None
    remote_kind: str | None
    remote_pci: str | None
    remote_link: int | None


class NvLinkReader:
    """The links of one GPU.

    Parameters
    ----------
    ask
        Calls NVML for the GPU.
    handle
        NVML's handle of the GPU.
    fields
        Reads the fields of the GPU; those of its links are added.
    clock
        Monotonic seconds.
    """

    def __init__(self, ask: NvmlCaller, handle: object, fields: FieldReader, clock: Callable[[], float]) -> None:
        self._ask = ask
        self._handle = handle
        self._links = range(_count_links(ask, handle))
        self._moving = fields
        self._clock = clock
        fields.add((number, link) for link in self._links for number in _MOVING)
        fields.add((number, 0) for link in self._links for number in _list_old_error_fields(link).values())
        still = [(number, link) for link in self._links for number in _STILL]
        self._still = FieldReader(ask, [*still, (_SPEED_COMMON, 0)] if still else [])
        self._facts: list[_LinkFacts] = []
        self._still_at: float | None = None
        self._remotes: dict[int, tuple[str | None, str | None]] = {}
        self._errors: list[list[tuple[str, Field]]] = []
        self._errors_of: tuple[Field, ...] = ()

    def links(self, values: Mapping[Field, float]) -> tuple[NvLinkSample, ...]:
        """Return the links in order; a link without a state is left out: the GPU does not have it."""
        if not self._links:
            return ()
        now = self._clock()
        if self._still_at is None or now - self._still_at >= _STILL_S:
            still = self._still.read(self._handle)
            self._facts, self._still_at = [self._read_facts(still, link) for link in self._links], now
        if self._errors_of is not self._moving.fields:
            self._errors_of = self._moving.fields
            known = frozenset(self._errors_of)
            self._errors = [_select_error_fields(link, known) for link in self._links]
        return tuple(sample for link in self._links if (sample := self._link(values, link)) is not None)

    def _link(self, values: Mapping[Field, float], link: int) -> NvLinkSample | None:
        """Return one link."""
        state = get_count(values, _STATE, link)
        if state is None:
            state = clean_whole(self._ask(f"nvlink {link} state", "nvmlDeviceGetNvLinkState", self._handle, link))
        if state is None:
            return None
        return NvLinkSample(
            link=link,
            state=_STATES[state] if state < len(_STATES) else f"state_{state}",
            received_bytes=_read_bytes(values, _RECEIVED_KIB, _RECEIVED_BYTES, link),
            transmitted_bytes=_read_bytes(values, _SENT_KIB, _SENT_BYTES, link),
            errors={kind: int(values[field]) for kind, field in self._errors[link] if field in values},
            **self._facts[link],
        )

    def _read_facts(self, still: Mapping[Field, float], link: int) -> _LinkFacts:
        """Return the properties of a link that hardly change."""
        kind, pci = self._remote(link)
        return {
            "version": _VERSIONS.get(get_count(still, _VERSION, link) or 0),
            "bytes_per_s": _read_speed(still, link),
            "remote_kind": kind,
            "remote_pci": pci,
            "remote_link": get_count(still, _REMOTE_LINK, link),
        }

    def _remote(self, link: int) -> tuple[str | None, str | None]:
        """Return kind and PCI address of the other end; read once, since cables do not move."""
        known = self._remotes.get(link)
        if known is None:
            kind = clean_whole(
                self._ask(f"nvlink {link} kind", "nvmlDeviceGetNvLinkRemoteDeviceType", self._handle, link)
            )
            info: Any = self._ask(f"nvlink {link} remote", "nvmlDeviceGetNvLinkRemotePciInfo", self._handle, link)
            address = clean_text(getattr(info, "busId", None)) or ""
            known = self._remotes[link] = (_REMOTE_KINDS.get(-1 if kind is None else kind), normalise_pci(address))
        return known


def _count_links(ask: NvmlCaller, handle: object) -> int:
    """Return how many links the GPU has; where the driver does not count them, as many as have a state."""
    counted = FieldReader(ask, [(LINK_COUNT, 0)]).read(handle).get((LINK_COUNT, 0))
    if counted is not None:
        return max(0, min(int(counted), MAX_LINKS))
    links = 0
    while links < MAX_LINKS and ask(f"nvlink {links} state", "nvmlDeviceGetNvLinkState", handle, links) is not None:
        links += 1
    return links


def _list_old_error_fields(link: int) -> dict[str, int]:
    """Return the numbers of the fields that count the errors of a link before Hopper."""
    if link >= _OLD_LINKS:
        return {}
    half, place = divmod(link, _OLD_HALF)
    return {kind: starts[half] + place for kind, starts in _OLD_ERRORS.items()}


def _read_speed(values: Mapping[Field, float], link: int) -> float | None:
    """Return a link's speed in one direction; fields have MB/s."""
    speed = get_count(values, _SPEED, link)
    if speed is None:
        speed = get_count(values, _SPEED_COMMON)
    return None if speed is None else float(speed * _BYTES_PER_MB)


def _read_bytes(values: Mapping[Field, float], kib: int, plain: int, link: int) -> int | None:
    """Return bytes moved since the driver was loaded: counted in KiB before NVLink 5, in bytes from it on."""
    moved = get_count(values, kib, link)
    return get_count(values, plain, link) if moved is None else moved * units.KIB


def _select_error_fields(link: int, known: frozenset[Field]) -> list[tuple[str, Field]]:
    """Return which fields count the errors of a link, by kind: old ones only where there is no newer of that kind."""
    fields: dict[str, Field] = {}
    for number, kind in _ERRORS.items():
        if (number, link) in known:
            fields.setdefault(kind, (number, link))
    crc = "crc" in fields
    for kind, number in _list_old_error_fields(link).items():
        if (number, 0) in known and not (crc and kind.startswith("crc_")):
            fields.setdefault(kind, (number, 0))
    return list(fields.items())
