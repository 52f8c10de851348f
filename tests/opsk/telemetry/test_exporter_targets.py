"""Where are exporters looked for? One file has one answer, whoever reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.errors import ConfigError
from opsk.telemetry.exporter_targets import build_targets, read_targets


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "targets.yml"


def test_exporters_are_where_slurm_says_that_nodes_are() -> None:
    found = build_targets({"n0": "", "n1": "10.0.0.1", "n2": "fd00::2"}, 9876, tls=True)
    assert found == {"n0": "https://n0:9876", "n1": "https://10.0.0.1:9876", "n2": "https://[fd00::2]:9876"}


def test_targets_of_a_file_are_looked_for_where_slurm_says_that_their_nodes_are(path: Path) -> None:
    path.write_text('- targets: ["n0:9001", "n1:9002", "[::1]:9003"]\n  labels: {cluster: lab}\n')
    found = read_targets(path, tls=False, addresses={"n0": "127.0.0.1", "n1": "::1"})
    assert found == {"n0": "http://127.0.0.1:9001", "n1": "http://[::1]:9002", "[::1]": "http://[::1]:9003"}


def test_a_label_names_the_node_of_one_target_and_of_no_more(path: Path) -> None:
    path.write_text(
        '[{"targets": ["h:1"], "labels": {"node": "n0"}}, {"targets": ["h:2"]}, {"targets": ["h:3"]},'
        ' {"targets": ["i:1", "k:1"], "labels": {"node": "n9"}}]'
    )
    found = read_targets(path, tls=False)
    assert found == {
        "n0": "http://h:1", "h": "http://h:2", "h:3": "http://h:3", "i": "http://i:1", "k": "http://k:1",
    }  # fmt: skip


def test_a_target_needs_no_port_and_a_file_no_target(path: Path) -> None:
    path.write_text("- targets: [n0, 10.0.0.1]\n- targets: []\n")
    assert read_targets(path, tls=False) == {"n0": "http://n0", "10.0.0.1": "http://10.0.0.1"}
    path.write_text("# none yet\n")
    assert read_targets(path, tls=False) == {}


@pytest.mark.parametrize(
    "text",
    [*("- 3", "{", "- targets: 7", "- targets: abc", "- targets: {a: 1}", "- targets: [http://n0:1]"),
     *("- targets: ['n0:x']", "- targets: [':1']", "- labels: {}", "[" * 10_000, "text")],
)  # fmt: skip
def test_what_is_no_such_file_is_one_error(text: str, path: Path) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError, match="no file of targets"):
        read_targets(path, tls=False)


def test_json_is_read_as_json(tmp_path: Path) -> None:
    path = tmp_path / "targets.json"
    path.write_text('[{\t"targets": ["n0:1"]}]')
    assert read_targets(path, tls=True) == {"n0": "https://n0:1"}
    with pytest.raises(ConfigError, match="No such file"):
        read_targets(tmp_path / "none.json", tls=True)
