"""Hostile scripts and questions through all of the submit path: nothing raised, nothing hangs, nothing slips out.

``make fuzz`` tries 10,000 of each kind (``OPSK_FUZZ``), from a number of your choice on (``OPSK_FUZZ_FROM``); each case
follows from its number, which a failing test names.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from opsk.config import PolicyRule, SiteConfig
from opsk.text import to_json_values
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.workload import Workload
from opsk_jobcheck.advice.adviser import Adviser, build_site_adviser
from opsk_jobcheck.advice.rendering.document import document, record
from opsk_jobcheck.advice.rendering.terminal import MAX_LINES, lines
from opsk_jobcheck.scripts.script import MAX_MISSING_FILES, read_script
from opsk_jobcheck.service.advice_cache import Inquiry
from opsk_jobcheck.service.answering import build_advise_request, build_submit_request
from opsk_jobcheck.service.policy import decide, render_enforcement
from opsk_jobcheck.submission.protocol import (
    AdviseQuestion,
    Answer,
    ProtocolError,
    SubmitQuestion,
    parse_question,
    render_answer,
)
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.site_analyzer import SiteAnalyzer
from tests.fakes.hostile_questions import advise_question, submit_question
from tests.fakes.mutations import FuzzCase, fuzz_case
from tests.fakes.recipes import TEMPLATES, Script

COUNT = int(os.environ.get("OPSK_FUZZ", "0"))
FIRST = int(os.environ.get("OPSK_FUZZ_FROM", "0"))
HANG_CPU_S = 1.0 if COUNT else 3.0
"""Nothing may think longer about one script [s of CPU]; a machine that is slow or busy gets more in ``make test``."""
BATCH = 50

CHECK_KEYS = {
    "verdict",
    "workload",
    "memory",
    "time",
    "placement",
    "interference",
    "suggestions",
    "assumed",
    "problems",
}
MODEL_KEYS = {"name", "layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq"}
PLAN_KEYS = {
    *("nodes", "gpus_per_node", "gpus", "tp", "pp", "vpp", "cp", "ep", "dp", "sharding", "sequence_parallel"),
    *("recompute", "precision", "micro_batch", "global_batch"),
}
WORDS = {"name", "sharding", "recompute", "precision"}
TRUTHS = {"sequence_parallel"}
"""The contract of ``opsk check --json``, from the design; all other values are positive whole numbers."""


REACHES_OUT = ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "socket.connect", "os.remove")
OWN = (str(Path(__file__).resolve().parents[2]), sys.prefix, sys.base_prefix, "/usr/lib", "/usr/share")
"""Where Python and opsk themselves lie: modules and the catalogue are read when they are first needed."""
reached: list[str] = []
watched_thread: int | None = None


def note(event: str, found: tuple[object, ...]) -> None:
    """Take down what the thinking thread opens, starts or connects to; other tests' threads may still be reading."""
    if watched_thread is None or watched_thread != threading.get_ident():
        return
    if event in REACHES_OUT or (event == "open" and isinstance(found[0], str) and not found[0].startswith(OWN)):
        reached.append(f"{event} {str(found[0])[:200]!r}")


sys.addaudithook(note)


class HangError(Exception):
    """A script was thought about for too long."""


@contextmanager
def watched(case: object) -> Iterator[None]:
    """End what takes too much CPU time with the place where it is; nothing may be opened or started meanwhile."""
    global watched_thread

    def ring(_: int, frame: FrameType | None) -> None:
        raise HangError(f"more than {HANG_CPU_S} s of CPU on {case}, now in {frame}")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, HANG_CPU_S)
    reached.clear()
    watched_thread = threading.get_ident()
    try:
        yield
    finally:
        watched_thread = None
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert not reached, (case, reached)


def batches(few: int, many: int = COUNT) -> list[int]:
    """Return the first numbers of batches of cases."""
    return list(range(FIRST, FIRST + (many or few), BATCH))


@pytest.fixture(scope="module")
def adviser() -> Adviser:
    """Return the adviser of a known machine, its first thought behind it."""
    made = build_site_adviser(SiteConfig(cluster="superpod-h100"))
    made.advise(read_script(TEMPLATES[0][0], file="warm.sh"))
    return made


@pytest.fixture(scope="module")
def analyzer() -> SiteAnalyzer:
    """Return what a worker process thinks with."""
    return SiteAnalyzer(SiteConfig(cluster="superpod-h100"))


@pytest.mark.parametrize("start", batches(1000))
def test_scripts_become_advice_or_reasons(start: int, adviser: Adviser) -> None:
    check_scripts(start, adviser, TEMPLATES)


@pytest.mark.shared
@pytest.mark.parametrize("start", batches(200, COUNT // 2))
def test_bent_real_scripts_become_advice_or_reasons(start: int, adviser: Adviser, shared: Path) -> None:
    paths = sorted((shared / "data/real/sbatch").iterdir())
    check_scripts(start, adviser, [(path.read_text(errors="replace"), {}) for path in paths if path.is_file()])


@pytest.mark.parametrize("start", batches(300, COUNT // 2))
def test_questions_become_answers(start: int, analyzer: SiteAnalyzer) -> None:
    for number in range(start, start + BATCH):
        random = Random(f"question {number}")
        case = fuzz_case(random)
        make = random.choice((advise_question, submit_question))
        question = make(random, case)
        with watched(f"question {number}"):
            check_question(question, analyzer)


def check_scripts(start: int, adviser: Adviser, seeds: Sequence[Script]) -> None:
    """Check one batch of scripts."""
    for number in range(start, start + BATCH):
        case = fuzz_case(Random(number), seeds)
        try:
            with watched(f"script {number}"):
                check_script(case, adviser)
        except Exception as error:
            raise AssertionError(f"script {number}: {error!r}") from error


def check_script(case: FuzzCase, adviser: Adviser) -> None:
    """Check all that is promised of one script."""
    request = SlurmRequest(arguments=case.arguments, environment=case.environment, directory="/home/u")
    workload = read_script(case.script, file="job.sh", request=request, files=case.files)
    check_workload(workload, case)
    advice = adviser.advise(workload)
    for detail in ("default", "long", "short"):
        said = lines(advice, detail)
        check_lines(said)
        assert said or detail != "long"
        assert detail == "long" or len(said) <= MAX_LINES
        assert all(line.isascii() for line in lines(advice, detail, ascii_only=True))
    text = json.dumps(to_json_values(document(advice)), ensure_ascii=True, allow_nan=False)
    check_document(json.loads(text))
    check_harmless(text)
    comment = record(advice, script_hash="0123456789ab").render()
    assert comment.isascii()
    check_harmless(comment)
    assert AdviceRecord.parse(comment) is not None


def check_workload(workload: Workload, case: FuzzCase) -> None:
    """Check that evidence cites lines that there are, and that wanted files are plain paths."""
    text = case.script.decode("utf-8", "replace") if isinstance(case.script, bytes) else case.script
    known = {"job.sh": text, **case.files, **{f"/home/u/{path}": text for path, text in case.files.items()}}
    for entry in workload.evidence:
        assert entry.line >= 0
        if entry.file in known:
            assert entry.line <= known[entry.file].count("\n") + 1, entry
    assert len(workload.missing_files) <= MAX_MISSING_FILES
    for path in workload.missing_files:
        assert path, workload.missing_files
        assert len(path) < 4096
        assert not any(unicodedata.category(sign) in ("Cc", "Cs") for sign in path), path


def check_document(answer: dict[str, Any]) -> None:
    """Check keys and types of ``opsk check --json``."""
    assert answer.keys() >= CHECK_KEYS
    assert answer["verdict"] in ("fits", "tight", "oom", "unknown")
    for part, keys in (("model", MODEL_KEYS), ("plan", PLAN_KEYS)):
        values = answer["workload"][part]
        assert values.keys() >= keys
        for name in keys:
            value = values[name]
            wanted = str if name in WORDS else bool if name in TRUTHS else int
            assert value is None or type(value) is wanted, (name, value)
            assert wanted is not int or value is None or value >= 1, (name, value)
    for entry in answer["workload"]["evidence"]:
        assert entry.keys() >= {"field", "value", "file", "line", "text"}
    if answer["verdict"] != "unknown":
        assert 0 <= answer["memory"]["fit_probability"] <= 1
    if answer["verdict"] != "unknown" and not answer["memory"]["is_limit"]:
        for name in ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu"):
            spread = answer["time"][name]
            assert 0 < spread["low"] <= spread["expected"] <= spread["high"], (name, spread)


def check_lines(said: Sequence[str]) -> None:
    """Check that each piece of what is said is one line; there may be nothing to say."""
    for line in said:
        check_harmless(line)


def check_harmless(text: str) -> None:
    """Check that no character of a text controls a terminal, turns its direction, or cannot be seen."""
    assert text.isprintable(), [sign for sign in text if not sign.isprintable()][:5]


def check_question(question: dict[str, Any], analyzer: SiteAnalyzer) -> None:
    """Check what the advisor does with a question: decoding, request, policy, thought, answer."""
    body = json.dumps({"v": 1, **question}).encode()
    try:
        asked = parse_question(body)
    except ProtocolError as error:
        refusal = str(error)
    else:
        refusal = ""
    check_harmless(refusal)
    assert len(refusal) < 200
    if refusal:
        return
    assert isinstance(asked, AdviseQuestion | SubmitQuestion)
    if isinstance(asked, AdviseQuestion):
        query = build_advise_request(asked, may_want=bool(asked.files))
    else:
        query = build_submit_request(asked)
    assert Inquiry(uid=0, query=query).key
    rules = (PolicyRule(partition="a*", action="hold"), PolicyRule(account="*b*", qos="c?", action="reject"))
    decision = decide(rules, query.request)
    analysis = analyzer.analyze(type(query).unpack(json.loads(json.dumps(query.pack()))))
    decision.enforces(analysis, query.request)
    told = (
        *analysis.lines,
        *analysis.short_lines,
        *render_enforcement(decision, analysis),
        analysis.comment,
        analysis.why,
    )
    for line in told:
        check_harmless(line)
    assert len(analysis.missing_files) <= MAX_MISSING_FILES
    assert len(analysis.comment) < 400
    json.dumps(analysis.pack(), allow_nan=False)
    sent = render_answer(Answer(status="advice", lines=analysis.lines, comment=analysis.comment))
    assert sent[4:].isascii()
