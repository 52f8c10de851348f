"""Does a lab get the hooks beside its slurm.conf, and an advisor that it can wait for?"""

from __future__ import annotations

from pathlib import Path

from opsk.lab.parts import LabSite
from opsk.lab.slurm_files import find_deploy_folder
from opsk_jobcheck.lab_part import advisor_part
from opsk_jobcheck.service.hooks import ADVICE, HOOKS, SETTINGS


def test_a_lab_gets_hooks_and_an_advisor_on_its_own_socket(tmp_path: Path) -> None:
    config = tmp_path / "opsk.toml"
    config.write_text(f'[advisor]\nsocket = "{tmp_path}/run/a.sock"\n')
    part = advisor_part(LabSite(etc=tmp_path, run=tmp_path / "run", log=tmp_path / "log", config=config))
    part.install()
    assert {path.name for path in tmp_path.iterdir()} == {*HOOKS, ADVICE, SETTINGS, "opsk.toml"}
    assert f"socket = {tmp_path}/run/a.sock" in (tmp_path / SETTINGS).read_text()
    (daemon,) = part.daemons
    assert daemon.socket == tmp_path / "run" / "a.sock"
    assert daemon.command[-2:] == ("--config", str(config))


def test_the_snippet_that_it_includes_turns_both_hooks_on() -> None:
    text = (find_deploy_folder() / "slurm" / "opsk.conf").read_text()
    assert "JobSubmitPlugins=lua" in text
    assert "CliFilterPlugins=lua" in text
