"""Which file system a path is on, by texts as proc_pid_mountinfo(5) describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.errors import StoreError
from opsk.store.database import engine, network_files
from opsk.store.database.network_files import find_mount, network_mount

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:20 / /proc rw - proc proc rw
30 22 0:44 / /home rw,relatime shared:5 master:1 propagate_from:2 - nfs4 server:/export/home rw,vers=4.2
31 30 8:2 / /home/local rw - xfs /dev/sdb1 rw
32 22 0:50 / /mnt/two\040words rw - fuse.sshfs host:/ rw
33 22 0:51 / /lustre rw - lustre 10.0.0.1@o2ib:/scratch rw
34 22 0:52 / /auto rw - autofs systemd-1 rw
35 34 0:53 / /auto rw - cifs //server/share rw
36 22 0:54 / /hidden rw - nfs server:/a rw
37 36 0:55 / /hidden rw - tmpfs tmpfs rw
38 22 0:56 / /container rw - overlay overlay rw
39 22 0:57 / /shared\134odd rw - ceph 1.2.3.4:/ rw
nonsense
40 22 0:58 / /cut
"""


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/lib/opsk/opsk.db", "ext4", False),
        ("/home/ada/.local/state/opsk/opsk.db", "nfs4", True),
        ("/home", "nfs4", True),
        ("/homely/opsk.db", "ext4", False),
        ("/home/local/opsk.db", "xfs", False),
        ("/mnt/two words/opsk.db", "fuse.sshfs", True),
        ("/lustre/opsk.db", "lustre", True),
        ("/auto/opsk.db", "cifs", True),
        ("/hidden/opsk.db", "tmpfs", False),
        ("/container/opsk.db", "overlay", False),
        ("/shared\\odd/opsk.db", "ceph", True),
        ("/cut/opsk.db", "ext4", False),
    ],
)
def test_the_file_system_of_a_path_is_the_last_mount_above_it(path: str, kind: str, network: bool) -> None:
    mount = find_mount(path, MOUNTS)
    assert mount is not None
    assert (mount.kind, mount.network) == (kind, network)


@pytest.mark.parametrize("text", ["", "-", " - \n", "a b c d e f", "\udcff - nfs x"])
def test_a_text_that_says_nothing_is_no_network(text: str) -> None:
    assert find_mount("/x", text) is None


def test_a_link_counts_as_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "near").symlink_to(far)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / {far} rw - nfs4 b rw\n")
    monkeypatch.setattr(network_files, "_MOUNTS", mounts)
    assert network_mount(tmp_path / "near" / "opsk.db") is not None
    assert network_mount(tmp_path / "opsk.db") is None


def test_sqlite_is_not_written_on_a_network_file_system_and_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'opsk.db'}"
    engine.open_store(url).dispose()
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / {tmp_path} rw - nfs4 b rw\n")
    monkeypatch.setattr(network_files, "_MOUNTS", mounts)
    with pytest.raises(StoreError, match=r"network file system \(nfs4 at") as caught:
        engine.open_store(url)
    assert "choose-a-database" in caught.value.hint
    engine.open_store(url, writing=False).dispose()


def test_a_machine_without_proc_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_files, "_MOUNTS", tmp_path / "none")
    assert network_mount(tmp_path) is None
