"""Hostile questions to the advisor, as login nodes and slurmctld may ask them, not all of them sound."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from tests.fakes.mutations import NUMBERS, WORDS, FuzzCase

OPTION_NAMES = (
    *(
        "nodes",
        "ntasks",
        "ntasks-per-node",
        "gpus",
        "gpus-per-node",
        "gpus-per-task",
        "gpus-per-socket",
        "gres",
        "time",
    ),
    *(
        "tres-per-task",
        "cpus-per-task",
        "partition",
        "constraint",
        "nodelist",
        "exclude",
        "reservation",
        "account",
        "qos",
    ),
    *("array", "exclusive", "chdir", "export", "sockets-per-node", "extra-node-info", "options", "\x1b[1m"),
)
JOB_NAMES = (
    *("tres_per_node", "gres", "tres_per_job", "tres_per_task", "tres_per_socket", "sockets_per_node", "min_nodes"),
    *("max_nodes", "time_limit", "num_tasks", "ntasks_per_node", "cpus_per_task", "partition", "features", "req_nodes"),
    *("exc_nodes", "reservation", "account", "qos", "het_job_offset", "cron_job", "array_inx", "shared", "\0"),
)
ASKED = (
    *(
        "8",
        "gpu:8",
        "gres:gpu:8",
        "gres/gpu:h100:8",
        "gres/gpu=8",
        "gpu:a100:2,gpu:h100:2",
        "h100:8",
        "gpu:8(S:0-1)",
        "(S:" * 9,
    ),
    *(
        "2-4",
        "1k",
        "unlimited",
        "1-0:0:0",
        "UNLIMITED",
        "ALL",
        "NONE,A=b",
        "a,b",
        "unset",
        "(null)",
        "cpu=4,gres/gpu=1",
    ),
    *("node[1-999999]", "node[0-9]" * 9, "(a100&b)|[c*4]", "0-15%4", "99999999-1:1:1", "gpu:" + "9" * 30, "gpu:8K"),
)
SCALARS = (
    0xFFFFFFFE,
    0xFFFFFFFF,
    0xFFFE,
    0xFFFFFFFFFFFFFFFE,
    -1,
    0,
    1,
    8,
    8.0,
    7.5,
    1e308,
    10**30,
    True,
    False,
    None,
    "",
)


def _value(random: Random) -> Any:
    return random.choice((random.choice(ASKED), random.choice(NUMBERS), random.choice(WORDS), random.choice(SCALARS)))


def _odd(random: Random) -> Any:
    """Return a value of a type that nobody promised."""
    return random.choice(([], {}, [[[[[[[[[[]]]]]]]]]], {"a": {"b": []}}, -1, 1e308, True, None, "x", ["x"], {"x": 1}))


def advise_question(random: Random, case: FuzzCase) -> dict[str, Any]:
    """Return what a hostile login node may ask; not always a question."""
    options: Any = {random.choice(OPTION_NAMES): _value(random) for _ in range(random.randrange(6))}
    if random.random() < 0.2:
        options = {"options": options}
    text = json.dumps(options)
    question: dict[str, Any] = {
        "kind": "advise",
        "script": case.script if isinstance(case.script, str) else case.script.decode(errors="replace"),
        "script_name": random.choice(("job.sh", "/a/b.sh", *WORDS)),
        "argv": ["job.sh", *case.arguments],
        "options_json": random.choice(
            (text, text, text[:-1], "[" * 9999, '{"a":' * 9999, "NaN", "", '{"nodes":1e999}')
        ),
        "env": dict(case.environment or {}),
        "cwd": random.choice(("/home/u", "", "relative", "/a\0b", "/" + "x/" * 999, "/\x1b[1m")),
        "files": dict(case.files),
        "detail": random.choice(("default", "long", "short")),
        "heterogeneous": random.random() < 0.1,
        "left_ms": random.choice((None, 300, 6000.5)),
    }
    if random.random() < 0.2:
        question |= {"script": None, "command": random.choice(("srun", "salloc")), "argv": list(case.arguments)}
    if random.random() < 0.15:
        question[random.choice(tuple(question))] = _odd(random)
    return question


def submit_question(random: Random, case: FuzzCase) -> dict[str, Any]:
    """Return what a hostile slurmctld may ask; not always a question."""
    question: dict[str, Any] = {
        "kind": "submit",
        "uid": random.choice((0, 1000, 65534, 2**32 - 1)),
        "script": case.script if isinstance(case.script, str) else case.script.decode(errors="replace"),
        "argv": ["job.sh", *case.arguments],
        "job": {random.choice(JOB_NAMES): _value(random) for _ in range(random.randrange(8))},
        "quiet": random.random() < 0.2,
        "env": None if case.environment is None else dict(case.environment),
    }
    if random.random() < 0.15:
        question[random.choice(tuple(question))] = _odd(random)
    return question
