"""Reads how sure each sign is by itself: ``weights.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from opsk.postmortem.values import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Probability to have been the root when nothing else speaks [ratio], by signature, Xid class, Slurm's state."""

    signature: Mapping[str, float]
    xid_class: Mapping[str, float]
    slurm_state: Mapping[str, float]
    other: Mapping[str, float]
    hangs: Mapping[str, float]
    end: Mapping[str, float]

    def of(self, finding: Finding) -> float:
        """Return the weight of one finding."""
        if finding.signature == "kernel.xid":
            return self.xid_class.get(finding.fields.get("class", ""), self.other["default"])
        if finding.signature == "slurm.cancelled" and finding.fields.get("level") == "STEP":
            return self.other["step_cancelled"]
        return self.signature.get(finding.signature, self.other["default"])


@cache
def load_weights() -> Weights:
    """Return the table."""
    text = (files("opsk.postmortem.reasoning") / "weights.toml").read_text("utf-8")
    tables = tomllib.loads(text)
    return Weights(
        **{name: tables[name] for name in ("signature", "xid_class", "slurm_state", "other", "hangs", "end")}
    )
