"""Measures ``opsk top`` on 2,000 nodes, 16,000 GPUs and 500 jobs, from the other end of a terminal.

    python -m benchmarks.monitoring.tui [--minutes 5] [--size 120x40]

The screen runs in a process of its own behind a pseudo terminal, fed by `tests.fakes.big_cluster`. First paint is from
the first line that Python runs until the map is there; key to paint until the last byte that a key brings about. CPU is
that of the screen's process, less what making the views takes (which feeds of real clusters do in their own way).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import pty
import select
import signal
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.found import Found, arguments, run
from benchmarks.process_use import cpu_s, rss_bytes

KEYS = ("\x1b[B", "\x1b[C", "j", "m", "+", "-", "2", "\x1b[B", "\x1b[6~", "s", "1", "3", "4", "\x1b[B", "m", "5", "6",
        "1", "x", "x", "x", "\x1b[6~", "\x1b[5~", "o", "o", "2", "t", "t", "t", "1")  # fmt: skip
FIRST_PAINT_WITHIN_S = 120.0


def child() -> None:
    """Show the made-up cluster; SIGUSR1 brings a new view, SIGUSR2 all of it anew."""
    began = time.perf_counter()
    import asyncio

    from opsk_tui.app import TopApp
    from opsk_tui.data.view import ViewIndex

    imported = time.perf_counter()
    from tests.fakes.big_cluster import BigCluster, BigFeed
    from tests.fakes.noted_actions import NotedActions

    cluster = BigCluster()
    log = Path(os.environ["OPSK_BENCH_LOG"])
    interval = float(os.environ.get("OPSK_BENCH_INTERVAL", "0")) or None
    ready_views = [cluster.view(step) for step in range(4)]
    views_made = time.perf_counter()

    class Ready(BigFeed):
        """Hands out views that are made already, so that only the screen's work is measured."""

        async def views(self):  # type: ignore[no-untyped-def]
            while True:
                yield ready_views[self.step % 4]
                if self._interval_s is None:
                    await self._more.wait()
                    self._more.clear()
                else:
                    await asyncio.sleep(self._interval_s)
                self.step += 1

    class Watched(TopApp):
        """Notes the CPU of every view."""

        def take(self, view) -> None:  # type: ignore[no-untyped-def]
            if "full" in pending:
                pending.clear()
                self.known = ViewIndex(view, self.user)
                for screen in self.screen_stack:
                    screen.refresh(layout=True)
            before = time.process_time()
            super().take(view)
            with log.open("a") as out:
                out.write(f"take {time.process_time() - before:.6f}\n")

    pending: set[str] = set()
    feed = Ready(cluster, interval)
    app = Watched(feed, actions=NotedActions(cluster), user="ada")
    with log.open("a") as out:
        out.write(f"start import={imported - began:.3f} fake={views_made - imported:.3f} \n")

    def push_all() -> None:
        pending.add("full")
        feed.push()

    async def show() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, feed.push)
        loop.add_signal_handler(signal.SIGUSR2, push_all)
        await app.run_async()

    asyncio.run(show())


def row(what: str, value: str) -> None:
    print(f"{what:<56} {value:>24}", flush=True)


class Terminal:
    """A child behind a pseudo terminal of some size."""

    def __init__(self, size: tuple[int, int], log: Path, interval_s: float = 0.0) -> None:
        self.began = time.perf_counter()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"OPSK_BENCH_LOG": str(log), "TERM": "xterm-256color", "COLORTERM": "truecolor",
                           "OPSK_BENCH_INTERVAL": str(interval_s), "LANG": "C.UTF-8"}  # fmt: skip
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            os.execv(sys.executable, [sys.executable, "-P", "-m", "benchmarks.monitoring.tui", "--child"])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))

    def read(self, quiet_s: float, longest_s: float = 10.0, until: bytes = b"") -> tuple[bytes, float]:
        """Return what comes until it is quiet (or holds ``until``), and when the last of it came."""
        data, last, began = b"", time.perf_counter(), time.perf_counter()
        while time.perf_counter() - began < longest_s:
            ready, _, _ = select.select([self.fd], [], [], quiet_s if data and not until else 0.05)
            if ready:
                try:
                    data += os.read(self.fd, 1 << 20)
                except OSError:
                    break
                last = time.perf_counter()
                if until and until in data:
                    break
            elif data and not until:
                break
        return data, last

    def await_map(self) -> None:
        """Wait until the screen shows the first node."""
        data, _ = self.read(0.0, FIRST_PAINT_WITHIN_S, until=b"gpu0001")
        if b"gpu0001" not in data:
            raise SystemExit(f"no map after {FIRST_PAINT_WITHIN_S:.0f} s; the screen's last bytes: {data[-500:]!r}")

    def send(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def python_alone_s() -> float:
    """Return how long Python needs to start and end."""
    times = []
    for _ in range(5):
        began = time.perf_counter()
        pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", "pass"])
        os.waitpid(pid, 0)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def first_paint_s(size: tuple[int, int], log: Path) -> tuple[float, float, float]:
    """Return from start to the map, what making up the cluster took of it, and the CPU of all."""
    log.write_text("")
    terminal = Terminal(size, log)
    terminal.await_map()
    seconds, cpu = time.perf_counter() - terminal.began, terminal.cpu_s()
    fake = float(log.read_text().split("fake=")[1].split()[0])
    terminal.close()
    return seconds, fake, cpu


def measure(asked: argparse.Namespace) -> Found:
    """Print and return the figures."""
    across, down = map(int, asked.size.split("x"))
    row("load of the machine, processors", f"{os.getloadavg()[0]:.1f}, {os.cpu_count()}")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "takes"
        figures = measure_paint((across, down), log, 1 if asked.short else 3)
        with contextlib.closing(Terminal((across, down), log)) as terminal:
            terminal.await_map()
            terminal.read(0.3)
            figures |= measure_keys(terminal, KEYS[:6] if asked.short else KEYS, 2 if asked.short else 6)
            for key in "1mm":  # the keys have led to some other metric; utilisation is what changes most
                terminal.send(key)
                terminal.read(0.3)
            figures |= measure_refresh(terminal, "12" if asked.short else "123456", 2 if asked.short else 20)
        figures |= measure_idle((across, down), log, 2.0 if asked.short else 60 * asked.minutes)
    return Found(figures=figures)


def measure_paint(size: tuple[int, int], log: Path, times: int) -> dict[str, float]:
    """Measure the first paint."""
    python = python_alone_s()
    paints = [first_paint_s(size, log) for _ in range(times)]
    paint = statistics.median(seconds - fake for seconds, fake, _ in paints) - python
    row("first paint after Python has started", f"{paint * 1e3:.0f} ms")
    cpu = statistics.median(cpu for _, _, cpu in paints)
    row("CPU until then, Python's start and the made-up cluster", f"{cpu * 1e3:.0f} ms")
    return {"first_paint_s": paint}


def measure_keys(terminal: Terminal, keys: Sequence[str], turns: int) -> dict[str, float]:
    """Measure from a key until the last byte that it brings about."""
    times, sizes = [], []
    spent, pressed = terminal.cpu_s(), 0
    for turn in range(turns):
        for key in keys:
            began = time.perf_counter()
            terminal.send(key)
            pressed += 1
            data, last = terminal.read(0.06, 2.0)
            if data and turn:
                times.append(last - began)
                sizes.append(len(data))
    spent = (terminal.cpu_s() - spent) / pressed
    times.sort()
    p95 = times[int(len(times) * 0.95)]
    row("CPU of a key, mean", f"{spent * 1e3:.1f} ms")
    row("key to paint, median", f"{statistics.median(times) * 1e3:.1f} ms")
    row("key to paint, P95", f"{p95 * 1e3:.1f} ms")
    row("key to paint, slowest", f"{times[-1] * 1e3:.1f} ms")
    row("bytes of a key, median", f"{statistics.median(sizes):.0f}")
    return {"key_p95_s": p95}


def measure_refresh(terminal: Terminal, screens: str, count: int) -> dict[str, float]:
    """Measure a new view, and all of it anew, on some screens; return the worst screen's CPU time of each."""
    worst = {}
    for name, kind in (("refresh", signal.SIGUSR1), ("reload", signal.SIGUSR2)):
        spent = []
        for screen in screens:
            terminal.send(screen)
            terminal.read(0.3)
            before, total = terminal.cpu_s(), 0
            for _ in range(count):
                os.kill(terminal.pid, kind)
                data, _ = terminal.read(0.08, 0.2)
                total += len(data)
            spent.append((terminal.cpu_s() - before) / count)
            row(f"{name}, screen {screen}: CPU", f"{spent[-1] * 1e3:.0f} ms ({total // count:,} bytes)")
        worst[f"{name}_cpu_s"] = max(spent)
    row("RSS", f"{terminal.rss_bytes() / 1e6:.0f} MB")
    return worst


def measure_idle(size: tuple[int, int], log: Path, seconds: float) -> dict[str, float]:
    """Measure a screen that nobody touches while data flow."""
    with contextlib.closing(Terminal(size, log, interval_s=5.0)) as terminal:
        terminal.await_map()
        terminal.read(1.0)
        before, began = terminal.cpu_s(), time.perf_counter()
        while time.perf_counter() - began < seconds:
            terminal.read(0.2, 1.0)
        share = (terminal.cpu_s() - before) / (time.perf_counter() - began)
        row(f"share of a core over {seconds:.0f} s, a view every 5 s", f"{share * 100:.2f} %")
        row("RSS", f"{terminal.rss_bytes() / 1e6:.0f} MB")
        return {"share": share, "rss_bytes": terminal.rss_bytes()}


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--minutes", type=float, default=1.0, help="that a screen is watched")
    parser.add_argument("--size", default="120x40")
    if parser.parse_args().child:
        child()
    else:
        run(measure, parser)
