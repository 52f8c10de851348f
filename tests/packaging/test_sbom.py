"""Does the bill of materials name exactly what is in the release, as CycloneDX 1.6 asks for it?"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest

from opsk import __version__
from tests.packaging.conftest import Release

PURL = re.compile(r"pkg:pypi/[a-z0-9-]+@[0-9A-Za-z.!+]+")


@pytest.fixture
def bill(release: Release) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(release.file("opsk-*.cdx.json").read_text(encoding="utf-8"))
    return loaded


def test_its_head_is_what_the_specification_asks_for(bill: dict[str, Any]) -> None:
    # CycloneDX 1.6, JSON: bomFormat and specVersion are required, serialNumber is an RFC 4122 URN.
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    uuid.UUID(bill["serialNumber"].removeprefix("urn:uuid:"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bill["metadata"]["timestamp"])
    own = bill["metadata"]["component"]
    assert (own["type"], own["name"], own["version"]) == ("application", "opsk", __version__)


def test_it_names_every_distribution_in_the_tree_and_no_other(bill: dict[str, Any], tree: Path) -> None:
    installed = {
        (re.sub(r"[-_.]+", "-", name).lower(), version)
        for folder in tree.glob("lib/python3.*/site-packages/*.dist-info")
        for name, _, version in [folder.name.removesuffix(".dist-info").rpartition("-")]
    }
    named = {(part["name"], part["version"]) for part in (*bill["components"], bill["metadata"]["component"])}
    assert named == installed


def test_every_version_is_the_one_that_the_lock_pins_by_that_hash(bill: dict[str, Any], release: Release) -> None:
    lock = (release.source / "requirements.lock").read_text(encoding="utf-8")
    for part in bill["components"]:
        assert re.search(rf"^{re.escape(part['name'])}=={re.escape(part['version'])}[ \\]", lock, re.MULTILINE), part
        assert f"sha256:{part['hashes'][0]['content']}" in lock, part["name"]


def test_opsk_s_own_hash_is_that_of_its_wheel(bill: dict[str, Any], release: Release) -> None:
    digest = hashlib.sha256(release.file("opsk-*.whl").read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]


def test_every_component_has_an_address_and_a_licence(bill: dict[str, Any]) -> None:
    parts = [bill["metadata"]["component"], *bill["components"]]
    assert [part["name"] for part in parts if not PURL.fullmatch(part["purl"])] == []
    assert [part["name"] for part in parts if not part.get("licenses")] == []
    references = [part["bom-ref"] for part in parts]
    assert len(references) == len(set(references))


def test_dependencies_lead_from_opsk_to_every_component(bill: dict[str, Any]) -> None:
    below = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    seen: set[str] = set()
    todo = [bill["metadata"]["component"]["bom-ref"]]
    while todo:
        reference = todo.pop()
        if reference not in seen:
            seen.add(reference)
            todo += below[reference]
    assert seen == {part["bom-ref"] for part in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}


def test_libraries_that_wheels_bring_along_are_named(bill: dict[str, Any]) -> None:
    inner = {file["name"] for part in bill["components"] for file in part.get("components", [])}
    assert any("openblas" in name for name in inner)


def test_the_installed_tree_carries_it(bill: dict[str, Any], tree: Path) -> None:
    assert json.loads((tree / "share" / "doc" / "opsk" / "sbom.cdx.json").read_text(encoding="utf-8")) == bill
