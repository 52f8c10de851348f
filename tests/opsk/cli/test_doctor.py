"""Do the parts of `opsk doctor` that need no daemon say what is wrong?"""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest
from click.testing import CliRunner

from opsk.app.doctor.checks import check_lua
from opsk.app.doctor.configuration import check_store
from opsk.app.doctor.exporters import check_exporters, find_exporter_urls, scrape_exporters
from opsk.app.doctor.finding import Finding, Level, Site
from opsk.app.doctor.prometheus import check_prometheus
from opsk.app.doctor.slurm import InstalledSlurm, check_skew
from opsk.app.site_pages import fetch
from opsk.cli.doctor import doctor
from opsk.config import SiteConfig
from opsk.errors import InputError
from opsk.store.database.engine import open_store
from opsk.store.database.schema import list_revisions
from tests.fakes import database_servers

Serve = Callable[..., str]


def site(exporters: dict[str, str] | None = None, **config: object) -> Site:
    return Site(
        config=SiteConfig.model_validate(config), config_path=Path("/etc/opsk/opsk.toml"), slurm=None,
        exporters=exporters or {}, now_s=time.time(),
    )  # fmt: skip


def wrong(findings: Iterator[Finding]) -> dict[str, str]:
    return {each.check: each.what for each in findings if each.level is Level.WRONG}


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve texts by path, and show a clock that is off."""
    servers = []

    def start(pages: dict[str, str], *, ahead_s: float = 0.0, status: int = 200) -> str:
        class Handler(http.server.BaseHTTPRequestHandler):
            def date_time_string(self, timestamp: float | None = None) -> str:
                return formatdate(time.time() + ahead_s, usegmt=True)

            def do_GET(self) -> None:
                body = pages.get(self.path.partition("?")[0], "").encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("theirs_s", "level"), [(1000.0, Level.SOUND), (995.2, Level.SOUND), (1010.0, Level.WRONG), (900.0, Level.WRONG)]
)
def test_a_clock_in_whole_seconds_may_be_off_by_five(theirs_s: float, level: Level) -> None:
    assert check_skew("clock", "theirs", theirs_s, 1000.2, 1001.0).level is level


def test_collectors_that_fail_or_are_missing_are_named_by_node(serve: Serve) -> None:
    blind = 'opsk_collector_success{collector="power"} 0\nopsk_collector_success{collector="gpu"} 1\n'
    urls = {name: f"{serve({'/metrics': blind})}/metrics" for name in ("n0", "n1")}
    poor = 'opsk_collector_missing{collector="gpu"} 1\nopsk_kernel_log_readable 0\n'
    urls["n2"] = serve({"/metrics": poor}) + "/metrics"
    found = list(check_exporters(scrape_exporters(site(urls))))
    told = [each.what for each in found if each.level is Level.WRONG]
    assert told == [
        "collector power is blind on n[0-1]: it fails or is too slow",
        "collector gpu is not installed on n2",
    ]
    assert [each.check for each in found if each.level is Level.NOTE] == ["kernel-log"]


def test_exporters_that_refuse_or_lead_elsewhere(serve: Serve) -> None:
    urls = {"a": serve({}, status=401), "b": serve({}, status=302)}
    found = wrong(check_exporters(scrape_exporters(site(urls))))
    assert found.keys() == {"exporter"}


def test_a_server_whose_clock_is_off(serve: Serve) -> None:
    url = serve({"/metrics": ""}, ahead_s=-400.0)
    assert wrong(check_exporters(scrape_exporters(site({"n0": f"{url}/metrics"})))).keys() == {"clock"}


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"status":"success","data":[]}', "<html>", "[" * 9999])
def test_what_is_no_prometheus_is_said_so(serve: Serve, text: str) -> None:
    url = serve({"/api/v1/targets": text})
    assert wrong(check_prometheus(site(top={"prometheus": url}), ())).keys() == {"prometheus"}


def test_the_password_is_sent_to_the_server_alone(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("s3cret\n")
    config = SiteConfig.model_validate({"top": {"user": "u", "password_file": str(tmp_path / "p")}})
    assert fetch(serve({}, status=302), config.top).problem == "HTTP status 302"
    gone = SiteConfig.model_validate({"top": {"user": "u", "password_file": str(tmp_path / "none")}})
    assert "s3cret" not in fetch("http://127.0.0.1:1", gone.top).problem


def test_targets_are_read_as_prometheus_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "targets.yml"
    path.write_text('- targets: ["n0:9876", "n1:9876"]\n  labels: {cluster: "c"}\n')
    top = SiteConfig.model_validate({"top": {"exporter_targets": str(path), "tls": True}}).top
    assert find_exporter_urls((), top)[0] == {"n0": "https://n0:9876/metrics", "n1": "https://n1:9876/metrics"}
    path.write_text('[{"targets": ["h:1"], "labels": {"node": "n0"}}, {"targets": ["h:2"]}, {"targets": ["h:3"]}]')
    assert list(find_exporter_urls((), top)[0]) == ["n0", "h", "h:3"], "all are asked, whatever they are called"
    path.write_text("- targets: 3\n  - x")
    urls, found = find_exporter_urls((), top)
    assert (urls, [each.check for each in found]) == ({}, ["targets"])


def test_exporters_are_named_by_lists_and_urls() -> None:
    top = SiteConfig().top
    urls, _ = find_exporter_urls(["n[0-1]", "x=https://x:1"], top)
    assert urls == {
        "n0": "http://n0:9876/metrics", "n1": "http://n1:9876/metrics", "x": "https://x:1/metrics",
    }  # fmt: skip
    with pytest.raises(InputError, match="is no URL"):
        find_exporter_urls(["x=ftp://x"], top)


def test_a_store_of_another_form_or_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "opsk.db"
    here = site(store={"url": f"sqlite:///{path}"})
    assert [each.level for each in check_store(here)] == [Level.NOTE]
    engine = open_store(f"sqlite:///{path}")
    assert [each.level for each in check_store(here)] == [Level.SOUND]
    for revision, words in ((list_revisions()[0], "this opsk needs"), ("9999", "a newer opsk")):
        with engine.begin() as connection:
            connection.exec_driver_sql("update alembic_version set version_num = ?", (revision,))
        (finding,) = check_store(here)
        assert finding.level is Level.WRONG
        assert words in finding.what
    engine.dispose()
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / {tmp_path} rw - nfs4 server:/home rw\n")
    monkeypatch.setattr("opsk.store.database.network_files._MOUNTS", mounts)
    assert "is on a network file system (nfs4" in "".join(each.what for each in check_store(here))


def test_a_store_that_does_not_answer() -> None:
    for kind in ("postgresql", "mariadb"):
        pytest.importorskip("psycopg" if kind == "postgresql" else "pymysql")
        found = wrong(check_store(site(store={"url": f"{kind}://opsk:s3cret@127.0.0.1:1/opsk"})))
        assert found.keys() == {"store"}
        assert "s3cret" not in found["store"]


def test_a_server_without_tables(request: pytest.FixtureRequest) -> None:
    if database_servers.program("initdb") is None:
        pytest.skip("PostgreSQL is not installed here: deploy/install-system-packages --tests")
    pytest.importorskip("psycopg")
    with database_servers.postgresql() as server:
        url = database_servers.new_database(server, "postgres")
        assert wrong(check_store(site(store={"url": url}))) == {"store": "has no tables yet"}


def test_lua_socket_that_is_missing_shows_at_a_running_site(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = {"job_submit_lua.so": Path("/usr/lib/slurm/job_submit_lua.so")}
    for lua, level in (((), Level.NOTE), (("5.4",), Level.WRONG)):
        found = InstalledSlurm(release=(24, 11), plugins=plugins, lua=lua)
        monkeypatch.setattr("opsk.app.doctor.checks.find_installed_slurm", lambda _root, found=found: found)
        assert [each.level for each in check_lua()] == [level]


def test_nothing_at_all_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Slurm, configuration and daemons gets an answer and a status, no traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / "opsk.toml"
    done = CliRunner().invoke(doctor, ["--config", str(config)], standalone_mode=False)
    assert done.return_value == 1
    assert "slurmctld does not answer" in done.output
    config.write_bytes(b"cluster = \xff\n[[[")
    done = CliRunner().invoke(
        doctor, ["--config", str(config), "--exporter", "n0=http://127.0.0.1:1"], standalone_mode=False
    )
    assert "configuration: cannot be used" in done.output


def test_hostile_words_stay_words(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    url = serve({"/metrics": 'opsk_collector_success{collector="\x1b[2Jgpu"} 0\n'})
    done = CliRunner().invoke(
        doctor, ["--config", str(tmp_path / "x"), "--exporter", f"n0={url}"], standalone_mode=False
    )
    assert "\\x1b[2Jgpu" in done.output
    assert "\x1b" not in done.output
