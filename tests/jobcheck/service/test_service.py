"""Does the advisor, a real process on a real socket, answer everybody, and each in time?"""

from __future__ import annotations

import os
import random
import select
import time

from opsk import __version__
from opsk_jobcheck.scripts.free_numbers import Numbered
from opsk_jobcheck.workers.analysis import short_hash
from tests.fakes.advisor_process import RunningAdvisor, eventually

GPUS = '{"gpus-per-node":"8","nodes":"2"}'
JOB = {"tres_per_node": "gres/gpu:8", "min_nodes": 2}
UID = os.getuid()


def script(*orders: str) -> str:
    """Return a script of its own that orders something of the stand-in for the analysis."""
    return f"#!/bin/bash\n# {random.random()}\n" + "".join(f"FAKE {order}\n" for order in orders) + "torchrun x.py\n"


def test_a_ping_is_answered(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        assert client.ask(kind="ping") == {"v": 1, "status": "pong", "release": __version__}


def test_advice_is_given(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        answer = client.ask(kind="advise", script=script(), options_json=GPUS)
    assert answer["status"] == "advice"
    assert answer["verdict"] == "fits"
    assert answer["lines"] == ["model headline", "memory fits 2 nodes on lab"]


def test_a_typed_command_is_advised_on(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        answer = client.ask(kind="advise", command="srun", argv=["torchrun", "x.py"], options_json=GPUS)
    assert answer["status"] == "advice"


def test_files_are_wanted_once(advisor: RunningAdvisor) -> None:
    """Neither a file that was sent nor one that could not be read is asked for again."""
    text = script("want /a/config.json /b/missing.json")
    with advisor.client() as client:
        first = client.ask(kind="advise", script=text, options_json=GPUS)
        assert first == {"v": 1, "status": "files", "paths": ["/a/config.json", "/b/missing.json"]}
        second = client.ask(kind="advise", script=text, options_json=GPUS, files={"/a/config.json": "{}"})
    assert second["status"] == "advice"
    assert "file /a/config.json 2" in second["lines"]


def test_a_file_may_name_another(advisor: RunningAdvisor) -> None:
    """A second script names a configuration file: five rounds, then what is known is said."""
    text = script("then /a /b /c /d /e /f")
    files: dict[str, str] = {}
    with advisor.client() as client:
        for path in ("/a", "/b", "/c", "/d", "/e"):
            answer = client.ask(kind="advise", script=text, options_json=GPUS, files=files)
            assert answer == {"v": 1, "status": "files", "paths": [path]}
            files[path] = "text"
        last = client.ask(kind="advise", script=text, options_json=GPUS, files=files)
    assert last["status"] == "advice"
    assert "file /e 4" in last["lines"]


def test_no_more_files_are_asked_for_than_a_question_may_hold(advisor: RunningAdvisor) -> None:
    """What is not there does not count as held: of a module several paths are tried."""
    names = [f"/m{number}" for number in range(40)]
    text = script(f"want {' '.join(names)}")
    with advisor.client() as client:
        first = client.ask(kind="advise", script=text, options_json=GPUS)
        files = dict.fromkeys(names[4:24], "text")
        second = client.ask(kind="advise", script=text, options_json=GPUS, files=files)
        files |= dict.fromkeys(names[24:28], "text")
        last = client.ask(kind="advise", script=text, options_json=GPUS, files=files)
    assert first["paths"] == names[:24]
    assert second["paths"] == names[24:28]
    assert last["status"] == "advice"


def test_no_files_are_asked_for_with_little_time_left(advisor: RunningAdvisor) -> None:
    text = script("want /a/config.json")
    with advisor.client() as client:
        answer = client.ask(kind="advise", script=text, options_json=GPUS, left_ms=79)
    assert answer["status"] in ("advice", "later")


def test_the_submit_question_gets_the_stored_answer(advisor: RunningAdvisor) -> None:
    """With what cli_filter read from files that job_submit cannot read, and without thinking again."""
    text = script("want /a/config.json")
    with advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS)
        client.ask(kind="advise", script=text, options_json=GPUS, files={"/a/config.json": "{}"})
        before = advisor.analyses
        answer = client.ask(kind="submit", uid=UID, script=text, job=JOB)
    assert answer["comment"] == "opsk:v1 verdict=fits"
    assert answer["lines"] == ["short model headline", "short memory fits 2 nodes on lab"]
    assert advisor.analyses == before


def test_a_script_of_a_sweep_gets_the_answer_of_the_one_before(advisor: RunningAdvisor) -> None:
    """With the hash of its own text in its record, for its terminal and for slurmctld; and no worker is asked."""
    cut = Numbered.parse(script("free 1", "seed 5"))
    assert cut is not None
    text = "".join(cut.pieces).replace("FAKE free 1", f"FAKE free {cut.numbers.index('5', -1)}")
    other = text.replace("FAKE seed 5", "FAKE seed 678")
    with advisor.client() as client:
        first = client.ask(kind="advise", script=text, script_name="/a/1.sh", options_json=GPUS)
        before = advisor.analyses
        second = client.ask(kind="advise", script=other, script_name="/a/2.sh", options_json=GPUS)
        answer = client.ask(kind="submit", uid=UID, script=other, job=JOB)
    assert advisor.analyses == before
    assert second["lines"] == first["lines"]
    assert first["comment"] == f"opsk:v1 verdict=fits hash={short_hash(text)}"
    assert second["comment"] == answer["comment"] == f"opsk:v1 verdict=fits hash={short_hash(other)}"


def test_another_request_for_the_same_script_is_another_question(advisor: RunningAdvisor) -> None:
    text = script()
    with advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS)
        answer = client.ask(kind="submit", uid=UID, script=text, job=JOB | {"min_nodes": 4})
    assert "short memory fits 4 nodes on lab" in answer["lines"]


def test_nobody_is_told_twice(advisor: RunningAdvisor) -> None:
    text = script()
    with advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS)
    with advisor.client() as client:
        answer = client.ask(kind="submit", uid=UID, script=text, job=JOB)
    assert answer["comment"] == "opsk:v1 verdict=fits"
    assert "lines" not in answer


def test_another_users_terminal_has_shown_nothing(advisor: RunningAdvisor) -> None:
    text = script()
    with advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS)
    with advisor.client() as client:
        answer = client.ask(kind="submit", uid=UID + 1, script=text, job=JOB)
    assert answer["lines"]


def test_advice_that_nobody_has_read_was_not_shown(advisor: RunningAdvisor) -> None:
    """A hook whose deadline is over hangs up, and the answer that comes then stays where it is."""
    text = script()
    with advisor.client() as client:
        client.send(kind="advise", script=text, options_json=GPUS)
        select.select([client.connection], [], [], 5)
    with advisor.client() as client:
        answer = client.ask(kind="submit", uid=UID, script=text, job=JOB)
    assert answer["comment"] == "opsk:v1 verdict=fits"
    assert answer["lines"]


def test_who_asks_on_after_advice_has_not_shown_it_yet(advisor: RunningAdvisor) -> None:
    text = script()
    with advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS)
        answer = client.ask(kind="submit", uid=UID, script=text, job=JOB)
    assert answer["lines"]


def test_a_submission_without_a_cli_filter_is_told_the_quick_verdict(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        answer = client.ask(kind="submit", uid=UID, script=script(), job=JOB)
    assert answer["lines"] == ["short model headline", "short memory fits 2 nodes on lab"]


def test_quiet_submissions_only_get_the_record(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        answer = client.ask(kind="submit", uid=UID, script=script(), job=JOB, quiet=True)
    assert answer["comment"]
    assert "lines" not in answer


def test_an_interactive_job_finds_what_was_just_typed(advisor: RunningAdvisor) -> None:
    """22.05 shows job_submit neither script nor words of srun and salloc; the next such job is another one."""
    job = JOB | {"min_nodes": 3}
    with advisor.client() as client:
        client.ask(
            kind="advise",
            command="salloc",
            argv=["torchrun", str(random.random())],
            options_json=GPUS.replace("2", "3"),
        )
    with advisor.client() as client:
        stranger = client.ask(kind="submit", uid=UID + 7, job=job)
        answer = client.ask(kind="submit", uid=UID, job=job)
        next_job = client.ask(kind="submit", uid=UID, job=job, argv=["hostname"])
    assert answer["comment"] == "opsk:v1 verdict=fits"
    assert "lines" not in answer
    assert stranger == next_job == {"v": 1, "status": "silent"}


def test_words_alone_of_which_nothing_can_be_told_are_met_with_silence(advisor: RunningAdvisor) -> None:
    """``srun bash train.sh``: the user's hook read the file and found no training in it, job_submit sees a name."""
    with advisor.client() as client:
        told = client.ask(kind="submit", uid=UID, job=JOB, argv=["bash", f"{random.random()}\nFAKE unknown\n"])
        fits = client.ask(kind="submit", uid=UID, job=JOB, argv=["torchrun", f"{random.random()}"])
    assert told == {"v": 1, "status": "silent"}
    assert fits["comment"] == "opsk:v1 verdict=fits"


def test_what_is_no_training_job_is_met_with_silence(advisor: RunningAdvisor) -> None:
    text = script("silent")
    with advisor.client() as client:
        assert client.ask(kind="advise", script=text, options_json=GPUS)["status"] == "silent"
        assert client.ask(kind="submit", uid=UID, script=text, job=JOB)["status"] == "silent"


def test_a_slow_script_is_answered_later_and_thought_through_in_the_background(advisor: RunningAdvisor) -> None:
    text = script("sleep 1.5")
    with advisor.client() as client:
        assert client.ask(kind="submit", uid=UID, script=text, job=JOB)["status"] == "later"
    before = advisor.analyses

    def again() -> str:
        with advisor.client() as client:
            return str(client.ask(kind="submit", uid=UID, script=text, job=JOB)["status"])

    eventually(again, lambda status: status == "advice")
    assert advisor.analyses == before


def test_a_hook_that_has_little_time_left_is_answered_in_it(advisor: RunningAdvisor) -> None:
    """The site's deadline is 6 s; the second round of a hook may have a fraction of it."""
    began = time.monotonic()
    with advisor.client() as client:
        answer = client.ask(kind="advise", script=script("sleep 3"), options_json=GPUS, left_ms=300)
    assert answer["status"] == "later"
    assert time.monotonic() - began < 2


def test_slow_scripts_of_one_user_do_not_hold_up_others(own_advisor: RunningAdvisor) -> None:
    """Six slow scripts keep one of two workers busy for 6 s; a ping and slurmctld's question pass by."""
    clients = [own_advisor.client() for _ in range(6)]
    for client in clients:
        client.send(kind="advise", script=script("sleep 1"), options_json=GPUS)
    with own_advisor.client() as client:
        assert client.ask(kind="ping")["status"] == "pong"
        assert client.ask(kind="submit", uid=UID, script=script(), job=JOB)["status"] == "advice"
    for client in clients:
        client.connection.close()


def test_a_script_that_breaks_the_analysis_costs_only_its_advice(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        assert client.ask(kind="advise", script=script("raise"), options_json=GPUS)["status"] == "silent"
        assert client.ask(kind="advise", script=script("crash"), options_json=GPUS)["status"] == "silent"
        assert client.ask(kind="advise", script=script("print"), options_json=GPUS)["status"] == "advice"


def test_a_script_that_broke_the_analysis_is_not_tried_again(advisor: RunningAdvisor) -> None:
    text = script("crash")
    with advisor.client() as client:
        client.ask(kind="advise", script=text, options_json=GPUS)
        before = advisor.analyses
        client.ask(kind="advise", script=text, options_json=GPUS)
        client.ask(kind="submit", uid=UID, script=text, job=JOB)
    # The second round of cli_filter is a question of its own: it may bring files.
    assert advisor.analyses <= before + 1


def test_a_long_answer_is_cut_to_what_a_hook_reads(advisor: RunningAdvisor) -> None:
    with advisor.client() as client:
        answer = client.ask(kind="advise", script=script("lines 60"), options_json=GPUS)
    assert 10 < len(answer["lines"]) < 60
