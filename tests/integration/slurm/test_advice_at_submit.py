"""On a real slurmctld: does advice reach the terminal and the record, and is every submission accepted all the same?

The lab of this file is its own: its advisor is killed, stopped and replaced.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from opsk.config import load_site
from tests.fakes.advised_lab import ADVICE, FITS, FROM_ARGUMENTS, HEAD, PATIENT, RUNS_OUT, TRAINS, AdvisedLab, Submitted
from tests.fakes.advisor_process import eventually
from tests.fakes.bad_servers import BAD_SERVERS, Server

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

SLACK_S = 0.25
"""What a machine that does other things as well may add to the shortest of several submissions."""
SCRIPTS = {"fits": FITS, "does not fit": RUNS_OUT, "trains nothing": HEAD + "hostname\n"}


@pytest.fixture
def advised(lab_programs: None, advised_lab: AdvisedLab) -> Iterator[AdvisedLab]:
    """The lab with a healthy, warm advisor and free nodes, and deadlines that a busy machine keeps."""
    advised_lab.configure(PATIENT)
    yield advised_lab
    advised_lab.cancel()


@pytest.fixture
def prompt(lab_programs: None, advised_lab: AdvisedLab) -> Iterator[AdvisedLab]:
    """The same with the deadlines that ship: for tests of what they cost."""
    advised_lab.configure("")
    yield advised_lab
    advised_lab.cancel()


@pytest.fixture
def without(lab_programs: None, advised_lab: AdvisedLab) -> Iterator[AdvisedLab]:
    """The same for tests that replace the advisor: whether one runs is the test's to say."""
    advised_lab.configure("", with_advisor=False)
    yield advised_lab
    advised_lab.cancel()


def sbatch(advised: AdvisedLab, kind: str, *options: str) -> Submitted:
    return accepted(advised, "sbatch", *options, advised.script(SCRIPTS[kind]))


def accepted(advised: AdvisedLab, *words: str, stdin: str = "") -> Submitted:
    """Run a command that must be accepted."""
    done = advised.run(*words, stdin=stdin)
    assert done.returncode == 0, f"{' '.join(words)} was refused: {done.stdout}{done.stderr}"
    return done


def submit(advised: AdvisedLab, command: str, kind: str) -> Submitted:
    """Submit a script with one of the three commands."""
    path = advised.script(SCRIPTS[kind])
    if command == "sbatch":
        return accepted(advised, "sbatch", path)
    options = ("--nodes=2", "--gpus-per-node=8", "--ntasks-per-node=1")
    return accepted(advised, command, *options, "bash", path)


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
@pytest.mark.parametrize(("kind", "words"), [("fits", "fits"), ("does not fit", "will run out")])
def test_a_training_job_is_accepted_and_advised_on(advised: AdvisedLab, command: str, kind: str, words: str) -> None:
    submitted = submit(advised, command, kind)
    assert len(submitted.advice) >= 2
    assert all(line.startswith(f"{command}: {ADVICE}") for line in submitted.advice)
    assert any(words in line for line in submitted.advice)
    assert ADVICE not in submitted.stdout


@pytest.mark.parametrize(("arguments", "verdict"), [((), "fits"), (("--layers", "400"), "oom")])
def test_arguments_of_the_script_count(advised: AdvisedLab, arguments: tuple[str, ...], verdict: str) -> None:
    submitted = accepted(advised, "sbatch", advised.script(FROM_ARGUMENTS), *arguments)
    assert f"verdict={verdict}" in advised.shown(submitted.job).get("AdminComment", "")


@pytest.mark.parametrize("command", ["sbatch", "salloc", "srun"])
def test_a_job_that_trains_nothing_is_accepted_without_a_word(advised: AdvisedLab, command: str) -> None:
    submitted = submit(advised, command, "trains nothing")
    assert submitted.advice == []


def test_an_interactive_shell_is_accepted_without_a_word(advised: AdvisedLab) -> None:
    submitted = accepted(advised, "salloc", "--nodes=1", "--gpus-per-node=8", "true")
    assert submitted.advice == []
    assert "AdminComment" not in advised.shown(submitted.job)


def test_the_verdict_lands_in_the_record_beside_the_users_comment(advised: AdvisedLab) -> None:
    submitted = sbatch(advised, "fits", "--comment=mine: 100% of it")
    shown = advised.shown(submitted.job)
    assert shown["AdminComment"].startswith("opsk:v1 verdict=fits")
    assert shown["Comment"] == "mine: 100% of it"


def test_an_allocation_gets_the_record_too(advised: AdvisedLab) -> None:
    submitted = submit(advised, "salloc", "fits")
    assert advised.shown(submitted.job)["AdminComment"].startswith("opsk:v1 verdict=fits")


@pytest.mark.parametrize("command", ["sbatch", "salloc"])
def test_a_job_that_trains_nothing_gets_no_record(advised: AdvisedLab, command: str) -> None:
    assert "AdminComment" not in advised.shown(submit(advised, command, "trains nothing").job)


def test_quiet_is_quiet(advised: AdvisedLab) -> None:
    submitted = sbatch(advised, "fits", "--quiet")
    assert submitted.stderr == ""


def test_an_opted_out_script_is_left_alone(advised: AdvisedLab) -> None:
    submitted = accepted(advised, "sbatch", advised.script(FITS + "#OPSK off\n"))
    assert submitted.advice == []
    assert "AdminComment" not in advised.shown(submitted.job)


def test_parsable_output_stays_parsable(advised: AdvisedLab) -> None:
    submitted = sbatch(advised, "fits", "--parsable")
    assert submitted.stdout.strip().isdigit()
    assert submitted.advice


def test_a_script_on_stdin_is_told_the_short_advice_once(advised: AdvisedLab) -> None:
    """cli_filter has nothing to read there; job_submit sees the text and says two lines."""
    text = FITS.replace("train-iters 10", "train-iters 11")
    # The first one may come before its answer is there: job_submit waits for milliseconds.
    submitted = eventually(lambda: accepted(advised, "sbatch", stdin=text), lambda each: bool(each.advice))
    assert len(submitted.advice) == 2
    assert advised.shown(submitted.job)["AdminComment"].startswith("opsk:v1")


def test_a_wrapped_command_is_advised_on(advised: AdvisedLab) -> None:
    options = ("--nodes=2", "--gpus-per-node=8", "--output=/dev/null")
    submitted = accepted(advised, "sbatch", *options, "--wrap", TRAINS.strip())
    assert submitted.advice
    assert advised.shown(submitted.job)["AdminComment"].startswith("opsk:v1")


def test_nobody_is_told_twice(advised: AdvisedLab) -> None:
    """Both hooks ran, one spoke: the first line of the advice stands there once."""
    lines = sbatch(advised, "fits").stderr.splitlines()
    assert len(lines) == len(set(lines))


def test_a_step_inside_a_job_is_silent(advised: AdvisedLab) -> None:
    submitted = accepted(
        advised,
        "salloc",
        "--nodes=1",
        "--gpus-per-node=8",
        "--quiet",
        "srun",
        "--gpus-per-node=8",
        "torchrun",
        "pretrain_gpt.py",
    )
    assert submitted.advice == []


def test_what_salloc_starts_dies_of_a_broken_pipe_as_ever(advised: AdvisedLab) -> None:
    """lua-socket ignores SIGPIPE in salloc itself; the user's command must not inherit that."""
    script = FITS + "grep SigIgn /proc/self/status\n"
    path = advised.script(script)
    # 26.05 takes the signal over in a thread: without care the outcome is that of a race.
    for _ in range(5):
        submitted = accepted(advised, "salloc", "--nodes=2", "--gpus-per-node=8", "bash", path)
        assert submitted.advice
        ignored = int(re.findall(r"SigIgn:\s*([0-9a-f]+)", submitted.stdout)[0], 16)
        assert not ignored >> (signal.SIGPIPE - 1) & 1


def test_a_fifo_as_a_script_reaches_slurm_whole(advised: AdvisedLab) -> None:
    """``sbatch <(make-script)``: what the hook reads, Slurm would miss."""
    submitted = accepted(advised, "bash", "-c", 'sbatch <(cat "$1")', "shell", advised.script(FITS))
    assert (
        accepted(advised, "scontrol", "write", "batch_script", str(submitted.job), "-").stdout.rstrip() == FITS.rstrip()
    )


def shortest(advised: AdvisedLab, kind: str, times: int = 5) -> float:
    """Return how long the quickest of some submissions took; all must be accepted."""
    return min(sbatch(advised, kind).took_s for _ in range(times))


def deadline_s(advised: AdvisedLab) -> float:
    """Return how long both hooks together may make a submission wait."""
    config = load_site(advised.record.folder.site).advisor
    return config.submit_deadline_s + config.cli_deadline_s


def test_without_an_advisor_jobs_are_accepted_as_before(without: AdvisedLab) -> None:
    baseline = shortest(without, "trains nothing")
    without.stop_advisor()
    submitted = sbatch(without, "fits")
    assert submitted.advice == []
    assert without.shown(submitted.job)["JobState"] in {"PENDING", "RUNNING", "COMPLETED"}
    assert shortest(without, "fits") < baseline + SLACK_S


def test_a_stopped_advisor_costs_at_most_the_deadline(without: AdvisedLab) -> None:
    baseline = shortest(without, "trains nothing")
    without.start_advisor()
    assert without.advisor is not None
    without.advisor.send_signal(signal.SIGSTOP)
    took = [sbatch(without, "fits") for _ in range(6)]
    assert all(submitted.advice == [] for submitted in took)
    assert min(submitted.took_s for submitted in took) < baseline + deadline_s(without) + SLACK_S
    without.advisor.send_signal(signal.SIGCONT)
    assert any(sbatch(without, "fits").advice for _ in range(3))


def test_after_some_failures_slurmctld_asks_no_more(without: AdvisedLab) -> None:
    without.stop_advisor()
    for _ in range(6):
        sbatch(without, "fits")
    log = (without.record.folder.log / "slurmctld.log").read_text()
    assert "opsk: the advisor gives no answer" in log


@pytest.mark.parametrize(
    "kind", ["garbage", "drips", "closes at once", "huge frame announced", "accepts and says nothing"]
)
def test_something_else_on_the_socket_costs_at_most_the_deadline(without: AdvisedLab, kind: str) -> None:
    baseline = shortest(without, "trains nothing", 3)
    without.stop_advisor()
    server = Server(without.socket, BAD_SERVERS[kind])
    try:
        took = [sbatch(without, "fits", "--comment=mine") for _ in range(3)]
        asked = server.connections
    finally:
        server.close()
    assert asked >= 3
    assert all(submitted.advice == [] for submitted in took)
    assert without.shown(took[-1].job)["Comment"] == "mine"
    assert min(submitted.took_s for submitted in took) < baseline + deadline_s(without) + SLACK_S


@pytest.mark.parametrize("interfere", [AdvisedLab.stop_advisor, AdvisedLab.start_advisor], ids=["killed", "restarted"])
def test_what_happens_to_the_advisor_in_the_middle_loses_no_job(
    prompt: AdvisedLab, interfere: Callable[[AdvisedLab], None]
) -> None:
    """Twenty submissions from four clients; in their middle the advisor goes, or goes and comes back."""
    words = ("sbatch", "--hold", prompt.script(FITS))
    clients = [
        subprocess.Popen(
            ["bash", "-c", 'for _ in 1 2 3 4 5; do "$@" || exit 1; done', "client", *words],
            env=prompt.environ,
            cwd=prompt.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    interfere(prompt)
    printed = [client.communicate(timeout=60)[0] for client in clients]
    assert [client.returncode for client in clients] == [0] * 4
    assert len(set(re.findall(r"batch job (\d+)", "".join(printed)))) == 20
