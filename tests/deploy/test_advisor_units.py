"""Does systemd accept the advisor's drop-in for a store on another host, and does it open no more than that?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.test_exporter_units import analyze
from tests.deploy.test_systemd import unit

UNIT = "opsk-advisor.service"
DROP_IN = Path(f"{UNIT}.d") / "store-server.conf"
MOST_EXPOSED = 3.0
"""What `systemd-analyze security` may say of the unit with it; 5 and more it calls medium."""


@pytest.fixture
def together(root: Path, tmp_path: Path) -> Path:
    """The unit with the drop-in at its end, where it counts alike: a unit named by its path has no drop-ins."""
    folder = root / "deploy" / "systemd"
    text = (folder / UNIT).read_text(encoding="utf-8").replace("/usr/bin/opsk ", "/bin/true ")
    (tmp_path / UNIT).write_text(text + (folder / DROP_IN).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path / UNIT


def test_systemd_finds_no_fault(together: Path) -> None:
    done = analyze("verify", "--man=no", together)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_it_stays_confined(together: Path) -> None:
    done = analyze("security", "--offline=true", "--no-pager", f"--threshold={MOST_EXPOSED * 10:.0f}", together)
    if "Overall exposure level" not in done.stdout:
        pytest.skip(f"this systemd-analyze cannot judge a unit offline: {done.stderr.strip()}")
    assert done.returncode == 0, done.stdout


def test_it_lifts_the_network_alone_and_only_towards_named_addresses(root: Path) -> None:
    shipped, opened = unit(root, UNIT)["Service"], unit(root, str(DROP_IN))["Service"]
    assert set(opened) == {"PrivateNetwork", "RestrictAddressFamilies", "IPAddressAllow", "Environment"}
    assert (shipped["PrivateNetwork"], opened["PrivateNetwork"]) == ("yes", "no")
    assert shipped["IPAddressDeny"] == "any"
    assert opened["IPAddressAllow"].split() == ["localhost", "192.0.2.10"], "an address of RFC 5737, to be replaced"
    assert set(opened["RestrictAddressFamilies"].split()) == {"AF_UNIX", "AF_INET", "AF_INET6"}


def test_the_how_to_names_it(root: Path) -> None:
    page = (root / "docs" / "howto" / "choose-a-database.md").read_text(encoding="utf-8")
    assert str(DROP_IN) in page
