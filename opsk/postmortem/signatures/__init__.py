"""Which texts tell of which failure? Data: one TOML file a subject, read by `signature`."""

from __future__ import annotations

from opsk.postmortem.signatures.signature import Signature, parse_signatures, signatures

__all__ = ["Signature", "parse_signatures", "signatures"]
