from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.hostlist import MAX_NODES, expand, fold


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # the answers of `scontrol show hostnames` (Slurm 22.05), less repeated names
        ("n[08-10],m[3,1]", ("n08", "n09", "n10", "m3", "m1")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n[1,01]", ("n1", "n01")),
        ("n[9-010]", ("n9", "n10")),
        ("n[1,2],n1", ("n1", "n2")),
        ("[1-2]", ("1", "2")),
        ("n,,m", ("n", "m")),
        ("gpu-a.b_c", ("gpu-a.b_c",)),
        ("", ()),
    ],
)
def test_a_host_list_means_what_it_means_to_slurm(text: str, names: tuple[str, ...]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize("text", ["n[3-1]", "n[]", "n[a-b]", "n[0-3,]", "n[1-2-3]", "n[-1]"])
def test_a_range_that_slurm_refuses_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is no range"):
        expand(text)


@pytest.mark.parametrize("text", ["n[1-3", "n1-3]", "n[[1]]", "]n["])
def test_unmatched_brackets_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="brackets"):
        expand(text)


@pytest.mark.parametrize("text", ["n 1", "n1;m", "@all", "n!m", "n\x1b[31m", "n1\n", "n٣"])
def test_signs_that_no_host_list_has_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(text)
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        f"n[0-{MAX_NODES}]",
        "n[0-999999999]",
        "n[0-99999][0-99999][0-99999]",
        "n[" + "9" * 5000 + "]",
        "n[1-" + "9" * 5000 + "]",
        "n" * 100_000 + "[0-199999]",
        ",".join(["a[0-99999]", "b[0-99999]", "c1"]),
    ],
)
def test_what_would_fill_the_memory_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(text)
    assert len(caught.value.message) < 300


def test_the_largest_list_that_is_allowed_is_expanded() -> None:
    assert len(expand(f"n[1-{MAX_NODES}]")) == MAX_NODES


@pytest.mark.parametrize(
    ("names", "text"),
    [
        # the answers of `scontrol show hostlistsorted` (Slurm 22.05), less repeated names
        (["n10", "n9", "n8"], "n[8-10]"),
        (["n09", "n10", "n11"], "n[09-11]"),
        (["n-1", "n-2", "r1n1", "r1n2", "r2n1"], "n-[1-2],r1n[1-2],r2n1"),
        (["a1-ib", "a2-ib"], "a1-ib,a2-ib"),
        (["n1", "n1"], "n1"),
        (["login"], "login"),
        ([], ""),
    ],
)
def test_names_fold_into_a_list_that_slurm_accepts(names: list[str], text: str) -> None:
    assert fold(names) == text


@pytest.mark.parametrize("name", ["@all", "a b", "n[1-3]", "n!m", "", "$(reboot)", "n;m", "n\x1b"])
def test_a_name_that_no_node_can_have_is_not_folded(name: str) -> None:
    with pytest.raises(InputError):
        fold(["n1", name])


NAMES = st.lists(st.from_regex(r"[a-c.\-_]{0,3}[0-9]{0,17}[a-c\-]{0,2}", fullmatch=True).filter(bool), max_size=40)
NUMBERED = st.lists(st.builds("{}{:0{}d}".format, st.sampled_from("nm"), st.integers(0, 120), st.integers(0, 4)))


@given(st.one_of(NAMES, NUMBERED))
def test_folding_and_expanding_gives_the_same_names(names: list[str]) -> None:
    expanded = expand(fold(names))
    assert len(expanded) == len(set(expanded))
    assert set(expanded) == set(names)


@given(NUMBERED)
def test_folding_forgets_order_and_repeats(names: list[str]) -> None:
    assert fold(reversed(names)) == fold([*names, *names])


@given(st.text(alphabet="n01-9[],", max_size=30))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        names = expand(text)
    except InputError:
        return
    assert all(name and not set(name) & set("[],") for name in names)
