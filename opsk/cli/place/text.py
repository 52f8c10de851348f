"""Prints a placement or interference for people: ranks by node, their rails, slow-downs, and better nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import click

from opsk.text import escape, format_duration, format_share, to_json_values
from opsk.units import GB

WIDTH = 80
MAX_JOBS, MAX_LINKS, MAX_SETS = 8, 6, 3
_MIN_SLOWDOWN = 0.0005
"""Smaller slow-downs are shown as none: the prediction is less accurate."""
MAX_NODES = 40
MAX_FAULTS = 8
_NODE_WIDTH = 14
_AXES = ("tp", "cp", "pp", "dp")


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
    whom += ["traffic of unknown origin"] if "background" in kinds else []
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


def print_placement(headline: str, document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk place`` for people."""
    shown = to_json_values(document)
    lines = [headline, f"fabric {escape(shown['fabric'])}, rank order {shown['rank_order']}", ""]
    lines += [*_format_ranks(shown), "", *_format_traffic(shown), *_format_launch(shown), *_format_remarks(shown)]
    click.echo("\n".join(lines))


def _format_ranks(shown: Mapping[str, Any]) -> list[str]:
    """Return the table of nodes and local ranks: one line a node, one column a local rank."""
    by_node: dict[str, list[dict[str, Any]]] = {}
    for rank in shown["ranks"]:
        by_node.setdefault(rank["node"], []).append(rank)
    axes = [axis for axis in _AXES if any(rank[f"{axis}_rank"] for rank in shown["ranks"])] or ["tp"]
    columns = max(len(ranks) for ranks in by_node.values())
    rails = [_find_usual_rail(by_node.values(), column) for column in range(columns)]
    rows = [
        [escape(node), *(_format_cell(rank, axes, rails[column]) for column, rank in enumerate(ranks))]
        for node, ranks in list(by_node.items())[:MAX_NODES]
    ]
    head = ["local rank", *(str(column) for column in range(columns))]
    rail_row = ["rail", *("-" if rail is None else str(rail) for rail in rails)]
    what = ".".join(axes)
    lines = [*_align([head, rail_row, *rows]), f"each rank as {what}" + _format_marks(rows)]
    if len(by_node) > MAX_NODES:
        lines.insert(-1, f"... and {len(by_node) - MAX_NODES} more nodes; --json lists all")
    return lines


def _find_usual_rail(rows: Any, column: int) -> int | None:
    """Return the rail that most nodes have in a column."""
    votes = Counter(ranks[column]["rail"] for ranks in rows if column < len(ranks))
    return votes.most_common(1)[0][0] if votes else None


def _format_cell(rank: Mapping[str, Any], axes: Sequence[str], rail: int | None) -> str:
    """Return one rank; ``*`` when it is on a GPU of another number, ``!`` when off the column's rail."""
    mark = "*" if rank["gpu"] != rank["local_rank"] else ""
    mark += "!" if rank["rail"] != rail else ""
    return ".".join(str(rank[f"{axis}_rank"]) for axis in axes) + mark


def _format_marks(rows: Sequence[Sequence[str]]) -> str:
    """Return the legend of the marks in the cells, where there are any."""
    text = "".join(cell for row in rows for cell in row[1:])
    meanings = ["* on a GPU of another number"] if "*" in text else []
    meanings += ["! not on the column's rail"] if "!" in text else []
    return f"; {', '.join(meanings)}" if meanings else ""


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as text; where they would be wider than a terminal, columns go below each other in bands."""
    first = max(_NODE_WIDTH, *(len(row[0]) for row in rows))
    width = max((len(cell) for row in rows for cell in row[1:]), default=1) + 1
    band = max((WIDTH - first) // width, 1)
    columns = max(len(row) for row in rows) - 1
    lines: list[str] = []
    for start in range(1, columns + 1, band):
        for row in rows:
            cells = "".join(cell.rjust(width) for cell in row[start : start + band])
            lines.append(f"{row[0]:<{first}}{cells}".rstrip())
    return lines


def _format_traffic(shown: Mapping[str, Any]) -> list[str]:
    """Return the comparison with Slurm's own order."""
    default = shown["versus_default"]
    lines = [f"{'traffic of one step':<28}{'placed':>14}{'Slurm default':>16}"]
    for label, name, form in (
        ("between nodes", "inter_node_bytes", _format_bytes),
        ("on its rail", "rail_local_fraction", _format_share),
        ("under its leaf", "leaf_local_fraction", _format_share),
        ("busiest cable", "max_link_load", _format_load),
    ):
        lines.append(f"{label:<28}{form(shown[name]):>14}{form(default[name]):>16}")
    lines += _format_prediction(shown["predicted"])
    lines += _format_loss(shown)
    cable = shown["busiest_cable"]
    if cable:
        lines.append(escape(f"busiest: {cable['names'][0]} to {cable['names'][1]}"))
    if default["is_kept"]:
        lines.append("Slurm's own order is as good: nothing to change")
    elif shown["needs_rank_file"]:
        lines.append("ranks are on other nodes than Slurm would put them: use the rank file")
    else:
        lines.append("nodes in Slurm's own order, GPUs exchanged on some: no rank file is needed")
    return lines


def _format_prediction(predicted: Mapping[str, Any]) -> list[str]:
    """Return the predicted step of both orders, and the distance to the lower bound."""
    label = "predicted step" if predicted["what"] == "step" else "links busy for"
    ours, default = predicted["step_s"], predicted["default_step_s"]
    if not ours or default is None:
        return []
    lines = [f"{label:<28}{format_duration(ours):>14}{format_duration(default):>16}"]
    if predicted["is_optimal"]:
        lines.append("no order of these nodes is faster")
    elif predicted["what"] == "step":
        lines.append(f"within {100 * predicted['gap']:.2g} % of what no order can beat")
    return lines


def _format_loss(shown: Mapping[str, Any]) -> list[str]:
    """Return one line with the loss of Slurm's own order, where there is any."""
    default, longer = shown["versus_default"], shown["predicted"]["default_is_slower_by"]
    off_rail = shown["rail_local_fraction"] - default["rail_local_fraction"]
    lost = [f"{100 * off_rail:.3g} % of the traffic off its rail"] if off_rail > 1e-6 else []
    if longer is not None and longer > 5e-5:
        what = "a step" if shown["predicted"]["what"] == "step" else "communication"
        lost.append(f"{what} {100 * longer:.2g} % longer")
    return [f"Slurm's own order would mean: {', '.join(lost)}"] if lost else []


def _format_bytes(size_bytes: float) -> str:
    """Return a size of traffic, decimal as network rates are."""
    for unit, factor in (("PB", 1e6), ("TB", 1e3)):
        if size_bytes >= factor * GB:
            return f"{size_bytes / (factor * GB):.3g} {unit}"
    return f"{size_bytes / GB:.3g} GB"


def _format_share(share: float) -> str:
    """Return a share; never 100 % for something less."""
    percent = 100 * share
    return f"{min(percent, 99.9) if share < 1 - 1e-9 else 100:.3g} %"


def _format_load(load_s: float | None) -> str:
    if load_s is None:
        return "no path"
    return format_duration(load_s) if load_s else "none"


def _format_launch(shown: Mapping[str, Any]) -> list[str]:
    """Return the settings, each with its reason."""
    lines = [""] if shown["nccl_env"] or shown["slurm_flags"] or shown["gpu_order"] else []
    for setting in shown["slurm_flags"]:
        lines += [f"sbatch {setting['name']}={setting['value']}", *_format_reason(setting)]
    for setting in shown["nccl_env"]:
        lines += [escape(f"export {setting['name']}={setting['value']}"), *_format_reason(setting)]
    for node, gpus in list(shown["gpu_order"].items())[:8]:
        lines.append(escape(f"on {node}: CUDA_VISIBLE_DEVICES={gpus}"))
    if len(shown["gpu_order"]) > 8:
        lines.append(f"... and {len(shown['gpu_order']) - 8} more nodes; --json lists all")
    return lines


def _format_reason(setting: Mapping[str, Any]) -> list[str]:
    """Return why a setting is suggested."""
    return wrap(escape(setting["why"]), WIDTH, initial_indent="    ", subsequent_indent="    ")


def _format_remarks(shown: Mapping[str, Any]) -> list[str]:
    """Return notes, assumptions, problems and faults."""
    remarks = [f"note: {escape(note)}" for note in shown["notes"]]
    remarks += [f"assumed: {item['field']} = {item['value']} ({item['why']})" for item in shown["assumed"]]
    remarks += [f"problem: {item['what']}; {item['hint']}" for item in shown["problems"]]
    remarks += [f"fault: {item['where']}: {item['kind']}, {item['evidence']}" for item in shown["faults"][:MAX_FAULTS]]
    if len(shown["faults"]) > MAX_FAULTS:
        remarks.append(f"... and {len(shown['faults']) - MAX_FAULTS} more; --json lists all")
    lines = [line for remark in remarks for line in wrap(escape(remark), WIDTH, subsequent_indent="    ")]
    return ["", *lines] if lines else []
