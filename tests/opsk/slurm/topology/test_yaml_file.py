"""``topology.yaml`` of Slurm and the model files of topograph: read, written and read back, damaged and hostile."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.slurm.topology.block import build_blocks
from opsk.slurm.topology.conf import Entry, SlurmTopology, render_yaml
from opsk.slurm.topology.tree import build_topology_tree
from opsk.slurm.topology.yaml_file import is_topology, load_yaml, merge_topologies, read_topology

EVERY_KIND = """\
---
- topology: leaves        # the kinds of topology.yaml(5) of 26.05, with names of our own
  cluster_default: true
  tree:
    switches:
      - switch: root
        children: low[1-2]
      - switch: low1
        nodes: a[01-02]
      - switch: low2
        nodes: a[03-04]
- topology: racks
  block:
    block_sizes:
      - 2
      - 4
    blocks:
      - block: b1
        nodes: a[01-02]
      - block: b2
        nodes: a[03-04]
- topology: plain
  flat: true
- topology: plainer
  flat:
    alpha_step_rank: true
- topology: round
  ring:
    rings:
      - ring: r0
        nodes: a[01-04]
- topology: solid
  torus3d:
    toruses:
      - name: pod
        dims: {x: 2, y: 2, z: 1}
        regions:
          - anchor: {x: 0, y: 0, z: 0}
            dims: {x: 2, y: 1, z: 1}
            nodes: a[01-02]
"""


def test_every_kind_is_read() -> None:
    file = read_topology(EVERY_KIND, source="topology.yaml")
    assert [(each.name, each.kind) for each in file.topologies] == [
        ("leaves", "tree"), ("racks", "block"), ("plain", "flat"), ("plainer", "flat"), ("round", "ring"),
        ("solid", "torus3d"),
    ]  # fmt: skip
    assert file.problems == ()
    assert file.default.name == "leaves"
    tree, racks = file.topologies[0].conf, file.topologies[1].conf
    assert (tree.levels, tree.roots, tree.nodes) == (2, ("root",), ("a01", "a02", "a03", "a04"))
    assert (racks.block_sizes, list(racks.blocks)) == ("2,4", ["b1", "b2"])
    assert file.topologies[4].conf.rings == {"r0": ("a01", "a02", "a03", "a04")}
    assert file.topologies[5].conf.toruses == {"pod": ("a01", "a02")}
    assert merge_topologies(file).leaf_switches == ("low1", "low2")


def test_names_stay_names_whatever_yaml_makes_of_them() -> None:
    text = "- topology: yes\n  block:\n    blocks:\n      - block: 007\n        nodes: 0012\n"
    file = read_topology(text, source="t")
    assert (file.default.name, file.default.conf.blocks) == ("yes", {"007": ("0012",)})


def test_what_is_written_is_read_back() -> None:
    rails = find_rails(rail_optimized_fabric(nodes=16, hcas=4, leaves=8, spines=2))
    written = [("tree", build_topology_tree(rails)), ("block", build_blocks(rails))]
    file = read_topology(render_yaml(written), source="t")
    assert file.problems == ()
    assert [(each.name, each.is_default) for each in file.topologies] == [("tree", True), ("block", False)]
    for each, (_, wrote) in zip(file.topologies, written, strict=True):
        assert each.conf.groups == wrote.conf.groups
        assert each.conf.block_sizes == (wrote.conf.block_sizes or None)
        assert {n: s.switches for n, s in each.conf.switches.items()} == {
            n: s.switches for n, s in wrote.conf.switches.items()
        }


@given(st.lists(st.from_regex(r"[a-z0-9.\-]{1,6}[0-9]{0,3}", fullmatch=True), min_size=1, unique=True))
def test_every_node_name_survives(names: list[str]) -> None:
    written = SlurmTopology(kind="block", entries=(Entry(name="b", nodes=tuple(names)),), block_sizes=(1,))
    file = read_topology(render_yaml([("block", written)]), source="t")
    assert sorted(file.default.conf.nodes) == sorted(names)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: &x [1]\nb: *x\n", "alias"),
        ("- " * 40 + "x", "deep"),
        ("[" * 5000, "deep"),
        ("x" * 4_000_001, "larger"),
        ("", "defines no topology"),
        ("just words", "defines no topology"),
        ("- topology: x\n", "exactly one of"),
        ("- topology: x\n  tree:\n    switches: []\n  flat: true\n", "exactly one of"),
    ],
)  # fmt: skip
def test_what_is_no_topology_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_topology(text, source="t")


def test_aliases_that_would_multiply_are_refused_before_they_do() -> None:
    """Nine lists of nine of the one before: 9 to the 9th entries if they were built."""
    bomb = "a0: &a0 [x]\n" + "".join(f"a{k}: &a{k} [{','.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 10))
    with pytest.raises(InputError, match="alias"):
        load_yaml(bomb, source="bomb")


def test_tags_that_name_objects_make_plain_text() -> None:
    loaded, _ = load_yaml("a: !!python/object/apply:os.system ['true']\n", source="t")
    assert loaded == {"a": ["true"]}


def test_a_damaged_line_is_left_out_and_named() -> None:
    lines = EVERY_KIND.splitlines()
    lines[9] = "      - switch: low2 ]: ["
    file = read_topology("\n".join(lines), source="topology.yaml")
    assert any("topology.yaml:10: left out" in problem for problem in file.problems)
    assert file.topologies[1].conf.blocks.keys() == {"b1", "b2"}


def test_entries_that_are_none_are_problems_and_the_others_are_read() -> None:
    text = (
        "- topology: t\n  tree:\n    switches:\n      - switch: a\n        nodes: n[0-\n      - nodes: n1\n"
        "      - switch: b\n        nodes: n2\n      - switch: b\n        nodes: n3\n- nonsense\n"
    )
    file = read_topology(text, source="t")
    assert file.default.conf.nodes == ("n2",)
    assert len(file.problems) == 5  # the host list, a without nodes, no name, b twice, nonsense


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(EVERY_KIND)), st.text(max_size=6), st.integers(0, 30))
def test_no_damage_makes_it_crash(at: int, put: str, cut: int) -> None:
    try:
        file = read_topology(EVERY_KIND[:at] + put + EVERY_KIND[at + cut :], source="t")
    except InputError as error:
        assert error.message.startswith("t")  # noqa: PT017
        return
    assert file.default is not None


MODELS = {
    "blocks": "switches:\n  top:\n    switches: [s1, s2]\nblocks:\n- switch: s1\n  nodes: ['[1101-1102]']\n"
    "  annotations:\n    x/domain: nv1\n- switch: s2\n  nodes: ['[1201-1202]']\n  labels:\n    y/accelerator: nv2\n",
    "capacity blocks": "switches:\n- name: top\n  switches: [s1, s2]\n- name: s1\n  capacity_blocks: [c1]\n- name: s2\n"
    "  capacity_blocks: [c2]\ncapacity_blocks:\n- {name: c1, nvlink: nv1, nodes: ['1101', '1102']}\n"
    "- {name: c2, nvlink: nv2, nodes: ['1201', '1202']}\n",
    "nodes": "switches:\n  top: {switches: [s1, s2]}\n  s1: {nodes: ['[1101-1102]']}\n  s2: {nodes: ['[1201-1202]']}\n"
    "nodes:\n  1101: {attributes: {nvlink: nv1}}\n  1102: {attributes: {nvlink: nv1}}\n"
    "  1201: {attributes: {nvlink: nv2}}\n  1202: {attributes: {nvlink: nv2}}\n",
}


@pytest.mark.parametrize("shape", MODELS)
def test_the_three_shapes_of_topographs_models_say_the_same(shape: str) -> None:
    file = read_topology(MODELS[shape], source="model.yaml")
    conf = file.default.conf
    assert file.problems == ()
    assert (conf.levels, conf.roots, conf.undefined) == (2, ("top",), ())
    assert {name: switch.nodes for name, switch in conf.switches.items() if switch.nodes} == {
        "s1": ("1101", "1102"), "s2": ("1201", "1202"),
    }  # fmt: skip
    assert conf.blocks == {"nv1": ("1101", "1102"), "nv2": ("1201", "1202")}


@pytest.mark.shared
def test_the_open_models_are_read(shared: Path) -> None:
    """Counted in the drawings at the head of each file: leaves, nodes a leaf, levels."""
    for name, leaves, each, levels in (("medium", 4, 2, 3), ("nvl72", 4, 18, 3)):
        path = shared / f"data/real/slurm_topology/topograph_model_{name}.yaml"
        file = read_topology(path.read_text(), source=path.name)
        conf = file.default.conf
        assert (file.problems, conf.nodes_listed_twice, conf.undefined) == ((), (), ())
        assert (len(conf.leaf_switches), len(conf.nodes), conf.levels) == (leaves, leaves * each, levels)
        assert [len(nodes) for nodes in conf.blocks.values()] == [each] * leaves


@pytest.mark.shared
def test_topologies_are_told_from_dumps(shared: Path) -> None:
    for path in (shared / "data/real/slurm_topology").iterdir():
        assert is_topology(path.read_text()), path.name
    for path in (shared / "data/real/ib_fabric").glob("*ib*"):
        assert not is_topology(path.read_text(errors="replace")), path.name
