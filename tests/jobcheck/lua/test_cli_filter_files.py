"""Which files does cli_filter.lua read for the advisor, with the rights and within the time of the user who submits?"""

from __future__ import annotations

import os

import pytest

from tests.fakes.bad_servers import AnswerWith, Serve
from tests.fakes.hook_runner import Hooks, milliseconds
from tests.fakes.submissions import questions, sbatch, shown_advice, told

DEADLINE_MS = 400
GRACE_MS = 80
PATIENT_MS = 5000
"""A deadline that a busy machine keeps: for tests of what is read, not of how fast."""


def wanted(*paths: str) -> bytes:
    return told("files", paths=paths)


def files_sent(hooks: Hooks, serve: Serve, *paths: str, fields: str = "") -> dict[str, str]:
    """Return the files that the hook sends when the advisor wants these paths."""
    hooks.settings(cli_deadline_ms=PATIENT_MS)
    serve(answers := AnswerWith(wanted(*paths), shown_advice()))
    ran = sbatch(hooks, fields=fields)
    assert "opsk  gpt on 16 GPUs" in ran.stderr
    first, second = questions(answers)
    assert second["script"] == first["script"]
    sent: dict[str, str] = second.get("files", {})
    return sent


def test_wanted_files_are_read_and_sent(hooks: Hooks, serve: Serve) -> None:
    (hooks.directory / "config.json").write_text('{"hidden_size": 4096}\n')
    nasty = hooks.directory / "it's a $(touch ran) `file`; -n"
    nasty.write_text("\x00bytes\r\n")
    absolute = str(hooks.directory / "config.json")
    sent = files_sent(hooks, serve, "config.json", absolute, str(nasty), "missing.json")
    assert sent["config.json"] == sent[absolute] == '{"hidden_size": 4096}\n'
    assert sent[str(nasty)] == "\x00bytes\r\n"
    assert set(sent) == {"config.json", absolute, str(nasty)}
    assert not (hooks.directory / "ran").exists()


def test_wanted_files_lie_where_the_job_will_run(hooks: Hooks, serve: Serve) -> None:
    (hooks.directory / "work").mkdir()
    (hooks.directory / "work" / "config.json").write_text("of work")
    sent = files_sent(hooks, serve, "config.json", fields=f'chdir = "{hooks.directory}/work"')
    assert sent == {"config.json": "of work"}


def test_only_regular_files_of_bounded_size_are_read(hooks: Hooks, serve: Serve) -> None:
    """A FIFO without a writer would wait for ever, a device would never end."""
    os.mkfifo(hooks.directory / "fifo")
    (hooks.directory / "large").write_bytes(b"x" * 262_145)
    (hooks.directory / "just").write_bytes(b"x" * 262_144)
    sent = files_sent(hooks, serve, "fifo", ".", "/dev/zero", "large", "just", "bad\npath", "")
    assert {name: len(text) for name, text in sent.items()} == {"just": 262_144}


PRIVATE = (
    ".env", "./.env", "conf/.netrc", ".ssh/id_ed25519", "id_rsa", "../.aws/credentials", ".docker/config.json",
    ".kube/config", ".config/gcloud/application_default_credentials.json", ".cache/huggingface/token", "hf_token.txt",
    "token", "TOKEN.json", "wandb_api_key.txt", "secrets/config.yaml", "my-secrets.sh", "passwords.yaml", "site.pem",
    "tls.key", "keys", "keys.json", "private_key.txt", "auth.json", "/etc/passwd", "/proc/self/environ", "/dev/null",
    "//proc/self/environ", "/./proc/self/environ", "../../../../../../../../proc/self/environ", "~/.bash_history",
    "/run/secrets.yaml", "work/../../../../../../../../../etc/hostname", "~/.ssh/config",
)  # fmt: skip
PUBLIC = (
    "config.json", "./train.sh", "conf/llama-8b.yaml", "tokenizer_config.json", "tokenizer.json", "keye-vl.yaml",
    "monkey.toml", "2T-tokens/config.json", "env.sh", "etc/ds.json", "proc/x.yaml", "private/run.sh", "launcher",
    ".cache/huggingface/hub/models--meta-llama--Llama-3/snapshots/0/config.json", "idle_config.yaml", "a..b.yaml",
)  # fmt: skip


def put(hooks: Hooks, path: str) -> None:
    """Make a file where that is inside of the test's folder."""
    place = hooks.directory / path
    if not path.startswith(("/", "..", "~", "work")):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("text", encoding="ascii")


@pytest.mark.parametrize("first", range(0, len(PRIVATE), 8))
def test_an_advisor_that_asks_for_keys_gets_none(hooks: Hooks, serve: Serve, first: int) -> None:
    """Whoever has taken the advisor over reads what a user may read, if the hook believes it."""
    asked = PRIVATE[first : first + 8]
    for path in asked:
        put(hooks, path)
    assert files_sent(hooks, serve, *asked) == {}


@pytest.mark.parametrize("first", range(0, len(PUBLIC), 8))
def test_configurations_and_scripts_are_none(hooks: Hooks, serve: Serve, first: int) -> None:
    asked = PUBLIC[first : first + 8]
    for path in asked:
        put(hooks, path)
    assert sorted(files_sent(hooks, serve, *asked)) == sorted(asked)


def test_at_most_24_files_are_read_at_once(hooks: Hooks, serve: Serve) -> None:
    names = [f"f{number}" for number in range(30)]
    for name in names:
        (hooks.directory / name).write_text(name)
    assert sorted(files_sent(hooks, serve, *names)) == sorted(names[:24])


def test_files_for_which_there_is_no_room_are_left_out(hooks: Hooks, serve: Serve) -> None:
    """512 KiB together, in all rounds of one conversation: what is larger than the rest of that is passed over."""
    for name, size in (("a", 262_144), ("b", 200_000), ("c", 100_000), ("d", 62_000)):
        (hooks.directory / name).write_bytes(b"x" * size)
    hooks.settings(cli_deadline_ms=PATIENT_MS)
    serve(answers := AnswerWith(wanted("a", "c"), wanted("b", "d"), shown_advice()))
    sbatch(hooks)
    assert [sorted(asked.get("files", {})) for asked in questions(answers)] == [[], ["a", "c"], ["a", "c", "d"]]


def test_files_that_are_too_much_together_are_left_out(hooks: Hooks, serve: Serve) -> None:
    for number in range(8):
        (hooks.directory / f"f{number}").write_bytes(b"\x01" * 262_144)
    assert files_sent(hooks, serve, *(f"f{number}" for number in range(8))) == {}


def test_a_file_system_that_hangs_costs_the_deadline(hooks: Hooks, serve: Serve) -> None:
    """``head`` that never comes back stands for a read that hangs."""
    slow = hooks.directory / "bin"
    slow.mkdir()
    (slow / "head").write_text("#!/bin/sh\nexec sleep 5\n")
    (slow / "head").chmod(0o755)
    (hooks.directory / "config.json").write_text("{}")
    hooks.environ["PATH"] = f"{slow}:/usr/bin:/bin"
    serve(AnswerWith(wanted("config.json"), shown_advice()))
    ran = sbatch(hooks, times=3)
    assert ran.of("returned") == ["0", "0", "0"]
    assert milliseconds(ran) < DEADLINE_MS + GRACE_MS


def test_an_advisor_that_wants_files_for_ever_is_left(hooks: Hooks, serve: Serve) -> None:
    (hooks.directory / "config.json").write_text("{}")
    serve(answers := AnswerWith(*[wanted("config.json")] * 20))
    ran = sbatch(hooks)
    assert ran.stderr == ""
    assert len(answers.questions) == 6


def test_files_that_name_others_are_read_with_what_they_mention(hooks: Hooks, serve: Serve) -> None:
    (hooks.directory / "inner.sh").write_text("python train.py --config a.yaml --layers $DEPTH $HF_TOKEN\n")
    (hooks.directory / "a.yaml").write_text("layers: 3\n")
    hooks.settings(cli_deadline_ms=PATIENT_MS)
    hooks.environ |= {"DEPTH": "12", "HF_TOKEN": "hush"}
    serve(answers := AnswerWith(wanted("inner.sh"), wanted("a.yaml"), shown_advice()))
    assert "opsk  gpt on 16 GPUs" in sbatch(hooks).stderr
    first, second, third = questions(answers)
    assert "DEPTH" not in first["env"]
    assert second["env"]["DEPTH"] == "12"
    assert "HF_TOKEN" not in third["env"]
    assert set(third["files"]) == {"inner.sh", "a.yaml"}
