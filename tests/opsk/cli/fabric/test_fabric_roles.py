"""What opsk.toml says hosts and switches are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.cli.fabric.command import find_site_compute_nodes, read_site_roles
from opsk.errors import ConfigError
from opsk.fabric.design import rail_optimized_fabric


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "opsk.toml"
    monkeypatch.setenv("OPSK_CONFIG", str(path))
    return path


def test_host_lists_and_patterns_are_taken(config: Path) -> None:
    config.write_text('[fabric_roles]\nstorage = "oss[1-2],mds1,stor-*"\ncompute = "n[0-1]"\n')
    roles = read_site_roles()
    assert roles == {"storage": {"oss1", "oss2", "mds1", "stor-*"}, "compute": {"n0", "n1"}}
    fabric = rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=1)
    assert find_site_compute_nodes(fabric, roles) == {"n0", "n1"}
    assert find_site_compute_nodes(fabric, {"compute": {"n*"}}) == {"n0", "n1", "n2", "n3"}
    assert find_site_compute_nodes(fabric, {}) is None


@pytest.mark.parametrize("text", ['storage = "oss[1-"', 'kitchen = "x"'])
def test_what_is_no_host_list_or_role_is_refused(config: Path, text: str) -> None:
    config.write_text(f"[fabric_roles]\n{text}\n")
    with pytest.raises(ConfigError, match="fabric_roles"):
        read_site_roles()
