"""NCCL's files beyond the plain case: who is linked to whom, GUIDs, several hosts, elements that cannot be."""

from __future__ import annotations

from opsk.fabric.node.nccl_xml import read_nccl_xml


def gpu(dev: int, bus: str, links: str = "") -> str:
    return f'<pci busid="{bus}" class="0x030200"><gpu dev="{dev}">{links}</gpu></pci>'


def link(target: str, count: int = 4, tag: str = "nvlink") -> str:
    return f'<{tag} target="{target}" count="{count}" tclass="0x030200"/>'


def system(*parts: str) -> str:
    return '<system version="1"><cpu numaid="0">' + "".join(parts) + "</cpu></system>"


def test_bridged_pairs_are_domains_of_two() -> None:
    text = system(
        gpu(0, "0000:01:00.0", link("0000:02:00.0")), gpu(1, "0000:02:00.0", link("0000:01:00.0")),
        gpu(2, "0000:03:00.0"),
    )  # fmt: skip
    topology = read_nccl_xml(text, source="n")
    assert {pair: str(path) for pair, path in topology.gpu_paths.items()} == {
        (0, 1): "NV4", (0, 2): "PHB", (1, 2): "PHB",
    }  # fmt: skip
    assert topology.hb_groups() == ((0, 1), (2,))


def test_links_to_itself_tell_no_pair() -> None:
    """A VM sees the NVLinks of its GPUs, but not where they lead."""
    text = system(*(gpu(index, f"000{index}:00:00.0", link(f"000{index}:00:00.0", 12)) for index in range(2)))
    topology = read_nccl_xml(text, source="n")
    assert topology.gpu_paths == {}
    assert topology.hb_groups() is None
    assert "lead to itself" in topology.problems[0]


def test_a_guid_is_turned_round_unless_it_stands_right_already() -> None:
    nets = "".join(
        f'<pci busid="0000:0{index}:00.0" class="0x020700"><nic><net name="mlx5_{index}" guid="{guid}"/></nic></pci>'
        for index, guid in enumerate(("0x0100000003c288a0", "0xa088c20300000002", "0x0"))
    )
    topology = read_nccl_xml(system(nets), source="n")
    assert [nic.guid for nic in topology.nics] == ["a088c20300000001", "a088c20300000002", None]


def test_of_several_hosts_the_first_is_read() -> None:
    """A dump of a multi-node NVLink domain holds the cpus of all its hosts."""
    text = (
        '<system version="1">'
        f'<cpu host_hash="0x1" numaid="0">{gpu(0, "0000:01:00.0")}</cpu>'
        f'<cpu host_hash="0x2" numaid="0">{gpu(0, "0000:01:00.0")}</cpu></system>'
    )
    topology = read_nccl_xml(text, source="n")
    assert len(topology.gpus) == 1
    assert "describes 2 hosts" in topology.problems[0]


def test_a_gpu_or_nic_that_stands_there_twice_is_reported() -> None:
    net = '<nic><net name="eth0"/><net name="eth0"/></nic>'
    topology = read_nccl_xml(system(gpu(0, "0000:01:00.0"), gpu(0, "0000:02:00.0"), net), source="n")
    assert (len(topology.gpus), len(topology.nics), len(topology.problems)) == (1, 1, 2)


def test_what_is_below_one_bridge_is_near_and_below_several_less_so() -> None:
    inner = '<pci busid="0000:11:00.0" class="0x060400">' + gpu(0, "0000:12:00.0") + "</pci>"
    nic = '<pci busid="0000:{}:00.0" class="0x020700"><nic><net name="{}"/></nic></pci>'
    text = system(
        f'<pci busid="0000:10:00.0" class="0x060400">{inner}{nic.format("13", "far")}</pci>',
        nic.format("20", "other"),
    ).replace("</gpu></pci></pci>", "</gpu></pci>" + nic.format("14", "near") + "</pci>")
    topology = read_nccl_xml(text, source="n")
    assert {name: str(path) for (_, name), path in topology.nic_paths.items()} == {
        "near": "PIX", "far": "PXB", "other": "PHB",
    }  # fmt: skip
