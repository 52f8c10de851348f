"""Tests that the modules beside a Python program that hold its settings are named."""

from __future__ import annotations

from opsk_jobcheck.scripts.frameworks.python.parts import list_parts
from opsk_jobcheck.scripts.frameworks.python.statements import read_python


def test_modules_beside_the_program_are_its_settings() -> None:
    source = read_python("import torch, json\nfrom config import Config\nfrom model import GPT\nloss.backward()\n")
    assert list_parts(source) == ["config"]
    thin = read_python("from mine.train import main\nfrom transformers.trainer import x\nmain()\n")
    assert list_parts(thin) == ["mine.train"]
