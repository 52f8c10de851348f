"""Prints what a site's fit came to: what moved, how much nearer its jobs are, who is named, and whether it is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.app.learning.fits import lock_folder, undo_fit
from opsk.app.learning.learn import LearningResult, fit_site, learn_and_publish
from opsk.calibration.learning.evidence import LearnedQuantity, Outlier, SiteFit
from opsk.cli.document import echo_json, echo_message
from opsk.config import load_site
from opsk.errors import ExitStatus
from opsk.text import escape

_WIDTH_WITHOUT_TERMINAL = 110
MAX_CHANGES, MAX_OUTLIERS = 20, 10


def show_fit(probes: Sequence[Path], *, from_store: bool, as_json: bool) -> tuple[ExitStatus, LearningResult, str]:
    """Fit to measurements and jobs; return the exit status, the result, and its JSON or text for people."""
    result = fit_site(load_site(), probes, from_store=from_store)
    return _get_status(result.fit), result, "" if as_json else render_result(result)


def learn(probes: Sequence[Path], *, as_json: bool) -> ExitStatus:
    """Fit, and publish what is better; nothing where the site does not learn."""
    site = load_site()
    if not site.learning.enabled:
        echo_message("learning is off; in opsk.toml, enabled = true below [learning] turns it on")
        return ExitStatus.ANSWER
    result = learn_and_publish(site, probes, now=datetime.now(UTC))
    if as_json:
        echo_json(result.document)
    else:
        click.echo(render_result(result), nl=False)
    return _get_status(result.fit)


def undo(*, as_json: bool) -> ExitStatus:
    """Go back one fit."""
    folder = load_site().learning.folder
    with lock_folder(folder):
        undone, current = undo_fit(folder, now=datetime.now(UTC))
    if as_json:
        echo_json(
            {"undone": undone.made_at.isoformat(), "in_use": None if current is None else current.made_at.isoformat()}
        )
        return ExitStatus.ANSWER
    used = "the fit of " + _format_time(current.made_at) if current is not None else "the efficiencies of the site"
    click.echo(f"undone: the fit of {_format_time(undone.made_at)}; in use again: {used}")
    return ExitStatus.ANSWER


def _format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _get_status(fit: SiteFit) -> ExitStatus:
    return ExitStatus.ANSWER if fit.is_taken else ExitStatus.BAD_NEWS


def render_result(result: LearningResult) -> str:
    """Return the answer for people."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    with console.capture() as capture:
        for part in _build_parts(result):
            console.print(part, soft_wrap=isinstance(part, Text))
    return capture.get()


def _build_parts(result: LearningResult) -> Iterator[Text | Table]:
    fit = result.fit
    if fit.is_taken:
        yield Text(escape(f"fitted to {fit.efficiency.fit}"), style="bold")
    if result.jobs is not None:
        reasons = result.jobs.describe_left_out()
        left_out = f"; left out: {reasons}" if reasons else ""
        yield Text(escape(f"{len(result.jobs.jobs)} jobs of the store count{left_out}"))
    for warning in (*result.nodes.warnings, *map(escape, fit.warnings)):
        yield Text(f"! {warning}", style="yellow")
    if fit.time.jobs or fit.memory.jobs:
        yield Text()
        yield _build_error_table(fit)
    if fit.changes:
        yield Text()
        yield _build_change_table(fit)
    for line in (*_format_outliers(fit.time), *_format_outliers(fit.memory)):
        yield Text(line)
    yield Text()
    for name, learned in (("step times", fit.time), ("memory", fit.memory)):
        yield Text(escape(f"{name}: {_describe_decision(learned)}"))
    if result.waits:
        yield Text(f"not published: {result.waits}")
    if result.published is not None:
        yield Text(escape(f"published; opsk calibrate --undo goes back: {result.published}"))


def _build_error_table(fit: SiteFit) -> Table:
    """Return the errors before, and of jobs left out one by one."""
    table = Table(box=None, pad_edge=False)
    table.add_column("predicted / measured")
    for name in ("jobs", "median error", "P90", "bias"):
        table.add_column(name, justify="right")
    for name, learned in (("step time", fit.time), ("memory", fit.memory)):
        rows = (
            ("before", learned.before),
            ("left out one by one", learned.after),
            ("new jobs, fit in use", learned.current),
            ("new jobs, left out", learned.after_new),
        )
        for label, figures in rows:
            if figures is not None:
                numbers = (f"{figures.median:.1%}", f"{figures.p90:.1%}", f"{figures.bias:+.1%}")
                table.add_row(f"{name}, {label}", str(figures.runs), *numbers)
    return table


def _build_change_table(fit: SiteFit) -> Table:
    """Return what moved, the largest changes first."""
    table = Table(box=None, pad_edge=False)
    table.add_column("moved")
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right")
    ranked = sorted(fit.changes, key=lambda change: -abs(_compute_ratio(change.before, change.after)))
    for change in ranked[:MAX_CHANGES]:
        ratio = _compute_ratio(change.before, change.after)
        table.add_row(Text(escape(change.name)), f"{change.before:.3g}", f"{change.after:.3g}", f"{ratio:+.1%}")
    if len(ranked) > MAX_CHANGES:
        table.add_row(Text(f"and {len(ranked) - MAX_CHANGES} that moved less"), "", "", "")
    return table


def _describe_decision(learned: LearnedQuantity) -> str:
    """Return whether a quantity of the fit is taken, and by which errors."""
    if not learned.is_taken:
        return f"not taken: {learned.why_not}"
    if learned.mean_before is None or learned.mean_after is None:
        return "taken"
    return f"taken: mean error {learned.mean_after:.1%} of jobs left out, {learned.mean_before:.1%} before"


def _compute_ratio(before: float, after: float) -> float:
    return after / before - 1.0 if before else after


def _format_outliers(learned: LearnedQuantity) -> Iterator[str]:
    """Yield the owners and jobs that others contradict."""
    owners = Counter((item.owner, item.is_used) for item in learned.outliers)
    for (owner, is_used), count in owners.most_common(MAX_OUTLIERS):
        jobs = [item for item in learned.outliers if (item.owner, item.is_used) == (owner, is_used)]
        weight = "counts less" if is_used else "out of the prior's reach, not used"
        shown = ", ".join(_format_outlier(item) for item in jobs[:3])
        more = f" and {count - 3} more" if count > 3 else ""
        yield f"! {escape(owner) or 'unknown user'}: {shown}{more} ({weight})"


def _format_outlier(item: Outlier) -> str:
    return f"job {escape(item.job)} with {item.ratio:.2f} times the predicted {item.quantity}"


def build_output_document(result: LearningResult, output: Path | None) -> Mapping[str, Any]:
    """Return the JSON document of ``opsk calibrate --probe``."""
    return {**result.document, "output": output if result.fit.is_taken else None}
