"""How is interference shown to people: what sharing costs, with whom, on which links, and which nodes are better?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import click

from opsk.text import escape, format_duration, format_share, to_json_values

WIDTH = 80
MOST_JOBS, MOST_LINKS, MOST_SETS = 8, 6, 3
_HARDLY = 0.0005
"""Slow-downs below this are none to people: the prediction is not that sharp."""


def interference_picture(document: Mapping[str, Any]) -> None:
    """Print the ``interference`` of `opsk.app.interference.document` for people."""
    shown = to_json_values(document)
    lines = ["", *_predicted(shown), *_jobs(shown["jobs"]), *_links(shown), *_storage(shown["storage"])]
    lines += [*_sets("nodes to ask for", shown["best_nodes"]), *_sets("nodes to avoid", shown["worst_nodes"])]
    said = [f"assumed: {item['field']} = {item['value']} ({item['why']})" for item in shown["assumed"]]
    said += [f"problem: {problem}" for problem in shown.get("problems", ())]
    lines += [line for remark in said for line in wrap(escape(remark), WIDTH, subsequent_indent="    ")]
    click.echo("\n".join(lines))


def _predicted(shown: Mapping[str, Any]) -> list[str]:
    """Return the headline."""
    predicted = shown["predicted"]
    what = "step" if predicted["what"] == "step" else "links busy for"
    running = shown["running"]["jobs"]
    if not shown["jobs"]:
        return [f"shares no link with any of {running} running jobs, as far as they are known"]
    alone, beside = predicted["alone_step_s"], predicted["step_s"]
    kinds = [one["kind"] for one in shown["jobs"]]
    jobs = sum(kind in ("plan", "measured") for kind in kinds)
    whom = [f"{jobs} of {running} running jobs", *(["storage"] if "storage" in kinds else [])]
    whom += ["traffic that nobody explains"] if "background" in kinds else []
    return [
        f"shares {shown['shared_link_count']} links with {', '.join(whom)}",
        f"{what} {_time(beside)} beside them, {_time(alone)} alone: {_slower(predicted['slowdown'])}",
    ]


def _time(duration_s: float | None) -> str:
    """Return a duration; none where there is no path."""
    return "no path" if duration_s is None else format_duration(duration_s)


def _slower(ratio: float | None) -> str:
    """Return a slow-down."""
    if ratio is None or ratio < _HARDLY:
        return "no slower"
    return f"{100 * ratio:.2g} % slower" if ratio < 1 else f"{100 * ratio:.0f} % slower"


def _jobs(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return whom the job meets and what both lose."""
    if not jobs:
        return []
    lines = ["", f"{'with':<22}{'links':>7}{'this job':>15}{'the other':>15}  known by"]
    for one in jobs[:MOST_JOBS]:
        who = escape(f"{one['job']} {one['user'] or ''}".strip())
        kind = "its plan" if one["kind"] == "plan" else one["kind"]
        lines.append(
            f"{who[:21]:<22}{one['shared_links']:>7}{_slower(one['slowdown_of_candidate']):>15}"
            f"{_slower(one['slowdown_of_job']):>15}  {kind}"
        )
    if len(jobs) > MOST_JOBS:
        lines.append(f"... and {len(jobs) - MOST_JOBS} more; --json lists all")
    return lines


def _links(shown: Mapping[str, Any]) -> list[str]:
    """Return the links that are asked for the most."""
    if not shown["shared_links"]:
        return []
    lines = ["", f"{'busiest shared links':<44}{'this job':>10}{'others':>10}  mostly"]
    for link in shown["shared_links"][:MOST_LINKS]:
        ends = escape(" to ".join(link["names"]))
        used = link["utilisation"]
        mostly = escape(str(link["jobs"][0]["job"])) if link["jobs"] else ""
        lines.append(
            f"{ends[:43]:<44}{format_share(used['candidate']):>10}{format_share(used['others']):>10}  {mostly[:14]}"
        )
    return lines


def _storage(storage: Mapping[str, Any] | None) -> list[str]:
    """Return what is known of storage traffic."""
    if storage is None:
        return []
    if storage["from"] is None:
        return ["", f"storage: {len(storage['servers'])} servers, rates not known ([storage] in opsk.toml, or --rates)"]
    return [
        "",
        f"storage ({storage['from']}): {storage['read_bytes_per_s'] / 1e9:.3g} GB/s read, "
        f"{storage['write_bytes_per_s'] / 1e9:.3g} GB/s written; {_slower(storage['slowdown_of_candidate'])}",
    ]


def _sets(title: str, sets: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sets of nodes with their predicted step."""
    if not sets:
        return []
    lines = ["", title]
    for one in sets[:MOST_SETS]:
        units = f"{len(one['units'])} unit{'s' if len(one['units']) != 1 else ''}"
        head = f"  {_time(one['step_s'])}, {_slower(one['slowdown'])} than alone, {units}: "
        lines += wrap(escape(head + one["hostlist"]), WIDTH, subsequent_indent="    ", break_long_words=True)[:3]
    return lines
