"""How is a fabric written in the dialects that simulators and tools read: ibsim ``.net``, ``ibnetdiscover``?"""

from __future__ import annotations

from collections import defaultdict

from opsk.topology.fabric import Cable, Fabric

_End = tuple[int, str, int, Cable]
"""Own port, far guid, far port, and the cable between them."""


def as_ibsim_net(fabric: Fabric) -> str:
    """Return the fabric as ibsim reads it; a node is known by its guid and described as in ``fabric``.

    The first HCA comes first: ibsim attaches the subnet manager to the first port of the file. Link widths and speeds
    are those of ibsim's options ``w=`` and ``s=`` (QDR at most without extended speeds, ``e=`` above).
    """
    ends = _ends(fabric)
    lines = ["# ibsim net file written by opsk", ""]
    for guid, hca in fabric.hcas.items():
        ports = max((end[0] for end in ends[guid]), default=1)
        lines += [f"caguid=0x{guid}", f'Hca\t{ports} "H-{guid}"\t# "{hca.description}"']
        lines += [_net_port(fabric, end) for end in ends[guid]]
        lines.append("")
    for guid, switch in fabric.switches.items():
        lines += [f"switchguid=0x{guid}", f'Switch\t{switch.ports} "S-{guid}"\t# "{switch.description}" base port 0']
        lines += [_net_port(fabric, end) for end in ends[guid]]
        lines.append("")
    return "\n".join(lines) + "\n"


def as_ibnetdiscover(fabric: Fabric) -> str:
    """Return the fabric as ``ibnetdiscover`` prints it; lids not known are printed as 0."""
    ends = _ends(fabric)
    lines = ["#", f"# Topology file: generated on {fabric.generated}", "#"] if fabric.generated else []
    for guid, switch in fabric.switches.items():
        lid = switch.lid or 0
        lines += ["", "vendid=0x2c9", f"switchguid=0x{guid.lstrip('0')}({guid.lstrip('0')})"]
        lines.append(f'Switch\t{switch.ports} "S-{guid}"\t\t# "{switch.description}" enhanced port 0 lid {lid} lmc 0')
        for port, far, far_port, cable in ends[guid]:
            tail = f"lid {_lid(fabric, far)} {cable.width}x{cable.speed}"
            label = f"({far.lstrip('0')})" if far in fabric.hcas else ""
            lines.append(f'[{port}]\t"{_id(fabric, far)}"[{far_port}]{label}\t\t# "{_text(fabric, far)}" {tail}')
    for guid, hca in fabric.hcas.items():
        ports = max((end[0] for end in ends[guid]), default=1)
        lines += [
            "",
            "vendid=0x2c9",
            f"caguid=0x{guid.lstrip('0')}",
            f'Ca\t{ports} "H-{guid}"\t\t# "{hca.description}"',
        ]
        for port, far, far_port, cable in ends[guid]:
            tail = f'lid 0 lmc 0 "{_text(fabric, far)}" lid {_lid(fabric, far)} {cable.width}x{cable.speed}'
            lines.append(f'[{port}]({guid.lstrip("0")})\t"{_id(fabric, far)}"[{far_port}]\t\t# {tail}')
    return "\n".join(lines) + "\n"


def _ends(fabric: Fabric) -> defaultdict[str, list[_End]]:
    """Return for each guid its cabled ports in port order."""
    ends: defaultdict[str, list[_End]] = defaultdict(list)
    for cable in fabric.cables:
        ends[cable.a_guid].append((cable.a_port, cable.b_guid, cable.b_port, cable))
        ends[cable.b_guid].append((cable.b_port, cable.a_guid, cable.a_port, cable))
    for entries in ends.values():
        entries.sort(key=lambda end: end[:3])
    return ends


_NET_OPTIONS = {
    "SDR": "s=1", "DDR": "s=2", "QDR": "s=4", "FDR10": "s=4",
    "FDR": "s=7 e=1", "EDR": "s=7 e=3", "HDR": "s=7 e=7", "NDR": "s=7 e=7", "XDR": "s=7 e=7",
}  # fmt: skip
_NET_WIDTHS = {1: 1, 4: 2, 8: 4, 12: 8}


def _net_port(fabric: Fabric, end: _End) -> str:
    """Return one port line of a ``.net`` file; speeds above HDR, which ibsim 0.10 lacks, become HDR."""
    port, far, far_port, cable = end
    options = f"w={_NET_WIDTHS.get(cable.width, 2)} {_NET_OPTIONS.get(cable.speed, 's=4')}"
    return f'[{port}]\t"{_id(fabric, far)}"[{far_port}]\t{options}'


def _id(fabric: Fabric, guid: str) -> str:
    return f"{'S' if guid in fabric.switches else 'H'}-{guid}"


def _text(fabric: Fabric, guid: str) -> str:
    return fabric.switches[guid].description if guid in fabric.switches else fabric.hcas[guid].description


def _lid(fabric: Fabric, guid: str) -> int:
    return (fabric.switches[guid].lid or 0) if guid in fabric.switches else 0
