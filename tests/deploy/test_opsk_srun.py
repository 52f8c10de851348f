"""The wrapper in front of srun: the same words, signals and exit status, whatever opsk says or fails to say.

``srun`` and ``opsk`` are small scripts here; the real ones meet in tests/integration/slurm/test_place_inside.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

IN_JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
SEATS = "--distribution=arbitrary --nodelist=n1,n1,n0,n0"
HOSTILE = [
    "bash",
    "-c",
    'echo "$HOME"; $(id)',
    "two words",
    "new\nline",
    "tab\t",
    "'",
    '"',
    "\\",
    "*",
    "",
    "-w",
    "ü",
    "--",
]


class Wrapped:
    """The wrapper in a folder where ``opsk`` says what the test wants, and ``srun`` writes down its words."""

    def __init__(self, folder: Path, wrapper: Path) -> None:
        self.bin = folder / "bin"
        self.real = folder / "real"
        self.bin.mkdir()
        self.real.mkdir()
        self.wrapper = self.bin / "opsk-srun"
        self.wrapper.write_bytes(wrapper.read_bytes())
        self.wrapper.chmod(0o755)
        self.words = folder / "words"
        self.srun(f"printf '%s\\0' \"$@\" >{self.words}")
        self.opsk(f"echo '{SEATS}'")

    def srun(self, text: str) -> None:
        _script(self.real / "srun", text)

    def opsk(self, text: str) -> None:
        _script(self.bin / "opsk", text)

    def environment(self, **more: str) -> dict[str, str]:
        return {"PATH": f"{self.real}{os.pathsep}{os.defpath}", **more}

    def run(self, words: Sequence[str], *, said: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.wrapper), *words], env=self.environment(**environ), input=said, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip

    def got(self, words: Sequence[str], **environ: str) -> list[str]:
        self.words.unlink(missing_ok=True)
        done = self.run(words, **environ)
        assert done.returncode == 0, done.stderr
        return [os.fsdecode(word) for word in self.words.read_bytes().split(b"\0")[:-1]]


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def wrapped(tmp_path: Path, root: Path) -> Wrapped:
    return Wrapped(tmp_path, root / "deploy" / "bin" / "opsk-srun")


def test_seats_come_before_the_words_that_stay_as_they_are(wrapped: Wrapped) -> None:
    assert wrapped.got(HOSTILE, **IN_JOB) == [*SEATS.split(), *HOSTILE]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8), max_size=6))
def test_any_words_arrive_as_they_are(wrapped: Wrapped, words: list[str]) -> None:
    assert wrapped.got(words, **IN_JOB) == [*SEATS.split(), *words]


def test_words_that_the_hosts_stand_for_are_left_out(wrapped: Wrapped) -> None:
    wrapped.opsk(f"echo '{SEATS} 2,3'")
    assert wrapped.got(["-l", "-N", "2", *HOSTILE], **IN_JOB) == [*SEATS.split(), "-l", *HOSTILE]


@pytest.mark.parametrize(
    "opsk",
    [
        "exit 3",
        f"echo '{SEATS} 2 3'",
        f"echo '{SEATS} x'",
        "echo '--distribution=arbitrary --nodelist= 2'",
        "exec 1>&-; exit 0",
        f"echo '{SEATS}'; exit 1",
        "echo Traceback; echo more",
        "echo '--distribution=arbitrary --nodelist='",
        "echo '--distribution=arbitrary --nodelist=n0;id'",
        "echo '--distribution=arbitrary --nodelist=n0 --uid=0'",
        "echo '--distribution=arbitrary --nodelist=*'",
        f"echo '{SEATS}'; echo '{SEATS}'",
        "kill -9 $$",
    ],
)
def test_whatever_else_opsk_says_srun_runs_as_ever(wrapped: Wrapped, opsk: str) -> None:
    wrapped.opsk(opsk)
    assert wrapped.got(HOSTILE, **IN_JOB) == HOSTILE


@pytest.mark.parametrize(
    "environ", [{}, {**IN_JOB, "OPSK_PLACE": "0"}, {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}]
)
def test_where_nothing_can_be_won_opsk_is_not_asked(wrapped: Wrapped, tmp_path: Path, environ: dict[str, str]) -> None:
    wrapped.opsk(f"touch {tmp_path}/asked; echo '{SEATS}'")
    assert wrapped.got(HOSTILE, **environ) == HOSTILE
    assert not (tmp_path / "asked").exists()


def test_without_opsk_srun_runs_as_ever(wrapped: Wrapped) -> None:
    (wrapped.bin / "opsk").unlink()
    assert wrapped.got(HOSTILE, **IN_JOB) == HOSTILE


def test_the_exit_status_is_sruns(wrapped: Wrapped) -> None:
    wrapped.srun("exit 37")
    assert wrapped.run(["train"], **IN_JOB).returncode == 37


def test_signals_reach_srun_itself(wrapped: Wrapped) -> None:
    """The wrapper has become srun, so that a signal to its pid is a signal to srun."""
    wrapped.srun('trap "echo caught; exit 9" USR1; echo $$; while :; do sleep 0.05; done')
    process = subprocess.Popen(
        [str(wrapped.wrapper), "train"], env=wrapped.environment(**IN_JOB), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) == process.pid
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.read() == "caught\n"
    assert process.wait(30) == 9
    process.stdout.close()


def test_stdin_is_left_for_srun(wrapped: Wrapped) -> None:
    wrapped.opsk(f"cat >/dev/null; echo '{SEATS}'")
    wrapped.srun("cat")
    assert wrapped.run(["train"], said="all of it\n", **IN_JOB).stdout == "all of it\n"


def test_under_the_name_of_srun_it_finds_the_real_one(wrapped: Wrapped) -> None:
    (wrapped.bin / "srun").symlink_to("opsk-srun")
    path = f"{wrapped.bin}{os.pathsep}{wrapped.real}{os.pathsep}{os.defpath}"
    done = subprocess.run(
        ["srun", "a b"], env={"PATH": path, **IN_JOB}, timeout=60, check=False, executable=wrapped.bin / "srun"
    )
    assert done.returncode == 0
    assert wrapped.words.read_text().split("\0")[:-1] == [*SEATS.split(), "a b"]


def test_without_any_srun_it_says_so(wrapped: Wrapped) -> None:
    (wrapped.real / "srun").unlink()
    done = subprocess.run(
        ["/bin/sh", str(wrapped.wrapper), "train"], env={"PATH": str(wrapped.real), **IN_JOB}, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 127
    assert "no srun" in done.stderr


def test_words_reach_opsk_as_they_are(wrapped: Wrapped, tmp_path: Path) -> None:
    wrapped.opsk(f"printf '%s\\0' \"$@\" >{tmp_path}/asked")
    wrapped.got(HOSTILE, OPSK_PLAN="a plan.toml", **IN_JOB)
    asked = (tmp_path / "asked").read_text().split("\0")[:-1]
    assert asked == ["srun-options", "--plan=a plan.toml", "--", *HOSTILE]


def test_the_python_of_the_tests_runs_srun_options_with_any_words() -> None:
    """The real command, outside of a job: nothing on stdout, status 0."""
    done = subprocess.run(
        [sys.executable, "-m", "opsk", "srun-options", "--", *HOSTILE], capture_output=True, text=True, timeout=60,
        check=False, env={name: value for name, value in os.environ.items() if not name.startswith("SLURM_")},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    assert "Slurm's own order of ranks is used" in done.stderr
