"""Holds the signatures of failures as data: one TOML file for each subject, read by `signature`."""

from __future__ import annotations

from opsk.postmortem.signatures.signature import Signature, parse_signatures, signatures

__all__ = ["Signature", "parse_signatures", "signatures"]
