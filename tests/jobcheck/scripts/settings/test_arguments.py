"""Flags and overrides of one command, as argparse and Hydra read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.scripts.bash.values import Text, WordPart, literal, unknown
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.scripts.settings.arguments import Argument, Arguments, drop_prefix, parse_arguments


def parsed(*words: str | Text, valueless: frozenset[str] = frozenset()) -> Arguments:
    """Parse words, each written on a line of its own, from 1."""
    texts = [word if isinstance(word, Text) else literal(word, line) for line, word in enumerate(words, start=1)]
    return parse_arguments(texts, valueless=valueless)


def value(arguments: Arguments, flag: str) -> str | None:
    """Return the known value of a flag."""
    return arguments.flags[flag].value.known


@pytest.mark.parametrize("words", [("--num-layers", "32"), ("--num-layers=32",), ("--num_layers", "32")])
def test_a_value_stands_behind_the_flag_or_an_equals_sign(words: tuple[str, ...]) -> None:
    assert value(parsed(*words), "--num-layers") == "32"


def test_the_last_of_a_flag_given_twice_wins() -> None:
    assert value(parsed("--tp", "2", "--tp=4", "--other", "--tp", "8"), "--tp") == "8"


def test_the_line_is_that_of_the_value() -> None:
    arguments = parsed("--tp", "2", "--swiglu")
    assert (arguments.flags["--tp"].line, arguments.flags["--swiglu"].line) == (2, 3)


def test_a_flag_that_takes_no_value_leaves_the_next_word_alone() -> None:
    assert value(parsed("--bf16", "train.py", valueless=frozenset({"--bf16"})), "--bf16") == ""


def test_a_negative_number_is_a_value_and_a_flag_is_none() -> None:
    arguments = parsed("--a", "-3", "--b", "--c")
    assert (value(arguments, "--a"), value(arguments, "--b")) == ("-3", "")


def test_a_value_that_cannot_be_told_keeps_its_reason() -> None:
    argument = parsed("--tp", unknown("TP comes from $1", 7)).flags["--tp"]
    assert (argument.value.known, argument.value.why, argument.line) == (None, "TP comes from $1", 7)


def test_a_word_whose_beginning_cannot_be_told_is_opaque() -> None:
    assert [word.why for word in parsed("--a", "1", unknown("$ARGS", 1)).opaque] == ["$ARGS"]


@pytest.mark.parametrize(
    ("why", "rest", "is_value"),
    [
        ("task is not set in the script, it would come from the environment", ("--b", "8"), True),
        ("it changes in the loop of line 3", (), True),
        ("it is what `cat f` prints when the job runs", ("--b", "8"), True),
        ("task is not set in the script, it would come from the environment", ("8",), False),
        ("EXTRA_ARGS is not set in the script, it would come from the environment", ("--b", "8"), False),
        ("TRAIN_OPTS is not set in the script, it would come from the environment", (), False),
        ("the script's arguments are not known here", ("--b", "8"), False),
        ("overrides is not set in the script, it would come from the environment", ("--b", "8"), True),
    ],
)
def test_an_unknown_word_behind_a_flag_is_its_value_and_no_more(
    why: str, rest: tuple[str, ...], is_value: bool
) -> None:
    assert (not parsed("--a", unknown(why, 1), *rest).opaque) is is_value


def test_a_word_without_quotes_that_is_named_after_settings_may_hold_flags() -> None:
    why = "overrides is not set in the script, it would come from the environment"
    word = Text((WordPart(why=why, line=1, many=True),))
    assert parsed("--a", word, "--b", "8").opaque


def test_an_unknown_word_that_may_hold_flags_is_no_value() -> None:
    word = Text((WordPart(why="x", line=1, mentions=("--tp",)),))
    assert parsed("--a", word, "--b", "8").opaque


def test_overrides_have_a_dotted_name() -> None:
    arguments = parsed("model.num_layers=4", "+train.micro_batch_size=2", "++a.b=c", "PATH=x", "x.py")
    assert {name: entry.value.known for name, entry in arguments.overrides.items()} == {
        "model.num_layers": "4",
        "train.micro_batch_size": "2",
        "a.b": "c",
    }


def test_a_value_put_together_from_pieces_is_whole() -> None:
    word = Text((WordPart("--tp=", 3), WordPart("8", 1)))
    argument = parse_arguments([word]).flags["--tp"]
    assert (argument.value.known, argument.line) == ("8", 1)


def test_what_is_shown_is_what_a_person_types() -> None:
    assert Argument(flag="--a", value=literal("1", 1), line=1).shown == "--a 1"
    assert Argument(flag="--a", value=Text(), line=1).shown == "--a"


@given(st.text(min_size=1, max_size=30), st.data())
def test_cutting_known_characters_leaves_the_rest(text: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(text)))
    assert drop_prefix(literal(text, 1), count).known == text[count:]


@given(st.lists(st.text(max_size=12), max_size=12))
def test_any_words_are_parsed_without_an_error(words: list[str]) -> None:
    arguments = parsed(*words)
    assert all(name.startswith("--") for name in arguments.flags)


RESUMES = 'RESUME=""\nif [ -d out/last ]; then\n    RESUME="{given}"\nfi\n'
TRAINS = "python run_clm.py --model_name_or_path gpt2 --do_train --per_device_train_batch_size 4 $RESUME\n"


@pytest.mark.parametrize(
    ("given", "is_known"),
    [
        ("--resume_from_checkpoint out/last --overwrite_cache", True),
        ("--resume_from_checkpoint out/$(ls out)", False),
        ("out/last", False),  # the name of a file, of settings perhaps
        ("$MORE", False),
    ],
)
def test_words_of_which_all_alternatives_are_known_hide_no_others(given: str, *, is_known: bool) -> None:
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{RESUMES.format(given=given)}{TRAINS}"
    workload = read_script(script, file="job.sh")
    assert ("model.seq" not in {entry.field for entry in workload.unknown}) is is_known


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("--per_device_train_batch_size 8", "plan.micro_batch"),
        ("--bf16", "plan.precision"),
        ("--deepspeed zero3.json", "plan.sharding"),
    ],
)
def test_a_flag_that_may_be_given_or_not_leaves_its_value_unknown(given: str, field: str) -> None:
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{RESUMES.format(given=given)}{TRAINS}"
    workload = read_script(script, file="job.sh", files={"zero3.json": '{"zero_optimization": {"stage": 3}}'})
    assert field in {entry.field for entry in workload.unknown}


def test_adapters_that_may_be_trained_or_not_leave_the_trained_part_unknown() -> None:
    script = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{RESUMES.format(given='--use_peft --lora_r 8')}{TRAINS}"
    options = dict(read_script(script, file="job.sh").options)
    assert options["trainable"].startswith("unknown: only adapters are trained")
