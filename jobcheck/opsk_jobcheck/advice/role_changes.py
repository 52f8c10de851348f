"""Searches for changes with which a job of several models fits: settings that its script states, with other values.

Only what the script states itself is changed, in its own words: nothing is recommended that its framework, or that
release of it, may not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.roles import Phase, RoleMemory, predict_roles
from opsk.costmodel.uncertainty.verdict import compute_verdict
from opsk.hardware.spec import ClusterSpec
from opsk.workload.advice_record import Verdict
from opsk.workload.roles import ENGINE_SHARE, ENGINE_TP, RoleSet
from opsk.workload.workload import Workload

MAX_CHANGES = 2
MIN_SHARE, SHARE_STEP = 0.2, 0.05
_SETTING = re.compile(r"(?P<name>[\w.-]+[= ])(?P<value>[\w.]+)")
_ORDER = (Verdict.FITS, Verdict.TIGHT, Verdict.OOM)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChange:
    """A setting in the script's words with another value, and what the phase that then decides takes [bytes]."""

    setting: str
    verdict: Verdict
    memory_bytes: float
    phase: Phase


def find_role_changes(
    workload: Workload, roles: RoleSet, memory: RoleMemory, cluster: ClusterSpec, efficiency: Efficiency
) -> tuple[RoleChange, ...]:
    """Return changes of one setting after which the verdict is better, those that fit first."""
    now = compute_verdict(memory.binding.chance)
    if now is Verdict.FITS:
        return ()
    changes: list[RoleChange] = []
    for steps in _list_candidates(workload, roles, memory.binding.phase):
        for setting, changed in steps:
            binding = predict_roles(changed, cluster, efficiency).binding
            verdict = compute_verdict(binding.chance)
            if _ORDER.index(verdict) < _ORDER.index(now):
                change = RoleChange(
                    setting=setting, verdict=verdict, memory_bytes=binding.total.expected, phase=binding.phase
                )
                changes.append(change)
                break
    return tuple(sorted(changes, key=lambda change: _ORDER.index(change.verdict)))[:MAX_CHANGES]


def _list_candidates(workload: Workload, roles: RoleSet, phase: Phase) -> Iterator[list[tuple[str, RoleSet]]]:
    """Yield settings with values ever further from the script's, those that matter for the phase that decides."""
    options = dict(workload.options)
    engine = roles.engine
    share_text, tp_text = options.get(f"{ENGINE_SHARE}.text", ""), options.get(f"{ENGINE_TP}.text", "")
    if engine is not None and share_text and phase in (Phase.GENERATE, Phase.UPDATE, Phase.LOG_PROBS, Phase.CRITIC):
        steps = int((engine.memory_share - MIN_SHARE) / SHARE_STEP)
        if phase is Phase.GENERATE or not engine.sleeps:
            shares = [round(engine.memory_share - SHARE_STEP * step, 2) for step in range(1, steps + 1)]
            yield [
                (_respell(share_text, f"{share:g}"), replace(roles, engine=replace(engine, memory_share=share)))
                for share in shares
            ]
    if engine is not None and tp_text and phase is Phase.START:
        sizes = [engine.tp * factor for factor in (2, 4, 8) if not roles.model.heads % (engine.tp * factor)]
        yield [
            (_respell(tp_text, str(tp)), replace(roles, engine=replace(engine, tp=tp)))
            for tp in sizes
            if tp <= (workload.plan.gpus_per_node or tp)
        ]
    micro_text = next((entry.text for entry in workload.evidence if entry.field == "plan.micro_batch"), "")
    stated, trained = workload.plan.micro_batch or 1, roles.plan.micro_batch
    if phase is Phase.UPDATE and _SETTING.fullmatch(micro_text) and stated > 1:
        yield [
            (
                _respell(micro_text, str(stated // factor)),
                _with_micro_batch(roles, max(trained // factor, 1)),
            )
            for factor in (2, 4, 8, 16, 32)
            if stated % factor == 0
        ]


def _respell(text: str, value: str) -> str:
    """Return a setting of the script with another value."""
    match = _SETTING.fullmatch(text)
    return f"{match['name']}{value}" if match is not None else f"{text} → {value}"


def _with_micro_batch(roles: RoleSet, micro: int) -> RoleSet:
    """Return the roles with a smaller micro-batch, of which there are then several."""
    plan = roles.plan
    return replace(roles, plan=replace(plan, micro_batch=micro, global_batch=2 * micro * plan.dp))
