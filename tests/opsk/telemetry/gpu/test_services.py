"""Is the state of an IMEX domain read from what nvidia-imex-ctl prints, and nothing else taken for one?"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from opsk.telemetry.gpu.services import ImexReader, ImexSample, parse_daemon, parse_domain


def domain(status: str, *nodes: str) -> str:
    """The document of -N -j, as the tool's users show it."""
    return json.dumps(
        {
            "nodes": {
                str(number): {"status": state, "host": f"10.0.0.{number}", "version": "570", "connections": {}}
                for number, state in enumerate(nodes)
            },
            "timestamp": "1/1/2026 00:00:00.000",
            "status": status,
        }
    )


def test_the_domain_and_its_nodes_are_read() -> None:
    assert parse_domain(domain("UP", "READY", "READY")) == ImexSample(domain="up", nodes=2, nodes_ready=2)
    assert parse_domain(domain("DEGRADED", "READY", "UNAVAILABLE")) == ImexSample(
        domain="degraded", nodes=2, nodes_ready=1
    )


@pytest.mark.parametrize(
    "text", ["", "no daemon", "{", "[]", "null", '{"status": 7, "nodes": 3}', '{"status": "SIDEWAYS"}', "[" * 100_000]
)
def test_anything_else_says_nothing(text: str) -> None:
    assert parse_domain(text) == ImexSample()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("READY\n", "ready"),
        ("WAITING_FOR_PEERS\n", "waiting_for_peers"),
        ("some warning\nINIT_GPU\n", "init_gpu"),
        ("", None),
        ("NOT A STATE\n", None),
    ],
)
def test_the_daemons_state_is_a_known_word(text: str, expected: str | None) -> None:
    assert parse_daemon(text) == expected


def test_the_program_is_asked_in_the_background(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-imex-ctl"
    program.write_text(f"#!/bin/sh\nif [ $1 = -q ]; then echo READY; else echo '{domain('UP', 'READY')}'; fi\n")
    program.chmod(0o755)
    reader = ImexReader(str(program))
    deadline = time.monotonic() + 20
    while (latest := reader.latest()) is not None and latest.value is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert latest is not None
    assert latest.value == ImexSample(daemon="ready", domain="up", nodes=1, nodes_ready=1)


def test_a_node_without_the_program_has_nothing_to_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ImexReader().latest() is None
