from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import ConfigError
from opsk.hardware import catalog
from opsk.hardware.catalog_format import GpuEntry
from opsk.hardware.spec_builder import Builder

FROM_SCRATCH = """
name = "vega"
nodes = 4
fabric = "fat-tree"
oversubscription = 2.0
[node]
gpus = 8
nics = 2
hb_domain_gpus = 8
gpu = "h100-sxm"
[node.nic]
name = "custom"
gbit_per_s = 300
"""


def test_a_cluster_can_be_described_from_scratch() -> None:
    cluster = catalog.parse_cluster(FROM_SCRATCH, origin="vega.toml")
    assert (cluster.name, cluster.gpus, cluster.oversubscription) == ("vega", 32, 2.0)
    assert cluster.node.gpu == catalog.gpu("h100-sxm")
    assert cluster.node.nic.bytes_per_s == 300e9 / 8
    assert cluster.sources["nodes"] == "vega.toml"


def test_the_example_of_the_documentation_is_read(root: Path) -> None:
    example = (root / "examples/clusters/vega.toml").read_text(encoding="utf-8")
    vega = catalog.parse_cluster(example, origin="vega.toml")
    assert (vega.gpus, vega.node.nics, vega.node.gpu.tdp_w) == (192, 4, 500)  # 24 nodes of 8, as the page states


def test_a_cluster_can_start_from_the_catalogue_and_state_what_differs() -> None:
    text = 'name = "mine"\nlike = "superpod-h100"\nnodes = 12\n[node]\nnics = 4\n[node.gpu]\ntdp_w = 650\n'
    mine, base = catalog.parse_cluster(text, origin="mine.toml"), catalog.cluster("superpod-h100")
    assert (mine.nodes, mine.node.nics, mine.node.gpu.tdp_w) == (12, 4, 650)
    assert mine.node.gpu.peak_flop_per_s == base.node.gpu.peak_flop_per_s
    assert mine.node.gpu.sources["tdp_w"] == "mine.toml"
    assert mine.node.gpu.sources["hbm_bytes_per_s"] == base.node.gpu.sources["hbm_bytes_per_s"]


def test_an_override_keeps_how_the_node_wires_its_gpu() -> None:
    text = 'name = "s"\nlike = "summit"\n[node.gpu]\ntdp_w = 250\n'
    assert (
        catalog.parse_cluster(text, origin="s.toml").node.gpu.hb_bytes_per_s == 100e9
    )  # Summit's, not the bare V100's


def test_another_memory_size_does_not_keep_the_old_usable_size() -> None:
    text = 'name = "m"\nlike = "superpod-h100"\n[node.gpu]\nmemory_mib = 95830\n'
    gpu = catalog.parse_cluster(text, origin="m.toml").node.gpu
    assert gpu.capacity_bytes == 95830 * 2**20


def test_everything_that_is_wrong_is_said_at_once() -> None:
    text = 'name = "x"\nnodes = -1\nfoo = 2\nfabric = "rail"\n[node]\nlike = "dgx-h1000"\nnics = "a"\ngpu = "h1000"\n'
    with pytest.raises(ConfigError) as caught:
        catalog.parse_cluster(text, origin="x.toml")
    for part in ("x.toml", "nodes", "-1", "foo", "fabric", "'rail'", "node.nics", "'dgx-h1000'", "dgx-h100", "'h1000'"):
        assert part in caught.value.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "name: missing"),
        ('like = "titan"', "name: missing"),
        ('name = "x"\nnodes = 3', "node, fabric missing"),
        ('name = "x"\nlike = "titan"\nnodes = true', "nodes"),
        ('name = "x"\nlike = "titan"\n[[node]]\ngpus = 1', "node: Input should be a name or a table"),
        ('name = "x"\nlike = "titan"\n[node.gpu]\nmemory_mib = nan', "node.gpu.memory_mib"),
        ('name = "x"\nlike = "titan"\n[node.gpu.peak_tflop_per_s]\nbf17 = 1', "bf17"),
        ('name = "x"\nlike = "titan"\nnode = 3', "node: Input should be a name or a table, not 3"),
        ("name = [", "x.toml: "),
        ("\x00", "x.toml: "),
    ],
)
def test_a_wrong_file_names_the_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        catalog.parse_cluster(text, origin="x.toml")
    assert said in caught.value.message


def test_a_gpu_name_that_may_mean_several_is_refused_in_a_file() -> None:
    text = 'name = "x"\nlike = "titan"\n[node]\ngpu = "a100"\n'
    with pytest.raises(ConfigError, match="write a100-sxm-80gb, a100-sxm-40gb"):
        catalog.parse_cluster(text, origin="x.toml")


def test_control_characters_of_a_file_do_not_come_back() -> None:
    text = '"\\u001b[31m" = 1\nname = "\\u001b[2J"\nlike = "\\u202ea"\n'
    with pytest.raises(ConfigError) as caught:
        catalog.parse_cluster(text, origin="x.toml")
    assert caught.value.message.isprintable()


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(ConfigError, match="larger than"):
        catalog.parse_cluster("#" * (catalog.MAX_CLUSTER_TOML_BYTES + 1), origin="x.toml")


KEYS = st.sampled_from(["name", "like", "node", "nodes", "fabric", "gpu", "nic", "nics", "str", "sources", "aliases"])
VALUES = st.recursive(
    st.one_of(st.integers(-2, 2**70), st.booleans(), st.sampled_from(['"titan"', '"h100"', '"\\u001b"', "nan", "1.5"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(_toml(item) for item in items)}]"),
        st.dictionaries(KEYS, inner, max_size=3).map(
            lambda table: "{" + ", ".join(f"{key} = {_toml(value)}" for key, value in table.items()) + "}"
        ),
    ),
    max_leaves=6,
)


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_any_table_is_read_or_refused_in_words(tables: dict[str, object]) -> None:
    text = "\n".join(f"{key} = {_toml(value)}" for key, value in tables.items())
    tomllib.loads(text)
    said = _refusal(text)
    assert said is None or (said.startswith("x.toml: ") and said.isprintable())


def _refusal(text: str) -> str | None:
    try:
        catalog.parse_cluster(text, origin="x.toml")
    except ConfigError as error:
        return error.message
    return None


CATALOGUE = """
[bibliography]
sheet = "a data sheet"
[ambiguous]
x = ["one", "two"]
[entries.one]
vendor = "acme"
memory_mib = 10
hbm_gb_per_s = 1
peak_tflop_per_s = { fp32 = 1 }
hb_gb_per_s = 0
pcie_gb_per_s = 1
tdp_w = 5
aliases = ["eins"]
[entries.one.sources]
memory_mib = "sheet"
hbm_gb_per_s = "sheet: halved"
peak_tflop_per_s = "sheet"
hb_gb_per_s = "sheet"
pcie_gb_per_s = "sheet"
tdp_w = "sheet"
[entries.two]
like = "one"
tdp_w = 6
sources = { tdp_w = "sheet" }
"""


def _load(text: str) -> object:
    return catalog.load_catalog(text, origin="c.toml", kind="GPU", entry_type=GpuEntry, build=Builder.build_gpu)


def test_a_remark_stays_with_its_source() -> None:
    spec, _ = _load(CATALOGUE).resolve("eins")  # type: ignore[attr-defined]
    assert spec.sources["hbm_bytes_per_s"] == "a data sheet [halved]"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('tdp_w = "sheet"\n[entries.two]', "[entries.two]", "one.sources: nothing is cited for tdp_w"),
        ('sources = { tdp_w = "sheet" }', 'sources = { tdp_w = "shed" }', "no work 'shed'"),
        ('sources = { tdp_w = "sheet" }', 'sources = { tdp_w = "sheet", nics = "sheet" }', "sources.nics"),
        ('like = "one"', 'like = "one"\naliases = ["Eins"]', "'Eins' already means one"),
        ('x = ["one", "two"]', 'x = ["one", "three"]', "there is no three"),
        ('x = ["one", "two"]', 'eins = ["one", "two"]', "ambiguous.eins: already means one"),
        ('like = "one"', 'like = "three"', "two.like: unknown GPU 'three'"),
        ("hbm_gb_per_s = 1\n", "", "one: hbm_gb_per_s missing"),
        ("tdp_w = 6", "tdp_w = -6", "two.tdp_w"),
    ],
)
def test_a_faulty_catalogue_is_not_loaded(old: str, new: str, said: str) -> None:
    assert old in CATALOGUE
    with pytest.raises(ConfigError) as caught:
        _load(CATALOGUE.replace(old, new, 1))
    assert said in caught.value.message
