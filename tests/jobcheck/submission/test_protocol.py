"""Do frames survive the way, and does anything else end in a short, harmless error?"""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk_jobcheck.submission.protocol import (
    MAX_ANSWER_BYTES,
    MAX_FILES,
    MAX_QUESTION_BYTES,
    AdviseQuestion,
    Answer,
    PingQuestion,
    ProtocolError,
    SubmitQuestion,
    frame,
    parse_body_length,
    parse_question,
    render_answer,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def question(**fields: object) -> bytes:
    return json.dumps({"v": 1, **fields}).encode()


@given(st.text(), st.lists(st.text(), max_size=5))
def test_an_advise_question_survives_the_way(script: str, argv: list[str]) -> None:
    body = question(kind="advise", script=script, argv=argv)
    assert parse_body_length(frame(body)[:4]) == len(body)
    parsed = parse_question(body)
    assert isinstance(parsed, AdviseQuestion)
    assert (parsed.script, list(parsed.argv)) == (script, argv)


@given(st.lists(st.text(), max_size=20), st.text())
def test_an_answer_is_ascii_and_survives_the_way(lines: list[str], comment: str) -> None:
    sent = render_answer(Answer(status="advice", lines=tuple(lines), comment=comment))
    body = sent[4:]
    assert int.from_bytes(sent[:4], "big") == len(body)
    document = json.loads(body.decode("ascii"))
    assert document["v"] == 1
    assert document.get("lines", []) == lines
    assert document.get("comment", "") == comment


def read_rows(body: bytes) -> list[tuple[str, str]]:
    """Return the rows of an answer as text behind the first, taken apart by the rules that are written down."""
    _, *rows = body.decode("ascii").removesuffix("\n").split("\n")
    named = [row.split(" ", 1) for row in rows]
    return [(name, re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text)) for name, text in named]


@given(st.lists(st.text(), max_size=20), st.text(), st.lists(st.text(), max_size=3))
def test_an_answer_as_text_survives_the_way(lines: list[str], comment: str, paths: list[str]) -> None:
    """But for rows that say nothing, and for signs of more than 16 bits."""
    answer = Answer(status="advice", lines=tuple(lines), comment=comment, paths=tuple(paths), action="hold")
    body = render_answer(answer, as_text=True)[4:]
    assert body.startswith(b"opsk 1 advice\n")
    assert set(body) <= {*range(32, 127), 10}
    said = [("comment", comment), ("action", "hold"), *(("path", path) for path in paths)]
    said += [("line", line) for line in lines]
    assert read_rows(body) == [(name, re.sub("[\U00010000-\U0010ffff]", "?", text)) for name, text in said if text]


@pytest.mark.parametrize("kind", [{"kind": "advise"}, {"kind": "submit", "uid": 1}])
def test_a_hook_says_how_it_is_to_be_answered(kind: dict[str, object]) -> None:
    asked = [parse_question(question(**kind, **more)) for more in ({}, {"as_text": True})]
    assert [getattr(each, "as_text", None) for each in asked] == [False, True]


def test_an_answer_as_text_that_is_too_long_loses_lines_from_its_end() -> None:
    answer = Answer(status="advice", lines=tuple(f"{number} " + "ж" * 1000 for number in range(100)), comment="kept")
    sent = render_answer(answer, as_text=True)
    assert len(sent) <= MAX_ANSWER_BYTES + 4
    rows = read_rows(sent[4:])
    assert rows[0] == ("comment", "kept")
    assert 5 < len(rows) < 100


def test_an_answer_that_is_too_long_loses_lines_from_its_end() -> None:
    sent = render_answer(Answer(status="advice", lines=tuple(f"{number} " + "ж" * 1000 for number in range(100))))
    assert len(sent) <= MAX_ANSWER_BYTES + 4
    lines = json.loads(sent[4:])["lines"]
    assert lines[0].startswith("0 ")
    assert 5 < len(lines) < 100


def error_of(body: bytes) -> str:
    """Return what is said about a body that is no question; empty for a question."""
    try:
        parse_question(body)
    except ProtocolError as error:
        return str(error)
    return ""


def is_short_and_harmless(words: str) -> bool:
    return words.isascii() and (not words or words.isprintable()) and len(words) < 200


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_question_or_an_error(body: bytes) -> None:
    assert is_short_and_harmless(error_of(body))


KEYS = st.sampled_from(["v", "kind", "uid", "script", "argv", "job", "files", "env", "x"])


@settings(max_examples=300)
@given(st.dictionaries(KEYS, json_values))
def test_any_object_is_a_question_or_an_error(document: dict[str, object]) -> None:
    for kind in ("submit", "advise", document.get("kind")):
        assert is_short_and_harmless(error_of(json.dumps({**document, "v": 1, "kind": kind}).encode()))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b'{"kind":"ping"}', "version"),
        (b'{"v":2,"kind":"ping"}', "version"),
        (b'{"v":1}', "kind"),
        (b'{"v":1,"kind":"order"}', "kind"),
        (b'{"v":1,"kind":"submit","uid":-1}', "uid"),
        (b'{"v":1,"kind":"submit","uid":4294967296}', "uid"),
        (b'{"v":1,"kind":"submit"}', "uid"),
        (b'{"v":1,"kind":"advise","script":7}', "script"),
        (b'{"v":1,"kind":"submit","uid":NaN}', "not JSON"),
        (b"[" * 100_000, "nested"),
        (b'{"v":1,"kind":"ping","x":' + b"[" * 50 + b"]" * 50 + b"}", "nested"),
    ],
)
def test_what_is_wrong_is_said(body: bytes, words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        parse_question(body)


def test_more_files_than_one_may_hold_are_refused() -> None:
    with pytest.raises(ProtocolError, match="files"):
        parse_question(question(kind="advise", files={str(number): "" for number in range(MAX_FILES + 1)}))


@pytest.mark.parametrize("length", [0, 1, MAX_QUESTION_BYTES + 1, 0xFFFFFFFF])
def test_a_frame_of_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(ProtocolError):
        parse_body_length(length.to_bytes(4, "big"))


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    parsed = parse_question(b'{"v":1,"kind":"advise","script":"caf\xe9"}')
    assert isinstance(parsed, AdviseQuestion)
    assert parsed.script == "caf\ufffd"


def test_later_hooks_may_say_more() -> None:
    assert isinstance(parse_question(question(kind="ping", colour="blue")), PingQuestion)
    assert isinstance(parse_question(question(kind="submit", uid=5, job={"shared": 0, "x": None})), SubmitQuestion)


def test_a_question_of_nothing_but_lists_is_refused_at_once() -> None:
    """Looking through 90,000 of them, nested, took the process that answers everybody half a second."""
    for junk in ([[]] * 300_000, [[[[[[[[]]]]]]]] * 90_000):
        with pytest.raises(ProtocolError, match="too many lists"):
            parse_question(question(kind="ping", junk=junk))
