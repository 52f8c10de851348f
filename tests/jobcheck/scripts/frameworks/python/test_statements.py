"""What the text of a Python program says about its training."""

from __future__ import annotations

import time

import pytest

from opsk_jobcheck.scripts.frameworks.python.source import OR, UNPACKED, Value
from opsk_jobcheck.scripts.frameworks.python.statements import MAX_CHARS, read_python


def default(text: str, name: str) -> object:
    """Return the default of a flag, ``unknown`` where it is computed."""
    value = read_python(text).defaults.get(name)
    return None if value is None else value.literal if value.is_known else "unknown"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ('p.add_argument("--n-layer", "-n", type=int, default=12)', "n_layer", 12),
        ('p.add_argument("--seq_len", default=8 * 1024)', "seq_len", 8192),
        ('p.add_argument("--lora", action="store_true")', "lora", False),
        ('p.add_argument("--depth", default=get_depth())', "depth", "unknown"),
        ('@click.option("--hidden", default=768)\ndef main(hidden): pass', "hidden", 768),
        ('flags.DEFINE_integer("heads", 16, "help")', "heads", 16),
        ("class A:\n  width: int = 512\nHfArgumentParser((A,)).parse_args_into_dataclasses()", "width", 512),
        ("class A:\n  width: int = field(default=256)\ntyro.cli(A)", "width", 256),
        ("def main(layers: int = 6, *, heads=8): pass\nfire.Fire(main)", "heads", 8),
        ("def main(layers: int = 6): pass\nfire.Fire(main)", "layers", 6),
    ],
)
def test_the_default_of_a_flag_is_read(text: str, name: str, value: object) -> None:
    assert default(text, name) == value


def test_fields_of_a_class_that_no_parser_gets_are_no_defaults() -> None:
    assert default("class Config:\n  width: int = 512\nmodel = Model(Config(width=4))", "width") is None


def test_two_defaults_of_one_flag_are_none() -> None:
    assert default('p.add_argument("--a", default=1)\nq.add_argument("--a", default=2)', "a") is None


def test_a_constant_that_is_set_twice_is_none() -> None:
    assert read_python("n_layer = 4\n").constants["n_layer"].literal == 4
    assert "n_layer" not in read_python("n_layer = 4\nif big:\n    n_layer = 8\n").constants
    assert "n_layer" not in read_python("n_layer = 4\nn_layer = 8\n").constants


@pytest.mark.parametrize(
    "text",
    [
        "class Config:\n    batch_size = 32",
        "@dataclass\nclass TrainingArgs:\n    batch_size: int = 32",
        "class CFG:\n    def __init__(self):\n        self.batch_size = 32",
        'CONFIG = {"batch_size": 32, "lr": rate()}',
        "class AConfig:\n    batch_size = 32\nclass BConfig:\n    batch_size = 32",
    ],
)
def test_attributes_of_settings_are_read(text: str) -> None:
    source = read_python(text)
    assert source.attributes["batch_size"].literal == 32
    assert "batch_size" not in source.changed


@pytest.mark.parametrize(
    "text",
    [
        "class Config:\n    batch_size = 32\nfor k, v in x: setattr(Config, k, v)",
        "class Config:\n    batch_size: int = 32\nc = Config(**given)",
        'CONFIG = {"batch_size": 32}\nCONFIG.update(given)',
        'CONFIG = {"batch_size": 32}\nCONFIG = load(path)',
        "class SmallConfig:\n    batch_size = 32\nclass LargeConfig:\n    batch_size = 64",
        "class EvalConfig:\n    batch_size = 32",
        "class Dataset:\n    batch_size = 32",
    ],
)
def test_attributes_that_others_may_replace_are_none(text: str) -> None:
    assert "batch_size" not in read_python(text).attributes


def test_what_a_program_sets_again_is_named_with_its_line() -> None:
    source = read_python("\nargs.batch_size = int(args.batch_size / gpus)\nconfig.n_layer = args.n_layer\nargs.k //= 2")
    assert dict(source.changed) == {"batch_size": 2, "k": 4}
    assert {"batch_size", "k"} <= source.divided


def test_calls_have_their_arguments_and_conditions() -> None:
    text = (
        "if args.lora and not args.full:\n  m = get_peft_model(m, LoraConfig(r=8, alpha=args.alpha))\nelse:\n  go()\n"
    )
    calls = {call.function: call for call in read_python(text).calls}
    assert calls["LoraConfig"].conditions == ("lora", "-full")
    assert calls["LoraConfig"].keywords["r"] == Value(literal=8, line=2, is_known=True)
    assert calls["LoraConfig"].keywords["alpha"].name == "alpha"
    assert calls["go"].conditions == (f"-lora{OR}full",)


@pytest.mark.parametrize(
    "text",
    [
        'print "Python 2"\n',
        "(" * 5000,
        "-" * 50000 + "1",
        "1+" * 50000 + "1",
        "a" + ".b" * 50000,
        "a = 1\0",
        "if 1: pass\n" + "elif 1: pass\n" * 20000,
        "x = 1\n" * MAX_CHARS,
        "x = [" + "1," * 62000 + "]",
        "\ufeffx = 1",
    ],
)
def test_hostile_text_states_nothing_and_raises_nothing(text: str) -> None:
    source = read_python(text)
    assert source.why or source.calls == ()


def test_blocks_that_nest_too_deep_are_given_up() -> None:
    text = "".join(f"{' ' * level}if a:\n" for level in range(90)) + " " * 90 + "pass\n"
    assert read_python(text).why


def test_a_text_that_takes_python_a_square_of_its_length_to_parse_is_not_read() -> None:
    """CPython 3.11 takes two seconds for 40,000 fields of one f-string."""
    before = time.process_time()
    assert read_python("x = f'" + "{a}" * 40_000 + "'\n").why
    assert time.process_time() - before < 1.0


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("args.bits in (4, 8)", (f"bits=4{OR}bits=8",)),
        ("args.bits not in (4, 8)", ("-bits=4", "-bits=8")),
        ("args.dtype in ['auto', None]", (f"dtype=auto{OR}-dtype",)),
        ("args.lora or args.qlora", (f"lora{OR}qlora",)),
        ("not (args.lora or args.qlora)", ("-lora", "-qlora")),
        ("args.lora or f()", (f"lora{OR}?",)),
        ("args.bits in sizes", ("?",)),
        ("args.bits in (1, 2, 3, 4, 5)", ("?",)),
    ],
)
def test_one_of_several_alternatives_has_to_hold(test: str, expected: tuple[str, ...]) -> None:
    assert read_python(f"if {test}:\n  go()\n").calls[-1].conditions == expected


def test_a_number_format_may_be_given_by_its_name() -> None:
    call = read_python("m = Model.from_pretrained('x', torch_dtype=getattr(torch, args.dtype))").calls[0]
    assert call.keywords["torch_dtype"].name == "dtype"
    call = read_python("m = Model.from_pretrained('x', torch_dtype=getattr(other, args.dtype))").calls[0]
    assert call.keywords["torch_dtype"].name == ""


@pytest.mark.parametrize(
    ("table", "known"),
    [
        ("T = dict(r=32, bias='none')", {"r": 32, "bias": "none", "task_type": "x"}),
        ("T = {'r': 32}", {"r": 32, "task_type": "x"}),
        ("T = make()", {UNPACKED: None, "task_type": "x"}),
        ("T = {'r': 32}\nT['r'] = rank()", {UNPACKED: None, "task_type": "x"}),
        ("T = {'r': 32}\nT = {'r': 8}", {UNPACKED: None, "task_type": "x"}),
        ("T = {'r': 32, **more}", {UNPACKED: None, "task_type": "x"}),
    ],
)
def test_arguments_in_a_table_are_those_of_the_call_or_may_be_any(table: str, known: dict[str, object]) -> None:
    source = read_python(f"{table}\nc = LoraConfig(task_type='x', **T)")
    call = next(source.find_calls("LoraConfig"))
    assert {name: value.literal for name, value in call.keywords.items()} == known
