"""What opsk describes as a net, real ibsim simulates, real opensm brings up, real tools print, and opsk reads back."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from opsk.fabric.checks.routes import check_routes
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.dialects import read_fabric
from opsk.fabric.dumps.forwarding_tables import read_forwarding_tables
from opsk.fabric.dumps.render import render_ibsim_net
from opsk.fabric.fabric import Fabric
from opsk.fabric.forwarding import resolve_next_hops
from opsk.fabric.graph import find_hca_links, summarise_fabric
from opsk.fabric.rails import find_rails

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
    net.write_text(render_ibsim_net(DESIGN))
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
    assert summarise_fabric(found) == summarise_fabric(DESIGN)
    rails = find_rails(found)
    assert rails.units == (("n0", "n1", "n2"), ("n3", "n4", "n5"))
    assert [port.rail for port in rails.attachments["n5"]] == [0, 1, 2, 3]


@pytest.mark.parametrize("command", [("dump_fts",), ("dump_fts", "-a"), ("dump_fts", "-n")])
def test_the_tables_that_opensm_set_lead_from_every_hca_to_every_other(
    subnet: Callable[..., str], command: tuple[str, ...]
) -> None:
    found = read_fabric(subnet("ibnetdiscover"), source="ibnetdiscover")
    tables = read_forwarding_tables(subnet(*command), source="dump_fts")
    assert tables.faults == ()
    assert set(tables.rows) == set(found.switches)
    hops = resolve_next_hops(tables, found)
    ends = [(link.hca, link.hca_port) for link in find_hca_links(found)]
    assert len(found.port_lids) == len(ends) == 24  # 6 nodes of 4 HCAs
    switches = found.switches.keys()
    for source in ends:
        for destination in ends:
            path = hops.path(source, destination)
            assert path is not None, (source, destination)
            if source != destination:
                assert {path[0].a_guid, path[0].b_guid} >= {source[0]}
                assert {path[-1].a_guid, path[-1].b_guid} >= {destination[0]}
                between = [cable for cable in path if cable.a_guid in switches and cable.b_guid in switches]
                assert len(between) in (0, 2)  # one leaf, or through a spine
    report = check_routes(hops, found)
    assert (report.switches, report.destinations, report.unreachable, report.loops) == (10, 24, 0, 0)
    assert report.faults == ()


def test_tables_name_the_ports_that_a_dump_without_lids_lacks(subnet: Callable[..., str]) -> None:
    tables = read_forwarding_tables(subnet("dump_fts"), source="dump_fts")
    told = read_fabric(subnet("ibnetdiscover"), source="ibnetdiscover")
    silent = dataclasses.replace(told, port_lids={})
    assert resolve_next_hops(tables, silent).lids == told.port_lids


def test_one_switch_of_ibroute_is_a_row_of_dump_fts(subnet: Callable[..., str]) -> None:
    every = read_forwarding_tables(subnet("dump_fts"), source="dump_fts")
    found = read_fabric(subnet("ibnetdiscover"), source="ibnetdiscover")
    switch = next(iter(found.switches.values()))
    one = read_forwarding_tables(subnet("ibroute", str(switch.lid)), source="ibroute")
    assert list(one.rows) == [switch.guid]
    lids = list(found.port_lids.values())
    assert [one.out_port(switch.guid, lid) for lid in lids] == [every.out_port(switch.guid, lid) for lid in lids]
