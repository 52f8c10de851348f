"""What is handed on holds no secrets; forms of tokens are those that their makers document."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.postmortem.evidence.bundle import Redaction, build_pseudonyms, write_bundle

SECRETS = (
    ("export HF_TOKEN=hf_QwErTyUiOpAsDfGhJkLzXcVbNm012345", "hf_QwErTy"),
    ("WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
    ("wandb login 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef"),
    ("git clone https://ada:s3cr3t!x@git.example.org/x.git", "s3cr3t"),
    ("Authorization: Bearer abc.def-ghi_jkl012345", "abc.def-ghi"),
    ("token ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_0123"),
    ("AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE", "AKIAIOSF"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUt"),
    ("--password hunter22 --steps 5", "hunter22"),
    ('{"db_password": "correct horse"}', "correct horse"),
    ("mysql: password: 'corr\"ect'", 'corr"ect'),
    ("OPENAI says sk-proj-0123456789abcdefghij", "0123456789abcdef"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4", "SflKxw"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\n-----END OPENSSH PRIVATE KEY-----", "b3Blbn"),
    ("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGabcdefghijklmnopqrstuvwxyz012345 ada", "AAAAC3Nz"),
    ("mail ada.lovelace@example.org", "ada.lovelace@"),
    ("SLURM_JWT_TOKEN: eyJ0", "eyJ0"),
)


@pytest.mark.parametrize(("text", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_a_secret_goes(text: str, secret: str) -> None:
    redaction = Redaction()
    assert secret not in redaction.clean_text(f"before {text} after")
    assert sum(redaction.counts.values()) >= 1


@pytest.mark.parametrize(
    "text",
    [
        " iteration 3/ 100 | consumed tokens: 512 | lm loss: 2.1E+00 |",
        "tokens per second: 12345, num_tokens=4096",
        "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, name=python, GPU has fallen off the bus.",
        "tokenizer: GPT2BPETokenizer vocab 50257",
        "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE)",
        "use_auth_token=None password=<hidden> secret=***",
        'File "/home/x/train.py", line 5, in <module>',
        "2026-11-21T02:07:08 n0 kernel: Out of memory: Killed process 77 (python)",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redaction().clean_text(text) == text


def test_names_of_nodes_and_users_can_go_too() -> None:
    names = build_pseudonyms(["gpu-a1", "gpu-a12"], ["ada"])
    said = Redaction(names=names).clean_text("gpu-a12: task 3 of ada on gpu-a1 to 10.1.2.3, adamant gpu-a123")
    assert said == "node2: task 3 of user1 on node1 to <address>, adamant gpu-a123"


def test_json_stays_json_and_its_keys_tell_of_secrets(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    said = {"text": 'a "quoted" password="x y z"', "env": {"API_TOKEN": "zzz"}, "seq": 77, "list": ["hf_" + "a" * 30]}
    write_bundle(path, {"report.json": json.dumps(said), "report.md": "password=abc12345"}, Redaction())
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        texts = {entry.name: archive.extractfile(entry).read().decode() for entry in archive}  # type: ignore[union-attr]
    report = json.loads(texts["postmortem/report.json"])
    assert report["env"]["API_TOKEN"] == "<secret removed>"
    assert report["list"] == ["<token removed>"]
    assert "x y z" not in report["text"]
    assert report["seq"] == 77
    assert "abc12345" not in texts["postmortem/report.md"]
    assert "no rule knows all secrets" in texts["postmortem/README.txt"]


def test_nothing_is_left_where_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        write_bundle(tmp_path / "no" / "b.tar.gz", {}, Redaction())
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=400))
def test_any_text_goes_through_and_again_changes_nothing(text: str) -> None:
    once = Redaction().clean_text(text)
    assert Redaction().clean_text(once) == once
