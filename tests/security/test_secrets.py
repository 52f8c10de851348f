"""Does a password that stands in the site's configuration stay there, whatever goes wrong?

Commands that read the configuration are run on sound and on broken ones; nothing that they say may hold the password.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from opsk.app.doctor.configuration import check_configuration
from opsk.app.doctor.finding import Level, Site
from opsk.cli.main import main
from opsk.config import SiteConfig, StoreConfig

SECRET = "correct-horse-7f3a"
SERVERS = {
    "nobody there": f"postgresql://opsk:{SECRET}@127.0.0.1:1/opsk",
    "in an option": f"mariadb://opsk@127.0.0.1:1/opsk?password={SECRET}",
    "in another option": f"postgresql://opsk@127.0.0.1:1/opsk?sslmode=disable&sslpassword={SECRET}",
    "escaped": f"postgresql://opsk:%40{SECRET}@127.0.0.1:1/opsk",
    "no port": f"postgresql://opsk:{SECRET}@127.0.0.1:port/opsk",
    "an at too many": f"postgresql://opsk:p@{SECRET}@127.0.0.1:1/opsk",
    "no such driver": f"postgresql+psycopg9://opsk:{SECRET}@127.0.0.1:1/opsk",
    "no database": f"oracle://opsk:{SECRET}@127.0.0.1:1/opsk",
    "a file with a password": f"sqlite://opsk:{SECRET}@/tmp/x.db",
    "an option that nobody knows": f"mariadb://opsk:{SECRET}@127.0.0.1:1/opsk?fetch=1&passwd={SECRET}",
    "a bracket": f"postgresql://opsk:{SECRET}@[::1/opsk",
}
BROKEN = {
    "a list": f'url = ["{SECRET}"]',
    "a table": f'url = {{ password = "{SECRET}" }}',
    "no quote": f'url = "postgresql://opsk:{SECRET}@db/opsk',
    "twice": f'url = "postgresql://opsk:{SECRET}@db/a"\nurl = "postgresql://opsk:{SECRET}@db/b"',
    "an unknown key": f'urls = "postgresql://opsk:{SECRET}@db/a"',
    "elsewhere too": f'url = "postgresql://opsk:{SECRET}@db/a"\n[top]\nprometheus = "https://opsk:{SECRET}@prometheus"',
    "a password of its own": f'url = "postgresql://db/a"\n[top]\npassword = "{SECRET}"',
}
COMMANDS = (
    "doctor", "setup --dry-run", "store size", "store prune --dry-run", "store export", "postmortem 4711 --json",
    "postmortem --list", "goodput --json", "remap 4711 --failed node:n1 --json", "collect", "losses 4711 --json",
)  # fmt: skip


def said(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Return all that a command says before it ends, at the latest by giving up."""
    monkeypatch.setattr(sys, "argv", ["opsk", *command.split()])
    with pytest.raises(SystemExit):
        main()
    out, err = capsys.readouterr()
    return out + err


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no Slurm that could be waited for
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "opsk.toml"


@pytest.mark.parametrize("url", SERVERS.values(), ids=SERVERS)
def test_a_store_that_cannot_be_opened_is_said_without_its_password(
    site: Path, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write_text(f'[store]\nurl = "{url}"\n', encoding="utf-8")
    for command in ("store check", "store upgrade --json", "store size --json"):
        assert SECRET not in said(command, capsys, monkeypatch), command


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_configuration_that_cannot_be_read_is_said_without_what_is_in_it(
    site: Path, text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write_text(f"[store]\n{text}\n", encoding="utf-8")
    for command in ("store check", "exporter --once", "advisor"):
        assert SECRET not in said(command, capsys, monkeypatch), command


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_says_the_password(
    site: Path, command: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    caplog.set_level(logging.DEBUG)
    password = site.with_name("password")
    password.write_text(SECRET, encoding="ascii")
    site.write_text(
        f'[store]\nurl = "{SERVERS["nobody there"]}"\n[top]\nprometheus = "http://127.0.0.1:1"\nuser = "opsk"\n'
        f'password_file = "{password}"\n[postmortem]\nfolder = "{site.parent / "evidence"}"\nwait_s = 0\n'
        f'spool = "{site.parent / "spool"}"\n',
        encoding="utf-8",
    )
    assert SECRET not in said(command, capsys, monkeypatch) + caplog.text


@pytest.mark.parametrize(("mode", "is_told"), [(0o644, True), (0o640, False), (0o600, False)])
def test_doctor_tells_of_a_password_that_everybody_can_read(site: Path, mode: int, is_told: bool) -> None:
    for url in SERVERS.values():
        config = SiteConfig(store=StoreConfig(url=url))
        site.write_text("", encoding="ascii")
        site.chmod(mode)
        found = list(check_configuration(Site(config=config, config_path=site, slurm=None, now_s=0.0)))
        assert any((each.check, each.level) == ("password", Level.WRONG) for each in found) is is_told, url


@pytest.mark.parametrize("url", ["postgresql://opsk@db/opsk", "sqlite:////var/lib/opsk/opsk.db", "mariadb://db/opsk"])
def test_a_url_without_a_password_is_no_secret(site: Path, url: str) -> None:
    site.write_text("", encoding="ascii")
    config = SiteConfig(store=StoreConfig(url=url))
    found = check_configuration(Site(config=config, config_path=site, slurm=None, now_s=0.0))
    assert all(each.check != "password" for each in found)


def test_an_address_with_a_password_is_refused_without_repeating_it(
    site: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would otherwise stand in the log of a roll-out."""
    told = said(f"setup --dry-run --prometheus https://opsk:{SECRET}@prometheus:9090", capsys, monkeypatch)
    assert "not the URL of a Prometheus" in told
    assert SECRET not in told


def test_a_traceback_of_the_configuration_has_no_password() -> None:
    """Workers get it as JSON; one of another release would print what it does not understand."""
    for said_wrong in ({"store": {"url": [SECRET]}}, {"store": SECRET}, {"stores": {"url": SECRET}}):
        with pytest.raises(ValidationError) as raised:
            SiteConfig.model_validate(said_wrong)
        assert SECRET not in str(raised.value)
