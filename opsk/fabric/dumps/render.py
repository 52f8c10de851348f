"""Renders a fabric as an ibsim ``.net`` file and as ``ibnetdiscover`` output."""

from __future__ import annotations

from collections import defaultdict

from opsk.fabric.fabric import Cable, Fabric

_End = tuple[int, str, int, Cable]
"""Own port, far guid, far port, and the cable between them."""


def render_ibsim_net(fabric: Fabric) -> str:
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


def render_ibnetdiscover(fabric: Fabric) -> str:
    """Return the fabric as ``ibnetdiscover`` prints it; lids not known are printed as 0."""
    ends = _ends(fabric)
    lines = ["#", f"# Topology file: generated on {fabric.generated}", "#"] if fabric.generated else []
    for guid, switch in fabric.switches.items():
        lid = switch.lid or 0
        lines += ["", "vendid=0x2c9", f"switchguid=0x{guid.lstrip('0')}({guid.lstrip('0')})"]
        lines.append(f'Switch\t{switch.ports} "S-{guid}"\t\t# "{switch.description}" enhanced port 0 lid {lid} lmc 0')
        for port, far, far_port, cable in ends[guid]:
            tail = f"lid {_lid(fabric, far, far_port)} {cable.width}x{cable.speed}"
            label = "" if far in fabric.switches else f"({far.lstrip('0')})"
            lines.append(f'[{port}]\t"{_id(fabric, far)}"[{far_port}]{label}\t\t# "{_text(fabric, far)}" {tail}')
    for guid, hca in (*fabric.hcas.items(), *fabric.routers.items()):
        ports = max((end[0] for end in ends[guid]), default=1)
        word = "Rt" if guid in fabric.routers else "Ca"
        lines += [
            "",
            "vendid=0x2c9",
            f"{word.lower()}guid=0x{guid.lstrip('0')}",
            f'{word}\t{ports} "{_id(fabric, guid)}"\t\t# "{hca.description}"',
        ]
        for port, far, far_port, cable in ends[guid]:
            rate = f"{cable.width}x{cable.speed}"
            lids = _lid(fabric, guid, port), _lid(fabric, far, far_port)
            tail = f'lid {lids[0]} lmc 0 "{_text(fabric, far)}" lid {lids[1]} {rate}'
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
    return f"{'S' if guid in fabric.switches else 'R' if guid in fabric.routers else 'H'}-{guid}"


def _text(fabric: Fabric, guid: str) -> str:
    if guid in fabric.switches:
        return fabric.switches[guid].description
    return (fabric.hcas.get(guid) or fabric.routers[guid]).description


def _lid(fabric: Fabric, guid: str, port: int) -> int:
    """Return the LID of a port: a switch has one for all of its ports."""
    if guid in fabric.switches:
        return fabric.switches[guid].lid or 0
    return fabric.port_lids.get((guid, port), 0)
