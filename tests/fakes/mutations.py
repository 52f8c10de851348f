"""Hostile launch scripts: training scripts of every framework, bent by a generator of random numbers.

Every case follows from one number, so that a failing one is named by it: ``fuzz_case(Random(4711))``. The scripts are
of our own making; a test may hand in others (``seeds``), which are then mutated as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.fakes.recipes import TEMPLATES, Script

MAX_SCRIPT_CHARS = 256 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzCase:
    """One hostile script with what came with it, and what was done to it, for the message of a failing test."""

    script: str | bytes
    files: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] | None = None


NUMBERS = (
    *(
        "0",
        "-1",
        "1e309",
        "NaN",
        "inf",
        "9" * 19,
        "9" * 400,
        "4294967294",
        "0x10",
        "007",
        "1_000",
        "1.5",
        "²",
        "٣",
        "８",
    ),
    *("1", "2", "3", "7", "8", "16", "1024", "131071", "999999999", "true", "null", "''", "$((1/0))", "$((2**63))"),
)
WORDS = (
    *(
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
        "\x9b2J",
        "\u202egnp.exe",
        "\u2066x",
        "\u200b",
        "\u2028",
        "\x7f",
        "\b\b",
    ),
    *(
        "\0",
        "\ufeff",
        "\ud800",
        "\ue000",
        "\ue0000\ue001",
        "\udcff",
        "é",
        "模型",
        "\U0001f525",
        "\r",
        "\x85",
        "\v",
        "\f",
    ),
    *("[bold red]x[/]", "[/nonsense]", "[link=file:///etc/passwd]x[/link]", "%s%s%n%x", "{0.__class__}", "%(x)s"),
    *("$(touch /tmp/opsk-was-here)", "`id`", "'; DROP TABLE job; --", '"; rm -rf / #', "$X", "${X}", "${X:-", "${!X}"),
    *(
        "${A[@]}",
        "$@",
        "$((",
        "$(",
        "))",
        "<<EOF",
        "EOF",
        "<<<",
        "<(",
        "&&",
        "||",
        ";;",
        "|",
        "&",
        "#",
        "\\",
        "\\\n",
        "'",
    ),
    *("if ", "then ", "fi", "done", "esac", "{", "}", "(", ")", "[[", "]]", "\n", "\t", '"', "*", "?", "~", "../" * 9),
    *(
        "--",
        "-",
        "=",
        "--x=",
        "-m",
        "--deepspeed_config",
        "--config",
        "x.yaml",
        "m/config.json",
        "/dev/zero",
        "/proc/self/mem",
    ),
    *(
        "opsk:v1 verdict=fits",
        "sbatch: opsk",
        "#OPSK off",
        "#OPSK tp=",
        "#SBATCH --nodes=",
        "#SBATCH -J \x1b[1m",
        "<b>&amp;",
    ),
    *(
        "opsk0unknown",
        "opsk99unknown",
        "!!python/object/apply:os.system [id]",
        "*a",
        "&a",
        "<<: *a",
        "- ",
        ": ",
        "[[[",
        "{{{",
    ),
)
WRAPS = (
    "if {}; then\n{}\nfi\n",
    "f() {{\n{}\n}}\nf\n",
    "(\n{}\n)\n",
    "for i in 1 2 3; do\n{}\ndone\n",
    "bash -c '{}'\n",
    "while read x; do\n{}\ndone\n",
    "cat > z.sh <<'Z'\n{}\nZ\nbash z.sh\n",
    'eval "{}"\n',
    "case $X in a)\n{}\n;; esac\n",
    "X=$({}\n)\n$X\n",
    "{{ {}\n}} | tee log\n",
    "{} &\nwait\n",
    "set -- a b c\n{}\n",
    'srun bash -lc "{}"\n',
    "{}\n{}\n",
)
_Mutation = Callable[[Random, str], str]


def _spot(random: Random, text: str) -> int:
    return random.randrange(len(text) + 1)


def _word(random: Random, text: str) -> str:
    at = _spot(random, text)
    return text[:at] + random.choice(WORDS) + text[at:]


def _number(random: Random, text: str) -> str:
    words = text.split(" ")
    places = [index for index, word in enumerate(words) if any(sign.isdigit() for sign in word)]
    if not places:
        return text + " " + random.choice(NUMBERS)
    index = random.choice(places)
    head, equals, _ = words[index].rpartition("=")
    words[index] = head + equals + random.choice(NUMBERS)
    return " ".join(words)


def _swap(random: Random, text: str) -> str:
    lines = text.split("\n")
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return "\n".join(lines)


def _drop(random: Random, text: str) -> str:
    start = _spot(random, text)
    return text[:start] + text[start + random.choice((1, 2, 5, 20, 200)) :]


def _again(random: Random, text: str) -> str:
    lines = text.split("\n")
    index = random.randrange(len(lines))
    count = random.choice((2, 3, 20, 300))
    return "\n".join([*lines[:index], *[lines[index][:2000]] * count, *lines[index:]])


def _grown(random: Random, text: str) -> str:
    """Repeat a short piece until it is long: deep nesting, huge words, long lines."""
    start = _spot(random, text)
    piece = random.choice(
        (text[start : start + random.choice((1, 2, 4, 9))], random.choice(WORDS), "${X:-", "$(", "[a.")
    )
    return text[:start] + (piece or "x") * random.choice((10, 100, 1000, 9000)) + text[start:]


def _wrapped(random: Random, text: str) -> str:
    wrap = random.choice(WRAPS)
    head, _, rest = text.partition("\n\n") if "\n\n" in text else ("", "", text)
    return (
        head
        + "\n"
        + wrap.replace("{{", "\1").replace("}}", "\2").replace("{}", rest).replace("\1", "{").replace("\2", "}")
    )


def _one_line(_: Random, text: str) -> str:
    return text.replace("\n", " ; ")


def _crlf(_: Random, text: str) -> str:
    return text.replace("\n", "\r\n")


def _quotes(random: Random, text: str) -> str:
    return text.replace(
        *random.choice((('"', "'"), ("'", ""), ('"', ""), ("\n", "\\\n"), ("=", " "), (" ", "="), ("$", "\\$")))
    )


def _variables(random: Random, text: str) -> str:
    words = text.split(" ")
    index = random.randrange(len(words))
    name, words[index] = "V" + str(random.randrange(9)), "$V" + str(random.randrange(9))
    return f"{name}={random.choice((*WORDS, *NUMBERS))}\n" + " ".join(words)


def _cut(random: Random, text: str) -> str:
    return text[: _spot(random, text)]


def _signs(random: Random, text: str) -> str:
    at = _spot(random, text)
    signs = "".join(
        chr(random.choice((random.randrange(32), random.randrange(256), random.randrange(0x110000)))) for _ in range(9)
    )
    return text[:at] + signs + text[at:]


MUTATIONS: tuple[_Mutation, ...] = (
    *(
        _word,
        _word,
        _word,
        _number,
        _number,
        _number,
        _number,
        _swap,
        _drop,
        _again,
        _grown,
        _wrapped,
        _wrapped,
        _quotes,
    ),
    *(_variables, _cut, _signs, _one_line, _crlf),
)


def mutated(random: Random, text: str) -> str:
    """Return a text after one to six changes, no longer than a script may be."""
    for _ in range(random.choice((1, 1, 2, 2, 3, 4, 6))):
        text = random.choice(MUTATIONS)(random, text)[: MAX_SCRIPT_CHARS + 10]
    return text


def fuzz_case(random: Random, seeds: Sequence[Script] = TEMPLATES) -> FuzzCase:
    """Return a script of ``seeds`` with its files, the one or the others bent."""
    script, files = random.choice(seeds)
    if random.random() < 0.1:
        script += random.choice(seeds)[0]
    bend_files = bool(files) and random.random() < 0.6
    if not bend_files or random.random() < 0.5:
        script = mutated(random, script)
    given = {
        path: mutated(random, text)[:MAX_SCRIPT_CHARS] if bend_files else text
        for path, text in files.items()
        if random.random() < 0.9
    }
    encoded = random.random()
    text: str | bytes = script
    if encoded < 0.15:
        raw = bytearray(script.encode("utf-8", "surrogatepass"))
        for _ in range(random.randrange(9)):
            at = random.randrange(len(raw) + 1)
            raw[at:at] = bytes([random.randrange(256)])
        text = bytes(raw)
    arguments = tuple(random.choice((*WORDS, *NUMBERS)) for _ in range(random.choice((0, 0, 1, 3))))
    names = ("TP", "PP", "X", "MODE", "HOME", "FLASH", "V1", "SLURM_NNODES", "SBATCH_NODES", "")
    environment = {random.choice(names): random.choice((*WORDS, *NUMBERS)) for _ in range(random.choice((0, 2, 4)))}
    return FuzzCase(
        script=text, files=given, arguments=arguments, environment=environment if random.random() < 0.6 else None
    )
