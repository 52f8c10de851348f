"""Cluster and fabric of a site: from its configuration, or from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.config import SiteConfig
from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from opsk_jobcheck.advice.adviser import build_site_adviser


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Four nodes of 8 HCAs, as ibnetdiscover shows them."""
    path = tmp_path / "fabric.ibnetdiscover"
    path.write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=4, hcas=8, leaves=8, spines=2)))
    return path


def test_a_site_that_decided_nothing_has_neither() -> None:
    adviser = build_site_adviser(SiteConfig())
    assert (adviser.cluster, adviser.rails, adviser.cluster_from, adviser.fabric_from) == (None, None, "", "")


def test_the_configuration_names_both(dump: Path) -> None:
    adviser = build_site_adviser(SiteConfig(cluster="titan", fabric=(dump,)))
    assert adviser.cluster is not None
    assert adviser.rails is not None
    assert (adviser.cluster.name, len(adviser.rails.attachments)) == ("titan", 4)
    assert (adviser.cluster_from, adviser.fabric_from) == ("titan", str(dump))


def test_the_command_line_beats_the_configuration(dump: Path) -> None:
    site = SiteConfig(cluster="titan", fabric=(Path("/nowhere"),))
    adviser = build_site_adviser(site, cluster="summit", fabric=(dump,))
    assert adviser.cluster is not None
    assert (adviser.cluster.name, adviser.fabric_from) == ("summit", str(dump))


def test_a_fabric_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.dump"):
        build_site_adviser(SiteConfig(fabric=(tmp_path / "no.dump",)))


@pytest.mark.parametrize("key", ["cluster", "fabric", "efficiency"])
def test_a_mistake_in_the_configuration_is_told_by_its_key(key: str) -> None:
    with pytest.raises(InputError, match=f"^{key} in the site configuration: /no/such.toml: "):
        build_site_adviser(SiteConfig.model_validate({key: "/no/such.toml"}))


def test_a_mistake_on_the_command_line_is_told_as_it_is() -> None:
    with pytest.raises(InputError, match=r"^/no/such\.toml: "):
        build_site_adviser(SiteConfig(), cluster="/no/such.toml")


def test_a_cluster_that_nobody_knows_is_named() -> None:
    with pytest.raises(InputError, match="atlantis"):
        build_site_adviser(SiteConfig(cluster="atlantis"))
