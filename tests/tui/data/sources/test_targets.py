"""Which exporters does a screen ask?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opsk.config import SiteConfig
from opsk_tui.data.sources.exporters import find_exporters
from tests.tui.data.sources.conftest import slurm_nodes


def test_exporters_are_those_of_slurms_nodes_with_gpus_or_of_the_sites_file(tmp_path: Path) -> None:
    nodes = slurm_nodes()
    first, login = replace(nodes[0], address="::1"), replace(nodes[1], gpus=0)
    top = SiteConfig.model_validate({"top": {"tls": True}}).top
    assert find_exporters([first, login], top) == {first.name: "https://[::1]:9876"}
    path = tmp_path / "targets.yml"
    path.write_text(f'- targets: ["{first.name}:9001", "x:9002"]\n')
    top = SiteConfig.model_validate({"top": {"exporter_targets": str(path)}}).top
    assert find_exporters([first, login], top) == {first.name: "http://[::1]:9001", "x": "http://x:9002"}
