import os
from pathlib import Path

import pytest

from opsk.errors import InputError, LabError
from opsk.lab.folder import MAX_SOCKET_BYTES, LabFolder, choose_folder, claim, clean, create_layout


def test_a_short_plain_path_is_used_as_it_is():
    assert choose_folder(Path("/srv/lab"), lab_id="0123abcd").base == Path("/srv/lab")


@pytest.mark.parametrize("path", ["/srv/" + "x" * 80, "/srv/my lab", "/srv/lab#1", "/srv/%n", "/srv/läb"])
def test_a_path_that_daemons_cannot_use_gets_a_short_link(path: str):
    folder = choose_folder(Path(path), lab_id="0123abcd")
    assert folder.base != folder.path
    longest = folder.spool / "n511" / "n511_4294967295.4294967295"
    assert len(os.fsencode(longest)) <= MAX_SOCKET_BYTES


def test_the_link_is_made_and_removed_with_the_lab(tmp_path: Path):
    (tmp_path / "long name").mkdir()
    folder = LabFolder(path=tmp_path / "long name", base=tmp_path / "link")
    create_layout(folder, spools=("n0",))
    assert (folder.run).is_dir()
    assert (tmp_path / "link").readlink() == folder.path
    clean(folder)
    assert not (tmp_path / "link").is_symlink()


def test_another_link_of_the_same_name_is_left_alone(tmp_path: Path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "link").symlink_to("/elsewhere")
    clean(LabFolder(path=tmp_path / "lab", base=tmp_path / "link"))
    assert (tmp_path / "link").readlink() == Path("/elsewhere")


def test_a_folder_with_other_things_in_it_is_refused(tmp_path: Path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not the folder of a lab"):
        claim(tmp_path, for_all_users=False)


def test_a_folder_under_a_file_is_one_clear_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(LabError, match="Not a directory"):
        claim(tmp_path / "file" / "lab", for_all_users=False)


def test_only_the_owner_sees_into_the_lab_of_an_ordinary_user(tmp_path: Path):
    claim(tmp_path / "lab", for_all_users=False)
    assert (tmp_path / "lab").stat().st_mode & 0o777 == 0o700


def test_keys_and_database_are_the_owners_alone(tmp_path: Path):
    folder = LabFolder(path=tmp_path, base=tmp_path)
    create_layout(folder, spools=())
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("secret", "mysql", "state")} == {0o700}


def test_down_leaves_what_people_want_to_read(tmp_path: Path):
    folder = LabFolder(path=tmp_path, base=tmp_path)
    create_layout(folder, spools=("n0",))
    (folder.log / "slurmctld.log").write_text("why")
    (folder.secret / "munge.key").write_text("secret")
    clean(folder)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["etc", "log"]
    assert (tmp_path / "log" / "slurmctld.log").read_text() == "why"


def test_a_link_in_place_of_a_directory_is_removed_and_not_followed(tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "run").symlink_to(outside)
    clean(LabFolder(path=lab, base=lab))
    assert (outside / "precious").exists()
    assert not (lab / "run").is_symlink()
