"""Every open file of a node gives the answers of EXPECTED.json (kinds gpu_topo_m, nccl_topo), or what its note says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from opsk.app.inputs.node_files import is_node_file, read_node_files
from opsk.errors import InputError
from opsk.fabric.node.affinity import assign_nics
from opsk.fabric.node.dialects import holds_node, read_node
from opsk.fabric.node.node_topology import NodeTopology

pytestmark = pytest.mark.shared


def expected(shared: Path, kind: str) -> dict[str, Any]:
    return json.loads((shared / "data/real/EXPECTED.json").read_text())[kind]


def read(shared: Path, kind: str, name: str) -> NodeTopology:
    text = (shared / "data/real" / kind / name).read_text(encoding="utf-8", errors="replace")
    assert holds_node(text)
    return read_node(text, source=name)


def matrix_answer(topology: NodeTopology) -> dict[str, Any]:
    """Return a matrix in the words of EXPECTED.json."""
    label = {nic.name: nic.label for nic in topology.nics}
    nearest = {gpu.index: topology.nearest_nics(gpu.index) for gpu in topology.gpus}
    return {
        "cpu_and_numa_affinity": {
            f"GPU{gpu.index}": [gpu.cpus, "N/A" if gpu.numa is None else str(gpu.numa)] for gpu in topology.gpus
        },
        "gpu_pair_paths": dict(Counter(str(path) for path in topology.gpu_paths.values())),
        "gpus": len(topology.gpus),
        "nearest_nics": {
            f"GPU{gpu}": {"nics": [label[nic] for nic in near[1]], "path": str(near[0])}
            for gpu, near in nearest.items()
            if near
        },
        "nic_legend": {nic.label: nic.device for nic in topology.nics},
        "nics_in_the_header": topology.contents["nics_in_the_header"],
        "rows": topology.contents["rows"],
    }


def test_every_answer_of_every_matrix_is_given(shared: Path) -> None:
    wrong = {}
    for name, answer in expected(shared, "gpu_topo_m").items():
        got = matrix_answer(read(shared, "gpu_topo_m", name))
        wrong |= {(name, key): (got[key], value) for key, value in answer.items() if got.get(key) != value}
    assert wrong == {}


def test_every_answer_of_every_nccl_file_is_given(shared: Path) -> None:
    wrong = {}
    for name, answer in expected(shared, "nccl_topo").items():
        topology = read(shared, "nccl_topo", name)
        names = [nic.device for nic in topology.nics if nic.device]
        got = {**topology.contents, "net_names": sorted(names)}
        answer["net_names"].sort()
        wrong |= {(name, key): (got.get(key), value) for key, value in answer.items() if got.get(key) != value}
        if answer["gpu_elements"] and answer["root"] == "system":
            assert len(topology.gpus) == answer["gpu_elements"]
    assert wrong == {}


def test_a_peer_to_peer_matrix_is_not_taken_for_paths(shared: Path) -> None:
    topology = read(shared, "gpu_topo_m", "h100_p2p_read_matrix.topo-p2p")
    assert topology.dialect == "topo_p2p"
    assert topology.gpu_paths == {}
    assert Counter(topology.p2p.values()) == {"OK": 28}


def test_nvlink_and_xgmi_join_what_the_files_say(shared: Path) -> None:
    """OCI: 5 + 5 + 4 + 4 links to NVSwitches; MI100 and MI60 boards: two hives of four GPUs; MI300X: all to all."""
    groups = {
        name: read(shared, "nccl_topo", name).hb_groups()
        for name in ("oci_h100.xml", "rccl_topo_4p2h_2nic.xml", "rccl_topo_8p_rome_4nics.xml", "rccl_topo_8p_940.xml")
    }
    everything = (tuple(range(8)),)
    hives = (tuple(range(4)), tuple(range(4, 8)))
    assert list(groups.values()) == [everything, hives, hives, everything]
    oci = read(shared, "nccl_topo", "oci_h100.xml")
    assert {str(path) for path in oci.gpu_paths.values()} == {"NV18"}


def test_a_vms_file_without_elements_pairs_by_its_bridges(shared: Path) -> None:
    topology = read(shared, "nccl_topo", "azure_ndv5_h100.xml")
    served = assign_nics(topology)
    # each bridge holds GPU 000N: and NIC 010M: in the order of the file
    assert [served[gpu] for gpu in range(8)] == [f"010{place}:00:00.0" for place in range(1, 9)]
    unclear = read(shared, "nccl_topo", "aws_g5_48xl.xml")
    assert unclear.gpus == unclear.nics == ()
    assert "9 PCI functions without a class" in unclear.problems[0]


def test_every_nvidia_smi_file_is_read(shared: Path) -> None:
    found = {path.name: read(shared, "nvidia_smi", path.name) for path in (shared / "data/real/nvidia_smi").iterdir()}
    assert {name: len(node.gpus) for name, node in found.items() if len(node.gpus) != 1} == {
        "a100_nvlink_status.txt": 8,
        "azure_orig_nvsmi8_output.txt": 8,
    }
    assert {(gpu.nvlinks, gpu.nvlink_bytes_per_s) for gpu in found["a100_nvlink_status.txt"].gpus} == {(12, 300e9)}
    one = found["azure_good_nvlink_status.txt"].gpus[0]
    assert (one.index, one.nvlinks) == (7, 12)
    captures = {name.split("__")[1]: node for name, node in found.items() if name.endswith("capture.txt")}
    assert {name: node.gpus[0].mig for name, node in captures.items()} == {
        "nvidia-geforce-rtx-2080-super": None, "nvidia-h100-80gb-hbm3": False, "nvidia-h200-mig": True,
    }  # fmt: skip
    assert {name: node.gpus[0].nvlinks for name, node in captures.items()} == {
        "nvidia-geforce-rtx-2080-super": 0, "nvidia-h100-80gb-hbm3": 18, "nvidia-h200-mig": None,
    }  # fmt: skip
    assert all(node.fabric_domain is None and node.gpus[0].cpus for node in captures.values())
    assert any("8 GPUs are attached, 1 are described" in text for text in found["h800_nvidia-smi-q.txt"].problems)


def test_every_lstopo_file_is_read(shared: Path) -> None:
    power8 = read(shared, "lstopo", "power8gpudistances.xml")
    # two pairs of P100, 2 NVLinks of 20 GB/s each
    assert {pair: path.bytes_per_s for pair, path in power8.gpu_paths.items() if path.kind.is_hb} == {
        (0, 1): 40e9, (2, 3): 40e9,
    }  # fmt: skip
    assert [gpu.numa for gpu in power8.gpus] == [0, 0, 1, 1]
    assert power8.hb_groups() == ((0, 1), (2, 3))
    big = read(shared, "lstopo", "192em64t-24n8c2t.xml")
    mlx = next(nic for nic in big.nics if nic.device == "mlx4_0")
    assert (mlx.guid, mlx.link_layer) == ("0002c903001bb0a0", "InfiniBand")
    assert "no PCI devices" in read(shared, "lstopo", "nvidia-dgx-gb10.xml").problems[0]


def test_the_rdma_devices_of_sysfs_trees_are_read(shared: Path) -> None:
    folder = shared / "data/real/sysfs"
    tar, ttar = folder / "h100_sys_class_infiniband.tar.gz", folder / "node_exporter_sys.ttar"
    assert is_node_file(tar)
    assert is_node_file(ttar)
    nodes = read_node_files([tar, ttar])
    h100 = nodes["h100_sys_class_infiniband"]
    assert Counter((nic.link_layer, nic.bytes_per_s, nic.state) for nic in h100.nics) == {
        ("InfiniBand", 50e9, "ACTIVE"): 8, ("Ethernet", 25e9, "ACTIVE"): len(h100.nics) - 8,
    }  # fmt: skip
    assert [nic.name for nic in nodes["node_exporter_sys"].nics] == ["i40iw0", "mlx4_0", "mlx4_0:2"]
    for other in ("slurm_cgroup_v1.ttar", "gres_mig.conf", "ceems_metrics_cgroupv1.prom", "ipmitool_dcmi_power.txt"):
        with pytest.raises(InputError):
            read_node_files([folder / other])


def test_no_fabric_or_slurm_file_is_taken_for_a_node(shared: Path) -> None:
    for kind in ("ib_fabric", "slurm_topology"):
        for path in (shared / "data/real" / kind).iterdir():
            assert not is_node_file(path), path.name
