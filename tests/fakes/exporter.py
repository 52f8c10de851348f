"""A real ``opsk exporter`` in a process of its own, on whatever a test has written, and what scrapes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

PATIENCE_S = 60.0
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Exporter:
    """Starts when it is entered, ends when it is left."""

    def __init__(self, *options: str | Path, environment: Mapping[str, str] | None = None) -> None:
        self._command = [sys.executable, "-m", "opsk", "exporter", "--listen", "127.0.0.1:0", *map(str, options)]
        self._environment = {**os.environ, **(environment or {})}
        self._said: list[str] = []

    def __enter__(self) -> Self:
        started = time.monotonic()
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True, env=self._environment)
        assert self.process.stderr is not None
        found = None
        for line in self.process.stderr:
            self._said.append(line)
            found = re.search(r"(https?://\S+)/metrics", line)
            if found:
                break
        assert found is not None, "".join(self._said)
        self.start_s = time.monotonic() - started
        self.address = found[1]
        # Nobody may be kept from writing to a full pipe.
        self._reader = threading.Thread(target=lambda: self._said.extend(self.process.stderr or ()), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(PATIENCE_S)
            if self.process.stderr is not None:
                self.process.stderr.close()

    @property
    def said(self) -> str:
        """What it wrote on stderr so far."""
        return "".join(self._said)

    def get(self, path: str = "/metrics", **headers: str) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and body; underscores in names of headers stand for dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"{self.address}{path}", headers=named)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def scrape(self, timeout_s: float | None = None) -> Series:
        """Return a scrape as samples by name and labels; with ``timeout_s`` as a scraper that gives up then."""
        said = {} if timeout_s is None else {"X_Prometheus_Scrape_Timeout_Seconds": str(timeout_s)}
        status, _, body = self.get(**said)
        assert status == 200
        return series(body.decode())

    def resident_bytes(self) -> int:
        """Return its resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def series(text: str) -> Series:
    """Return the samples of an exposition."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: Series, name: str, **labels: str) -> float | None:
    """Return the one value of a series that has these labels among its own; ``None`` when there is none."""
    wanted = set(labels.items())
    values = [number for (each, has), number in found.items() if each == name and wanted <= has]
    assert len(values) <= 1, f"{name} {labels}: {len(values)} series"
    return values[0] if values else None


def having(found: Series, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
    """Return all series of a name (or of a beginning of names that ends in ``_``) that have these labels."""
    wanted = set(labels.items())
    return {
        has: number
        for (each, has), number in found.items()
        if (each.startswith(name) if name.endswith("_") else each == name) and wanted <= has
    }
