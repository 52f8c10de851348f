"""Finds which assumed values are guesses, which make predictions less certain.

A value that nobody stated is always listed as assumed. It is a guess only where it may be something else. Features that
are off unless requested, and the defaults of a framework's argument parser, are certain once the whole command line was
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from opsk.workload.defaults import MEGATRON_DEEPSPEED, MEGATRON_LM, Assumption
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.frameworks.megatron.megatron import ALL_READ, COMMAND

_OFF_UNLESS_ASKED = frozenset({"plan.tp", "plan.pp", "plan.vpp", "plan.cp", "plan.ep", "model.experts"})
_BY_PARSER = frozenset(
    {"plan.global_batch", "plan.sharding", "plan.recompute", "plan.precision", "model.ffn", "model.top_k"}
)
"""Fields whose defaults are those of ``megatron/training/arguments.py``."""
_COUNTED_AS = {"gpu": "cluster.gpu"}
"""Assumptions that the cost model knows under another name."""


def find_guesses(workload: Workload, assumed: Iterable[Assumption]) -> Iterator[str]:
    """Yield the fields of ``assumed`` that are uncertain, by the names that the cost model uses."""
    is_read = (COMMAND, ALL_READ) in workload.options and workload.framework in (MEGATRON_LM, MEGATRON_DEEPSPEED)
    known = _OFF_UNLESS_ASKED | _BY_PARSER if is_read else _OFF_UNLESS_ASKED
    for entry in assumed:
        if entry.field not in known:
            yield _COUNTED_AS.get(entry.field, entry.field)
