"""What does job_submit.lua do to a submission? It leaves a comment and two lines, or nothing."""

from __future__ import annotations

import socket

import pytest

from tests.fakes.bad_servers import AnswerWith, Serve
from tests.fakes.hook_runner import CONTROL, Hooks
from tests.fakes.submissions import advice, question, submit, told


def test_advice_is_told_and_recorded(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(advice()))
    ran = hooks.submit(submit())
    assert ran.said == ["user: opsk  gpt on 16 GPUs", "user: opsk  memory too much"]
    assert ran.one("admin_comment") == "opsk:v1 verdict=oom"
    assert ran.one("returned") == "0"


def test_the_question_carries_what_slurm_shows(hooks: Hooks, serve: Serve) -> None:
    answers = AnswerWith(advice())
    serve(answers)
    hooks.submit(submit(fields='argv = { "train.sh", "8" }, num_tasks = slurm.NO_VAL, partition = "gpu"'))
    asked = question(answers)
    assert asked["kind"] == "submit"
    assert asked["uid"] == 4711
    assert asked["argv"] == ["train.sh", "8"]
    assert asked["script"].splitlines()[2] == "torchrun pretrain_gpt.py"
    job = {"tres_per_node": "gres/gpu:8", "min_nodes": 2, "num_tasks": 4294967294, "partition": "gpu"}
    assert asked["job"] == job


def test_only_two_lines_are_told(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(advice(lines=[f"line {number}" for number in range(9)])))
    assert len(hooks.submit(submit()).said) == 2


def test_nothing_is_told_twice(hooks: Hooks, serve: Serve) -> None:
    """The advisor knows that cli_filter has told the user, and sends no lines."""
    serve(AnswerWith(advice(lines=[])))
    ran = hooks.submit(submit())
    assert ran.said == []
    assert ran.one("admin_comment") == "opsk:v1 verdict=oom"


@pytest.mark.parametrize("before", ["kept by the site", "100% %s %d of it"])
def test_an_admin_comment_is_added_to(hooks: Hooks, serve: Serve, before: str) -> None:
    serve(AnswerWith(advice()))
    ran = hooks.submit(submit(fields=f'admin_comment = "{before}", comment = "of the user"'))
    assert ran.one("admin_comment") == f"{before} opsk:v1 verdict=oom"
    assert ran.one("comment") == "of the user"


def test_an_own_admin_comment_is_not_repeated(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(advice()))
    ran = hooks.submit(submit(fields='admin_comment = "opsk:v1 verdict=fits"'))
    assert ran.one("admin_comment") == "opsk:v1 verdict=fits"


def test_a_comment_is_marked_and_bounded(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(advice(comment="x" * 60_000)))
    comment = hooks.submit(submit()).one("admin_comment")
    assert comment.startswith("opsk: xxx")
    assert len(comment) < 1100


def test_no_control_character_passes(hooks: Hooks, serve: Serve) -> None:
    evil = "\x1b[31mred\x07\x00\u009b2J\u202eback %s%n\nsecond line"
    serve(AnswerWith(advice(lines=[evil], comment="opsk:v1 " + evil)))
    ran = hooks.submit(submit())
    (line,) = ran.said
    assert not CONTROL.search(line.replace("\\x", "?"))
    assert "\\x1b" not in line
    assert "\\x" not in ran.one("admin_comment")
    assert "%s%n" in line


@pytest.mark.parametrize("answer", ["silent", "later", "pong", "files", "something"])
def test_answers_without_advice_change_nothing(hooks: Hooks, serve: Serve, answer: str) -> None:
    serve(AnswerWith(told(answer, paths=["/etc/passwd"])))
    ran = hooks.submit(submit())
    assert ran.said == []
    assert ran.one("admin_comment") == "nil"


def test_a_description_that_raises_lets_the_job_through(hooks: Hooks) -> None:
    ran = hooks.submit("""
    local angry = setmetatable({}, { __index = function() error("boom") end })
    emit("returned", slurm_job_submit(angry, {}, 1))
    emit("returned", slurm_job_submit(nil, nil, nil))
    """)
    assert ran.of("returned") == ["0", "0"]


def test_modifications_are_silent(hooks: Hooks, serve: Serve) -> None:
    server = serve(AnswerWith(advice()))
    ran = hooks.submit("""
    emit("returned", slurm_job_modify(job({ tres_per_node = "gres/gpu:8", script = "torchrun" }), {}, {}, 1))
    emit_said()
    """)
    assert ran.one("returned") == "0"
    assert ran.said == []
    assert server.connections == 0


@pytest.mark.parametrize("text", ["", "socket\n", "= = =\nsubmit_deadline_ms = soon\n", "\x00\xff" * 500])
def test_broken_settings_are_as_good_as_none(hooks: Hooks, text: str) -> None:
    (hooks.directory / "opsk-hooks.conf").write_bytes(text.encode("latin-1"))
    assert hooks.submit(submit()).one("returned") == "0"


def test_memory_does_not_grow_with_questions(hooks: Hooks, serve: Serve) -> None:
    """slurmctld keeps the Lua state for months: 1,500 more questions, good and bad, leave no trace."""
    treated: list[int] = []

    def mixed(connection: socket.socket) -> None:
        treated.append(1)
        if len(treated) % 3:
            AnswerWith(advice())(connection)

    serve(mixed)
    hooks.settings(breaker_failures=2, submit_deadline_ms=2000)
    ran = hooks.submit("""
    local function many(count)
      for number = 1, count do
        slurm_job_submit(job({ tres_per_node = "gres/gpu:8", script = "torchrun train.py " .. number }), {}, 1)
      end
      emit_said()
      collectgarbage() collectgarbage()
      return collectgarbage("count")
    end
    local before = many(300)
    emit("grown_kib", many(1500) - before)
    """)
    assert float(ran.one("grown_kib")) < 16


def test_a_site_script_can_call_it_as_a_library(hooks: Hooks, serve: Serve) -> None:
    server = serve(AnswerWith(advice()))
    scenario = f"""
    slurm_job_submit = nil
    local opsk = assert(loadfile("{hooks.directory}/job_submit.lua"))("library")
    emit("global", slurm_job_submit)
    local asked = job({{ tres_per_node = "gres/gpu:8", script = "torchrun train.py" }})
    emit("returned", opsk.submit(asked, {{}}, 1))
    emit("admin_comment", asked.admin_comment)
    """
    ran = hooks.submit(scenario)
    assert ran.one("global") == "nil"
    assert ran.one("admin_comment") == "opsk:v1 verdict=oom"
    assert server.connections == 1


def test_memory_and_errors_of_modifications_are_not_ours(hooks: Hooks) -> None:
    """From 26.05 on an error in ``slurm_job_modify`` would refuse ``scontrol update``: it touches nothing."""
    ran = hooks.submit("""
    local function boom() error("boom") end
    local angry = setmetatable({}, { __index = boom, __newindex = boom })
    emit("returned", slurm_job_modify(angry, angry, angry, 1))
    emit("returned", slurm_job_modify())
    """)
    assert ran.of("returned") == ["0", "0"]
