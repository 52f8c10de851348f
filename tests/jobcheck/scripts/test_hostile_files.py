"""Hostile configuration files: reading them ends, soon and with a reason, whatever they are made of."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.settings.arguments import iterate_settings
from opsk_jobcheck.scripts.settings.config_file import MAX_CONFIG_CHARS, ConfigFile, read_config_file


def read(text: str, path: str = "c.yaml") -> ConfigFile:
    return read_config_file(text[:MAX_CONFIG_CHARS], path=path)


@pytest.mark.parametrize("text", ["[" * MAX_CONFIG_CHARS, "{a: " * 60_000, "- " * 120_000, "? " * 120_000])
def test_yaml_that_overruns_the_stack_of_libyaml_is_refused(text: str) -> None:
    """libyaml's composer calls itself for each level, and ends the process where the stack does."""
    assert "nested too deep" in read(text).why


def test_mappings_that_merge_each_other_again_and_again_are_looked_into_once() -> None:
    """16 aliases in each of 10 levels are 16 ** 9 mappings when they are followed one by one."""
    rows = ["l0: &l0 {x: 1}"]
    rows += [f"l{level}: &l{level} {{<<: [{', '.join([f'*l{level - 1}'] * 16)}]}}" for level in range(1, 10)]
    config = read("\n".join([*rows, "<<: *l9", ""]))
    assert config.entry("missing") is None
    assert "x" in config.names()
    assert {setting.name for setting in iterate_settings(config)} >= {"x", "l0.x"}


def test_a_merge_takes_the_first_mapping_that_has_the_key() -> None:
    config = read("a: &a {k: 1}\nb: &b {k: 2, j: 3}\nc: {<<: [*a, *b]}\n")
    assert [entry.value for key in ("k", "j") if (entry := config.entry("c", key))] == [1, 3]


def test_lists_of_references_to_lists_of_references_are_not_followed() -> None:
    """60 references in each of 12 lists are 60 ** 8 values."""
    rows = [f"r{level}: [{', '.join([f'${{r{level + 1}}}'] * 60)}]" for level in range(12)]
    entry = read("\n".join([*rows, "r12: [1]", "seq: ${r0}", ""])).entry("seq")
    assert entry is not None
    assert entry.value is None
    assert entry.why


def test_a_list_may_refer_to_scalars() -> None:
    entry = read("n: 4\nsizes: ['${n}', 8]\n").entry("sizes")
    assert entry is not None
    assert entry.value == (4, 8)


def test_halves_of_characters_are_no_yaml_but_end_nothing() -> None:
    """A question may carry them, as ``\\udcff``; libyaml takes only what is UTF-8."""
    entry = read("a\udcff: 1\nb: 2\n").entry("b")
    assert entry is not None
    assert entry.value == 2


def test_references_that_go_round_end() -> None:
    for text in ("a: ${b}\nb: ${a}\n", "a: ['${a}']\n", "a: ['${b}']\nb: ${a}\n", "a: ['${b}']\nb: '${b}'\n"):
        entry = read(text).entry("a")
        assert entry is not None
        assert entry.why


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("c.yaml", "a: [" + "1," * 100_000 + "]"),
        ("c.yaml", "\t" * MAX_CONFIG_CHARS),
        ("c.toml", "a." * 120_000 + "b = 1"),
        ("c.toml", "a = " + "[" * 200_000),
        ("c.toml", "a = " + "{a=" * 80_000),
        ("c.toml", "[" + "a." * 120_000 + "b]"),
        ("c.json", '{"a":' * 50_000),
        ("c.json", '{"a":' * 900 + "1" + "}" * 900),
    ],
    ids=lambda text: repr(text[:9]),
)
def test_what_is_too_deep_or_too_much_has_a_reason(path: str, text: str) -> None:
    assert read(text, path).why


@pytest.mark.parametrize(
    ("path", "text"),
    [("c.yaml", "k: 0x" + "f" * 9000), ("c.toml", "k = 0x" + "f" * 9000), ("c.json", '{"k": 1' + "0" * 4000 + "}")],
)
def test_numbers_too_long_for_python_to_print_are_no_numbers(path: str, text: str) -> None:
    """Python prints no whole number of more than 4,300 digits."""
    entry = read(text, path).entry("k")
    assert entry is not None
    assert entry.value == "a number of more than 64 bits"
