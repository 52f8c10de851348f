"""Lua interpreters, the hooks installed for them, and servers on the hooks' socket."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsk_jobcheck.service.hooks import ADVICE, HOOKS, read_hook
from tests.fakes.bad_servers import Server
from tests.fakes.hook_runner import INTERPRETERS, Hooks


@pytest.fixture(params=INTERPRETERS)
def lua(request: pytest.FixtureRequest) -> str:
    """One Lua interpreter of each release that Slurm is built with, where it is installed."""
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture
def hooks(lua: str) -> Iterator[Hooks]:
    """Both hooks beside their settings, where other users can read them; nothing listens on their socket."""
    with tempfile.TemporaryDirectory(prefix="opsk-hooks-") as made:
        directory = Path(made)
        directory.chmod(0o755)
        for name in (*HOOKS, ADVICE):
            (directory / name).write_text(read_hook(name))
        installed = Hooks(lua, directory)
        installed.settings()
        yield installed


@pytest.fixture
def serve(hooks: Hooks) -> Iterator[Callable[[Callable[[socket.socket], None]], Server]]:
    """Start servers on the hooks' socket."""
    running: list[Server] = []

    def start(treat: Callable[[socket.socket], None]) -> Server:
        server = Server(hooks.socket, treat)
        running.append(server)
        return server

    yield start
    for server in running:
        server.close()
