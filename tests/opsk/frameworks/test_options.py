"""Every option that is printed exists in the framework's own parser; the text that is pasted is what a shell takes."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Set

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opsk.frameworks.catalog import FRAMEWORKS
from opsk.frameworks.options import quote
from opsk.frameworks.script import Job
from tests.golden.compare import assert_as_golden
from tests.opsk.frameworks.examples import LLAMA_70B, PLANS
from tests.opsk.frameworks.known_options import (
    DEEPSPEED,
    DEEPSPEED_JSON,
    FSDP,
    MEGATRON,
    TORCHTITAN,
    TRAINER,
)
from tests.opsk.frameworks.random_plans import trainings

_KNOWN: dict[str, Set[str]] = {
    "megatron": MEGATRON,
    "deepspeed": DEEPSPEED,
    "fsdp": FSDP | TRAINER,
    "torchtitan": {f"--{table}.{key}" for table, keys in TORCHTITAN.items() for key in keys},
}
many = settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)


@pytest.mark.parametrize("name", FRAMEWORKS)
@many
@given(st.data())
def test_every_option_exists(name: str, data: st.DataObject) -> None:
    model, plan = data.draw(trainings(FRAMEWORKS[name]))
    written = FRAMEWORKS[name].settings(model, plan)
    assert {option.name for option in written.options} <= _KNOWN[name]
    for file in written.files:
        assert not file.option or file.option in _KNOWN[name]
        if name == "torchtitan" and file.content:
            assert {table: set(keys) - TORCHTITAN[table] for table, keys in file.content.items()} == {
                table: set() for table in file.content
            }
        if name == "deepspeed":
            assert set(file.content) <= DEEPSPEED_JSON


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_option_of_the_program_exists(name: str) -> None:
    """What a script adds to model and plan: data, steps, checkpoints."""
    program = FRAMEWORKS[name].program
    words = " ".join((*program.setup, *program.command)).replace("(", " ").replace(")", " ")
    options = {word for word in shlex.split(words) if word.startswith("--")}
    assert options <= _KNOWN[name]
    assert options


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_option_is_given_twice(name: str) -> None:
    options = [option.name for option in FRAMEWORKS[name].settings(LLAMA_70B, PLANS[name]).options]
    # both programs of fsdp have the number format
    assert len(options) == len(set(options))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_is_pasted_and_what_is_submitted(name: str) -> None:
    framework, plan = FRAMEWORKS[name], PLANS[name]
    script = framework.script(LLAMA_70B, plan, Job(nodes=plan.gpus // 8, gpus_per_node=8, name="llama-3-70b"))
    pasted = framework.settings(LLAMA_70B, plan).pasted
    assert_as_golden(f"frameworks/{name}.sbatch", f"{script}\n# --- pasted ---\n{pasted}")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
@settings(max_examples=200, deadline=None)
def test_a_quoted_word_is_one_word_to_a_shell(word: str) -> None:
    text = quote(word)
    assert text.isascii()
    assert "\n" not in text
    done = subprocess.run(["bash", "-c", f"printf '%s' {text}"], capture_output=True, check=True)
    assert done.stdout == word.encode()
