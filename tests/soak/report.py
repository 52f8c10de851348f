"""Renders a soak's report: a table for people with the time line of faults, and one JSON document."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from tests.soak.running import Result

MOST_SHOWN = 12


def document(result: Result) -> dict[str, Any]:
    """Return all of it for programs."""
    soaked = result.soaked
    return {
        "seed": soaked.plan.seed,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(result.began_s)),
        "wall_s": {name: round(seconds, 1) for name, seconds in result.wall_s.items()},
        "nodes": result.size.nodes,
        "jobs": soaked.plan.job_count,
        "submissions": len(soaked.plan.jobs),
        "kinds": dict(Counter(job.kind.name for job in soaked.plan.jobs)),
        "holds": all(check.holds for check in result.checks),
        "skipped": result.not_here,
        "checks": [
            {"name": check.name, "holds": check.holds, "looked_at": check.looked_at, "wrong": check.wrong}
            for check in result.checks
        ],
        "faults": [
            {"at_s": round(fault.began_s - result.began_s, 1), "took_s": round(fault.ended_s - fault.began_s, 1),
             "name": fault.name, "what": fault.what}
            for fault in soaked.faults
        ],
        "broken": [
            {"node": node, "act": act, "at_s": round(from_s - result.began_s, 1), "took_s": round(until_s - from_s, 1)}
            for node, act, from_s, until_s in soaked.submissions.broken
        ],
        "growth": [
            {"name": each.name, "pid": each.pid, "lived_s": each.lived_s, "rss_bytes": list(each.rss_bytes),
             "files": list(each.files), "flat": each.is_flat}
            for each in soaked.gauges.growths()
        ],
        "ended_by_themselves": list(soaked.site.daemons.ended_by_themselves),
    }  # fmt: skip


def table(said: dict[str, Any]) -> str:
    """Return the same for people."""
    took = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in said["wall_s"].items())
    lines = [
        f"soak of {said['nodes']} nodes, {said['jobs']} jobs, seed {said['seed']}, began {said['began']} ({took})", "",
        "faults, from the beginning",
    ]  # fmt: skip
    rows = [(row["at_s"], row["took_s"], f"{row['name']}: {row['what']}") for row in said["faults"]]
    rows += [(row["at_s"], row["took_s"], f"{row['node']}: {row['act']}") for row in said["broken"]]
    lines += [f"  {at_s:7.1f} s  for {took_s:6.1f} s  {what}" for at_s, took_s, what in sorted(rows)]
    lines += [f"  skipped: {name}: {why}" for name, why in said["skipped"].items()]
    lines += ["", "growth, first to last"]
    for row in said["growth"]:
        if not row["name"].startswith("exporter") or not row["flat"]:
            first, last = (size >> 20 for size in row["rss_bytes"])
            lines.append(
                f"  {row['name']:28} {first:4} → {last:4} MiB   {row['files'][0]:3} → {row['files'][1]:3} files"
            )
    flat = sum(row["flat"] for row in said["growth"] if row["name"].startswith("exporter"))
    lines += [f"  {flat} exporters are flat", "", "what must hold"]
    for check in said["checks"]:
        lines.append(f"  {'holds' if check['holds'] else 'DOES NOT HOLD':14} {check['name']} ({check['looked_at']})")
        lines += [f"                   {wrong}" for wrong in check["wrong"][:MOST_SHOWN]]
        if len(check["wrong"]) > MOST_SHOWN:
            lines.append(f"                   and {len(check['wrong']) - MOST_SHOWN} more")
    return "\n".join(lines)
