"""A designed fabric as programs print it whose dialects opsk never writes: ports report, iblinkinfo, link list."""

from __future__ import annotations

from collections.abc import Iterator

from opsk.fabric.fabric import Cable, Fabric
from opsk.fabric.forwarding import far_end

End = tuple[str, int]
_GBPS = {
    "SDR": "2.5 Gbps", "DDR": "5.0 Gbps", "QDR": "10.0 Gbps", "FDR10": "10.0 Gbps (FDR10)", "FDR": "14.0625 Gbps",
    "EDR": "25.78125 Gbps", "HDR": "53.125 Gbps", "NDR": "106.25 Gbps", "XDR": "212.5 Gbps",
}  # fmt: skip
_LST = {"SDR": "2.5", "DDR": "5", "QDR": "10", "FDR": "14", "EDR": "25", "HDR": "50", "NDR": "100", "XDR": "200"}


def ends(fabric: Fabric) -> Iterator[tuple[End, End, Cable]]:
    """Yield each cabled port with its far end, HCAs first, as the programs go."""
    for guid in (*fabric.hcas, *fabric.switches):
        for cable in fabric.cables:
            for own in ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)):
                if own[0] == guid:
                    yield own, far_end(cable, own), cable


def name(fabric: Fabric, guid: str) -> str:
    """Return the description of a switch or HCA."""
    return (fabric.switches.get(guid) or fabric.hcas[guid]).description


def lid(fabric: Fabric, end: End) -> int:
    """Return the LID of a port."""
    return (fabric.switches[end[0]].lid or 0) if end[0] in fabric.switches else fabric.port_lids.get(end, 0)


def as_ports_report(fabric: Fabric) -> str:
    """Return what ``ibnetdiscover -p`` prints."""

    def half(end: End) -> str:
        return f"{'SW' if end[0] in fabric.switches else 'CA'} {lid(fabric, end):5d} {end[1]:2d} 0x{end[0]}"

    text = []
    for own, far, cable in ends(fabric):
        names = f"( '{name(fabric, own[0])}' - '{name(fabric, far[0])}' )"
        text.append(f"{half(own)} {cable.width}x {cable.speed} - {half(far)} {names}\n")
    return "".join(text)


def as_iblinkinfo(fabric: Fabric, *, lines: bool) -> str:
    """Return what ``iblinkinfo`` prints, with ``-l`` when ``lines``."""
    text, head = [], ""
    for own, far, cable in ends(fabric):
        switch = own[0] in fabric.switches
        label = name(fabric, own[0])
        if own[0] != head and not lines:
            text.append(f"Switch: 0x{own[0]} {label}:" if switch else f"CA: {label}:")
        head = own[0]
        guid = f'0x{own[0]} "{label:>30}" ' if lines else "      " + ("" if switch else f"0x{own[0]} ")
        link = f"==( {cable.width}X {_GBPS[cable.speed]:>18} Active/  LinkUp)==>"
        far_text = f"{f'0x{far[0]} ' if lines else ''}{lid(fabric, far):6d} {far[1]:4d}[  ]"
        text.append(f'{guid}{lid(fabric, own):6d} {own[1]:4d}[  ] {link}  {far_text} "{name(fabric, far[0])}" ( )')
    return "\n".join(text) + "\n"


def as_lst(fabric: Fabric) -> str:
    """Return what ``ibdiagnet`` writes to ``ibdiagnet2.lst``."""

    def half(end: End) -> str:
        switch = fabric.switches.get(end[0])
        kind, ports = ("SW", switch.ports) if switch else ("CA", 1)
        ids = f"SystemGUID:{end[0]} NodeGUID:{end[0]} PortGUID:{end[0]} VenID:000002c9 DevID:d2f0 Rev:000000a0"
        text = name(fabric, end[0])
        return f"{{ {kind} Ports:{ports:02X} {ids} {{{text}}} LID:{lid(fabric, end):04x} PN:{end[1]:02X} }}"

    return "".join(
        f"{half((cable.a_guid, cable.a_port))} {half((cable.b_guid, cable.b_port))} "
        f"PHY={cable.width}x LOG=ACT SPD={_LST.get(cable.speed, cable.speed)}\n"
        for cable in fabric.cables
    )
