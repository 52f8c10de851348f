"""Where are exporters looked for?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.errors import ConfigError
from opsk_tui.sources.targets import targets_in, targets_of
from tests.tui.sources.conftest import slurm_nodes


def test_targets_are_slurms_nodes_or_those_of_a_file(tmp_path: Path) -> None:
    assert targets_of(slurm_nodes()[:1], 9876, tls=True) == {"node1": "https://node1:9876"}
    path = tmp_path / "targets.yml"
    path.write_text('- targets: ["n0:9001", "n1:9002"]\n  labels: {cluster: lab}\n')
    found = targets_in(path, tls=False, addresses={"n0": "127.0.0.1", "n1": "::1"})
    assert found == {"n0": "http://127.0.0.1:9001", "n1": "http://[::1]:9002"}
    for text in ("- 3", "{", "- targets: [n0]", "- targets: 7"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="no file of targets"):
            targets_in(path, tls=False, addresses={})
