"""How is the exporter started? ``opsk exporter``."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import click
from prometheus_client import generate_latest

from opsk.errors import InputError, UnavailableError
from opsk.telemetry.host import HostReader
from opsk.telemetry.infiniband import SysfsInfiniband
from opsk_exporters.collector import DEFAULT_DEADLINE_S, Collector, Scrape, Scraper
from opsk_exporters.host import HostCollector
from opsk_exporters.infiniband import InfinibandCollector
from opsk_exporters.server import DEFAULT_LISTEN, ListenAddress, open_server, registry

COLLECTORS: dict[str, Callable[[Path, Path], Collector]] = {
    "host": lambda sysfs, procfs: HostCollector(HostReader(procfs)),
    "infiniband": lambda sysfs, procfs: InfinibandCollector(SysfsInfiniband(sysfs)),
}
"""All collectors: name to what makes one for a sysfs and a procfs."""

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.option(
    "--listen",
    default=DEFAULT_LISTEN,
    show_default=True,
    metavar="HOST:PORT",
    help="Address to serve on; :9876 is all IPv4 addresses of the node, [::]:9876 all addresses.",
)
@click.option("--once", is_flag=True, help="Print one scrape on stdout and end.")
@click.option("--collectors", metavar="NAMES", help=f"Only these, comma-separated: {', '.join(sorted(COLLECTORS))}.")
@click.option("--sysfs", type=_FOLDER, default=Path("/sys"), show_default=True, help="Where sysfs is mounted.")
@click.option("--procfs", type=_FOLDER, default=Path("/proc"), show_default=True, help="Where procfs is mounted.")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0.01, max=60),
    default=DEFAULT_DEADLINE_S,
    show_default=True,
    metavar="SECONDS",
    help="A collector that takes longer counts as failed; keep it below Prometheus' scrape_timeout.",
)
def exporter(listen: str, once: bool, collectors: str | None, sysfs: Path, procfs: Path, deadline: float) -> None:
    """Show what this node's hardware does, as Prometheus metrics.

    Serves /metrics until it is told to stop; it needs no root and writes nothing. Without --listen only this machine
    can reach it: there is no password yet.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="opsk exporter: %(message)s")
    address = ListenAddress.parse(listen)
    scraper = Scraper(
        [COLLECTORS[name](sysfs, procfs) for name in _selected(collectors)],
        deadline_s=deadline,
    )
    if once:
        _print_once(scraper)
    else:
        _serve(address, scraper)


def _selected(names: str | None) -> list[str]:
    """Read the list of collectors; all when none is named."""
    chosen = (
        sorted(COLLECTORS) if names is None else list(dict.fromkeys(filter(None, names.replace(" ", "").split(","))))
    )
    unknown = [name for name in chosen if name not in COLLECTORS]
    if unknown or not chosen:
        wrong = ", ".join(map(repr, unknown)) or "an empty list"
        raise InputError(f"--collectors: {wrong} is no collector", hint=f"there are: {', '.join(sorted(COLLECTORS))}")
    return chosen


class _Shown:
    """One finished scrape, shown again: a registry asks it instead of the collectors."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> tuple[object, ...]:
        """Return the metrics of that scrape."""
        return self._scrape.metrics


def _print_once(scraper: Scraper) -> None:
    """Print one scrape.

    Raises
    ------
    UnavailableError
        A collector failed; what the others gave has been printed.
    """
    scrape = scraper.scrape()
    click.echo(generate_latest(_Shown(scrape)).decode("utf-8"), nl=False)  # type: ignore[arg-type]
    if scrape.failed:
        raise UnavailableError(f"collector failed: {', '.join(scrape.failed)}")


def _serve(address: ListenAddress, scraper: Scraper) -> None:
    """Serve until SIGTERM or SIGINT."""
    server = open_server(address, registry(scraper))

    def stop(_signal: int, _frame: object) -> None:
        # serve_forever runs in this very thread: shutdown() would wait for it here for ever.
        threading.Thread(target=server.shutdown, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    bound = ListenAddress(str(server.server_address[0]), int(server.server_address[1]))
    click.echo(f"opsk exporter: http://{bound}/metrics", err=True)
    with server:
        server.serve_forever(poll_interval=0.2)
