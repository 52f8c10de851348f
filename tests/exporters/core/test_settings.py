"""Are the exporter's settings read as they are meant, and is every mistake named?"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from opsk import config
from opsk.errors import ConfigError, UnavailableError
from opsk_exporters import catalogue
from opsk_exporters.catalogue import COLLECTORS, Sources, make_collectors, select_collectors
from opsk_exporters.cli import with_options
from opsk_exporters.core import settings
from opsk_exporters.core.settings import Settings, load_settings

WHOLE = """
[exporter]
collectors = ["gpu", "power", "gpu"]
without = "power"
listen = ":9876"
web_config = "/etc/opsk/web.yml"
deadline_s = 4
deadlines_s = { gpu = 2.5 }
rails_file = "/etc/rails.json"
tick_bytes = 64
jobs_folder = "/run/jobs"
gres_conf = "/etc/slurm/gres.conf"
training_logs = false
kernel_log = false
ipmi_interval_s = 0
slurm_on = "head1"
slurm_interval_s = 90
slurm_users = 20
reports_folder = "/shared/reports"
sysfs = "/host/sys"
procfs = "/host/proc"
cgroups = "/host/cgroup"
"""


def site(folder: Path, text: str) -> Path:
    path = folder / "opsk.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_reports_are_counted_where_they_are_kept(tmp_path: Path) -> None:
    assert load_settings(site(tmp_path, '[postmortem]\nfolder = "/kept"\n')).reports_folder == Path("/kept")
    other = '[exporter]\nreports_folder = "/seen"\n[postmortem]\nfolder = "/kept"\n'
    assert load_settings(site(tmp_path, other)).reports_folder == Path("/seen")
    assert load_settings(site(tmp_path, "[postmortem]\n")).reports_folder is None


def test_every_key_is_read(tmp_path: Path) -> None:
    found = load_settings(site(tmp_path, WHOLE))
    assert found == Settings(
        collectors=("gpu", "power"),
        without=("power",),
        listen=":9876",
        web_config=Path("/etc/opsk/web.yml"),
        deadline_s=4.0,
        deadlines_s={"gpu": 2.5},
        rails_file=Path("/etc/rails.json"),
        tick_bytes=64.0,
        jobs_folder=Path("/run/jobs"),
        gres_conf=Path("/etc/slurm/gres.conf"),
        training_logs=False,
        kernel_log=None,
        ipmi_interval_s=0.0,
        slurm_on="head1",
        slurm_interval_s=90.0,
        slurm_users=20,
        reports_folder=Path("/shared/reports"),
        sysfs=Path("/host/sys"),
        procfs=Path("/host/proc"),
        cgroups=Path("/host/cgroup"),
    )
    assert {each.name for each in fields(Settings)} == set(settings._READERS)
    assert (found.get_deadline_s("gpu"), found.get_deadline_s("host")) == (2.5, 4.0)


def test_a_site_without_a_file_or_a_section_gets_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "SITE_FILE", tmp_path / "none.toml")
    assert load_settings() == Settings()
    assert load_settings(site(tmp_path, 'cluster = "x"\n')) == Settings()


def test_the_same_file_serves_all_commands(tmp_path: Path) -> None:
    assert config.DEFAULT_PATH == settings.SITE_FILE
    assert config.KEYS_PAGE == settings.KEYS_PAGE
    assert config.load_site(site(tmp_path, WHOLE)).exporter["listen"] == ":9876"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listn = ':1'", "exporter.listn: unknown key, closest: listen"),
        ("zzzz = 1", "exporter.zzzz: unknown key, known: collectors, without,"),
        ("collectors = 3", "exporter.collectors: should be a word or a list of words"),
        ("collectors = ['']", "exporter.collectors: should be a word"),
        ("deadline_s = '5'", "exporter.deadline_s: should be a number from 0.01 to 60"),
        ("deadline_s = true", "should be a number"),
        ("deadline_s = nan", "should be a number"),
        ("deadline_s = 61", "should be a number from 0.01 to 60"),
        ("deadlines_s = 5", "should be a table: collector = seconds"),
        ("deadlines_s = { gpu = 0 }", "exporter.deadlines_s: gpu: should be a number"),
        ("rails_file = 'rails.json'", "should be a path that begins with /"),
        ("kernel_log = 'no'", "should be true, false, or a path"),
        ("training_logs = 1", "should be true or false"),
        ("listen = ''", "should be a text in quotes"),
    ],
)
def test_mistakes_are_named_with_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    path = site(tmp_path, f"[exporter]\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load_settings(path)
    assert caught.value.message.startswith(f"{path}: ")
    assert says in caught.value.message
    assert "site-configuration.md" in caught.value.hint


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"exporter\.a: .*; exporter\.deadline_s: "):
        load_settings(site(tmp_path, "[exporter]\na = 1\ndeadline_s = 0\n"))


@pytest.mark.parametrize("text", ["exporter = 3\n", "[exporter\n", "\x00"])
def test_no_such_file_is_a_traceback(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load_settings(site(tmp_path, text))


def test_a_named_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(tmp_path / "none.toml")


def test_every_key_is_on_the_page_that_mistakes_point_to() -> None:
    page = (Path(__file__).parents[3] / settings.KEYS_PAGE).read_text(encoding="utf-8")
    section = page.partition("## [exporter]")[2].partition("\n## ")[0]
    assert [name for name in settings._READERS if f"`{name}`" not in section] == []


def test_the_command_line_beats_the_file() -> None:
    told = Settings(collectors=("gpu",), without=("jobs",), deadline_s=4, deadlines_s={"gpu": 1.0}, listen=":1")
    both = with_options(told, {"listen": "[::]:2", "deadline_s": 3.0, "collectors": None, "sysfs": None})
    assert (both.listen, both.get_deadline_s("gpu"), both.collectors) == ("[::]:2", 3.0, ("gpu",))
    # Who names a collector wants it, whatever the file leaves out.
    assert select_collectors(with_options(told, {"collectors": ("jobs",)})) == ("jobs",)


def test_collectors_can_be_chosen_and_left_out() -> None:
    assert select_collectors(Settings()) == tuple(sorted(COLLECTORS))
    assert select_collectors(Settings(collectors=("host", "gpu"), without=("gpu",))) == ("host",)


@pytest.mark.parametrize(
    "wrong", [Settings(collectors=("nvml",)), Settings(without=("nvml",)), Settings(deadlines_s={"nvml": 1.0})]
)
def test_a_name_that_is_no_collector_is_refused(wrong: Settings) -> None:
    with pytest.raises(ConfigError, match="'nvml' is no collector"):
        select_collectors(wrong)


def test_an_empty_selection_is_refused() -> None:
    with pytest.raises(ConfigError, match="an empty list"):
        select_collectors(Settings(collectors=("gpu",), without=("gpu",)))


def test_a_missing_package_costs_its_collector_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    def broken(_sources: Sources) -> None:
        raise ModuleNotFoundError("No module named 'psutil'", name="psutil")

    monkeypatch.setattr(catalogue, "COLLECTORS", {**COLLECTORS, "host": broken})
    sources = Sources(Settings(sysfs=tmp_path))
    made = make_collectors(["host", "infiniband"], sources)
    assert [each.name for each in made.collectors] == ["infiniband"]
    assert made.missing == {"host": "not installed: psutil"}
    assert "collector host: left out, not installed: psutil" in caplog.text
    with pytest.raises(UnavailableError, match="collector host: not installed: psutil"):
        make_collectors(["host"], sources, asked_for=True)


def test_a_wrong_file_ends_the_exporter_with_one_line(tmp_path: Path) -> None:
    path = site(tmp_path, "[exporter]\nlistn = 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "opsk", "exporter", "--once"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"OPSK_CONFIG": str(path), "PATH": "/usr/bin:/bin"},
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "exporter.listn: unknown key" in done.stderr
    assert "Traceback" not in done.stderr
