"""Submissions as the two hooks see them, in Lua, and what an advisor answers to their questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.fakes.bad_servers import AnswerWith
from tests.fakes.hook_runner import Hooks, Ran

TRAINING = "#!/bin/bash\\n#SBATCH -N 2\\ntorchrun pretrain_gpt.py\\n"
SCRIPT = "#!/bin/bash\n#SBATCH -N 2\ntorchrun train.py --layers ${LAYERS} $HF_TOKEN\n"


def told(
    status: str, *, lines: Sequence[str] = (), paths: Sequence[str] = (), comment: str = "", action: str = ""
) -> bytes:
    """Return what an advisor answers a hook, written by hand."""
    rows = [("comment", comment), ("action", action), *(("path", path) for path in paths)]
    rows += [("line", line) for line in lines]
    return f"opsk 1 {status}\n".encode() + "".join(f"{name} {_escaped(text)}\n" for name, text in rows).encode("ascii")


def _escaped(text: str) -> str:
    return "".join(sign if " " <= sign <= "~" and sign != "\\" else f"\\u{ord(sign):04x}" for sign in text)


def advice(
    *,
    status: str = "advice",
    lines: Sequence[str] = ("gpt on 16 GPUs", "memory too much"),
    comment: str = "opsk:v1 verdict=oom",
    action: str = "",
) -> bytes:
    """Return the answer of an advisor to job_submit.lua."""
    return told(status, lines=lines, comment=comment, action=action)


def submit(*, fields: str = "", script: str = TRAINING, times: int = 1) -> str:
    """Return a scenario that submits a GPU job some times, the description shared."""
    return f"""
    local asked = job({{ tres_per_node = "gres/gpu:8", min_nodes = 2, script = "{script}", {fields} }})
    for _ = 1, {times} do
      emit("returned", timed("took_ms", function() return slurm_job_submit(asked, {{}}, 4711) end))
    end
    emit("comment", asked.comment)
    emit("admin_comment", asked.admin_comment)
    emit_said()
    """


def question(answers: AnswerWith) -> dict[str, Any]:
    """Return the only question that was asked."""
    (body,) = answers.questions
    asked: dict[str, Any] = json.loads(body)
    return asked


def shown_advice(*, lines: Sequence[str] = ("gpt on 16 GPUs", "memory fits")) -> bytes:
    """Return the answer of an advisor to cli_filter.lua, which shows it."""
    return told("advice", lines=lines)


def pre_submit(fields: str, *, options_json: str = "nil", times: int = 1) -> str:
    """Return a scenario that submits with some options."""
    return f"""
    for _ = 1, {times} do
      emit("returned", timed("took_ms", function()
        return slurm_cli_pre_submit(options({{ {fields} }}, {options_json}), 0)
      end))
    end
    emit_said()
    """


WITHOUT_LFS = 'package.preload.lfs = function() error("none") end\n'


def sbatch(hooks: Hooks, text: str = SCRIPT, *, fields: str = "", times: int = 1) -> Ran:
    """Submit a script as ``sbatch train.sh 8`` does."""
    (hooks.directory / "train.sh").write_text(text)
    return hooks.filter(pre_submit(f'argv = {{ "{hooks.directory}/train.sh", "8" }}, {fields}', times=times))


def questions(answers: AnswerWith) -> list[dict[str, Any]]:
    """Return all questions that were asked."""
    return [json.loads(body) for body in answers.questions]
