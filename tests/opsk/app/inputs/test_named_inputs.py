from __future__ import annotations

import json
from pathlib import Path

import pytest

from opsk.app.inputs.named_inputs import load_model
from opsk.errors import InputError

CONFIG = {
    **{"model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192},
}
"""Of Llama 3 8B's public config.json, the sizes."""


def test_names_are_those_of_the_field():
    shape, assumed = load_model("meta-llama/Meta-Llama-3-8B")
    assert (shape.layers, shape.hidden) == (32, 4096)
    assert [entry.field for entry in assumed] == ["model.seq"]
    assert load_model("llama-3-8b", seq=512)[1] == ()


def test_a_config_file_is_read(tmp_path: Path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    shape, assumed = load_model(str(path), seq=2048)
    assert (shape.layers, shape.kv_heads, shape.ffn) == (32, 8, 14336)
    assert "model.seq" not in {entry.field for entry in assumed}
    assert "model.seq" in {entry.field for entry in load_model(str(path))[1]}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("llama-3-9b", "did you mean llama-3-8b"),
        ("lama-3-70b", "did you mean llama-3-70b"),
        ("\x1b[31m", "is not a known public model"),
        ("/no/such/config.json", "No such file"),
        ("a\0b.json", "null"),
    ],
)
def test_what_is_no_model_is_told_in_one_printable_line(name: str, says: str):
    with pytest.raises(InputError) as caught:
        load_model(name)
    assert says in caught.value.message
    assert caught.value.message.isprintable()
    assert caught.value.hint


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe\x00", b"{" * 100_000, b'{"model_type": "bert"}'])
def test_what_is_no_config_is_told_with_its_name(tmp_path: Path, content: bytes):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_model(str(path))
    assert str(path) in caught.value.message


def test_a_name_of_an_unknown_family_is_like_none_of_another():
    with pytest.raises(InputError) as caught:
        load_model("glm-4.5")
    assert "did you mean" not in caught.value.message
