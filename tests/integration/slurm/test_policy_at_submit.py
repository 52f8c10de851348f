"""On a real slurmctld: does each action of a site's policy do what it says, and nothing more?

Tests of one policy stand together: bringing another one into force takes seconds.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator

import pytest

from tests.fakes.advised_lab import FITS, FROM_ENVIRONMENT, RUNS_OUT, AdvisedLab, this_moment, wait_until
from tests.integration.conftest import OLDEST_AND_NEWEST

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600), OLDEST_AND_NEWEST]


@pytest.fixture
def lab(lab_programs: None, advised_lab: AdvisedLab) -> Iterator[AdvisedLab]:
    yield advised_lab
    advised_lab.cancel()


def test_a_certain_end_is_held_and_its_user_can_release_it(lab: AdvisedLab) -> None:
    lab.policy('action = "hold"')
    done = lab.sbatch(RUNS_OUT)
    job = done.job
    assert any("held: will run out of GPU memory" in line for line in done.advice)
    assert any("scontrol release" in line for line in done.advice)
    shown = lab.shown(job)
    assert (shown["JobState"], shown["Priority"], shown["Reason"]) == ("PENDING", "0", "JobHeldUser")
    assert shown["AdminComment"].startswith("opsk:v1 verdict=oom")
    assert shown["AdminComment"].endswith("policy=hold")
    assert lab.run("scontrol", "release", str(job)).returncode == 0
    wait_until(lambda: lab.shown(job)["JobState"] in {"RUNNING", "COMPLETED"})


def test_a_submission_without_cli_filter_is_held_as_well(lab: AdvisedLab) -> None:
    """As slurmrestd and pyslurm submit: no cli_filter runs, and slurmctld gets the script."""
    lab.policy('action = "hold"')
    done = lab.run("sbatch", stdin=RUNS_OUT)
    assert lab.shown(done.job)["Priority"] == "0"


def test_a_reconfigure_changes_nothing(lab: AdvisedLab) -> None:
    lab.policy('action = "hold"')
    assert lab.run("scontrol", "reconfigure").returncode == 0
    wait_until(lambda: lab.run("scontrol", "ping").returncode == 0)
    assert lab.shown(lab.sbatch(RUNS_OUT).job)["Priority"] == "0"


@pytest.mark.parametrize("action", ["hold", "reject"])
def test_what_fits_is_neither_held_nor_refused(lab: AdvisedLab, action: str) -> None:
    lab.policy(f'action = "{action}"')
    done = lab.sbatch(FITS)
    assert done.advice
    assert lab.shown(done.job)["Priority"] != "0"


def test_a_certain_end_is_refused_with_the_reason(lab: AdvisedLab) -> None:
    lab.policy('action = "reject"')
    done = lab.sbatch(RUNS_OUT)
    assert done.returncode != 0
    assert "refused: will run out of GPU memory" in done.stderr
    assert "Submitted" not in done.stdout


@pytest.mark.parametrize("evasion", ["#OPSK off", "OPSK_ADVICE=off", "--quiet"])
def test_silence_does_not_evade_the_policy(lab: AdvisedLab, evasion: str) -> None:
    lab.policy('action = "reject"')
    environ = {"OPSK_ADVICE": "off"} if evasion.startswith("OPSK_") else {}
    options = ["--quiet"] if evasion == "--quiet" else []
    done = lab.sbatch(RUNS_OUT + (f"{evasion}\n" if evasion.startswith("#") else ""), *options, **environ)
    assert done.returncode != 0
    assert "refused: will run out of GPU memory" in done.stderr


def test_a_value_from_the_environment_counts(lab: AdvisedLab) -> None:
    """Not read by cli_filter, so that job_submit has to know it alone."""
    lab.policy('action = "reject"')
    small = {"LAYERS": "24", "HIDDEN": "2048", "OPSK_ADVICE": "off"}
    assert lab.sbatch(FROM_ENVIRONMENT, **small).job
    assert lab.sbatch(FROM_ENVIRONMENT, OPSK_ADVICE="off").returncode != 0


def test_interactive_jobs_are_never_refused(lab: AdvisedLab) -> None:
    lab.policy('action = "reject"')
    script = lab.directory / "train.sh"
    script.write_text(RUNS_OUT)
    done = lab.run("salloc", "--nodes=2", "--gpus-per-node=8", "bash", str(script))
    assert done.job
    assert done.advice


@pytest.mark.parametrize("nodes", ["2", "$SLURM_NNODES"])
def test_a_heterogeneous_job_is_never_refused(lab: AdvisedLab, nodes: str) -> None:
    """Each component has nodes and GPUs of its own, and both hooks see one component at a time."""
    lab.policy('action = "reject"')
    script = lab.directory / "train.sh"
    text = RUNS_OUT.replace("#SBATCH --nodes=2 --gpus-per-node=8", "#SBATCH").replace("--nnodes 2", f"--nnodes {nodes}")
    script.write_text(text)
    part = ["--nodes=1", "--gpus-per-node=8"]
    done = lab.run("sbatch", *part, ":", *part, str(script))
    assert lab.shown(done.job)["Priority"] != "0"
    lines = done.advice
    assert lines
    assert len(lines) == len(set(lines))
    assert any("heterogeneous" in line for line in lines) == (nodes != "2")


def test_a_changed_policy_is_in_force_after_a_reload(lab: AdvisedLab) -> None:
    lab.policy('action = "reject"')
    assert lab.sbatch(RUNS_OUT).returncode != 0
    lab.policy()
    assert lab.sbatch(RUNS_OUT).advice


def test_an_array_is_advised_on_once_and_told_that_it_is_about_each_task(lab: AdvisedLab) -> None:
    lab.policy()
    began = this_moment()
    done = lab.sbatch(FITS, "--array=0-3%1")
    assert done.job
    assert "each task of the array" in done.advice[0]
    asked = lab.last_audited("submit", began)
    assert asked["request"].items() >= {"is_array": True}.items()  # type: ignore[attr-defined]


def test_a_higher_bound_lets_it_through(lab: AdvisedLab) -> None:
    lab.policy('action = "reject"\noom_probability = 0.99999999999')
    assert lab.sbatch(RUNS_OUT).job


def test_annotate_leaves_the_record_only(lab: AdvisedLab) -> None:
    lab.policy('action = "annotate"')
    done = lab.sbatch(RUNS_OUT)
    assert done.advice == []
    assert lab.shown(done.job)["AdminComment"].startswith("opsk:v1 verdict=oom")


def test_shadow_leaves_a_line_in_the_log_only(lab: AdvisedLab) -> None:
    lab.policy('action = "shadow"')
    began = this_moment()
    done = lab.sbatch(RUNS_OUT)
    assert done.advice == []
    assert "AdminComment" not in lab.shown(done.job)
    entry = lab.last_audited("submit", began)
    assert entry["verdict"] == "oom"
    assert entry["policy"] == {"rule": 1, "action": "shadow"}
    assert entry["shown"] == []


def test_off_asks_nobody_to_think(lab: AdvisedLab) -> None:
    lab.policy('action = "off"')
    began = this_moment()
    done = lab.sbatch(RUNS_OUT)
    assert done.advice == []
    assert "AdminComment" not in lab.shown(done.job)
    assert "verdict" not in lab.last_audited("submit", began)


def test_rules_go_by_partition_and_the_default_one_is_known(lab: AdvisedLab) -> None:
    """job_submit sees which partition is the default one; cli_filter does not, and then the milder rule counts."""
    lab.policy('partition = "train"\naction = "reject"')
    assert lab.sbatch(RUNS_OUT).returncode != 0
    assert lab.sbatch(RUNS_OUT, "--partition=train").returncode != 0
    lab.policy('partition = "other*"\naction = "reject"')
    assert lab.sbatch(RUNS_OUT).job


def test_a_held_or_refused_job_is_audited(lab: AdvisedLab) -> None:
    lab.policy('partition = "nowhere"\naction = "off"', 'action = "reject"')
    began = this_moment()
    lab.sbatch(RUNS_OUT)
    entry = lab.last_audited("submit", began)
    assert entry["enforced"] == "reject"
    assert entry["policy"] == {"rule": 2, "action": "reject"}
    assert float(str(entry["oom_probability"])) > 0.99
    assert entry["for_uid"] == os.getuid()
    assert "took_ms" in entry


SCRON = "#SCRON --nodes=2 --gpus-per-node=8 --output=/dev/null\n@yearly " + RUNS_OUT.splitlines()[-1] + "\n"


@pytest.fixture
def crontabs(lab: AdvisedLab) -> Iterator[AdvisedLab]:
    """The lab with scrontab, which a slurm.conf has to allow."""
    if shutil.which("scrontab", path=lab.environ["PATH"]) is None:
        pytest.skip("not installed: scrontab")
    conf = lab.record.folder.etc / "slurm.conf"
    if "ScronParameters" not in conf.read_text():
        conf.write_text(conf.read_text() + "\nScronParameters=enable\n")
        assert lab.run("scontrol", "reconfigure").returncode == 0
        wait_until(lambda: "ScronParameters" in lab.run("scontrol", "show", "config").stdout)
        wait_until(lambda: "enable" in re.findall("ScronParameters.*", lab.run("scontrol", "show", "config").stdout)[0])
    yield lab
    lab.run("scrontab", "-r")


@pytest.mark.parametrize("action", ["advise", "hold", "reject"])
def test_a_crontab_is_accepted_and_its_job_gets_the_record(crontabs: AdvisedLab, action: str) -> None:
    """Slurm would refuse the whole crontab and lose the reason: no policy holds or refuses one."""
    crontabs.policy(f'action = "{action}"')
    done = crontabs.run("scrontab", "-", stdin=SCRON)
    assert done.returncode == 0, done.stderr
    assert any("will run out" in line for line in done.advice)
    (job,) = crontabs.run("squeue", "--noheader", "--format=%i").stdout.split()
    shown = crontabs.shown(int(job))
    assert shown["AdminComment"].startswith("opsk:v1 verdict=oom")
    assert "policy=" not in shown["AdminComment"]
    assert shown["Priority"] != "0"
