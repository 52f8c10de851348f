"""May whoever sits behind the advisor's socket kill the command that a user typed? SIGPIPE would."""

from __future__ import annotations

import pytest

from tests.fakes.bad_servers import BAD_SERVERS, AnswerWith, Serve
from tests.fakes.hook_runner import Hooks
from tests.fakes.submissions import SCRIPT, shown_advice

IGNORED = """
    for line in io.lines("/proc/self/status") do
      if line:match("^SigIgn") then emit("ignored", line:match("%x+$")) end
    end
"""
SIGPIPE_BIT = 1 << 12


def scenario(hooks: Hooks, command: str, times: int) -> str:
    """Return one that calls the hook without the clock of other tests, which ignores SIGPIPE itself."""
    (hooks.directory / "train.sh").write_text(SCRIPT)
    asked = f'options({{ type = "{command}", argv = {{ "{hooks.directory}/train.sh", "8" }} }})'
    return f"for _ = 1, {times} do slurm_cli_pre_submit({asked}, 0) end\n{IGNORED}"


@pytest.mark.parametrize("command", ["sbatch", "srun"])
def test_who_hangs_up_kills_no_command(hooks: Hooks, serve: Serve, command: str) -> None:
    serve(BAD_SERVERS["closes at once"])
    ran = hooks.filter(scenario(hooks, command, times=30))
    assert int(ran.one("ignored"), 16) & SIGPIPE_BIT


def test_who_hangs_up_after_the_answer_kills_no_command(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(shown_advice()))
    ran = hooks.filter(scenario(hooks, "sbatch", times=1))
    assert int(ran.one("ignored"), 16) & SIGPIPE_BIT
