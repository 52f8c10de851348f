"""The command ``opsk advisor``; apart from ``cli``, because the daemon itself needs nothing of the analysis."""

from __future__ import annotations

from pathlib import Path

import click

from opsk.config import load_site
from opsk_jobcheck.service import serve


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="Site configuration instead of /etc/opsk/opsk.toml.")
def advisor(config: Path | None) -> None:
    """Run the advisor that answers the submit hooks, until it is told to stop.

    SIGHUP reads the configuration again and opens the audit log anew; SIGTERM and SIGINT end it.
    Exit status: 0 it was told to stop; 2 the configuration cannot be used; 3 another advisor answers on the socket.
    """
    serve(load_site(config), load=lambda: load_site(config))
