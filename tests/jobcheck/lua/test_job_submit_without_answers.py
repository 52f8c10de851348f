"""What does job_submit.lua do without good answers? Nothing, within its deadline, and soon it no longer asks."""

from __future__ import annotations

import os
import socket

import pytest

from tests.fakes.bad_servers import BAD_SERVERS, AnswerWith, Serve
from tests.fakes.hook_runner import Hooks, milliseconds
from tests.fakes.submissions import advice, submit

DEADLINE_MS = 150
GRACE_MS = 80


def test_without_an_advisor_nothing_changes(hooks: Hooks) -> None:
    ran = hooks.submit(submit(times=3))
    assert ran.of("returned") == ["0", "0", "0"]
    assert ran.one("admin_comment") == "nil"
    assert milliseconds(ran) < GRACE_MS


def test_a_socket_that_nobody_listens_on_changes_nothing(hooks: Hooks) -> None:
    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(str(hooks.socket))
    left_over.close()
    ran = hooks.submit(submit(times=3))
    assert ran.of("returned") == ["0", "0", "0"]
    assert milliseconds(ran) < GRACE_MS


def test_an_advisor_that_stands_still_costs_the_deadline(hooks: Hooks) -> None:
    """A stopped process: the kernel takes connections until the backlog is full, nobody accepts."""
    stopped = socket.socket(socket.AF_UNIX)
    stopped.bind(str(hooks.socket))
    stopped.listen(1)
    hooks.settings(breaker_failures=100)
    ran = hooks.submit(submit(times=6))
    stopped.close()
    assert ran.of("returned") == ["0"] * 6
    assert milliseconds(ran) < DEADLINE_MS  # it waits for less, so that waking up late keeps within it
    assert ran.one("admin_comment") == "nil"


def test_a_large_script_to_one_that_stands_still_costs_the_deadline(hooks: Hooks) -> None:
    """More than a socket buffers: sending must end at the deadline too."""
    stopped = socket.socket(socket.AF_UNIX)
    stopped.bind(str(hooks.socket))
    stopped.listen(8)
    hooks.settings(breaker_failures=100)
    ran = hooks.submit(submit(fields='script = "torchrun train.py\\n" .. string.rep("x", 1000000)', times=3))
    stopped.close()
    assert milliseconds(ran) < DEADLINE_MS + GRACE_MS


@pytest.mark.parametrize("kind", BAD_SERVERS)
def test_a_bad_server_costs_at_most_the_deadline(hooks: Hooks, serve: Serve, kind: str) -> None:
    server = serve(BAD_SERVERS[kind])
    hooks.settings(breaker_failures=100)
    ran = hooks.submit(submit(fields='comment = "of the user"', times=3))
    assert server.connections == 3
    assert ran.of("returned") == ["0", "0", "0"]
    assert ran.one("comment") == "of the user"
    assert ran.one("admin_comment") == "nil"
    assert not [line for line in ran.said if line.startswith("user")]
    assert milliseconds(ran) < DEADLINE_MS + GRACE_MS


def test_a_forbidden_socket_changes_nothing(hooks: Hooks, serve: Serve) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run the hook as somebody else")
    serve(AnswerWith(advice()))
    hooks.socket.chmod(0o600)
    hooks.user = 65534
    ran = hooks.submit(submit(times=2))
    assert ran.of("returned") == ["0", "0"]
    assert ran.one("admin_comment") == "nil"


def test_after_failures_nothing_is_asked_for_a_while(hooks: Hooks, serve: Serve) -> None:
    server = serve(BAD_SERVERS["closes at once"])
    hooks.settings(breaker_failures=3, breaker_pause_s=30)
    ran = hooks.submit(submit(times=20))
    assert server.connections == 3
    assert milliseconds(ran) <= 1.0
    (line,) = ran.said
    assert line.startswith("info: opsk: the advisor gives no answer")


def test_an_open_breaker_reads_the_clock_and_no_more(hooks: Hooks, serve: Serve) -> None:
    """No library is looked for and no file is opened: a training job costs slurmctld what any other does."""
    serve(BAD_SERVERS["closes at once"])
    hooks.settings(breaker_failures=3, breaker_pause_s=30)
    ran = hooks.submit("""
    local function once()
      local asked = job({ tres_per_node = "gres/gpu:8", script = "torchrun train.py" })
      return slurm_job_submit(asked, {}, 1)
    end
    for _ = 1, 3 do once() end
    local calls = 0
    local function counted(name, of)
      local before = of[name]
      of[name] = function(...) calls = calls + 1 return before(...) end
    end
    counted("require", _G) counted("open", io) counted("popen", io) counted("getenv", os)
    for _ = 1, 10 do once() end
    emit("calls", calls)
    """)
    assert ran.one("calls") == "0"


def test_the_deadline_counts_from_the_hooks_start(hooks: Hooks, serve: Serve) -> None:
    """A description that takes the deadline to read leaves no time to ask: nobody is connected to."""
    server = serve(AnswerWith(advice()))
    ran = hooks.submit(f"""
    local slow = job({{ tres_per_node = "gres/gpu:8", script = "torchrun train.py" }})
    local fields = getmetatable(slow).__index
    getmetatable(slow).__index = function(_, name)
      if name == "qos" then os.execute("sleep {2 * DEADLINE_MS / 1000}") end
      return fields[name]
    end
    emit("returned", slurm_job_submit(slow, {{}}, 1))
    """)
    assert ran.one("returned") == "0"
    assert server.connections == 0


def test_asking_resumes_when_the_advisor_is_back(hooks: Hooks, serve: Serve) -> None:
    """Three failures close it; the pause over, one question finds a healthy advisor and it is open for good."""
    treated: list[int] = []

    def bad_then_good(connection: socket.socket) -> None:
        treated.append(1)
        if len(treated) > 3:
            AnswerWith(advice())(connection)

    server = serve(bad_then_good)
    hooks.settings(breaker_failures=3, breaker_pause_s=0.2)
    ran = hooks.submit("""
    local function submit()
      local asked = job({ tres_per_node = "gres/gpu:8", script = "torchrun train.py" })
      slurm_job_submit(asked, {}, 1)
      return tostring(asked.admin_comment)
    end
    for _ = 1, 5 do submit() end
    os.execute("sleep 0.3")
    emit("after", submit())
    emit("after", submit())
    """)
    assert server.connections == 5
    assert ran.of("after") == ["opsk:v1 verdict=oom"] * 2


def test_one_failure_among_successes_does_not_stop_the_questions(hooks: Hooks, serve: Serve) -> None:
    treated: list[int] = []

    def every_other(connection: socket.socket) -> None:
        treated.append(1)
        if len(treated) % 2:
            AnswerWith(advice())(connection)

    server = serve(every_other)
    hooks.submit(submit(times=10))
    assert server.connections == 10


@pytest.mark.parametrize("missing", ["socket.unix", "socket.core"])
def test_without_lua_socket_jobs_go_through(hooks: Hooks, missing: str) -> None:
    ran = hooks.submit(f'package.preload["{missing}"] = function() error("none") end\n' + submit(times=5))
    assert ran.of("returned") == ["0"] * 5
    assert len(ran.said) <= 1
