"""Configures a real Prometheus for a lab, with the scrape file, rules and alerts of ``deploy/prometheus``."""

from __future__ import annotations

import shutil
from pathlib import Path

import yaml

from opsk.lab.parts import LabSite
from opsk.lab.programs import build_search_path
from opsk.lab.slurm_files import find_deploy_folder

PROGRAM = "prometheus"
INTERVAL_S = 5
"""A lab is used for minutes: it is scraped more often than a cluster."""
NO_PROMETHEUS = "no Prometheus: not installed (package prometheus)"
"""The note of a lab that was started with Prometheus and has no such program."""
_RULES = ("opsk-rules.yml", "opsk-alerts.yml")


def find_prometheus() -> str | None:
    """Return the path of Prometheus, or ``None`` where it is not installed."""
    return shutil.which(PROGRAM, path=build_search_path())


def write_prometheus(site: LabSite) -> None:
    """Write Prometheus's configuration, targets, rules and alerts next to slurm.conf."""
    theirs, ours = find_deploy_folder() / "prometheus", site.etc / "prometheus"
    ours.mkdir()
    for name in _RULES:
        shutil.copyfile(theirs / name, ours / name)
    scrape = yaml.safe_load((theirs / "scrape.yml").read_text(encoding="utf-8"))
    for job in scrape["scrape_configs"]:
        job |= {"scrape_interval": f"{INTERVAL_S}s", "scrape_timeout": f"{INTERVAL_S}s"}
        job["file_sd_configs"] = [{"files": [str(ours / "targets.yml")]}]
        # A target is n0:<port>, as a cluster's would be; all nodes of a lab answer on loopback.
        job["relabel_configs"].append(
            {
                "source_labels": ["__address__"],
                "regex": ".+:([0-9]+)",
                "target_label": "__address__",
                "replacement": "127.0.0.1:$1",
            }
        )
    evaluated = {"evaluation_interval": f"{INTERVAL_S}s", "scrape_interval": f"{INTERVAL_S}s"}
    config = {"global": evaluated, "rule_files": [str(ours / name) for name in _RULES], **scrape}
    addresses = [f"{node}:{port}" for node, port in site.exporters.items()]
    targets = [{"targets": addresses, "labels": {"cluster": site.cluster}}]
    for name, document in (("prometheus.yml", config), ("targets.yml", targets)):
        text = f"# Written by `opsk lab up`.\n{yaml.safe_dump(document, sort_keys=False)}"
        (ours / name).write_text(text, encoding="utf-8")


def build_prometheus_command(site: LabSite, program: str | Path) -> tuple[str, ...]:
    """Return the command that starts it on loopback; its data is removed when the lab goes down."""
    return (
        str(program),
        f"--config.file={site.etc / 'prometheus' / 'prometheus.yml'}",
        f"--storage.tsdb.path={site.run / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{site.prometheus_port}",
        "--log.level=warn",
    )
