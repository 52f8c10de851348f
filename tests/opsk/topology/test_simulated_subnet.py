"""What opsk describes as a net, real ibsim simulates, real opensm brings up, real tools print, and opsk reads back."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from opsk.topology.design import rail_optimized_fabric
from opsk.topology.dialects import read_fabric
from opsk.topology.fabric import Fabric
from opsk.topology.graph import summary
from opsk.topology.rails import find_rails
from opsk.topology.render import as_ibsim_net

pytestmark = pytest.mark.fabric
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
DESIGN = rail_optimized_fabric(nodes=6, hcas=4, leaves=8, spines=2, speed="HDR")


@pytest.fixture(scope="module")
def subnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """Run a program against a simulated subnet of DESIGN and return what it prints."""
    missing = [name for name in ("ibsim", "ibsim-run", "opensm", "ibnetdiscover") if not shutil.which(name, path=PATH)]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")
    folder = tmp_path_factory.mktemp("subnet")
    net = folder / "fabric.net"
    net.write_text(as_ibsim_net(DESIGN))
    environment = {
        "PATH": PATH,
        "IBSIM_SOCKNAME": f"opsktest{os.getpid()}",
        "OSM_TMP_DIR": str(folder),
        "OSM_CACHE_DIR": str(folder),
    }
    log = (folder / "ibsim.log").open("w+")
    ibsim = subprocess.Popen(
        ["ibsim", "-s", "-n", net], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
    )

    def run(*command: str) -> str:
        # opensm without a simulator waits for ever and does not heed SIGTERM: run() kills.
        done = subprocess.run(
            ["ibsim-run", *command], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    try:
        deadline = time.monotonic() + 20
        while "simulator ready" not in (folder / "ibsim.log").read_text():
            assert ibsim.poll() is None, (folder / "ibsim.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        run("opensm", "-o", "-f", str(folder / "opensm.log"))
        yield run
    finally:
        ibsim.kill()
        ibsim.wait()
        log.close()


def connections(fabric: Fabric) -> set[frozenset[tuple[str, int]]]:
    """Cables by the descriptions of their ends, which every program prints."""
    names = {guid: entry.description for guid, entry in {**fabric.switches, **fabric.hcas}.items()}
    return {
        frozenset({(names[cable.a_guid], cable.a_port), (names[cable.b_guid], cable.b_port)}) for cable in fabric.cables
    }


@pytest.mark.parametrize(
    "command", [("ibnetdiscover",), ("ibnetdiscover", "-p"), ("iblinkinfo",), ("iblinkinfo", "-l")]
)
def test_every_program_prints_the_fabric_that_was_designed(
    subnet: Callable[..., str], command: tuple[str, ...]
) -> None:
    found = read_fabric(subnet(*command), source=command[0])
    assert connections(found) == connections(DESIGN)
    assert found.faults == ()
    assert summary(found) == summary(DESIGN)
    rails = find_rails(found)
    assert rails.units == (("n0", "n1", "n2"), ("n3", "n4", "n5"))
    assert [port.rail for port in rails.attachments["n5"]] == [0, 1, 2, 3]
