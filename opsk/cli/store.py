"""Implements ``opsk store``: shows the size of the store, checks, prunes, exports, imports and upgrades it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsk.app.site_store import find_store_url, open_site_store
from opsk.cli.document import echo_json
from opsk.config import RetentionConfig, load_site
from opsk.errors import ExitStatus, InputError
from opsk.text import escape, format_bytes

if TYPE_CHECKING:
    from opsk.store.retention import PruneResult
    from opsk.store.sizes import StoreSize

_OVER = tuple(RetentionConfig.model_fields)
_KINDS = ("clusters", *_OVER)
_SMALL_BYTES = 1 << 24
_as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")


@click.group()
def store() -> None:
    """Manage the store: jobs, predictions, measurements, failures, remaps and reports.

    The database is set by url under [store] in opsk.toml; by default it is a SQLite file of this user.
    """


@store.command()
@_as_json
def size(*, as_json: bool) -> int:
    """Show the number of records of each kind, their time range, and the size of the store."""
    engine = open_site_store(writing=False)
    from opsk.store.database.urls import format_url
    from opsk.store.sizes import compute_store_size

    sizes = compute_store_size(engine)
    if as_json:
        echo_json({"store": format_url(engine.url), **_read_fields(sizes)})
    else:
        _print_sizes(format_url(engine.url), sizes)
    return ExitStatus.ANSWER


@store.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--days", "given", multiple=True, metavar="KIND=DAYS",
    help=f"Days to keep this kind; overrides opsk.toml; 0 is for ever. Kinds: {', '.join(_OVER)}.",
)  # fmt: skip
@click.option(
    "--give-back", "shrink", is_flag=True, help="Return free space to the disk; SQLite copies its file for that."
)
@_as_json
def prune(*, dry_run: bool, given: tuple[str, ...], shrink: bool, as_json: bool) -> int:
    """Remove records that ended longer ago than retention_days under [store] in opsk.toml.

    Records that have not ended stay, however old: the newest fabric of each cluster, jobs that are still reported,
    failures that are not repaired, and remaps that can be resumed.
    """
    days = {**load_site().store.retention_days.model_dump(), **dict(map(_parse_days, given))}
    engine = open_site_store()
    from opsk.store.retention import prune as remove
    from opsk.store.retention import reclaim_space

    done = remove(engine, days, now=datetime.now(UTC), dry=dry_run)
    if shrink and not dry_run:
        reclaim_space(engine)
    if as_json:
        echo_json({"dry_run": dry_run, "kinds": done})
    else:
        _print_pruned(done, dry=dry_run)
    return ExitStatus.ANSWER


@store.command()
@click.option("--kind", "kinds", multiple=True, type=click.Choice(_KINDS), help="Export only this kind; repeatable.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to a new file instead of stdout."
)
@click.option("--json", "as_json", is_flag=True, help="Accepted for consistency: the output is always JSON lines.")
def export(*, kinds: tuple[str, ...], output: Path | None, as_json: bool) -> int:
    """Print all records as JSON lines, which `opsk store import` can read into another store.

    Damaged records are left out and listed on stderr; the exit status is then 1.
    """
    engine = open_site_store(writing=False)
    from opsk.store.export import export as lines

    damaged: list[str] = []
    try:
        to = output.open("x", encoding="ascii") if output is not None else sys.stdout
    except OSError as error:
        raise InputError(f"{output}: {error.strerror}", hint="give a file that does not exist yet") from error
    try:
        for line in lines(engine, kinds, damaged=damaged.append):
            to.write(line + "\n")
        to.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{output or 'stdout'}: {error.strerror}", hint="the output is incomplete") from error
    finally:
        if output is not None:
            to.close()
    for what in damaged:
        click.echo(f"opsk: left out: {escape(what)}", err=True)
    return ExitStatus.BAD_NEWS if damaged else ExitStatus.ANSWER


@store.command("import")
@click.argument("file", type=click.File("rb"))
@_as_json
def take_in(file: Any, *, as_json: bool) -> int:
    """Import the output of `opsk store export` from FILE, or from standard input (-); existing records stay."""
    engine = open_site_store()
    from opsk.store.export import import_lines as take
    from opsk.store.writing import DirectWriter

    written = take(DirectWriter(engine), file)
    if as_json:
        echo_json(written)
    else:
        click.echo(f"{written.new} records new or changed, {written.known} unchanged")
    return ExitStatus.ANSWER


@store.command()
@_as_json
def check(*, as_json: bool) -> int:
    """Read all records and show what is wrong with them; nothing is changed.

    Exit status: 0 the store is sound; 1 it is not; 3 the database does not answer.
    """
    url = find_store_url()
    from opsk.store.check import check_store as look
    from opsk.store.database.engine import connect
    from opsk.store.database.urls import format_url

    engine = connect(url, writing=False)
    result = look(engine)
    if as_json:
        echo_json({"store": format_url(engine.url), "sound": not result.findings, **_read_fields(result)})
    else:
        for finding in result.findings:
            click.echo(escape(f"{finding.part}: {finding.what}" + (f" ({finding.hint})" if finding.hint else "")))
        verdict = "not sound" if result.findings else "sound"
        click.echo(escape(f"{format_url(engine.url)}: {verdict}, {result.records} records, revision {result.revision}"))
    return ExitStatus.BAD_NEWS if result.findings else ExitStatus.ANSWER


@store.command()
@_as_json
def upgrade(*, as_json: bool) -> int:
    """Upgrade the store's tables to the revision that this opsk needs, or create them; no record is lost.

    A SQLite file is upgraded by any opsk command that opens it. A database server is upgraded only by this command: run
    it when every opsk that writes to it has this version.
    """
    url = find_store_url()
    from opsk.store.database.engine import upgrade_store
    from opsk.store.database.urls import format_url

    engine, before, now = upgrade_store(url)
    if as_json:
        echo_json({"store": format_url(engine.url), "before": before, "now": now})
    elif before == now:
        click.echo(escape(f"{format_url(engine.url)} has revision {now}: nothing to do"))
    else:
        click.echo(escape(f"{format_url(engine.url)}: from revision {before or 'none'} to {now}"))
    return ExitStatus.ANSWER


def _read_fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _parse_days(text: str) -> tuple[str, int]:
    """Return kind and days of one ``--days``."""
    kind, sign, days = text.partition("=")
    if kind not in _OVER:
        raise click.BadParameter(f"{escape(kind)!r} is not one of {', '.join(_OVER)}", param_hint="--days")
    if not sign or not (days.isascii() and days.isdecimal()) or len(days) > 5:
        raise click.BadParameter(f"{escape(text)!r} is not {kind}=DAYS, as {kind}=90", param_hint="--days")
    return kind, int(days)


def _print_sizes(url: str, sizes: StoreSize) -> None:
    click.echo(escape(url))
    for kind in sizes.kinds:
        times = f"  {kind.first_at:%Y-%m-%d}  {kind.last_at:%Y-%m-%d}" if kind.first_at and kind.last_at else ""
        click.echo(f"{kind.kind:<10} {kind.records:>12,}{times}")
    free = f", {_format_room(sizes.free_bytes)} of it free" if sizes.free_bytes else ""
    click.echo(f"{_format_room(sizes.total_bytes)}{free}")


def _format_room(size_bytes: int) -> str:
    return format_bytes(size_bytes) if size_bytes >= _SMALL_BYTES else f"{size_bytes:,} bytes"


def _print_pruned(done: list[PruneResult], *, dry: bool) -> None:
    verb = "would be removed" if dry else "removed"
    for kind in done:
        since = f"ended before {kind.before:%Y-%m-%d}" if kind.before is not None else "kept for ever"
        click.echo(f"{kind.kind:<10} {kind.removed:>10,} {verb}, {kind.kept:>12,} kept, {since}")
