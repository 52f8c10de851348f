"""Which nodes a job asks for, as sbatch(1) reads its options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk_jobcheck.cluster_state.node_constraints import build_feature_test, parse_node_constraints
from opsk_jobcheck.submission.request import SlurmRequest


@pytest.mark.parametrize(
    ("constraint", "features", "holds"),
    [
        ("a100", {"a100", "ib"}, True),
        ("a100&ib", {"a100"}, False),
        ("a100|h100", {"h100"}, True),
        ("ib&(a100|h100)", {"ib", "h100"}, True),
        ("ib&(a100|h100)", {"h100"}, False),
        # sbatch(1): without parentheses from left to right
        ("a|b&c", {"a"}, False),
        ("a|(b&c)", {"a"}, True),
        ("a,b", {"a", "b"}, True),
        ("a,b", {"a"}, False),
    ],
)
def test_features_are_read_as_slurm_does(constraint: str, features: set[str], *, holds: bool) -> None:
    assert build_feature_test(constraint)(features) is holds


@pytest.mark.parametrize("constraint", ["[rack1|rack2]", "gpu*4", "[a*2&b*1]", "a&", "(a", "a)", "&", "a b", "(" * 50])
def test_what_counts_nodes_or_is_no_constraint_is_refused(constraint: str) -> None:
    with pytest.raises(InputError, match="--constraint"):
        build_feature_test(constraint)


def test_the_script_says_what_nodes_it_wants() -> None:
    found = parse_node_constraints(
        "#!/bin/bash\n#SBATCH -p gpu,big -C ib -w n[1-3]\n#SBATCH -x n2 --exclusive\nsrun a\n"
    )
    assert found.partitions == ("gpu", "big")
    assert found.constraint == "ib"
    assert found.only == ("n1", "n2", "n3")
    assert found.exclude == {"n2"}
    assert found.is_exclusive
    assert not found.unclear


def test_the_request_beats_the_script() -> None:
    request = SlurmRequest(partition="other", exclude="n7", reservation="night")
    found = parse_node_constraints("#!/bin/bash\n#SBATCH -p gpu -x n2\n", request)
    assert (found.partitions, found.exclude, found.reservation) == (("other",), {"n7"}, "night")


@pytest.mark.parametrize("option", ["-C [a*2]", "-x n[1-", "-w ./hosts", "-x n[0-99999999]"])
def test_what_cannot_be_understood_is_said(option: str) -> None:
    assert parse_node_constraints(f"#!/bin/bash\n#SBATCH {option}\n").unclear


@given(st.text(max_size=300))
def test_any_text_gives_an_answer(text: str) -> None:
    parse_node_constraints("#!/bin/bash\n#SBATCH -C " + text)
    parse_node_constraints(text, SlurmRequest(constraint=text or None, nodelist=text or None, exclude=text or None))
