"""Reads launch scripts of NVIDIA BioNeMo: Megatron's flags, and the settings that its programs fix in Python.

Source: ``bionemo/esm2/model/model.py`` (``ESM2GenericConfig``), ``bionemo/geneformer/scripts/train_geneformer.py`` and
``bionemo/amplify/model.py`` of BioNeMo 2. Megatron Core's ``gated_linear_unit`` is off unless a model sets it:
ESM-2 and Geneformer have plain MLPs with GELU, AMPLIFY has SwiGLU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.megatron.megatron import LM, read_megatron
from opsk_jobcheck.scripts.frameworks.megatron.megatron import recognise as recognise_megatron
from opsk_jobcheck.scripts.launchers.programs import program_of
from opsk_jobcheck.scripts.settings.findings import Findings
from opsk_jobcheck.scripts.settings.reader import Match, Reader, Reading

BIONEMO = "bionemo"
_NAME = re.compile(r"esm2|geneformer|amplify")
_FIXED: Mapping[str, Mapping[str, bool | int]] = MappingProxyType(
    {
        "esm2": {
            "model.gated_mlp": False,
            "model.tied_embeddings": True,
            "model.learned_positions": False,
        },
        "geneformer": {"model.gated_mlp": False, "model.learned_positions": True},
        "amplify": {"model.gated_mlp": True, "model.learned_positions": False},
    }
)
"""Settings for which the program of each model has no flag."""
_TOKENIZER, _TOKENIZERS = "tokenizer.type", MappingProxyType({"esm2": "ESM-2's tokenizer"})
"""The size of the vocabulary is not stated; it is assumed by the name."""


def recognise(invocation: Invocation) -> Match | None:
    """Return a command that trains with one of BioNeMo's programs, whose flags are those of Megatron."""
    program = program_of(invocation)
    if program is None or BIONEMO not in program.name.lower():
        return None
    match = recognise_megatron(invocation)
    if match is None or match.framework != LM:
        return None
    return replace(match, framework=BIONEMO, weight=match.weight + 1)


def read_bionemo(match: Match, reading: Reading) -> None:
    """State the values of the flags, and those that the program fixes."""
    read_megatron(match, reading)
    program = program_of(match.invocation)
    if program is not None and (named := _NAME.search(program.file.lower())):
        _state_fixed(named[0], program.file, match.invocation.line, reading.findings)


BIONEMO_READER = Reader(frameworks=(BIONEMO,), recognise=recognise, read=read_bionemo)


def _state_fixed(name: str, file: str, line: int, findings: Findings) -> None:
    """State the values that one program fixes."""
    for field, value in _FIXED[name].items():
        findings.state(field, value, line, f"{file[:80]} has it so")
    if name in _TOKENIZERS:
        findings.options.setdefault(_TOKENIZER, _TOKENIZERS[name])
