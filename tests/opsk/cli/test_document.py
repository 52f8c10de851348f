"""Answers for programs are one JSON document in ASCII."""

from __future__ import annotations

import json

import numpy as np
import pytest

from opsk.cli.document import echo_json


def test_one_json_document_is_printed_and_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    echo_json({"name": "\x1b[31m韓\u202e\udc80", "n": np.arange(2)})
    out = capsys.readouterr().out
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out)["name"] == "\x1b[31m韓\u202e\udc80"
