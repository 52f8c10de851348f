"""A procfs tree of a small node, written where a test wants it; the numbers are chosen to be told apart."""

from __future__ import annotations

from pathlib import Path

TICKS_PER_S = 100
"""USER_HZ of Linux on all 64-bit machines; the CPU line of ``stat`` counts in it."""

FILES = {
    "stat": (
        "cpu  1100 200 300 4400 50 60 70 80 100 0\n"
        "cpu0 600 100 150 2200 25 30 35 40 50 0\n"
        "cpu1 500 100 150 2200 25 30 35 40 50 0\n"
        "intr 1\nctxt 2\nbtime 1700000000\nprocesses 3\nprocs_running 1\nprocs_blocked 0\n"
    ),
    "loadavg": "0.50 1.25 2.00 1/100 4242\n",
    "meminfo": (
        "MemTotal:       1000000 kB\n"
        "MemFree:         400000 kB\n"
        "MemAvailable:    600000 kB\n"
        "Buffers:          10000 kB\n"
        "Cached:          150000 kB\n"
        "SwapTotal:        50000 kB\n"
        "SwapFree:         49000 kB\n"
        "HugePages_Total:      0\n"
    ),
    "net/dev": (
        "Inter-|   Receive                                                |  Transmit\n"
        " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls c c\n"
        "    lo:     500       5    0    0    0     0          0         0      500       5    0    0    0     0 0 0\n"
        "  eth0: 1000000    2000    3    4    0     0          0         0  5000000    6000    7    8    0     0 0 0\n"
        "veth12:      11       1    0    0    0     0          0         0       12       1    0    0    0     0 0 0\n"
    ),
    "diskstats": (
        " 259 0 nvme0n1 100 1 2000 1500 200 2 4000 2500 0 3000 4000 0 0 0 0 0 0\n"
        " 259 1 nvme0n1p1 90 1 1900 1400 190 2 3900 2400 0 2900 3900 0 0 0 0 0 0\n"
        "   7 0 loop0 1 0 8 1 0 0 0 0 0 1 1 0 0 0 0 0 0\n"
        "   8 0 sda 10 0 80 5 20 0 160 10 0 15 15 0 0 0 0 0 0\n"
        "   8 1 sda1 10 0 80 5 20 0 160 10 0 15 15 0 0 0 0 0 0\n"
    ),
}


def write_procfs(root: Path) -> Path:
    """Write the tree and return its root."""
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return root
