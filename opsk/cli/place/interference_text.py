"""Prints interference for people: the slow-down, the jobs, the shared links, and better nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import click

from opsk.text import escape, format_duration, format_share, to_json_values

WIDTH = 80
MAX_JOBS, MAX_LINKS, MAX_SETS = 8, 6, 3
_MIN_SLOWDOWN = 0.0005
"""Smaller slow-downs are shown as none: the prediction is less accurate."""


def print_interference(document: Mapping[str, Any]) -> None:
    """Print the ``interference`` of `opsk.app.interference.document` for people."""
    shown = to_json_values(document)
    lines = [
        "",
        *_format_headline(shown),
        *_format_jobs(shown["jobs"]),
        *_format_links(shown),
        *_format_storage(shown["storage"]),
    ]
    lines += [
        *_format_node_sets("nodes to ask for", shown["best_nodes"]),
        *_format_node_sets("nodes to avoid", shown["worst_nodes"]),
    ]
    remarks = [f"assumed: {item['field']} = {item['value']} ({item['why']})" for item in shown["assumed"]]
    remarks += [f"problem: {problem}" for problem in shown.get("problems", ())]
    lines += [line for remark in remarks for line in wrap(escape(remark), WIDTH, subsequent_indent="    ")]
    click.echo("\n".join(lines))


def _format_headline(shown: Mapping[str, Any]) -> list[str]:
    """Return the headline."""
    predicted = shown["predicted"]
    what = "step" if predicted["what"] == "step" else "links busy for"
    running = shown["running"]["jobs"]
    if not shown["jobs"]:
        return [f"shares no link with any of {running} running jobs, as far as they are known"]
    alone_s, shared_s = predicted["alone_step_s"], predicted["step_s"]
    kinds = [job["kind"] for job in shown["jobs"]]
    jobs = sum(kind in ("plan", "measured") for kind in kinds)
    whom = [f"{jobs} of {running} running jobs", *(["storage"] if "storage" in kinds else [])]
    whom += ["traffic that nobody explains"] if "background" in kinds else []
    return [
        f"shares {shown['shared_link_count']} links with {', '.join(whom)}",
        f"{what} {_format_time(shared_s)} beside them, {_format_time(alone_s)} alone: "
        f"{_format_slowdown(predicted['slowdown'])}",
    ]


def _format_time(duration_s: float | None) -> str:
    """Return a duration, or ``no path``."""
    return "no path" if duration_s is None else format_duration(duration_s)


def _format_slowdown(ratio: float | None) -> str:
    """Return a slow-down."""
    if ratio is None or ratio < _MIN_SLOWDOWN:
        return "no slower"
    return f"{100 * ratio:.2g} % slower" if ratio < 1 else f"{100 * ratio:.0f} % slower"


def _format_jobs(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the jobs that share links, and both slow-downs."""
    if not jobs:
        return []
    lines = ["", f"{'with':<22}{'links':>7}{'this job':>15}{'the other':>15}  known by"]
    for job in jobs[:MAX_JOBS]:
        who = escape(f"{job['job']} {job['user'] or ''}".strip())
        kind = "its plan" if job["kind"] == "plan" else job["kind"]
        lines.append(
            f"{who[:21]:<22}{job['shared_links']:>7}{_format_slowdown(job['slowdown_of_candidate']):>15}"
            f"{_format_slowdown(job['slowdown_of_job']):>15}  {kind}"
        )
    if len(jobs) > MAX_JOBS:
        lines.append(f"... and {len(jobs) - MAX_JOBS} more; --json lists all")
    return lines


def _format_links(shown: Mapping[str, Any]) -> list[str]:
    """Return the busiest shared links."""
    if not shown["shared_links"]:
        return []
    lines = ["", f"{'busiest shared links':<44}{'this job':>10}{'others':>10}  mostly"]
    for link in shown["shared_links"][:MAX_LINKS]:
        ends = escape(" to ".join(link["names"]))
        used = link["utilisation"]
        mostly = escape(str(link["jobs"][0]["job"])) if link["jobs"] else ""
        lines.append(
            f"{ends[:43]:<44}{format_share(used['candidate']):>10}{format_share(used['others']):>10}  {mostly[:14]}"
        )
    return lines


def _format_storage(storage: Mapping[str, Any] | None) -> list[str]:
    """Return the line on storage traffic."""
    if storage is None:
        return []
    if storage["from"] is None:
        return ["", f"storage: {len(storage['servers'])} servers, rates not known ([storage] in opsk.toml, or --rates)"]
    return [
        "",
        f"storage ({storage['from']}): {storage['read_bytes_per_s'] / 1e9:.3g} GB/s read, "
        f"{storage['write_bytes_per_s'] / 1e9:.3g} GB/s written; {_format_slowdown(storage['slowdown_of_candidate'])}",
    ]


def _format_node_sets(title: str, sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sets of nodes with their predicted step."""
    if not sets:
        return []
    lines = ["", title]
    for node_set in sets[:MAX_SETS]:
        units = f"{len(node_set['units'])} unit{'s' if len(node_set['units']) != 1 else ''}"
        head = f"  {_format_time(node_set['step_s'])}, {_format_slowdown(node_set['slowdown'])} than alone, {units}: "
        lines += wrap(escape(head + node_set["hostlist"]), WIDTH, subsequent_indent="    ", break_long_words=True)[:3]
    return lines
