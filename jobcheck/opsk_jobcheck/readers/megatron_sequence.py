"""How long are the sequences of the language model, where Megatron trains an encoder with it?

Source: ``examples/multimodal`` (``language_max_sequence_length=args.decoder_seq_length``), ``pretrain_vlm.py`` and
``pretrain_t5.py`` of Megatron-LM: ``--seq-length`` is that of the encoder there, tokens of an image or of a text.
"""

from __future__ import annotations

from opsk_jobcheck.readers.findings import Findings
from opsk_jobcheck.readers.programs import program_of
from opsk_jobcheck.readers.reading import Match

_DECODER = "--decoder-seq-length"
_OF_IMAGES = ("--vision", "--img-", "--patch-dim", "--language-model-type", "--disable-vision", "--pixel-shuffle")
_TEXT_TO_TEXT = "t5"


def read_sequence(match: Match, findings: Findings) -> None:
    """State the length that the language model has, or say why it cannot be told."""
    decoder = match.arguments.flags.get(_DECODER)
    if decoder is None:
        return
    program = program_of(match.invocation)
    name = program.name.lower() if program is not None else ""
    if _TEXT_TO_TEXT in name:
        return
    if "multimodal" in name or "vlm" in name or any(flag.startswith(_OF_IMAGES) for flag in match.arguments.flags):
        findings.state_number("model.seq", decoder.value, decoder.line, decoder.shown)
    else:
        findings.cannot_tell("model.seq", f"encoder and decoder ({_DECODER}) have lengths of their own", decoder.line)
