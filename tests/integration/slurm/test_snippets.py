"""Does a real slurmctld of each release take the lines that `opsk setup` prints for it, with the hooks in force?"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsk.app.doctor.slurm import read_slurm_lines
from opsk.config import load_site
from opsk.lab.lifecycle import take_down, up
from opsk.lab.parts import LabPart
from opsk.lab.programs import build_search_path
from opsk.lab.record import LabShape
from opsk.lab.status import build_slurm_environment
from opsk_jobcheck.service.hooks import install_hooks
from tests.integration.conftest import Slurm

pytestmark = [pytest.mark.slurm, pytest.mark.fabric]


@pytest.fixture
def snippet(slurm: Slurm, root: Path, tmp_path: Path) -> list[str]:
    """The lines for this release, with prolog and epilog of the checkout, whose notes go nowhere."""
    for name in ("opsk-prolog", "opsk-epilog"):
        text = (root / "deploy" / "slurm" / name).read_text()
        text = text.replace("/run/opsk-jobs", str(tmp_path / "jobs")).replace("/var/spool/opsk", str(tmp_path / "none"))
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    tmp_path.chmod(0o755)
    return [line.replace("/etc/slurm", str(tmp_path)) for line in read_slurm_lines(slurm.release)]


@pytest.fixture
def environment(
    slurm: Slurm, snippet: list[str], lab_programs: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """A lab that came up with these lines in its slurm.conf; the hooks have no advisor."""
    with tempfile.TemporaryDirectory(prefix="opsk-test-", ignore_cleanup_errors=True) as folder:
        top = Path(folder)
        top.chmod(0o755)

        def parts(_names: object, site: object) -> tuple[LabPart, ...]:
            etc, config = site.etc, site.config  # type: ignore[attr-defined]
            return (LabPart(install=lambda: install_hooks(etc, load_site(config)), slurm_lines=tuple(snippet)),)

        monkeypatch.setattr("opsk.lab.lifecycle.load_parts", parts)
        record, _ = up(top / "lab", shape=LabShape(nodes=1, gpus=2, hcas=1, leaves=1, spines=1), parts=("advisor",),
                       progress=lambda _: None)  # fmt: skip
        try:
            yield {"PATH": build_search_path(), "LC_ALL": "C.UTF-8", "HOME": folder, **build_slurm_environment(record)}
        finally:
            take_down(top / "lab", record)


def test_slurmctld_takes_them_and_a_job_runs(environment: dict[str, str], snippet: list[str], tmp_path: Path) -> None:
    def run(*words: str) -> str:
        done = subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    shown = {
        name.strip(): value.strip()
        for name, _, value in (x.partition("=") for x in run("scontrol", "show", "config").splitlines())
    }
    said = dict(line.split("=", 1) for line in snippet if "=" in line and not line.startswith("#"))
    assert said.keys() == {"JobSubmitPlugins", "CliFilterPlugins", "Prolog", "Epilog", "PrologFlags"}
    assert (shown["JobSubmitPlugins"], shown["CliFilterPlugins"].rpartition("/")[2]) == ("lua", "lua")
    assert said["PrologFlags"] in shown["PrologFlags"].split(",")
    shell = f"cat {tmp_path}/jobs/*.$SLURM_JOB_ID*"
    assert "gpus=" in run("srun", "--gpus-per-node=1", "--time=5", "sh", "-c", shell), "the prolog has written it down"
