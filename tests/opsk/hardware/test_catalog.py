from __future__ import annotations

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import ConfigError, InputError
from opsk.hardware import catalog
from opsk.hardware.catalog_format import GpuEntry
from opsk.hardware.spec import FABRICS, FORMATS
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


KINDS = {"gpu": catalog.gpu, "nic": catalog.nic, "node": catalog.node, "cluster": catalog.cluster}


@pytest.mark.parametrize(
    ("name", "number_format", "peak"),
    [
        ("v100-sxm2-32gb", "fp16", 125e12),  # NVIDIA developer blog: up to 125 Tensor TFLOPS
        ("a100-sxm-80gb", "bf16", 312e12),  # A100 data sheet, dense; TITAN talk prints 312 | 624 sparse
        ("h100-sxm", "bf16", 989.4e12),  # H100 data sheet prints 1,979 with sparsity; half
        ("h100-sxm", "fp8", 1978.9e12),  # H100 data sheet prints 3,958 with sparsity; half
        ("h200-sxm", "bf16", 989.4e12),  # the same chip as H100 SXM
        ("b200-sxm", "bf16", 2250e12),  # HGX B200 page: 36 PFLOPS sparse for 8 GPUs: 36 / 8 / 2
        ("b200-sxm", "fp8", 4500e12),  # 72 / 8 / 2
        ("gb200", "bf16", 2500e12),  # GB200 NVL72 page: 360 PFLOPS sparse for 72 GPUs: 360 / 72 / 2
        ("gb300", "fp4", 15000e12),  # GB300 NVL72 page: 1,080 PFLOPS dense for 72 GPUs
        ("mi250x-gcd", "bf16", 191.5e12),  # MI200 data sheet: 383.0 a package of two dies
        ("mi300x", "bf16", 1307.4e12),  # MI300X data sheet, dense
        ("rtx-5090", "fp8", 838e12),  # half of fp4's: cuBLASLt's products reach 774 (benchmarks/published/gemm.csv)
        ("mi308x", "bf16", 344.1e12),  # 80 of the MI300X's 304 compute units
        ("tpu-v4", "bf16", 275e12),  # Jouppi et al. 2023
        ("gaudi-2", "fp8", 865e12),  # Gaudi 2 white paper
    ],
)
def test_peaks_are_the_dense_ones(name: str, number_format: str, peak: float) -> None:
    assert catalog.gpu(name).peak_flop_per_s[number_format] == pytest.approx(peak, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "one_direction"),
    [
        ("v100-sxm2-16gb", 150e9),  # NVLink 2: 6 links of 25 GB/s
        ("a100-sxm-80gb", 300e9),  # NVLink 3: 12 links of 25 GB/s
        ("h100-sxm", 450e9),  # NVLink 4: 18 links of 25 GB/s
        ("b200-sxm", 900e9),  # NVLink 5: 18 links of 50 GB/s
        ("h800-sxm", 200e9),  # 400 GB/s both directions
        ("l40s", 0.0),  # no NVLink
    ],
)
def test_nvlink_is_counted_one_direction(name: str, one_direction: float) -> None:
    assert catalog.gpu(name).hb_bytes_per_s == one_direction


@pytest.mark.parametrize(
    ("name", "total_mib", "usable_gib"),
    [
        # nvidia-smi total; "total capacity" of PyTorch's out-of-memory messages
        ("a100-sxm-80gb", 81920, 79.15),
        ("h100-sxm", 81559, 79.10),
        ("h200-sxm", 143771, 139.80),
        ("b200-sxm", 183359, 178.35),
        ("gb200", 189471, 184.31),
    ],
)
def test_memory_is_what_the_driver_reports_and_what_a_job_gets(name: str, total_mib: int, usable_gib: float) -> None:
    gpu = catalog.gpu(name)
    assert gpu.memory_bytes == total_mib * 2**20
    assert gpu.capacity_bytes == pytest.approx(usable_gib * 2**30, rel=1e-4)


@pytest.mark.shared
@pytest.mark.parametrize(
    "dump", ["h800_nvidia-smi-q.txt", "linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01.capture.txt"]
)
def test_memory_agrees_with_a_real_nvidia_smi(shared: object, dump: str) -> None:
    text = (shared / "data/real/nvidia_smi" / dump).read_text(errors="replace")  # type: ignore[operator]
    product = re.search(r"Product Name\s*:\s*(.+)", text)
    total = re.search(r"FB Memory Usage\s+Total\s*:\s*(\d+) MiB\s+Reserved\s*:\s*(\d+) MiB", text)
    assert product is not None
    assert total is not None
    gpu = catalog.gpu(product[1].strip())
    assert gpu.memory_bytes == int(total[1]) * 2**20
    # the reserve moves by some 0.1 GiB between drivers
    assert gpu.capacity_bytes == pytest.approx((int(total[1]) - int(total[2])) * 2**20, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("a100m40", "a100-sxm-40gb"),  # Slurm's types of NTNU Idun and LUH: a model and its memory
        ("A100m80", "a100-sxm-80gb"),
        ("v100m32", "v100-sxm2-32gb"),
        ("a100_80", "a100-sxm-80gb"),
        ("a100l", "a100-sxm-80gb"),  # Mila
        ("v100l", "v100-sxm2-32gb"),  # Cedar of the Digital Research Alliance of Canada
        ("rtx8000", "quadro-rtx-8000"),
        ("nvidia_geforce_rtx_2080_ti", "rtx-2080-ti"),
        ("1080ti", "gtx-1080-ti"),
        ("p100", "p100-sxm2-16gb"),
    ],
)
def test_types_of_sites_have_their_gpu(name: str, spec: str) -> None:
    assert catalog.gpu(name).name == spec


def test_a_number_that_is_no_memory_is_part_of_the_name() -> None:
    with pytest.raises(InputError, match="unknown GPU"):
        catalog.gpu("m40")


@pytest.mark.parametrize(
    ("name", "memory_gib"), [("quadro-rtx-8000", 48), ("rtx-2080-ti", 11), ("p100-pcie-12gb", 12), ("titan-rtx", 24)]
)
def test_older_gpus_have_the_memory_of_their_data_sheets(name: str, memory_gib: int) -> None:
    # the driver reports a little less than the label
    assert memory_gib * 0.97 < catalog.gpu(name).memory_bytes / 2**30 <= memory_gib


@pytest.mark.parametrize("gpu", [catalog.gpu(name) for name in catalog.names("gpu")], ids=lambda gpu: gpu.name)
def test_a_gpu_is_possible(gpu: catalog.GpuSpec) -> None:
    assert 0 < gpu.capacity_bytes <= gpu.memory_bytes
    assert set(gpu.peak_flop_per_s) <= set(FORMATS)
    peaks = gpu.peak_flop_per_s
    assert peaks["fp32"] < peaks.get("fp16", peaks.get("bf16", 0.0))  # a TPU has bf16 alone


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_a_source(kind: catalog.Kind) -> None:
    for name in catalog.names(kind):
        spec = KINDS[kind](name)
        for item in dataclasses.fields(spec):
            value = getattr(spec, item.name)
            if item.name in {"name", "aliases", "sources", "vendor", "architecture"} or value in (None, item.default):
                continue
            assert len(spec.sources[item.name]) > 20, f"{name}.{item.name}"


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("nvidia_h100_80gb_hbm3", "h100-sxm"),
        ("H100-SXM5", "h100-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("nvidia_a100-sxm4-40gb", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"),
        ("NVIDIA B300 SXM6 AC", "b300-sxm"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("AMD Instinct MI250X", "mi250x-gcd"),
        ("amd_instinct_mi300x_oam", "mi300x"),
        ("gb200", "gb200"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("RTX 4070 Ti SUPER", "rtx-4070-ti-super"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA H20", "h20"),
        ("AMD Instinct MI325X", "mi325x"),
        ("MI355X", "mi355x"),
    ],
)
def test_spellings_of_slurm_and_drivers_find_one_gpu(asked: str, name: str) -> None:
    spec, others = catalog.resolve_gpu(asked)
    assert (spec.name, others) == (name, ())


@pytest.mark.parametrize(
    ("asked", "taken", "other"),
    [
        ("a100", "a100-sxm-80gb", "a100-sxm-40gb"),
        ("a100_80g", "a100-sxm-80gb", "a100-pcie-80gb"),
        ("h100", "h100-sxm", "h100-pcie"),
        ("V100", "v100-sxm2-32gb", "v100-sxm2-16gb"),
        ("mi250", "mi250x-gcd", "mi250-gcd"),
    ],
)
def test_a_name_of_several_gpus_tells_the_others(asked: str, taken: str, other: str) -> None:
    spec, others = catalog.resolve_gpu(asked)
    assert spec.name == taken
    assert other in others
    assert taken not in others


@given(
    st.sampled_from([(kind, name) for kind in KINDS for name in catalog.names(kind)]),
    st.randoms(use_true_random=False),
    st.sampled_from(["-", "_", " ", ""]),
)
def test_case_and_separators_do_not_matter(entry: tuple[str, str], random: object, separator: str) -> None:
    kind, name = entry
    spec = KINDS[kind](name)
    spelling = spec.aliases[0] if spec.aliases and random.random() < 0.5 else name  # type: ignore[attr-defined]
    mixed = "".join(sign.upper() if random.random() < 0.5 else sign for sign in spelling)  # type: ignore[attr-defined]
    assert KINDS[kind](mixed.replace("-", separator)) == spec


@pytest.mark.parametrize("asked", ["", "a1", "h1", "mi3", "nvidia"])
def test_another_gpu_is_not_taken_for_one_we_know(asked: str) -> None:
    with pytest.raises(InputError):
        catalog.gpu(asked)


def test_an_unknown_gpu_is_answered_with_the_closest_and_what_to_do() -> None:
    with pytest.raises(InputError) as caught:
        catalog.gpu("H1000")
    assert "'H1000'" in caught.value.message
    assert "h100-sxm" in caught.value.hint
    assert "add-a-cluster.md" in caught.value.hint


def test_an_unknown_cluster_is_answered_with_the_closest() -> None:
    with pytest.raises(InputError, match="unknown cluster 'frontiers'") as caught:
        catalog.cluster("frontiers")
    assert "frontier" in caught.value.hint


@given(st.text(max_size=200))
def test_what_was_asked_is_repeated_without_control_characters(asked: str) -> None:
    with pytest.raises(InputError) as caught:
        catalog.gpu("none such " + asked)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(
    ("name", "nodes", "gpus"),
    [
        ("titan", 130, 1040),  # TITAN talk: 130 nodes, 1,040 A100
        ("hyperconnect", 20, 160),  # Hyperconnect part 1: 20 DGX A100, 160 GPUs
        ("summit", 4608, 27648),  # ORNL: 27,648 V100
        ("crusher", 192, 1536),  # OLCF: 192 nodes of 8 GCDs
        ("frontier", 9856, 78848),  # OLCF: 77 cabinets of 128 nodes of 8 GCDs
        ("superpod-a100", 140, 1120),  # RA-09950: 7 units of 20 nodes
        ("superpod-h100", 127, 1016),  # RA-11333: 4 units of 32 nodes less one place for UFM
        ("superpod-b200", 128, 1024),  # B200 RA: 4 SU, 1,024 GPUs
        ("gb200-nvl72", 18, 72),  # 18 trays of 4 GPUs
        ("superpod-gb200", 144, 576),  # 8 racks of 72
        ("oci-mi300x", 2048, 16384),  # Oracle 2024: up to 16,384 MI300X in a supercluster
    ],
)
def test_clusters_have_the_gpus_that_are_published(name: str, nodes: int, gpus: int) -> None:
    cluster = catalog.cluster(name)
    assert (cluster.nodes, cluster.gpus) == (nodes, gpus)


@pytest.mark.parametrize("name", catalog.names("cluster"))
def test_a_cluster_is_consistent(name: str) -> None:
    cluster = catalog.cluster(name)
    assert cluster.fabric in FABRICS
    assert cluster.oversubscription >= 1
    if cluster.switches is not None and cluster.leaves is not None:
        assert cluster.leaves + (cluster.spines or 0) + (cluster.cores or 0) == cluster.switches
    if cluster.fabric == "rail-optimized" and cluster.leaves is not None and cluster.nodes_per_unit is not None:
        units = -(-cluster.nodes // cluster.nodes_per_unit)
        assert cluster.leaves == units * cluster.node.nics


def test_titan_is_cabled_one_to_one_and_its_hcas_fit_its_cables() -> None:
    titan = catalog.cluster("titan")
    assert (titan.switches, titan.oversubscription, titan.node.gpu.name) == (68, 1.0, "a100-sxm-80gb")
    assert titan.cables is not None
    assert 2 * titan.nodes * titan.node.nics <= titan.cables  # 1:1 needs one uplink a node link; 8 HCAs would not fit


def test_hyperconnect_gives_a_gpu_a_whole_hdr_port() -> None:
    node = catalog.cluster("hyperconnect").node
    assert node.nic_bytes_per_s_per_gpu == 25e9  # 200 Gbit/s; the article counts 1.6 Tbit/s a server


def test_the_hb_domain_may_be_smaller_or_larger_than_a_node() -> None:
    summit, rack = catalog.cluster("summit").node, catalog.cluster("gb200-nvl72").node
    assert (summit.gpus, summit.hb_domain_gpus) == (6, 3)
    assert (rack.gpus, rack.hb_domain_gpus) == (4, 72)


def test_summit_shares_a_gpus_links_with_the_cpu() -> None:
    summit = catalog.cluster("summit").node.gpu
    assert summit.hb_bytes_per_s == 100e9  # four of six 25 GB/s links go to the two other GPUs of the socket
    assert summit.memory_bytes == catalog.gpu("v100-sxm2-16gb").memory_bytes


def test_crusher_has_25_gb_per_s_for_each_package() -> None:
    node = catalog.cluster("crusher").node
    assert 2 * node.nic_bytes_per_s_per_gpu == 25e9  # notes on Summit and Crusher, 8.3: 25 GB/s a device of two dies


def test_ports_have_their_data_rate() -> None:
    rates = {name: catalog.nic(name).bytes_per_s * 8 / 1e9 for name in catalog.names("nic")}
    # InfiniBand roadmap: data rate of a 4x port
    published = {"edr": 100, "hdr100": 100, "hdr": 200, "ndr200": 200, "ndr": 400, "xdr": 800, "slingshot-11": 200}
    assert {name: rates[name] for name in published} == published
    assert rates["fdr"] == pytest.approx(4 * 14.0625 * 64 / 66, rel=1e-6)
