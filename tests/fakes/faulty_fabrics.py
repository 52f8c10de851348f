"""Rail-optimised fabrics as sites really have them, and a planter that breaks their cabling in known ways.

``Site`` describes a fabric; ``Workshop`` holds one, with or without the mess that real ones have, and breaks it. Each
method that plants a fault returns a ``Planted``: the kind of finding it must give, and the words that its ``where``
must hold.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Cable, Fabric, Fault, Hca, Switch
from opsk.fabric.link_speed import link_bytes_per_s

DGX_DEVICES = tuple(f"mlx5_{index}" for index in (0, 3, 4, 5, 6, 9, 10, 11))
"""The eight compute HCAs of a node whose other four are storage and management ports."""

FACTORY = "MT4129 ConnectX7   Mellanox Technologies"


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A fabric to build: ``nodes`` in units of ``unit_nodes``, the last one perhaps not full, ``rails`` HCAs each."""

    nodes: int = 140
    unit_nodes: int = 32
    rails: int = 8
    spines: int = 8
    cables_per_pair: int = 4
    pods: int = 1
    cores_per_spine: int = 0
    devices: Sequence[str] = DGX_DEVICES
    host: Callable[[int], str] = field(default=lambda index: f"dgx-{index + 1:03d}")
    speed: str = "NDR"

    @property
    def units(self) -> int:
        """Scalable units, the last one perhaps not full."""
        return -(-self.nodes // self.unit_nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A second network: ``hcas`` of each node, each on a leaf of its own for every ``leaf_nodes`` nodes, and servers.

    It has spines of its own, of which each has ``joined_to`` cables to the cores or spines of the site, or
    ``shared_spines`` of the site's. With ``behind`` the servers hang on two leaves without nodes.
    """

    leaf_nodes: int
    hcas: int = 2
    devices: Sequence[str] = ("mlx5_1", "mlx5_7", "mlx5_2", "mlx5_8")
    servers: int = 4
    server: str = "oss{}"
    server_hcas: int = 2
    name: str = "sw-{}"
    spine_name: str = "up-{}"
    cables_per_pair: int = 3
    shared_spines: int = 0
    joined_to: int = 0
    behind: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """A fault that was planted: ``where`` must hold all ``words``."""

    kind: str
    words: tuple[str, ...]

    def found_in(self, faults: Iterable[Fault]) -> list[Fault]:
        """Return the findings that tell of it."""
        return [
            fault for fault in faults if fault.kind == self.kind and all(word in fault.where for word in self.words)
        ]


class Workshop:
    """A fabric that can be broken: switches and HCAs by guid, cables in a list."""

    def __init__(self, site: Site) -> None:
        self.site = site
        full = rail_optimized_fabric(
            nodes=site.units * site.unit_nodes, hcas=site.rails, leaves=site.units * site.rails, spines=site.spines,
            cables_per_pair=site.cables_per_pair, pods=site.pods, cores_per_spine=site.cores_per_spine,
            speed=site.speed,
        )  # fmt: skip
        self.switches = {
            guid: dataclasses.replace(switch, description=self._switch_name(switch.description))
            for guid, switch in full.switches.items()
        }
        self.hcas = {}
        for guid, hca in full.hcas.items():
            index, position = int((hca.node or "")[1:]), int((hca.device or "").split("_")[1])
            if index < site.nodes:
                self.hcas[guid] = _hca(guid, site.host(index), site.devices[position])
        self.cables = [
            cable
            for cable in full.cables
            if all(guid in self.switches or guid in self.hcas for guid in (cable.a_guid, cable.b_guid))
        ]

    def _switch_name(self, plain: str) -> str:
        word, number = plain.rstrip("0123456789"), int(plain.lstrip("abcdefghijklmnopqrstuvwxyz"))
        if word == "leaf":
            word, number = f"leaf-u{number // self.site.rails + 1:02d}-r", number % self.site.rails
        return f"MF0;ib{word}{number + 1}:MQM9700/U1"

    def fabric(self) -> Fabric:
        """Return the fabric as it now is."""
        return Fabric(switches=dict(self.switches), hcas=dict(self.hcas), cables=tuple(self.cables), source="workshop")

    def node(self, index: int) -> str:
        """Return the name of a node."""
        return self.site.host(index)

    def leaf(self, unit: int, rail: int) -> str:
        """Return the guid of a leaf."""
        return self._guid(f"ibleaf-u{unit + 1:02d}-r{rail + 1}:")

    def spine(self, index: int) -> str:
        """Return the guid of a spine."""
        return self._guid(f"ibspine{index + 1}:")

    def core(self, index: int) -> str:
        """Return the guid of a core."""
        return self._guid(f"ibcore{index + 1}:")

    def _guid(self, text: str) -> str:
        return next(guid for guid, switch in self.switches.items() if text in switch.description)

    def name(self, guid: str) -> str:
        """Return the short name of a switch."""
        return self.switches[guid].description.removeprefix("MF0;").partition(":")[0]

    def hca(self, node: str, position: int) -> str:
        """Return the guid of the HCA at a position of a node."""
        device = self.site.devices[position]
        return next(guid for guid, hca in self.hcas.items() if (hca.node, hca.device) == (node, device))

    def cable_of(self, guid: str) -> Cable:
        """Return the first cable of an HCA."""
        return next(cable for cable in self.cables if guid in (cable.a_guid, cable.b_guid))

    def between(self, one: str, other: str) -> list[Cable]:
        """Return the cables between two switches."""
        return [cable for cable in self.cables if {cable.a_guid, cable.b_guid} == {one, other}]

    def connect(self, one: str, other: str, *, speed: str | None = None, width: int = 4) -> Cable:
        """Cable two switches, or a switch and an HCA, at their first free ports."""
        ends = sorted((guid, self._free_port(guid)) for guid in (one, other))
        speed = speed or self.site.speed
        cable = Cable(
            a_guid=ends[0][0], a_port=ends[0][1], b_guid=ends[1][0], b_port=ends[1][1], width=width, speed=speed,
            bytes_per_s=link_bytes_per_s(width, speed),
        )  # fmt: skip
        self.cables.append(cable)
        return cable

    def _free_port(self, guid: str) -> int:
        taken = {cable.a_port for cable in self.cables if cable.a_guid == guid}
        taken |= {cable.b_port for cable in self.cables if cable.b_guid == guid}
        return next(port for port in range(1, 1000) if port not in taken)

    def move(self, hca: str, switch: str) -> None:
        """Cable an HCA to another switch."""
        self.cables.remove(self.cable_of(hca))
        self.connect(hca, switch)

    def drop(self, cables: Iterable[Cable]) -> None:
        """Take cables away."""
        gone = set(cables)
        self.cables = [cable for cable in self.cables if cable not in gone]

    def remove(self, guid: str) -> None:
        """Take a switch or an HCA away, with its cables, and HCAs that are then on nothing."""
        self.drop(cable for cable in self.cables if guid in (cable.a_guid, cable.b_guid))
        self.switches.pop(guid, None)
        self.hcas.pop(guid, None)
        cabled = {end for cable in self.cables for end in (cable.a_guid, cable.b_guid)}
        self.hcas = {key: hca for key, hca in self.hcas.items() if key in cabled}

    def add_host(self, name: str, *switches: str, speed: str | None = None, device: str = "mlx5_{}") -> None:
        """Add a host with one HCA on each of the switches; ``name`` with a factory text names no host."""
        for index, switch in enumerate(switches):
            guid = f"{0x0020_0000_0000_0000 + len(self.hcas) * 0x10 + index:016x}"
            while guid in self.hcas:
                guid = f"{int(guid, 16) + 1:016x}"
            text = name if name == FACTORY else f"{name} {device.format(index)}"
            self.hcas[guid] = _described(guid, text)
            self.connect(guid, switch, speed=speed)

    # What real fabrics have without being broken.

    def mess(self) -> None:
        """Add SHARP nodes, storage servers at half speed, login and fabric manager hosts, and a node in repair."""
        for number, switch in enumerate(list(self.switches)):
            guid = f"{0x0030_0000_0000_0000 + number:016x}"
            text = "Mellanox Technologies Aggregation Node"
            self.hcas[guid] = Hca(guid=guid, description=text, node=None, device=None, sharp=True)
            self.connect(guid, switch)
        last = self.site.units - 1
        for index in range(4):
            self.add_host(f"stor{index + 1:02d}", self.leaf(last, 0), self.leaf(last, 1), speed="HDR")
        self.add_host("login1", self.leaf(last, 2), speed="HDR")
        self.add_host("ufm1", self.leaf(last, 3), speed="HDR")
        for position in range(self.site.rails):
            self.remove(self.hca(self.node(3), position))

    def add_storage_leaf(self, servers: int) -> None:
        """Add a leaf for storage that all spines join, with servers and one HCA of each node, ``mlx5_1``."""
        guid = "0002eeeeeeee0000"
        self.switches[guid] = Switch(guid=guid, description="MF0;ibstorage1:MQM9700/U1", ports=64)
        nodes = sorted({hca.node for hca in self.hcas.values() if hca.node is not None})
        for node in nodes:
            self.add_host(node, guid, device="mlx5_1")
        for index in range(servers):
            self.add_host(f"stor{index + 1:02d}", guid)
        for spine in range(self.site.spines):
            for _ in range(-(-(len(nodes) + servers) // self.site.spines)):
                self.connect(guid, self.spine(spine))

    def add_network(self, network: Network) -> list[str]:
        """Give each node HCAs on leaves of their own, and servers; return the guids of these leaves."""
        site, hcas = self.site, network.hcas
        groups = -(-site.nodes // network.leaf_nodes)
        leaves = [self._add_switch(network.name.format(index + 1)) for index in range(groups * hcas)]
        for index in range(site.nodes):
            for number in range(hcas):
                self.add_device(
                    self.node(index), network.devices[number], leaves[index // network.leaf_nodes * hcas + number]
                )
        above = [self.spine(index) for index in range(network.shared_spines)]
        own = [self._add_switch(network.spine_name.format(index + 1)) for index in range(0 if above else 2)]
        behind = [self._add_switch(network.name.format(100 + index)) for index in range(2 if network.behind else 0)]
        for leaf in leaves + behind:
            for spine in above or own:
                for _ in range(network.cables_per_pair):
                    self.connect(leaf, spine)
        for spine in own:
            for other in range(network.joined_to):
                self.connect(spine, self.core(other) if site.cores_per_spine else self.spine(other))
        for index in range(network.servers):
            self.add_host(
                network.server.format(index + 1),
                *(
                    (behind or leaves)[(index + number) % len(behind or leaves)]
                    for number in range(network.server_hcas)
                ),
            )
        return leaves

    def _add_switch(self, name: str) -> str:
        guid = f"{0x0002_EEEE_0000_0000 + len(self.switches):016x}"
        self.switches[guid] = Switch(guid=guid, description=f"MF0;{name}:MQM9700/U1", ports=64)
        return guid

    def add_device(self, node: str, device: str, switch: str) -> None:
        """Give a node another HCA."""
        guid = f"{0x0040_0000_0000_0000 + len(self.hcas):016x}"
        self.hcas[guid] = _hca(guid, node, device)
        self.connect(guid, switch)

    def storage_leaf(self) -> str:
        """Return the guid of the storage leaf."""
        return self._guid("ibstorage")

    # What is broken.

    def swap(self, node: str, *positions: int) -> Planted:
        """Cable each HCA where the next one of ``positions`` belongs."""
        guids = [self.hca(node, position) for position in positions]
        cables = [self.cable_of(guid) for guid in guids]
        ends = [_far_end(cable, guid) for cable, guid in zip(cables, guids, strict=True)]
        self.drop(cables)
        for index, guid in enumerate(guids):
            own = (guid, 1)
            low, high = sorted((own, ends[(index + 1) % len(ends)]))
            self.cables.append(
                dataclasses.replace(cables[index], a_guid=low[0], a_port=low[1], b_guid=high[0], b_port=high[1])
            )
        devices = [self.site.devices[position] for position in positions]
        return Planted(kind="swapped_hcas", words=(node, *devices))

    def exchange(self, one: str, other: str, position: int) -> None:
        """Let two nodes exchange their ports on one rail: no fault where both are of one unit."""
        first, second = self.hca(one, position), self.hca(other, position)
        self.hcas[first], self.hcas[second] = (
            dataclasses.replace(self.hcas[second], guid=first),
            dataclasses.replace(self.hcas[first], guid=second),
        )

    def to_other_unit(self, node: str, position: int, unit: int) -> Planted:
        """Cable an HCA to the leaf of its rail in another unit."""
        self.move(self.hca(node, position), self.leaf(unit, position))
        return Planted(kind="misplaced_hca", words=(node, self.site.devices[position]))

    def to_other_rail(self, node: str, position: int, unit: int, rail: int) -> Planted:
        """Cable an HCA to the leaf of another rail of its unit, and leave its own port empty."""
        self.move(self.hca(node, position), self.leaf(unit, rail))
        return Planted(kind="misplaced_hca", words=(node, self.site.devices[position]))

    def lose_hca(self, node: str, position: int) -> Planted:
        """Take an HCA from a node."""
        self.remove(self.hca(node, position))
        return Planted(kind="missing_rail", words=(node,))

    def lose_uplinks(self, leaf: str, spine: str, count: int = 1) -> Planted:
        """Take cables between a leaf and a spine away."""
        self.drop(self.between(leaf, spine)[:count])
        return Planted(kind="leaf_short_of_uplinks", words=(self.name(leaf), leaf))

    def cut_off(self, leaf: str) -> Planted:
        """Take all uplinks of a leaf away."""
        self.drop(c for c in self.cables if c.a_guid in self.switches and c.b_guid in self.switches
                  and leaf in (c.a_guid, c.b_guid))  # fmt: skip
        return Planted(kind="isolated_part", words=(self.name(leaf), leaf))

    def empty_spine(self, spine: str, keep: int = 0) -> Planted:
        """Take all cables of a spine to leaves away but the first ``keep``."""
        self.drop([c for c in self.cables if spine in (c.a_guid, c.b_guid)
                   and {c.a_guid, c.b_guid} <= self.switches.keys()][keep:])  # fmt: skip
        return Planted(kind="spine_short_of_cables" if keep else "no_cable", words=(self.name(spine), spine))

    def relink(self, cable: Cable, *, width: int = 4, speed: str | None = None) -> Planted:
        """Let a link run at another width or speed."""
        speed = speed or cable.speed
        self.cables[self.cables.index(cable)] = dataclasses.replace(
            cable, width=width, speed=speed, bytes_per_s=link_bytes_per_s(width, speed)
        )
        words = []
        for guid, port in ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)):
            named = self.name(guid) if guid in self.switches else self.hcas[guid].description
            words += [named, f"port {port}"]
        return Planted(kind="narrow_link" if width < cable.width else "slow_link", words=tuple(words))

    def host_on(self, switch: str, name: str = "probe1") -> Planted:
        """Put a host on a spine or core."""
        self.add_host(name, switch)
        return Planted(kind="host_off_tier", words=(name, self.name(switch), switch))

    def unname(self, node: str, position: int) -> Planted:
        """Give an HCA its factory description."""
        guid = self.hca(node, position)
        cable = self.cable_of(guid)
        switch, port = (cable.a_guid, cable.a_port) if cable.b_guid == guid else (cable.b_guid, cable.b_port)
        self.hcas[guid] = _described(guid, FACTORY)
        return Planted(kind="unnamed_hca", words=(self.name(switch), str(port)))

    def duplicate(self, node: str, name: str) -> Planted:
        """Give all HCAs of a node the name of another."""
        for guid, hca in list(self.hcas.items()):
            if hca.node == node:
                self.hcas[guid] = _hca(guid, name, hca.device or "")
        return Planted(kind="duplicate_host_name", words=(name,))

    def join_leaves(self, one: str, other: str) -> Planted:
        """Cable two leaves to each other."""
        self.connect(one, other)
        return Planted(kind="cables_inside_a_tier", words=(self.name(one), self.name(other)))

    def cross_uplinks(self, one: str, other: str, first: str, second: str) -> tuple[Planted, Planted]:
        """Exchange a cable of leaf ``one`` to spine ``first`` for one of leaf ``other`` to ``second``."""
        self.drop([self.between(one, first)[0], self.between(other, second)[0]])
        self.connect(one, second)
        self.connect(other, first)
        return (
            Planted(kind="uneven_uplinks", words=(self.name(one), one)),
            Planted(kind="uneven_uplinks", words=(self.name(other), other)),
        )

    def crowd(self, leaf: str, hosts: int) -> Planted:
        """Put more hosts on a leaf than its like have."""
        for index in range(hosts):
            self.add_host(f"login{index + 10}", leaf)
        return Planted(kind="oversubscribed_leaf", words=(self.name(leaf), leaf))

    def lose_leaf(self, unit: int, rail: int) -> Planted:
        """Take a leaf away, and the HCAs on it."""
        self.remove(self.leaf(unit, rail))
        return Planted(kind="missing_leaf", words=(f"rail {rail}", self.node(unit * self.site.unit_nodes)))

    def isolate(self, unit: int) -> Planted:
        """Give a unit a spine of its own that leads nowhere else."""
        leaves = [self.leaf(unit, rail) for rail in range(self.site.rails)]
        for leaf in leaves:
            self.cut_off(leaf)
        guid = "0002ffffffff0000"
        self.switches[guid] = Switch(guid=guid, description="MF0;ibspine-lonely:MQM9700/U1", ports=64)
        for leaf in leaves:
            self.connect(leaf, guid)
        return Planted(kind="isolated_part", words=(self.name(leaves[0]),))

    def permute_rails(self, unit: int, order: Sequence[int]) -> None:
        """Cable HCA ``k`` of each node of a unit to the leaf *named* like rail ``order[k]``: no fault."""
        names = [self.switches[self.leaf(unit, rail)].description for rail in range(self.site.rails)]
        leaves = [self.leaf(unit, rail) for rail in range(self.site.rails)]
        for rail, leaf in enumerate(leaves):
            self.switches[leaf] = dataclasses.replace(self.switches[leaf], description=names[order[rail]])

    def rename_devices(self, nodes: Iterable[str], devices: Sequence[str]) -> None:
        """Give the HCAs of nodes other names."""
        for node in nodes:
            self.name_devices(node, dict(zip(self.site.devices, devices, strict=True)))

    def name_devices(self, node: str, names: Mapping[str, str]) -> None:
        """Give some HCAs of a node other names, by the old ones."""
        for guid, hca in list(self.hcas.items()):
            if hca.node == node and hca.device is not None and hca.device in names:
                self.hcas[guid] = _hca(guid, node, names[hca.device])


def relabelled(fabric: Fabric, seed: int) -> tuple[Fabric, dict[str, str]]:
    """Return the same fabric with other guids, host and switch names, ports and order, and old to new words.

    Names of hosts that tell a role, and of devices, stay: they are evidence.
    """
    rng = random.Random(seed)
    guids = [*fabric.switches, *fabric.hcas]
    values = rng.sample(range(2**60, 2**61), len(guids))
    fresh = {guid: f"{value:016x}" for guid, value in zip(guids, values, strict=True)}
    told = ("stor", "login", "ufm", "probe")
    hosts = sorted({hca.node for hca in fabric.hcas.values() if hca.node and not hca.node.startswith(told)})
    names = dict(zip(hosts, rng.sample(hosts, len(hosts)), strict=True))
    switch_names = [switch.description for switch in fabric.switches.values()]
    rng.shuffle(switch_names)
    switches = [
        dataclasses.replace(switch, guid=fresh[guid], description=text)
        for (guid, switch), text in zip(fabric.switches.items(), switch_names, strict=True)
    ]
    hcas = [
        dataclasses.replace(
            hca,
            guid=fresh[guid],
            node=names.get(hca.node or "", hca.node),
            description=f"{names[hca.node]} {hca.device}" if hca.node in names else hca.description,
        )
        for guid, hca in fabric.hcas.items()
    ]
    ports = _port_numbers(fabric, rng)
    cables = []
    for cable in fabric.cables:
        low, high = sorted(
            (fresh[guid], ports[guid, port])
            for guid, port in ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port))
        )
        cables.append(dataclasses.replace(cable, a_guid=low[0], a_port=low[1], b_guid=high[0], b_port=high[1]))
    for entries in (switches, hcas, cables):
        rng.shuffle(entries)
    other = dataclasses.replace(
        fabric,
        switches={switch.guid: switch for switch in switches},
        hcas={hca.guid: hca for hca in hcas},
        cables=tuple(cables),
    )
    return other, fresh | names


def _port_numbers(fabric: Fabric, rng: random.Random) -> dict[tuple[str, int], int]:
    """Return a permutation of the ports of each switch; HCAs keep theirs."""
    used: defaultdict[str, list[int]] = defaultdict(list)
    for cable in fabric.cables:
        for guid, port in ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)):
            used[guid].append(port)
    numbers: dict[tuple[str, int], int] = {}
    for guid, own in used.items():
        new = rng.sample(own, len(own)) if guid in fabric.switches else own
        numbers |= {(guid, port): other for port, other in zip(own, new, strict=True)}
    return numbers


def signature(faults: Iterable[Fault], words: dict[str, str] | None = None) -> Counter[tuple[str, ...]]:
    """Return what findings say apart from names: kind, nodes, switches and devices, in other words if given."""
    new = words or {}
    return Counter(
        (fault.kind, *sorted(new.get(word, word) for word in (*fault.nodes, *fault.switches, *fault.devices)))
        for fault in faults
    )


def _far_end(cable: Cable, guid: str) -> tuple[str, int]:
    return (cable.a_guid, cable.a_port) if cable.b_guid == guid else (cable.b_guid, cable.b_port)


def _hca(guid: str, node: str, device: str) -> Hca:
    return Hca(guid=guid, description=f"{node} {device}", node=node, device=device)


def _described(guid: str, text: str) -> Hca:
    if text == FACTORY:
        return Hca(guid=guid, description=text, node=None, device=None)
    node, device = text.split(" ")
    return _hca(guid, node, device)
