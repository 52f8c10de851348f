"""Writes what nvidia-smi, NCCL, lstopo and sysfs say of a node that is described once, to be read back.

The formats are written by hand here, from what the tools print; nothing is shared with the readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

PCIE = ("PIX", "PXB", "NODE", "SYS")


@dataclass(frozen=True)
class FakeNode:
    """A node of ``sockets`` sockets; each has ``switches`` PCIe switches, each with so many GPUs and NICs.

    ``nvlinks`` go from each GPU to NVSwitches; 0 is none. ``domain`` is (ClusterUUID, CliqueId).
    """

    sockets: int = 2
    switches: int = 2
    gpus_per_switch: int = 2
    nics_per_switch: int = 1
    nvlinks: int = 18
    domain: tuple[str, str] = ("00000000-0000-0000-0000-000000000000", "0")

    @property
    def gpus(self) -> list[tuple[int, int]]:
        """Socket and switch of each GPU."""
        return self._devices(self.gpus_per_switch)

    @property
    def nics(self) -> list[tuple[int, int]]:
        """Socket and switch of each NIC."""
        return self._devices(self.nics_per_switch)

    def _devices(self, each: int) -> list[tuple[int, int]]:
        places = [(socket, switch) for socket in range(self.sockets) for switch in range(self.switches)]
        return [place for place in places for _ in range(each)]

    def path(self, first: tuple[int, int], second: tuple[int, int]) -> str:
        """Return the path between two places, as nvidia-smi calls it."""
        if first == second:
            return "PIX"
        return "NODE" if first[0] == second[0] else "SYS"

    def gpu_path(self, first: int, second: int) -> str:
        """Return the path between two GPUs."""
        return f"NV{self.nvlinks}" if self.nvlinks else self.path(self.gpus[first], self.gpus[second])

    def gpu_pci(self, gpu: int) -> str:
        """Return the PCI address of a GPU."""
        return f"0000:{0x10 + 0x10 * self._switch(self.gpus[gpu]) + gpu % max(self.gpus_per_switch, 1):02x}:00.0"

    def nic_pci(self, nic: int) -> str:
        """Return the PCI address of a NIC."""
        return f"0000:{0x18 + 0x10 * self._switch(self.nics[nic]) + nic % max(self.nics_per_switch, 1):02x}:00.0"

    def _switch(self, place: tuple[int, int]) -> int:
        return place[0] * self.switches + place[1]

    def uuid(self, gpu: int) -> str:
        """Return the UUID of a GPU."""
        return f"GPU-12345678-0000-0000-0000-{gpu:012x}"

    def guid(self, nic: int) -> str:
        """Return the node GUID of a NIC."""
        return f"a088c20300{nic:06x}"


def topo_matrix(node: FakeNode, *, legend: bool = True) -> str:
    """Return ``nvidia-smi topo -m`` as a driver of today prints it: tabs, and an underlined header."""
    gpus = [f"GPU{index}" for index in range(len(node.gpus))]
    nics = [f"NIC{index}" if legend else f"mlx5_{index}" for index in range(len(node.nics))]
    titles = [*gpus, *nics, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    lines = ["\t\x1b[4m" + "\t".join(titles) + "\x1b[0m"]
    for one, name in enumerate(gpus):
        cells = [" X " if one == other else node.gpu_path(one, other) for other in range(len(gpus))]
        cells += [node.path(node.gpus[one], place) for place in node.nics]
        socket = node.gpus[one][0]
        lines.append("\t".join([name, *cells, f"{8 * socket}-{8 * socket + 7}", str(socket), "", "N/A"]))
    for one, name in enumerate(nics):
        cells = [node.path(node.nics[one], place) for place in node.gpus]
        cells += [" X " if one == other else node.path(node.nics[one], place) for other, place in enumerate(node.nics)]
        lines.append("\t".join([name, *cells]))
    lines += ["", "Legend:", "", "  X    = Self", "  PIX  = Connection traversing at most a single PCIe bridge", ""]
    if legend and nics:
        lines += ["NIC Legend:", "", *(f"  NIC{index}: mlx5_{index}" for index in range(len(nics))), ""]
    return "\n".join(lines) + "\n"


def smi_query(node: FakeNode) -> str:
    """Return ``nvidia-smi -q``, as much of it as matters."""
    lines = ["", "==============NVSMI LOG==============", "", f"Attached GPUs                  : {len(node.gpus)}"]
    for gpu in range(len(node.gpus)):
        lines += [
            f"GPU 0000{node.gpu_pci(gpu)}",
            "    Product Name               : NVIDIA H100 80GB HBM3",
            "    MIG Mode",
            "        Current                : Disabled",
            "        Pending                : Disabled",
            f"    GPU UUID                   : {node.uuid(gpu)}",
            "    PCI",
            f"        Bus Id                 : 0000{node.gpu_pci(gpu)}",
            "    Fabric",
            "        State                  : Completed",
            "        Status                 : Success",
            f"        CliqueId               : {node.domain[1]}",
            f"        ClusterUUID            : {node.domain[0]}",
            "        Health",
            "            Bandwidth          : N/A",
            "    Processes                  : None",
            "",
        ]
    return "\n".join(lines)


def smi_query_xml(node: FakeNode) -> str:
    """Return ``nvidia-smi -q -x``, as much of it as matters."""
    gpus = "".join(
        f'<gpu id="0000{node.gpu_pci(gpu)}"><product_name>NVIDIA H100 80GB HBM3</product_name>\n'
        f"<mig_mode><current_mig>Disabled</current_mig></mig_mode><uuid>{node.uuid(gpu)}</uuid>\n"
        f"<fabric><state>Completed</state><status>Success</status><cliqueId>{node.domain[1]}</cliqueId>\n"
        f"<clusterUuid>{node.domain[0]}</clusterUuid></fabric></gpu>\n"
        for gpu in range(len(node.gpus))
    )
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>\n'
        f"<attached_gpus>{len(node.gpus)}</attached_gpus>\n{gpus}</nvidia_smi_log>\n"
    )


def nvlink_status(node: FakeNode) -> str:
    """Return ``nvidia-smi nvlink -s``."""
    lines = []
    for gpu in range(len(node.gpus)):
        lines.append(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: {node.uuid(gpu)})")
        lines += [f"\t Link {link}: 26.562 GB/s" for link in range(node.nvlinks)]
        if not node.nvlinks:
            lines.append("NVML: Unable to retrieve Nvlink information as all links are inActive")
    return "\n".join(lines) + "\n"


def nccl_xml(node: FakeNode, *, plain: bool = False) -> str:
    """Return NCCL's topology file; ``plain`` has PCI functions alone, as the files for VMs."""
    lines = ['<system version="1">']
    gpu = nic = 0
    for socket in range(node.sockets):
        lines.append(f'<cpu numaid="{socket}" affinity="{0xFF << 8 * socket:08x}" arch="x86_64">')
        for switch in range(node.switches):
            lines.append(f'<pci busid="ffff:{socket:02x}:{switch:02x}.0" class="0x060400">')
            for _ in range(node.gpus_per_switch):
                link = f'<nvlink target="fffffff:ffff:ff" count="{node.nvlinks}" tclass="0x068000"/>'
                inner = f'<gpu dev="{gpu}" rank="{gpu}" gdr="1">{link if node.nvlinks else ""}</gpu>'
                lines.append(f'<pci busid="{node.gpu_pci(gpu)}" class="0x030200">{"" if plain else inner}</pci>')
                gpu += 1
            for _ in range(node.nics_per_switch):
                guid = bytes.fromhex(node.guid(nic))[::-1].hex()
                inner = f'<nic><net name="mlx5_{nic}" dev="{nic}" speed="400000" port="1" guid="0x{guid}"/></nic>'
                lines.append(f'<pci busid="{node.nic_pci(nic)}" class="0x020700">{"" if plain else inner}</pci>')
                nic += 1
            lines.append("</pci>")
        lines.append("</cpu>")
    return "\n".join([*lines, "</system>"]) + "\n"


def lstopo_xml(node: FakeNode, *, version: str = "2.0") -> str:
    """Return lstopo's file of format version 1 (empty), 2.0 or 3.0; a switch is an upstream and downstream ports."""
    bits = version.startswith("3")
    number = 100
    lines = ['<?xml version="1.0"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">']
    lines.append(f'<topology version="{version}">' if version else "<topology>")
    everything = f"0x{(1 << node.sockets) - 1:08x}"
    lines.append(f'<object type="Machine" cpuset="0xffffffff" nodeset="{everything}">')
    gpu = nic = 0
    for socket in range(node.sockets):
        lines.append(f'<object type="Package" cpuset="0x{0xFF << 8 * socket:08x}" nodeset="0x{1 << socket:08x}">')
        for switch in range(node.switches):
            number += 10
            lines.append(f'<object type="Bridge" bridge_type="0-1" bridge_pci="{socket}{switch}" gp_index="{number}">')
            lines.append(f'<object type="Bridge" bridge_type="1-1" bridge_pci="a" gp_index="{number + 1}">')
            for _ in range(node.gpus_per_switch):
                kind = 12 if bits else 5
                lines.append(f'<object type="Bridge" bridge_type="1-1" bridge_pci="g{gpu}" gp_index="{2000 + gpu}">')
                lines.append(
                    f'<object type="PCIDev" pci_busid="{node.gpu_pci(gpu)}" pci_type="0302 [10de:2330] [0:0]" '
                    f'gp_index="{3000 + gpu}"><object type="OSDev" name="nvml{gpu}" osdev_type="{kind}" '
                    f'gp_index="{gpu}"><info name="NVIDIAUUID" value="{node.uuid(gpu)}"/></object></object></object>'
                )
                gpu += 1
            for _ in range(node.nics_per_switch):
                kind = 48 if bits else 3
                guid = node.guid(nic)
                parted = ":".join(guid[at : at + 4] for at in range(0, 16, 4))
                lines.append(f'<object type="Bridge" bridge_type="1-1" bridge_pci="n{nic}" gp_index="{4000 + nic}">')
                lines.append(
                    f'<object type="PCIDev" pci_busid="{node.nic_pci(nic)}" pci_type="0207 [15b3:1021] [0:0]">'
                    f'<object type="OSDev" name="mlx5_{nic}" osdev_type="{kind}"><info name="NodeGUID" '
                    f'value="{parted}"/></object></object></object>'
                )
                nic += 1
            lines.append("</object></object>")
        lines.append("</object>")
    lines.append("</object>")
    if node.nvlinks and node.gpus:
        names = " ".join(f"OSDev:{index}" for index in range(len(node.gpus)))
        rate = node.nvlinks * 25000
        values = " ".join(
            str(1000000 if one == other else rate) for one in range(len(node.gpus)) for other in range(len(node.gpus))
        )
        lines.append(f'<distances2hetero nbobjs="{len(node.gpus)}" kind="25" name="NVLinkBandwidth">')
        lines.append(f"<indexes>{names}</indexes><u64values>{values}</u64values></distances2hetero>")
    return "\n".join([*lines, "</topology>"]) + "\n"


def sysfs_files(node: FakeNode) -> dict[str, str]:
    """Return the files of ``/sys/class/infiniband``."""
    files: dict[str, str] = {}
    for nic, (socket, _) in enumerate(node.nics):
        guid = node.guid(nic)
        root = f"sys/class/infiniband/mlx5_{nic}"
        files |= {
            f"{root}/node_guid": ":".join(guid[at : at + 4] for at in range(0, 16, 4)) + "\n",
            f"{root}/node_desc": f"n07 mlx5_{nic}\n",
            f"{root}/device/numa_node": f"{socket}\n",
            f"{root}/device/uevent": f"DRIVER=mlx5_core\nPCI_SLOT_NAME={node.nic_pci(nic)}\n",
            f"{root}/ports/1/link_layer": "InfiniBand\n",
            f"{root}/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            f"{root}/ports/1/state": "4: ACTIVE\n",
            f"{root}/ports/1/phys_state": "5: LinkUp\n",
        }
    return files


def ttar(files: dict[str, str]) -> str:
    """Return files as a ttar archive."""
    parts = ["# Archive created by ttar -c -f node.ttar sys\n"]
    for path, text in files.items():
        lines = text.splitlines()
        parts.append(f"Path: {path}\nLines: {len(lines)}\n" + "".join(f"{line}\n" for line in lines) + "Mode: 644\n")
        parts.append("# ttar - - - - - - - -\n")
    return "".join(parts)


def pairs(node: FakeNode) -> list[tuple[int, int]]:
    """Return all pairs of GPUs."""
    return list(combinations(range(len(node.gpus)), 2))
