"""Which variables the submit hook sends: the rule here and the one in Lua are one."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk_jobcheck.scripts.bash.scope import MAX_MENTIONS, MAX_VARIABLES, find_mentioned_variables
from opsk_jobcheck.service.hooks import read_hook

PIECES = (
    "$A",
    "${B}",
    "${C:-x}",
    "${#D}",
    "${!E}",
    "$HF_TOKEN",
    "$my_key",
    "$1",
    "$",
    "${",
    "# $F",
    "$A$B",
    "\\$G",
    "\n",
)


def test_what_a_script_mentions_is_asked_for_but_no_secrets() -> None:
    assert find_mentioned_variables("echo $A ${B:-1} ${#C[@]} $API_KEY $TOKENS $((D))") == {"A", "B", "C"}


def test_of_too_many_nothing_is_known() -> None:
    assert find_mentioned_variables(" ".join(f"$A{number}" for number in range(MAX_VARIABLES + 1))) == frozenset()
    assert find_mentioned_variables("$A " * (MAX_MENTIONS + 1)) == frozenset()
    assert find_mentioned_variables("$A " * MAX_MENTIONS) == {"A"}


@pytest.mark.skipif(shutil.which("lua5.1") is None, reason="lua5.1 is not installed")
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map(" ".join))
def test_the_hooks_ask_for_the_same(text: str) -> None:
    hook = read_hook("shared/words.lua")
    start = hook.index("local MAX_VARIABLES")
    rule = hook[start : hook.index("\nend\n", start) + 5]
    program = (
        rule + "for name in pairs(mentioned_variables(io.read('*a'), function() return 'x' end)) do print(name) end"
    )
    ran = subprocess.run(["lua5.1", "-e", program], input=text, capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) == find_mentioned_variables(text), json.dumps(text)
