from dataclasses import replace
from pathlib import Path

import pytest

from opsk.config import load_site
from opsk.hardware.catalog import parse_cluster
from opsk.lab.folder import create_layout
from opsk.lab.record import LabRecord, LabShape, new_record
from opsk.lab.slurm_files import write_site_files, write_slurm_files


@pytest.fixture
def record(tmp_path: Path) -> LabRecord:
    shape = LabShape(nodes=3, gpus=4, hcas=2, leaves=4, spines=2)
    made = replace(new_record(tmp_path, shape=shape, user="alice", boot=""), base=tmp_path, first_port=20100)
    create_layout(made.folder, spools=shape.names)
    return made


def test_the_lab_includes_the_very_snippet_that_sites_include(record: LabRecord, root: Path):
    write_slurm_files(record, snippets=("opsk.conf",))
    assert "\nInclude opsk.conf\n" in record.folder.slurm_conf.read_text()
    assert (record.folder.etc / "opsk.conf").read_bytes() == (root / "deploy" / "slurm" / "opsk.conf").read_bytes()


def test_a_lab_without_parts_has_no_plugins(record: LabRecord):
    write_slurm_files(record)
    assert "Plugins=" not in record.folder.slurm_conf.read_text()


def test_every_slurmd_has_a_port_of_its_own(record: LabRecord):
    write_slurm_files(record)
    assert "NodeName=n[0-2] " in record.folder.slurm_conf.read_text()
    assert " Port=[20102-20104] " in record.folder.slurm_conf.read_text()


def test_gpus_are_character_devices_that_slurmd_can_count(record: LabRecord):
    write_slurm_files(record)
    assert f"File={record.folder.dev}/nvidia[0-3]" in (record.folder.etc / "gres.conf").read_text()
    assert all((record.folder.dev / f"nvidia{index}").is_char_device() for index in range(4))


def test_nobody_else_reads_the_database_configuration(record: LabRecord):
    write_slurm_files(record)
    assert (record.folder.etc / "slurmdbd.conf").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("release", "plugin"), [((22, 5), "cgroup/v1"), ((23, 2), "disabled"), ((24, 11), "disabled")])
def test_cgroups_are_left_alone_in_the_words_of_each_release(record: LabRecord, release: tuple[int, int], plugin: str):
    # 22.05 has no plugin named "disabled": its slurmd ends with "cannot find cgroup plugin for disabled".
    write_slurm_files(replace(record, slurm=release))
    assert f"CgroupPlugin={plugin}\n" in (record.folder.etc / "cgroup.conf").read_text()


def test_opsk_reads_the_lab_as_a_site(record: LabRecord):
    write_site_files(record)
    site = load_site(record.folder.site)
    assert site.fabric == (record.folder.dump,)
    assert "alice" in site.advisor.submit_users
    assert site.cluster is not None
    cluster = parse_cluster(Path(site.cluster).read_text(), origin=site.cluster)
    assert (cluster.nodes, cluster.node.gpus, cluster.node.nics) == (3, 4, 2)


def test_a_folder_name_with_quotes_does_not_break_the_site_file(record: LabRecord, tmp_path: Path):
    odd = tmp_path / 'a"b\\c'
    odd.mkdir()
    moved = replace(record, path=odd, base=odd)
    (odd / "etc").mkdir()
    write_site_files(moved)
    assert load_site(moved.folder.site).advisor.socket == odd / "run" / "advisor.sock"


def test_evidence_of_the_host_itself_is_none_of_the_labs(record: LabRecord):
    """A host may be a node of a real cluster as well: its spool is not looked at, let alone written to."""
    write_site_files(record)
    kept = load_site(record.folder.site).postmortem
    assert kept.folder is not None
    assert all(path.is_relative_to(record.folder.path) for path in (kept.folder, kept.spool))


def test_each_lab_is_a_cluster_of_its_own(record: LabRecord, tmp_path: Path):
    """Labs count their jobs from 1 like any cluster: what a user keeps of them goes by cluster and job."""
    write_slurm_files(record)
    other = new_record(tmp_path / "other", shape=record.shape, user="alice", boot="")
    assert record.cluster != other.cluster
    assert f"ClusterName={record.cluster}\n" in record.folder.slurm_conf.read_text()
