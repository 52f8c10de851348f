"""Implements ``opsk fabric --save``, ``--history`` and ``--compare``.

The store is imported only when one of them is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from opsk.app.inputs.fabric_files import read_dump
from opsk.app.site_store import open_site_store
from opsk.cli.document import echo_json, echo_message
from opsk.config import load_site
from opsk.errors import ExitStatus
from opsk.fabric.difference import Change, compare_snapshots
from opsk.fabric.fabric import Fabric
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.snapshot import Snapshot
from opsk.text import escape

if TYPE_CHECKING:
    from opsk.store.records.snapshots import StoredSnapshot
from opsk.cli.option_groups import option_group

DEFAULT_CLUSTER = "default"
_MAX_SHOWN_CHANGES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest:
    """The options of ``opsk fabric`` for stored fabrics."""

    save: bool
    history: bool
    compare: tuple[str, str] | None
    cluster_name: str | None

    @property
    def replaces_dumps(self) -> bool:
        """Whether the answer is about stored fabrics instead of the given dumps."""
        return self.history or bool(self.compare)

    @property
    def cluster(self) -> str:
        """Return the cluster: the named one, else the site's, else a default name."""
        return self.cluster_name or Path(load_site().cluster or DEFAULT_CLUSTER).stem


_OPTIONS = (
    click.option("--save", is_flag=True, help="Store this fabric, unless it equals the last stored one."),
    click.option("--history", is_flag=True, help="List the stored fabrics."),
    click.option("--compare", nargs=2, metavar="A B",
                 help="Show the changes from A to B: each a dump, or a stored fabric by id, hash, latest or previous."),
    click.option("--cluster-name", metavar="NAME", help="Cluster of --save, --history and --compare."),
)  # fmt: skip
snapshot_options = option_group("snapshot_request", SnapshotRequest, _OPTIONS)


def run_snapshot_request(request: SnapshotRequest, *, as_json: bool) -> int:
    """Print the history or a comparison; the exit status says whether two fabrics differ."""
    if request.history and request.compare:
        raise click.UsageError("give only one of --history and --compare")
    if request.compare:
        return _compare(request, request.compare, as_json=as_json)
    engine = open_site_store()
    from opsk.store.records.snapshots import list_snapshots

    rows = list_snapshots(engine, cluster=request.cluster_name)
    if as_json:
        echo_json({"snapshots": rows})
    else:
        _print_history(rows)
    return ExitStatus.ANSWER


def store_fabric(request: SnapshotRequest, fabric: Fabric, domains: Iterable[HbDomain]) -> StoredSnapshot:
    """Save a fabric in the store, and print its number on stderr."""
    engine = open_site_store()
    from opsk.store.records.snapshots import save_snapshot

    snapshot = save_snapshot(engine, fabric, domains, cluster=request.cluster, now=datetime.now(UTC))
    status = "stored as" if snapshot.new else f"unchanged since {snapshot.taken_at:%Y-%m-%d %H:%M} UTC:"
    echo_message(f"fabric of {snapshot.cluster} {status} snapshot {snapshot.id}")
    return snapshot


def _compare(request: SnapshotRequest, sides: tuple[str, str], *, as_json: bool) -> int:
    """Print what changed between two fabrics."""
    labels, snapshots = zip(*(_load_side(request, side) for side in sides), strict=True)
    changes = compare_snapshots(*snapshots)
    if as_json:
        echo_json({"from": labels[0], "to": labels[1], "changes": changes})
    else:
        _print_changes(labels, changes)
    return ExitStatus.BAD_NEWS if changes else ExitStatus.ANSWER


def _load_side(request: SnapshotRequest, which: str) -> tuple[dict[str, Any], Snapshot]:
    """Return one side of a comparison, and its label: a file where it exists, else a stored fabric."""
    if which == "-" or Path(which).exists() or "/" in which:
        fabric = read_dump(Path(which))
        return {"source": which, "snapshot": None}, Snapshot(fabric=fabric)
    engine = open_site_store()
    from opsk.store.records.snapshots import load_snapshot

    row, snapshot = load_snapshot(engine, which, cluster=request.cluster)
    return {"source": row.source, "snapshot": row}, snapshot


def _print_history(rows: list[StoredSnapshot]) -> None:
    if not rows:
        click.echo("no fabric is stored; store one with: opsk fabric FILE --save")
        return
    wide = max(len("cluster"), *(len(row.cluster) for row in rows))
    click.echo(f"{'id':>4}  {'cluster':<{wide}}  {'from':<16}  {'until':<16}  {'nodes':>6}  {'HCAs':>6}  source")
    for row in rows:
        source = ", ".join(map(_strip_folders, row.source.split(", ")))
        seen = f"{row.taken_at:%Y-%m-%d %H:%M}  {row.last_seen_at:%Y-%m-%d %H:%M}"
        click.echo(escape(f"{row.id:>4}  {row.cluster:<{wide}}  {seen}  {row.nodes:>6}  {row.hcas:>6}  {source}"))


def _strip_folders(source: str) -> str:
    """Return a source without its folders; the JSON has them."""
    return source.rsplit("/", 1)[-1]


def _print_changes(labels: tuple[dict[str, Any], ...], changes: tuple[Change, ...]) -> None:
    """Print the counts of the changes, and the first changes."""
    names = [escape(str(label["snapshot"].id if label["snapshot"] else label["source"])) for label in labels]
    console = Console(highlight=False)
    console.print(escape_markup(f"From {names[0]} to {names[1]}: " + (_format_counts(changes) or "no difference")))
    if not changes:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("change", "where", "before", "after"):
        table.add_column(heading, overflow="fold")
    for change in changes[:_MAX_SHOWN_CHANGES]:
        cells = [change.kind.replace("_", " "), change.where, change.before or "", change.after or ""]
        table.add_row(*(escape_markup(escape(cell)) for cell in cells))
    console.print(table)
    if len(changes) > _MAX_SHOWN_CHANGES:
        console.print(f"and {len(changes) - _MAX_SHOWN_CHANGES} more: --json lists all")


def _format_counts(changes: tuple[Change, ...]) -> str:
    counted = Counter(change.kind for change in changes)
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counted.items())
