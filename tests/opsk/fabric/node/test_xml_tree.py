"""XML from anywhere is read without growing, without reaching out, and as far as it is sound."""

from __future__ import annotations

import pytest

from opsk.errors import InputError
from opsk.fabric.node.dialects import read_node
from opsk.fabric.node.xml_tree import MAX_DEPTH, read_xml

BOMB = """<?xml version="1.0"?>
<!DOCTYPE system [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>
<system version="1"><cpu numaid="&b;"/></system>
"""


def test_entities_are_refused() -> None:
    with pytest.raises(InputError, match="declares XML entities"):
        read_xml(BOMB, source="x")
    outside = BOMB.replace('"aaaaaaaaaa"', 'SYSTEM "file:///etc/hostname"')
    with pytest.raises(InputError, match="declares XML entities"):
        read_node(outside, source="x")


def test_an_entity_that_nobody_declared_ends_the_reading() -> None:
    root, problems = read_xml("<system><cpu/><cpu>&lol;</cpu><cpu/></system>", source="x")
    assert [child.whole for child in root.children] == [True, False]
    assert "undefined entity" in problems[0]


def test_a_harmless_doctype_and_text_around_are_skipped() -> None:
    text = 'n1$ cat t\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0"/>\nn1$ <oops'
    assert read_xml(text, source="x")[1] == []


def test_the_line_of_damage_is_that_of_the_file() -> None:
    _, problems = read_xml("one\ntwo\n<system>\n<cpu>\n<<\n", source="x")
    assert problems[0].startswith("x:5: damaged or cut XML")


def test_depth_is_bounded() -> None:
    deep = "<system>" + "<pci>" * 10_000 + "</pci>" * 10_000 + "</system>"
    root, problems = read_xml(deep, source="x")
    assert sum(1 for _ in root.all("pci")) == MAX_DEPTH - 1
    assert "nested deeper" in problems[0]
    assert read_node(deep, source="x").gpus == ()
