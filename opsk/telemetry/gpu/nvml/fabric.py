"""Reads the state of a GPU in its NVLink domain from NVML's fabric information.

The structure has grown: version 3 has a health mask and its summary, version 2 the mask, the first neither; version 4
has a list of cliques. The newest that the driver supports is used. The mask packs small fields, each with a value for
"not supported", which adds nothing to the sample.
"""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

from opsk.telemetry.gpu.nvml.caller import (
    NO_ANSWER_NOW,
    UNSUPPORTED,
    VERSION_MISMATCH,
    NvmlCaller,
    format_error_code,
    get_error_code,
)
from opsk.telemetry.gpu.samples import FabricSample

_STRUCTURES = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo_v4", "c_nvmlGpuFabricInfo_v4_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)
_STATES = ("not_supported", "not_started", "in_progress", "completed")
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


class FabricReader:
    """The fabric information of one GPU.

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
                    self._ask.failed("fabric", code)
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
        state=_STATES[state] if state < len(_STATES) else f"state_{state}",
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
