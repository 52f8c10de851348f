"""What do the exporters add to a lab? One process for each of the first few nodes, and more.

Each reads devices that the lab makes up (`opsk.lab.watched`); of the machine below it shows only what psutil sees. One
more process moves these devices on, and a Prometheus scrapes all of it where one is wanted.
"""

from __future__ import annotations

import sys

from opsk.lab.parts import LabPart, LabSite, PartDaemon
from opsk.lab.prometheus import find_prometheus, prometheus_command, write_prometheus
from opsk.lab.watched import (
    exporter_environment,
    install_watched,
    machine_folder,
    prepare_watched,
    slurm_lines,
    stand_in,
)

OPSK = (sys.executable, "-P", "-m", "opsk")


def exporter_part(site: LabSite) -> LabPart:
    """Return the exporters of one lab, and the Prometheus that scrapes them where one is wanted."""
    if not site.exporters:
        return LabPart(install=lambda: None)
    found = stand_in(site)
    notes = [] if found.library else [f"exporters show no GPUs: {found.why_not}"]
    others = site.shape.nodes - len(site.exporters)
    if others:
        notes.append(f"{others} of {site.shape.nodes} nodes have no exporter: --exporters {site.shape.nodes}")
    program = find_prometheus() if site.prometheus_port else None

    def install() -> None:
        install_watched(site)
        if program is not None:
            write_prometheus(site)

    daemons = [
        PartDaemon(
            name="devices",
            command=(*OPSK[:-1], "opsk.lab.machine.clock", f"{site.run}/nodes", f"{site.etc}/slurm.conf"),
        )
    ]
    for node, port in site.exporters.items():
        environment = exporter_environment(site, machine_folder(site, node), found.library)
        command = (*OPSK, "exporter", "--listen", f"127.0.0.1:{port}")
        daemons.append(PartDaemon(name=f"exporter-{node}", command=command, socket=port, environment=environment))
    if program is not None:
        words = prometheus_command(site, program)
        daemons.append(PartDaemon(name="prometheus", command=words, socket=site.prometheus_port))
    return LabPart(
        install=install,
        daemons=tuple(daemons),
        slurm_lines=slurm_lines(site),
        prepare=lambda launcher: prepare_watched(site, launcher, OPSK),
        notes=tuple(notes),
    )
