"""What does job_submit.lua do where a policy may hold or refuse jobs? That, with the reason, and nothing more."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.bad_servers import BAD_SERVERS, AnswerWith, Serve
from tests.fakes.hook_runner import Hooks
from tests.fakes.submissions import TRAINING, advice, question, submit

REASONS = ["held: will run out of GPU memory", "to run it all the same: scontrol release"]


def enforcing(action: str, **fields: Any) -> bytes:
    return advice(action=action, lines=REASONS, **fields)


def test_a_job_is_held_where_the_policy_says_so(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(enforcing("hold")))
    hooks.settings(policy="enforce")
    ran = hooks.submit(submit())
    assert ran.one("returned") == "0"
    assert [line for line in ran.said if line.startswith("user")] == [f"user: opsk  {line}" for line in REASONS]
    assert "info: opsk: policy: hold of a job of uid 4711" in ran.said


def priority(fields: str = "", returned: str = "") -> str:
    return f"""
    local asked = job({{ tres_per_node = "gres/gpu:8", script = "{TRAINING}", {fields} }})
    {returned}
    emit("returned", slurm_job_submit(asked, {{}}, 4711))
    emit("priority", asked.priority)
    emit_said()
    """


def test_holding_sets_the_priority_and_nothing_else_does(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(enforcing("hold")))
    hooks.settings(policy="enforce")
    ran = hooks.submit(priority())
    assert ran.one("returned") == "0"
    assert float(ran.one("priority")) == 0


def test_a_job_is_refused_with_the_reason(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(enforcing("reject")))
    hooks.settings(policy="enforce", submit_lines="never")
    ran = hooks.submit(priority())
    assert ran.one("returned") == "-1"
    assert ran.one("priority") == "nil"
    assert f"user: opsk  {REASONS[0]}" in ran.said


@pytest.mark.parametrize("policy", ["none", "rules"])
@pytest.mark.parametrize("action", ["hold", "reject"])
def test_no_advisor_can_hold_or_refuse_what_the_settings_do_not_let_it(
    hooks: Hooks, serve: Serve, policy: str, action: str
) -> None:
    serve(AnswerWith(enforcing(action)))
    hooks.settings(policy=policy)
    ran = hooks.submit(priority())
    assert (ran.one("returned"), ran.one("priority")) == ("0", "nil")


@pytest.mark.parametrize("status", ["silent", "later", "files", "pong", "error"])
@pytest.mark.parametrize("action", ["hold", "reject"])
def test_only_advice_holds_or_refuses(hooks: Hooks, serve: Serve, status: str, action: str) -> None:
    serve(AnswerWith(enforcing(action, status=status)))
    hooks.settings(policy="enforce")
    ran = hooks.submit(priority())
    assert (ran.one("returned"), ran.one("priority")) == ("0", "nil")


@pytest.mark.parametrize("action", ["Hold", "drop", "", "1", "hold reject", "reject\n", " hold"])
def test_another_word_neither_holds_nor_refuses(hooks: Hooks, serve: Serve, action: str) -> None:
    serve(AnswerWith(advice(action=action)))
    hooks.settings(policy="enforce")
    ran = hooks.submit(priority())
    assert (ran.one("returned"), ran.one("priority")) == ("0", "nil")


@pytest.mark.parametrize("action", ["hold", "reject"])
@pytest.mark.parametrize("lines", [[], ["", ""]])
def test_without_a_reason_to_tell_the_job_goes_through(
    hooks: Hooks, serve: Serve, action: str, lines: list[str]
) -> None:
    serve(AnswerWith(advice(action=action, lines=lines)))
    hooks.settings(policy="enforce")
    ran = hooks.submit(priority())
    assert (ran.one("returned"), ran.one("priority")) == ("0", "nil")


@pytest.mark.parametrize("action", ["hold", "reject"])
def test_a_user_who_cannot_be_told_is_let_through(hooks: Hooks, serve: Serve, action: str) -> None:
    """From 26.05 on an error would refuse the job; and nobody is to wonder why it does not start."""
    serve(AnswerWith(enforcing(action)))
    hooks.settings(policy="enforce")
    ran = hooks.submit(priority(returned='slurm.log_user = function() error("no user to tell") end'))
    assert (ran.one("returned"), ran.one("priority")) == ("0", "nil")


def test_an_interactive_job_is_never_held_or_refused(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(enforcing("reject")))
    hooks.settings(policy="enforce")
    ran = hooks.submit(submit(fields='argv = { "./job", "8" }, script = nil'))
    assert ran.one("returned") == "0"


@pytest.mark.parametrize("kind", BAD_SERVERS)
def test_with_a_policy_a_bad_server_changes_nothing_either(hooks: Hooks, serve: Serve, kind: str) -> None:
    serve(BAD_SERVERS[kind])
    hooks.settings(policy="enforce")
    ran = hooks.submit(priority())
    assert (ran.one("returned"), ran.one("priority")) == ("0", "nil")


def test_opting_out_does_not_evade_a_policy_that_holds(hooks: Hooks, serve: Serve) -> None:
    server = serve(AnswerWith(enforcing("hold")))
    hooks.settings(policy="enforce")
    hooks.submit(submit(script=TRAINING + "#OPSK off\\n"))
    assert server.connections == 1


def test_with_a_policy_the_defaults_are_asked_with(hooks: Hooks, serve: Serve) -> None:
    """Slurm fills in account, QOS and partition only later; rules go by them."""
    answers = AnswerWith(advice())
    serve(answers)
    hooks.settings(policy="rules")
    hooks.submit("""
    local parts = { debug = opaque({ flag_default = 0 }), gpu = opaque({ flag_default = 1 }) }
    local fields = { tres_per_node = "gres/gpu:8", script = "torchrun train.py", default_account = "lab",
      default_qos = "low" }
    slurm_job_submit(job(fields), parts, 1)
    """)
    asked = question(answers)
    assert asked["job"].items() >= {"account": "lab", "qos": "low", "partition": "gpu"}.items()
    assert "env" not in asked


def test_what_is_named_beats_the_defaults(hooks: Hooks, serve: Serve) -> None:
    answers = AnswerWith(advice())
    serve(answers)
    hooks.settings(policy="rules")
    hooks.submit("""
    local parts = { gpu = opaque({ flag_default = 1 }) }
    local fields = { tres_per_node = "gres/gpu:8", script = "torchrun train.py", default_account = "lab",
      account = "own", partition = "debug" }
    slurm_job_submit(job(fields), parts, 1)
    """)
    assert question(answers)["job"].items() >= {"account": "own", "partition": "debug"}.items()


def test_an_enforced_policy_knows_the_environment(hooks: Hooks, serve: Serve) -> None:
    """A default in the script (``${TP:-4}``) is not held against a user who exported another value."""
    answers = AnswerWith(advice())
    serve(answers)
    hooks.settings(policy="enforce")
    hooks.submit("""
    local environment = { TP = "8", MY_TOKEN = "secret", OTHER = "no" }
    local script = "torchrun train.py --tp ${TP:-4} $MY_TOKEN"
    slurm_job_submit(job({ tres_per_node = "gres/gpu:8", script = script, environment = environment }), {}, 1)
    """)
    assert question(answers)["env"] == {"TP": "8"}


def test_a_script_of_nothing_but_variables_costs_little(hooks: Hooks, serve: Serve) -> None:
    serve(AnswerWith(advice()))
    hooks.settings(policy="enforce")
    ran = hooks.submit("""
    local names = {}
    for number = 1, 25000 do names[number] = "$V" .. number end
    local asked = job({ tres_per_node = "gres/gpu:8", script = "torchrun train.py " .. table.concat(names, " ") })
    local looked = 0
    local environment = setmetatable({}, { __index = function() looked = looked + 1 end })
    asked.environment = environment
    emit("returned", slurm_job_submit(asked, {}, 1))
    emit("looked", looked < 4200)
    """)
    assert ran.one("looked") == "true"
