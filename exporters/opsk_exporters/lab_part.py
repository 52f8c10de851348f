"""Adds the exporters to a lab: one process for each of the first nodes, and the processes that they need.

Each reads simulated devices (`opsk.lab.exporters`); of the real machine it shows only what psutil reads. One
more process updates these devices, and a Prometheus scrapes all of them if requested.
"""

from __future__ import annotations

import sys

from opsk.lab.exporters import (
    build_exporter_environment,
    build_prometheus_command,
    build_stand_in,
    find_prometheus,
    format_slurm_lines,
    install_watched,
    machine_folder,
    prepare_watched,
    write_prometheus,
)
from opsk.lab.parts import LabPart, LabSite, PartDaemon

OPSK = (sys.executable, "-P", "-m", "opsk")


def exporter_part(site: LabSite) -> LabPart:
    """Return the exporters of one lab, and the Prometheus that scrapes them if requested."""
    if not site.exporters:
        return LabPart(install=lambda: None)
    library = build_stand_in(site)
    notes = [] if library.library else [f"exporters show no GPUs: {library.why_not}"]
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
        environment = build_exporter_environment(site, machine_folder(site, node), library.library)
        command = (*OPSK, "exporter", "--listen", f"127.0.0.1:{port}")
        daemons.append(PartDaemon(name=f"exporter-{node}", command=command, socket=port, environment=environment))
    if program is not None:
        words = build_prometheus_command(site, program)
        daemons.append(PartDaemon(name="prometheus", command=words, socket=site.prometheus_port))
    return LabPart(
        install=install,
        daemons=tuple(daemons),
        slurm_lines=format_slurm_lines(site),
        prepare=lambda launcher: prepare_watched(site, launcher),
        notes=tuple(notes),
    )
