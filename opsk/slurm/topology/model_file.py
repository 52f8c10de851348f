"""Parses topograph model files: switches, the nodes below them, and their NVLink domains.

They are written by hand for topograph's simulations (its folder ``tests/models``) and have three shapes: switches with
``blocks``, switches with separate ``capacity_blocks``, and switches with ``nodes``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from opsk.errors import InputError
from opsk.hostlist import expand
from opsk.slurm.topology.conf import SwitchLine, TopologyConf

_DOMAIN_WORDS = ("domain", "accelerator", "nvlink")
"""Last words of the keys that name an accelerator domain: ``accelerator.topology.test/domain`` and the like."""


def is_model(loaded: Any) -> bool:
    """Tell whether a loaded YAML document has the form of a model."""
    return isinstance(loaded, dict) and "topology" not in loaded and bool({"switches", "blocks"} & loaded.keys())


def read_model(loaded: Mapping[str, Any], *, source: str) -> TopologyConf:
    """Return the tree of a model, and its accelerator domains as blocks.

    Nodes of no domain are in no block; a domain that several switches share is one block.

    Raises
    ------
    InputError
        When the model names no node.
    """
    return _Model(loaded, source).read()


class _Model:
    """A model as it is read."""

    def __init__(self, loaded: Mapping[str, Any], source: str) -> None:
        self.loaded = loaded
        self.source = source
        self.problems: list[str] = []
        self.children: dict[str, tuple[str, ...]] = {}
        self.below: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.domains: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self.in_domain: set[str] = set()
        self.capacity: dict[str, Mapping[str, Any]] = {}

    def read(self) -> TopologyConf:
        """Read everything."""
        self.capacity = dict(_entries(self.loaded.get("capacity_blocks"), "name"))
        for name, switch in _entries(self.loaded.get("switches"), "name"):
            self._take_switch(name, switch)
        for block in self.loaded.get("blocks") or []:
            if isinstance(block, dict):
                self._take_block(block, str(block.get("switch") or ""))
            else:
                self.problems.append(f"{self.source}: a block is no map: {str(block)[:80]!r}")
        for block in self.capacity.values():
            self._take_block(block, "")
        self._take_node_attributes()
        blocks = {name: tuple(nodes) for name, nodes in self.domains.items()}
        switches = self._switches()
        if not any(line.nodes for line in switches.values()) and not blocks:
            raise InputError(f"{self.source}: the model names no node", hint="give a topology.conf or topology.yaml")
        return TopologyConf(switches=switches, blocks=blocks, problems=tuple(self.problems))

    def _take_switch(self, name: str, switch: Mapping[str, Any]) -> None:
        """Take one switch: its children, its nodes, and those of its capacity blocks."""
        self.children[name] = tuple(str(child) for child in _list(switch.get("switches")))
        self.below[name].update(dict.fromkeys(self._hosts(switch.get("nodes"))))
        for block in _list(switch.get("capacity_blocks")):
            self.below[name].update(dict.fromkeys(self._hosts(self.capacity.get(str(block), {}).get("nodes"))))

    def _take_block(self, block: Mapping[str, Any], switch: str) -> None:
        """Take the nodes that are together under one switch, and in one domain if it names one."""
        nodes = dict.fromkeys(self._hosts(block.get("nodes")))
        if switch:
            self.below[switch].update(nodes)
        domain = _domain(block)
        if domain:
            self.domains[domain].update(nodes)
            self.in_domain.update(nodes)

    def _take_node_attributes(self) -> None:
        """Take the domains that nodes name themselves."""
        for name, node in _entries(self.loaded.get("nodes"), "name"):
            attributes = node.get("attributes")
            domain = _domain(attributes if isinstance(attributes, dict) else node)
            for host in self._hosts(name) if domain else ():
                if host not in self.in_domain:
                    self.in_domain.add(host)
                    self.domains[domain][host] = None

    def _switches(self) -> dict[str, SwitchLine]:
        """Return all switches; one that has both children and nodes keeps its nodes under a leaf of its own."""
        switches: dict[str, SwitchLine] = {}
        for name in dict.fromkeys([*self.children, *self._list_implied_leaves(), *self.below]):
            children, nodes = self.children.get(name, ()), tuple(self.below.get(name, {}))
            if children and nodes:
                leaf = f"{name}-nodes"
                switches[leaf] = SwitchLine(name=leaf, nodes=nodes, switches=())
                children, nodes = (*children, leaf), ()
            switches[name] = SwitchLine(name=name, nodes=nodes, switches=children)
        return switches

    def _list_implied_leaves(self) -> list[str]:
        """Return leaves that are named as children only: most models leave them out of their switches."""
        return [child for children in self.children.values() for child in children]

    def _hosts(self, value: Any) -> tuple[str, ...]:
        """Return the names of a list of host lists."""
        names: dict[str, None] = {}
        for text in _list(value):
            try:
                names.update(dict.fromkeys(expand(str(text))))
            except InputError as error:
                self.problems.append(f"{self.source}: {error.message}")
        return tuple(names)


def _domain(entry: Mapping[str, Any]) -> str:
    """Return the domain that annotations, labels or the entry itself name."""
    for place in (entry.get("annotations"), entry.get("labels"), entry):
        if isinstance(place, dict):
            for key, value in place.items():
                if str(key).rsplit("/", 1)[-1] in _DOMAIN_WORDS and isinstance(value, str) and value:
                    return value
    return ""


def _entries(value: Any, word: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return named maps, written as a map of maps or as a list of maps with a name in each."""
    if isinstance(value, dict):
        return [(str(name), entry if isinstance(entry, dict) else {}) for name, entry in value.items()]
    return [(str(entry[word]), entry) for entry in _list(value) if isinstance(entry, dict) and entry.get(word)]


def _list(value: Any) -> list[Any]:
    """Return a list; one text is a list of one, nothing is an empty one."""
    return value if isinstance(value, list) else [value] if isinstance(value, str) and value else []
