"""Renders a measurement as one HTML page: charts of measured and expected values, and the tables behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as escape_html

from opsk.cli.render.chart import Curve, Lines, arrange_chart, render_chart_svg
from opsk.probe.comparison import Compared, summarise_ratios
from opsk.probe.document import Machine, ProbeDocument
from opsk.text import escape, format_bytes
from opsk.units import TERA

_AXES = {
    "matmul": ("Matrix products", "cube root of m x k x n", "TFLOP/s"),
    "attention": ("Causal attention with its backward", "length [tokens]", "TFLOP/s"),
    "memory": ("Copies inside the GPU's memory", "size [bytes]", "TB/s"),
    "collectives": ("Collectives", "size [bytes]", "TB/s"),
}
_MAX_SERIES = 6
_STYLE = """body{font-family:system-ui,sans-serif;max-width:1180px;margin:2em auto;padding:0 1em;color:#1c2430}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.2em .8em;border-bottom:1px solid #d5dbe3;text-align:right}
td:first-child,th:first-child{text-align:left}.warning{color:#a33}svg{max-width:100%;height:auto}"""


def render_page(document: ProbeDocument, rows: Sequence[Compared], warnings: Sequence[str]) -> str:
    """Return the page; all text of the document is escaped."""
    charts = [panel for part in _AXES if (panel := _build_panel(part, rows)) is not None]
    body = [
        f"<h1>opsk probe: {_clean(document.machine.gpu)}</h1>",
        f"<p>{_clean(describe_machine(document.machine))}, measured {_clean(document.measured_at)} "
        f"in {document.took_s:.0f} s.</p>",
        *(f'<p class="warning">{_clean(text)}</p>' for text in warnings),
        render_chart_svg(arrange_chart(charts)) if charts else "",
        _render_summary(rows),
        *_render_tables(document),
        _render_rows(rows),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>opsk probe</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(filter(None, body)) + "\n</body></html>\n"
    )


def describe_machine(machine: Machine) -> str:
    """Return what was measured, in a line."""
    parts = [f"{machine.ranks} x {machine.gpu} on {machine.nodes} node{'s' if machine.nodes > 1 else ''}"]
    parts += [f"{name} {value}" for name, value in (
        ("PyTorch", machine.torch), ("CUDA", machine.cuda), ("driver", machine.driver), ("NCCL", machine.nccl)
    ) if value]  # fmt: skip
    return escape(", ".join(parts))


def _clean(text: str) -> str:
    return escape_html(escape(text), quote=True)


def _build_panel(part: str, rows: Sequence[Compared]) -> Lines | None:
    """Return the chart of one part: measured lines, and dashed ones for what the model expects."""
    title, x_label, y_label = _AXES[part]
    series = list(dict.fromkeys(row.series for row in rows if row.part == part))[:_MAX_SERIES]
    lines = []
    for name in series:
        mine = sorted((row for row in rows if (row.part, row.series) == (part, name)), key=lambda row: row.x)
        lines.append(Curve(name=name, points=[(row.x, row.measured / TERA) for row in mine]))
        lines.append(Curve(name="", points=[(row.x, row.expected / TERA) for row in mine], dashed=True))
    if not lines:
        return None
    return Lines(title=title, x_label=x_label, y_label=y_label, lines=lines, log_x=True, log_y=part == "collectives")


def _render_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{_clean(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    if not body:
        return ""
    top = "".join(f"<th>{_clean(cell)}</th>" for cell in head)
    return f"<h2>{_clean(title)}</h2><table><tr>{top}</tr>{body}</table>"


def _render_summary(rows: Sequence[Compared]) -> str:
    ratios = summarise_ratios(tuple(rows))
    cells = [(part, series, f"{ratio:.2f}") for (part, series), ratio in ratios.items()]
    return _render_table("Measured over expected, median", ("part", "of", "ratio"), cells)


def _render_rows(rows: Sequence[Compared]) -> str:
    cells = (
        (row.part, row.series, row.label, f"{row.measured:.4g}", f"{row.expected:.4g}", row.unit, f"{row.ratio:.2f}")
        for row in rows
    )
    return _render_table("All values", ("part", "of", "size", "measured", "expected", "unit", "ratio"), cells)


def _render_tables(document: ProbeDocument) -> Iterable[str]:
    """Yield the tables of parts that the model has no single number for."""
    yield _render_table(
        "Attention, causal", ("kernel", "length", "head", "forward TFLOP/s", "with backward TFLOP/s"),
        ((row.kernel, str(row.length), str(row.head), f"{row.forward_flop_per_s / TERA:.0f}",
          f"{row.both_flop_per_s / TERA:.0f}") for row in document.attention),
    )  # fmt: skip
    yield _render_table(
        "Training steps", ("variant", "micro batch", "ranks", "step [ms]", "allocated", "reserved", "device"),
        ((row.variant, str(row.micro_batch), str(row.ranks), f"{row.step_s * 1e3:.1f}",
          *(format_bytes(size) if size else "" for size in (row.allocated_bytes, row.reserved_bytes, row.device_bytes)))
         for row in document.training),
    )  # fmt: skip
    yield _render_table(
        "Host link", ("way", "size", "GB/s"),
        ((row.way, format_bytes(row.size_bytes), f"{row.bytes_per_s / 1e9:.1f}") for row in document.host_link),
    )  # fmt: skip
    yield _render_table("Not measured", ("part", "why"), ((row.part, row.why) for row in document.skipped))
