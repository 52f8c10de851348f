"""How sure is each kind of sign by itself? Read from the table beside this file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from opsk.postmortem.values import Sign


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Probability to have been the root when nothing else speaks [ratio], by signature, Xid class, Slurm's state."""

    signature: Mapping[str, float]
    xid_class: Mapping[str, float]
    slurm_state: Mapping[str, float]
    other: Mapping[str, float]
    hangs: Mapping[str, float]
    end: Mapping[str, float]

    def of(self, sign: Sign) -> float:
        """Return that of one sign."""
        if sign.signature == "kernel.xid":
            return self.xid_class.get(sign.fields.get("class", ""), self.other["default"])
        if sign.signature == "slurm.cancelled" and sign.fields.get("level") == "STEP":
            return self.other["step_cancelled"]
        return self.signature.get(sign.signature, self.other["default"])


@cache
def weights() -> Weights:
    """Return the table."""
    text = (files("opsk.postmortem.reasoning") / "weights.toml").read_text("utf-8")
    tables = tomllib.loads(text)
    return Weights(
        **{name: tables[name] for name in ("signature", "xid_class", "slurm_state", "other", "hangs", "end")}
    )
