"""Certificates for tests, made by openssl on the spot: a CA of its own, and who it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """A certificate authority in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("no openssl to make certificates with (package openssl)")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = self._made(name, "-x509", "-days", "2", "-subj", f"/CN={name}", "-addext", "basicConstraints=CA:TRUE")

    def sign(self, name: str, *names: str) -> Pair:
        """Make a certificate for names such as ``DNS:localhost`` or ``IP:127.0.0.1``."""
        pair = self._made(name, "-subj", f"/CN={name}", "-addext", f"subjectAltName={','.join(names)}")
        request = pair.cert.rename(self.folder / f"{name}.csr")
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.ca.cert, "-CAkey", self.ca.key, "-CAcreateserial",
            "-days", "2", "-copy_extensions", "copy", "-out", pair.cert,
        )  # fmt: skip
        return pair

    def _made(self, name: str, *arguments: str) -> Pair:
        """Make a key, and a request or certificate for it."""
        pair = Pair(cert=self.folder / f"{name}.crt", key=self.folder / f"{name}.key")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc")
        _openssl("req", *curve, "-keyout", pair.key, "-out", pair.cert, *arguments)
        return pair


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)
