"""Does each signature find what it is for, and leave alone what is near to it?"""

from __future__ import annotations

import json

import pytest

from opsk.errors import InputError
from opsk.postmortem.logs.lines import read_fields
from opsk.postmortem.signatures import Signature, parse_signatures, signatures
from opsk.postmortem.values import Role
from tests.opsk.postmortem.signatures.examples import EXAMPLES

BY_ID = {signature.id: signature for signature in signatures()}


def matches(signature: Signature, line: str) -> bool:
    """Match as the reader does: a fragment first, then the pattern."""
    return any(part in line for part in signature.fragments) and read_fields(signature, line) is not None


def test_every_signature_has_an_example() -> None:
    assert set(EXAMPLES) == set(BY_ID)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_signature_finds_its_line(name: str) -> None:
    assert matches(BY_ID[name], EXAMPLES[name][0])


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_signature_leaves_its_near_miss_alone(name: str) -> None:
    assert not matches(BY_ID[name], EXAMPLES[name][1])


def test_no_near_miss_is_a_root_of_another_signature() -> None:
    roots = [signature for signature in signatures() if signature.role is Role.ROOT and not signature.follow]
    found = {
        name: [root.id for root in roots if matches(root, miss)]
        for name, (_, miss) in EXAMPLES.items()
        if not name.startswith(("slurm.", "process.segfault", "host.", "advice."))
    }
    assert {name: ids for name, ids in found.items() if ids} == {}


def test_numbers_of_a_failed_allocation_are_read() -> None:
    fields = read_fields(BY_ID["torch.cuda_oom"], EXAMPLES["torch.cuda_oom"][0])
    assert fields is not None
    assert (fields["asked"], fields["capacity"], fields["free"]) == ("2.00 GiB", "79.10 GiB", "1.62 GiB")


SOUND = {"id": "a.b", "any": ["abcd"], "framework": "x", "role": "advice", "what": "y", "source": "z"}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"role": "root"}, "failure is missing"),
        ({"id": "A"}, "id is not subject.name"),
        ({"any": ["ab"]}, "too short"),
        ({"role": "boss"}, "role is none of"),
        ({"pattern": "("}, "pattern"),
        ({"source": ""}, "source is missing"),
        ({"colour": "red"}, "unknown key colour"),
    ],
)
def test_a_wrong_table_is_refused_in_words(changed: dict[str, object], says: str) -> None:
    table = "\n".join(f"{key} = {json.dumps(value)}" for key, value in {**SOUND, **changed}.items())
    with pytest.raises(InputError, match=says):
        parse_signatures({"own.toml": f"[[signature]]\n{table}\n"})
