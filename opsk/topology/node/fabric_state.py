"""Which multi-node NVLink domain does a GPU say that it is in? ClusterUUID and CliqueId, as its driver states them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_UUID = re.compile(r"[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}")
_ABSENT = frozenset({"", "n/a", "not supported", "not available", "none", "unknown error", "invalid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricState:
    """What the section ``Fabric`` of ``nvidia-smi -q`` says, word for word; ``None`` where it says nothing."""

    state: str | None = None
    status: str | None = None
    clique: str | None = None
    cluster: str | None = None

    @property
    def domain(self) -> str | None:
        """Return ``ClusterUUID.CliqueId``; ``None`` without either, with a UUID of zeros, or while not registered.

        A node without NVLink to other nodes says a UUID of zeros.
        """
        cluster, clique = (self.cluster or "").strip(), (self.clique or "").strip()
        if not _UUID.fullmatch(cluster) or not clique.isdecimal() or not int(cluster.replace("-", ""), 16):
            return None
        if self.state and self.state.strip().lower() not in _ABSENT | {"completed"}:
            return None
        return f"{cluster.lower()}.{int(clique)}"

    @property
    def problem(self) -> str | None:
        """Return what is wrong with the registration; ``None`` when nothing is, or the GPU has no fabric."""
        state, status = (self.state or "").strip(), (self.status or "").strip()
        if state.lower() in _ABSENT:
            return None
        if state.lower() != "completed":
            return f"fabric registration is {state}: it is in no NVLink domain now"
        if status.lower() not in _ABSENT | {"success"}:
            return f"fabric registration ended with {status}"
        return None
