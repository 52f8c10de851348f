import socket

import pytest

from opsk.errors import LabError
from opsk.lab import lifecycle
from opsk.lab.lifecycle import reserve_block


def test_a_daemon_may_listen_on_a_port_that_is_held_for_it():
    with reserve_block(3) as first, socket.socket() as daemon:
        daemon.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        daemon.bind(("", first + 1))
        daemon.listen()


def test_two_labs_that_start_at_once_get_different_ports(monkeypatch: pytest.MonkeyPatch):
    with reserve_block(4) as first:
        tried = iter([first - 3, first, first + 3])
        monkeypatch.setattr(lifecycle.random, "randint", lambda _low, high: next(tried, high - 50))
        with reserve_block(4) as second:
            assert set(range(first, first + 4)).isdisjoint(range(second, second + 4))
            assert next(tried, None) is None


def test_ports_are_free_again_afterwards():
    with reserve_block(2) as first:
        pass
    with socket.socket() as probe:
        probe.bind(("", first))


def test_no_room_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lifecycle, "_read_ephemeral_start", lambda: lifecycle.MIN_PORT + 5)
    with pytest.raises(LabError, match="there are not 18 ports"), reserve_block(18):
        pass
