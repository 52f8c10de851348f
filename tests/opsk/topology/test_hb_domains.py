"""HB domains: a node each, or what a map says."""

from __future__ import annotations

from opsk.topology.hb_domains import hb_domains


def test_without_a_map_each_node_is_a_domain() -> None:
    domains, faults = hb_domains(["n10", "n2"])
    assert [(domain.name, domain.nodes) for domain in domains] == [("n2", ("n2",)), ("n10", ("n10",))]
    assert faults == ()


def test_a_map_joins_nodes_and_leaves_the_rest_alone() -> None:
    domains, _ = hb_domains(["a", "b", "c"], {"rack0": ["a", "b", "not-here"]})
    assert {domain.name: domain.nodes for domain in domains} == {"rack0": ("a", "b"), "c": ("c",)}


def test_a_node_in_two_domains_is_reported_and_stays_in_the_first() -> None:
    domains, faults = hb_domains(["a", "b"], {"rack1": ["a"], "rack0": ["a", "b"]})
    assert {domain.name: domain.nodes for domain in domains} == {"rack0": ("a", "b")}
    assert [(fault.kind, fault.where) for fault in faults] == [("node_in_two_hb_domains", "a")]
