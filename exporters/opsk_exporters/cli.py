"""Implements the command ``opsk exporter``."""

from __future__ import annotations

import contextlib
import gc
import logging
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from opsk.errors import ConfigError, InputError, UnavailableError
from opsk.stop_signals import StopSignals
from opsk.units import KIB
from opsk_exporters.catalogue import COLLECTORS, Sources, make_collectors, select_collectors
from opsk_exporters.core import systemd as socket_activation
from opsk_exporters.core.background_log import log_in_background
from opsk_exporters.core.collector import Scraper
from opsk_exporters.core.exposition import Writer, write_textfile
from opsk_exporters.core.server import DEFAULT_LISTEN, ExporterServer, ListenAddress, Pages, open_server
from opsk_exporters.core.settings import Settings, load_settings
from opsk_exporters.core.web_access import WebAccess

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_CHUNK_BYTES = 128 * KIB
_YOUNG_OBJECTS = 10_000
"""Objects of one scrape: most are gone at its end, without anybody looking for cycles."""
LOG = logging.getLogger("opsk.exporter")
_POLL_S = 0.5
_UNRESPONSIVE_AFTER_S = 30.0
"""A server that has not polled for connections for so long gets no watchdog signal: systemd restarts it."""
_ENDS_WITHIN_S = 8.0
"""For closing everything after SIGTERM: collectors get a second, and systemd waits for ten (`TimeoutStopSec`)."""
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE = click.Path(dir_okay=False, path_type=Path)


def keep_small() -> None:
    """Make the allocator use one arena and return large pieces, and reduce garbage collection of cycles.

    The exporter runs on nodes that belong to jobs. The allocator of glibc gives each thread an arena of its own, and
    every scrape comes in a new thread: the same 20 MB of garbage would then be held several times. One arena is enough
    for a process whose threads mostly wait. The cyclic garbage collector would scan all imported modules again and
    again, and finds nothing there.

    Does nothing about the allocator where it is not glibc's. Source: mallopt(3).
    """
    import ctypes

    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)

    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in (
            (_M_ARENA_MAX, 1),
            (_M_MMAP_THRESHOLD, _CHUNK_BYTES),
            (_M_TRIM_THRESHOLD, _CHUNK_BYTES),
        ):
            mallopt(ctypes.c_int(parameter), ctypes.c_int(value))


@click.command()
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help=f"Address to serve on; :9876 is all IPv4 addresses of the node, [::]:9876 all addresses. "
    f"Default: {DEFAULT_LISTEN}, or the sockets that systemd passes.",
)
@click.option(
    "--web-config",
    type=_FILE,
    help="TLS and passwords: a web configuration file as the Prometheus exporters have. Read again when it changes.",
)
@click.option("--once", is_flag=True, help="Print one scrape on stdout and exit.")
@click.option("--textfile", type=_FILE, help="Write scrapes to this file for node_exporter's textfile collector.")
@click.option(
    "--every",
    type=click.FloatRange(min=1, max=86400),
    metavar="SECONDS",
    help="With --textfile: write again at this interval until stopped. Without: write once and exit.",
)
@click.option("--collectors", metavar="NAMES", help=f"Only these, comma-separated: {', '.join(sorted(COLLECTORS))}.")
@click.option("--without", metavar="NAMES", help="Not these collectors, comma-separated.")
@click.option("--sysfs", type=_FOLDER, help="Where sysfs is mounted. Default: /sys.")
@click.option("--procfs", type=_FOLDER, help="Where procfs is mounted. Default: /proc.")
@click.option("--cgroups", type=_FOLDER, help="Where control groups are mounted. Default: fs/cgroup of sysfs.")
@click.option("--jobs-folder", type=_FOLDER, help="Where the prolog writes which job has which GPUs.")
@click.option(
    "--deadline",
    type=click.FloatRange(min=0.01, max=60),
    metavar="SECONDS",
    help="A collector that takes longer counts as failed. Default: 5; a scraper that states its own timeout never "
    "waits longer than that.",
)
def exporter(
    listen: str | None,
    web_config: Path | None,
    once: bool,
    textfile: Path | None,
    every: float | None,
    collectors: str | None,
    without: str | None,
    deadline: float | None,
    **places: Path | None,
) -> None:
    """Export metrics of this node's hardware and jobs to Prometheus.

    Serves /metrics until it is stopped; it does not need root and writes nothing. Without --listen only this machine
    can reach it; set --web-config before others can. Put permanent settings into section [exporter] of opsk.toml.
    """
    options = {
        "listen": listen,
        "web_config": web_config,
        "collectors": _parse_names("--collectors", collectors),
        "without": _parse_names("--without", without),
        "deadline_s": deadline,
        **places,
    }
    settings = with_options(load_settings(), options)
    address = ListenAddress.parse(settings.listen)
    keep_small()
    if (once and textfile) or (every and not textfile):
        raise InputError("--once and --textfile exclude each other, and --every is for --textfile")
    with (
        log_in_background(sys.stderr, "opsk exporter: %(message)s"),
        closing(Sources(settings)) as sources,
        closing(_build_scraper(sources)) as scraper,
    ):
        if once:
            _print_once(scraper)
        elif textfile:
            _write_files(Pages(scraper), textfile, every)
        else:
            access = WebAccess(settings.web_config) if settings.web_config else None
            _serve(address, Pages(scraper, access), access)


def with_options(settings: Settings, options: dict[str, Any]) -> Settings:
    """Return settings in which the options override the file; a deadline option applies to every collector."""
    given = {name: value for name, value in options.items() if value is not None}
    if "deadline_s" in given:
        given["deadlines_s"] = {}
    if "collectors" in given and "without" not in given:
        given["without"] = ()
    return replace(settings, **given)


def _parse_names(option: str, text: str | None) -> tuple[str, ...] | None:
    """Read a list of collectors; ``None`` when there is none."""
    if text is None:
        return None
    names = tuple(dict.fromkeys(filter(None, text.replace(" ", "").split(","))))
    unknown = [name for name in names if name not in COLLECTORS]
    if unknown or not names:
        wrong = ", ".join(map(repr, unknown)) or "an empty list"
        raise InputError(f"{option}: {wrong} is no collector", hint=f"there are: {', '.join(sorted(COLLECTORS))}")
    return names


def _build_scraper(sources: Sources) -> Scraper:
    """Create the collectors that the settings enable."""
    settings = sources.settings
    try:
        names = select_collectors(settings)
    except ConfigError as error:
        raise ConfigError(f"exporter: {error.message}", hint=error.hint) from error
    made = make_collectors(names, sources, asked_for=settings.collectors is not None)
    return Scraper(made.collectors, settings.deadline_s, deadlines_s=settings.deadlines_s, missing=made.missing)


def _print_once(scraper: Scraper) -> None:
    """Print one scrape.

    Raises
    ------
    UnavailableError
        A collector failed; what the others gave has been printed.
    """
    scrape = scraper.scrape()
    click.echo(Writer().text(scrape.metrics).decode("utf-8"), nl=False)
    if scrape.failed:
        raise UnavailableError(f"collector failed: {', '.join(scrape.failed)}")


def _write_files(pages: Pages, path: Path, every_s: float | None) -> None:
    """Write scrapes to a file: one, or until SIGTERM or SIGINT; then remove it, since it would be exported as new."""
    writer = Writer()
    if every_s is None:
        write_textfile(path, writer.text(pages.metrics()))
        return
    stops = StopSignals(_ENDS_WITHIN_S)
    write_textfile(path, writer.text(pages.metrics()))
    socket_activation.notify("READY=1")
    try:
        _write_again(pages, writer, path, every_s, stops)
    finally:
        socket_activation.notify("STOPPING=1")
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            LOG.warning("%s cannot be removed and keeps its last values: %s", path, error.strerror)


def _write_again(pages: Pages, writer: Writer, path: Path, every_s: float, stops: StopSignals) -> None:
    """Write scrapes to a file until stopped."""
    failed = ""
    while not stops.wait(every_s):
        try:
            write_textfile(path, writer.text(pages.metrics()))
            failed = ""
        except UnavailableError as error:  # a full or read-only disk may be better at the next time
            if error.message != failed:
                LOG.warning("%s", error.message)
            failed = error.message


def _serve(address: ListenAddress, pages: Pages, access: WebAccess | None) -> None:
    """Serve until SIGTERM or SIGINT."""
    handed = socket_activation.receive_sockets()
    servers = [open_server(address, pages, access, listening) for listening in handed] or [
        open_server(address, pages, access)
    ]
    stops = StopSignals(_ENDS_WITHIN_S)
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(_POLL_S,), daemon=True).start()
        click.echo(f"opsk exporter: {server.shown_address}/metrics", err=True)
    socket_activation.notify("READY=1")
    _feed_watchdog(servers, stops)
    socket_activation.notify("STOPPING=1")
    for server in servers:
        server.shutdown()
        server.server_close()


def _feed_watchdog(servers: list[ExporterServer], stops: StopSignals) -> None:
    """Wait for the end; meanwhile signal systemd's watchdog, as long as connections are accepted."""
    every_s = socket_activation.watchdog_s()
    while not stops.wait(every_s):
        if all(server.is_alive(_UNRESPONSIVE_AFTER_S) for server in servers):
            socket_activation.notify("WATCHDOG=1")
