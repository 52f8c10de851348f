"""A sysfs tree like that of a node with ConnectX-7 HCAs, written file by file where a test wants it.

All numbers follow from the place of a port, so that an expectation can be worked out by hand: the HCA with index *i*
has received ``1000 * (i + 1)`` data words and sent twice as many.
"""

from __future__ import annotations

from pathlib import Path

ZERO_COUNTERS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "symbol_error",
)
ZERO_HARDWARE = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "req_remote_access_errors",
    "req_remote_invalid_request",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "resp_local_length_error",
    "resp_remote_access_errors",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_adp_retrans_to",
    "roce_slow_restart",
    "roce_slow_restart_cnps",
    "roce_slow_restart_trans",
    "rx_atomic_requests",
    "rx_dct_connect",
    "rx_icrc_encapsulated",
    "rx_read_requests",
)
ROCE_HARDWARE = ("np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored")


class SysfsTree:
    """Writes RDMA devices into ``root/class/infiniband``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "class" / "infiniband").mkdir(parents=True)

    def port(self, device: str, port: int = 1) -> Path:
        """Return the folder of a port."""
        return self.root / "class" / "infiniband" / device / "ports" / str(port)

    def add_hca(self, index: int, *, rate: str = "400 Gb/sec (4X NDR)", link_layer: str = "InfiniBand") -> Path:
        """Write the HCA ``mlx5_<index>`` with one port that is up; return the port's folder."""
        device, words = f"mlx5_{index}", 1000 * (index + 1)
        port = self.port(device)
        infiniband = link_layer == "InfiniBand"
        self.write(port.parent.parent / "board_id", "MT_0000000838")
        self.write(port.parent.parent / "fw_ver", "28.41.1000")
        self.write(port.parent.parent / "hca_type", "MT4129")
        self.write(port.parent.parent / "node_guid", f"9439:e5ff:fe00:{index:04x}")
        self.write(port / "link_layer", link_layer)
        self.write(port / "state", "4: ACTIVE")
        self.write(port / "phys_state", "5: LinkUp")
        self.write(port / "rate", rate)
        self.write(port / "lid", hex(16 + index) if infiniband else "0x0")
        self.write(port / "sm_lid", "0x1" if infiniband else "0x0")
        self.write(port / "gids" / "0", f"fe80:0000:0000:0000:9439:e5ff:fe00:{0x100 + index:04x}")
        self.write(port / "gid_attrs" / "ndevs" / "0", f"{'ib' if infiniband else 'eth'}{index}")
        counters = dict.fromkeys(ZERO_COUNTERS, 0) | {
            "port_rcv_data": words,
            "port_xmit_data": 2 * words,
            "port_rcv_packets": 10 * (index + 1),
            "port_xmit_packets": 20 * (index + 1),
            "unicast_rcv_packets": 10 * (index + 1),
            "unicast_xmit_packets": 20 * (index + 1),
            "port_xmit_wait": 7 * index,
        }
        hardware = dict.fromkeys(ZERO_HARDWARE, 0) | {"lifespan": 12, "rx_write_requests": 5 * (index + 1)}
        if not infiniband:
            hardware |= {name: place + index for place, name in enumerate(ROCE_HARDWARE, 1)}
        for folder, values in (("counters", counters), ("hw_counters", hardware)):
            for name, value in values.items():
                self.write(port / folder / name, str(value))
        return port

    def add_pci(self, device: str, address: str, *, physical: str | None = None, numa_node: int = 0) -> Path:
        """Put a device on a PCI function, a virtual one when ``physical`` names the function that it is of."""
        function = self.root / "devices" / "pci0000:00" / address
        self.write(function / "numa_node", str(numa_node))
        (self.root / "class" / "infiniband" / device / "device").symlink_to(function)
        if physical is not None:
            (function / "physfn").symlink_to(f"../{physical}")
        return function

    def add_bond(self, bond: str, *members: str) -> None:
        """Write a bond of network interfaces."""
        interfaces = self.root / "class" / "net"
        self.write(interfaces / bond / "bonding" / "mode", "802.3ad 4")
        for member in members:
            (interfaces / member).mkdir(parents=True)
            (interfaces / member / "master").symlink_to(f"../{bond}")

    @staticmethod
    def write(path: Path, text: str) -> None:
        """Write one value as the kernel does, with a line end."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
