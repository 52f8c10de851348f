"""Files of nodes beside fabric dumps, from the outside: whose they are, what they say, and what cannot be read."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from opsk.app.inputs.node_files import is_node_file, read_node_files
from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.render import render_ibnetdiscover
from tests.fakes.node_dumps import FakeNode, nccl_xml, smi_query, sysfs_files, topo_matrix, ttar
from tests.fakes.warm_opsk import warm

RACK = "5f1a2b3c-0000-4000-8000-0123456789ab"
SMALL = FakeNode(sockets=1, switches=2, gpus_per_switch=1)


def opsk(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    words, environment = ["fabric", *map(str, arguments)], {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    done = warm().run(words, environment=environment, stdin="", timeout_s=60.0)
    return subprocess.CompletedProcess(words, done.returncode, done.stdout.encode(), done.stderr.encode())


def answer(*arguments: str | Path) -> dict[str, Any]:
    done = opsk("--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tree(folder: Path, fake: FakeNode = SMALL) -> Path:
    """Write a sysfs tree as the kernel lays it out: class/infiniband holds links."""
    for path, text in sysfs_files(fake).items():
        name, rest = path.removeprefix("sys/class/infiniband/").split("/", 1)
        device = folder / "sys/devices/pci0000:00" / name / "infiniband" / name
        file = device / rest if not rest.startswith("device/") else device.parent.parent / rest.removeprefix("device/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        link = folder / "sys/class/infiniband" / name
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(device, link.parent))
            (device / "device").symlink_to("../..")
    return folder


def test_files_of_one_node_are_put_together_by_name(tmp_path: Path) -> None:
    (tmp_path / "n7.topo-m").write_text(topo_matrix(SMALL))
    (tmp_path / "n7.smi.txt.gz").write_bytes(gzip.compress(smi_query(SMALL).encode()))
    (tmp_path / "topo.xml").write_text(nccl_xml(SMALL))
    nodes = read_node_files([tmp_path / "n7.topo-m", tmp_path / "n7.smi.txt.gz", Path(f"n10={tmp_path / 'topo.xml'}")])
    assert list(nodes) == ["n7", "n10"]
    assert [(gpu.uuid, gpu.cpus) for gpu in nodes["n7"].gpus] == [(SMALL.uuid(0), "0-7"), (SMALL.uuid(1), "0-7")]
    assert nodes["n10"].dialect == "nccl"


@pytest.mark.parametrize("literal", [True, False], ids=["a file so called", "HOST=FILE"])
def test_files_of_one_node_that_name_two_nvlink_domains_are_a_finding(tmp_path: Path, literal: bool) -> None:
    second = tmp_path / ("n7=b.txt" if literal else "b.txt")
    (tmp_path / "n7.txt").write_text(smi_query(FakeNode(domain=(RACK, "7"))))
    second.write_text(smi_query(FakeNode(domain=(RACK, "8"))))
    found = answer(tmp_path / "n7.txt", second if literal else f"n7={second}")
    assert [node["node"] for node in found["nodes"]] == ["n7"]
    assert [(fault["kind"], fault["where"]) for fault in found["faults"]] == [("node_in_two_hb_domains", "n7")]


def test_a_sysfs_tree_is_read_from_folders_and_archives(tmp_path: Path) -> None:
    folder = tree(tmp_path / "n7")
    archive = tmp_path / "n8.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "sys", "sys")
    text = tmp_path / "n9.ttar"
    text.write_text(ttar(sysfs_files(SMALL)))
    paths = [folder, folder / "sys/class/infiniband", archive, text]
    assert all(is_node_file(path) for path in paths)
    nodes = read_node_files(paths)
    assert list(nodes) == ["n7", "n8", "n9"]
    guids = [SMALL.guid(0), SMALL.guid(1)]
    assert {name: [nic.guid for nic in node.nics] for name, node in nodes.items()} == dict.fromkeys(nodes, guids)
    assert [nic.pci for nic in nodes["n7"].nics] == [SMALL.nic_pci(0), SMALL.nic_pci(1)]


def test_a_cut_archive_gives_what_came_before(tmp_path: Path) -> None:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path, text in sysfs_files(FakeNode()).items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    (tmp_path / "n1.tar").write_bytes(content.getvalue()[:20_000])
    node = read_node_files([tmp_path / "n1.tar"])["n1"]
    assert 0 < len(node.nics) < 4
    assert "damaged or truncated archive" in node.problems[-1]


def test_an_unreadable_file_is_a_problem_while_another_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "n1.topo-m").write_text(topo_matrix(SMALL))
    nodes = read_node_files([tmp_path / "n1.topo-m", Path(f"n2={tmp_path / 'missing'}")])
    assert "no such file" in nodes["n2"].problems[0]
    with pytest.raises(InputError, match="no such file"):
        read_node_files([Path(f"n2={tmp_path / 'missing'}")])


def test_nodes_alone_are_an_answer_without_a_fabric(tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        (tmp_path / f"{name}.txt").write_text(smi_query(FakeNode(domain=(RACK, "7"))))
    (tmp_path / "n3.topo-m").write_text(topo_matrix(FakeNode(nvlinks=0)))
    files = sorted(tmp_path.iterdir())
    document = answer(*files)
    assert document["summary"]["switches"] == document["summary"]["nodes"] == 0
    assert document["rails"] == document["leaves"] == document["faults"] == []
    assert [(domain["name"], domain["kind"], domain["gpus"]) for domain in document["hb_domains"]] == [
        (f"{RACK}.7", "multi_node", 16), *((f"n3/gpu{gpu}", "none", 1) for gpu in range(8)),
    ]  # fmt: skip
    assert [node["node"] for node in document["nodes"]] == ["n1", "n2", "n3"]
    assert document["nodes"][2]["affinity"] == {
        "0": "mlx5_0", "1": "mlx5_0", "2": "mlx5_1", "3": "mlx5_1",
        "4": "mlx5_2", "5": "mlx5_2", "6": "mlx5_3", "7": "mlx5_3",
    }  # fmt: skip
    shown = opsk(*files)
    assert shown.returncode == 0
    assert b"HB domains over several nodes: 1 of 16 GPUs" in shown.stdout
    assert b"mlx5_0 serves GPU 0 (PIX), GPU 1 (PIX)" in shown.stdout


def test_nodes_and_fabric_are_joined(tmp_path: Path) -> None:
    dump = tmp_path / "fabric.topo"
    dump.write_text(render_ibnetdiscover(rail_optimized_fabric(nodes=4, hcas=2, leaves=2, spines=2)))
    (tmp_path / "n1.topo-m").write_text(topo_matrix(SMALL))
    (tmp_path / "elsewhere.topo-m").write_text(topo_matrix(SMALL))
    document = answer(dump, tmp_path / "n1.topo-m", tmp_path / "elsewhere.topo-m")
    assert document["summary"]["nodes"] == 4
    nodes = {node["node"]: node for node in document["nodes"]}
    assert nodes["n1"]["hca_positions"] == {"0": 0, "1": 1}
    assert nodes["n1"]["problems"] == []
    assert nodes["elsewhere"]["hca_positions"] == {}
    assert "not on the compute fabric" in nodes["elsewhere"]["problems"][0]
    assert [domain["name"] for domain in document["hb_domains"]] == ["elsewhere", "n0", "n1", "n2", "n3"]


def test_a_broken_dump_beside_a_sound_node_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "n1.topo-m").write_text(topo_matrix(SMALL))
    (tmp_path / "empty.topo").write_text("")
    document = answer(tmp_path / "n1.topo-m", tmp_path / "empty.topo")
    assert [fault["kind"] for fault in document["faults"]] == ["unreadable_file"]
    assert len(document["nodes"]) == 1


def test_nothing_readable_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "bomb.xml").write_text('<!DOCTYPE system [<!ENTITY a "b">]><system>&a;</system>')
    (tmp_path / "folder").mkdir()
    for arguments in ([tmp_path / "bomb.xml"], [tmp_path / "folder"], [f"n1={tmp_path / 'missing'}"]):
        done = opsk(*arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"Traceback" not in done.stderr


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    text = smi_query(SMALL).replace("NVIDIA H100 80GB HBM3", "\x1b[31mred\x07")
    (tmp_path / "n1.txt").write_text(text)
    done = opsk(tmp_path / "n1.txt")
    assert done.returncode == 0
    assert b"\x1b" not in done.stdout
    assert b"\x07" not in done.stdout
