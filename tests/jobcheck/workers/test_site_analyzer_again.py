"""Is a script in which the same was read before told the same, and only such a one? Against thinking anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from opsk.config import SiteConfig
from opsk_jobcheck.advice import adviser
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.recipe_cache import RecipeCache
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.service.advice_cache import AdviceCache, Inquiry
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers import site_analyzer
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest, script_hash
from opsk_jobcheck.workers.site_analyzer import SiteAnalyzer

SCRIPT = (
    "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nSEED=1\n"
    "srun torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --bf16 --seed $SEED --num-layers 24 "
    "--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
    "--micro-batch-size 1 --global-batch-size 128 --vocab-size 50257 --use-distributed-optimizer\n"
)
REQUEST = SlurmRequest(nodes=2, gpus_per_node=8)
FIRST = AnalysisRequest(text=SCRIPT, file="job.sh", request=REQUEST, files={})


@pytest.fixture
def analyzer(monkeypatch: pytest.MonkeyPatch) -> SiteAnalyzer:
    monkeypatch.setattr(site_analyzer, "SLOW_S", 60.0)  # this machine may be busy
    return SiteAnalyzer(SiteConfig(cluster="superpod-h100"))


def anew(analyzer: SiteAnalyzer, query: AnalysisRequest) -> Analysis:
    """Return what an analyzer says that was asked nothing before."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_adviser", "_verdicts_only"):
            patch.setattr(analyzer, name, replace(getattr(analyzer, name), cache=RecipeCache()))
        return analyzer.analyze(query)


def count_work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows whenever a plan is predicted or others are searched."""
    work: list[str] = []
    for name in ("predict_one", "search_improvements"):
        compute = getattr(adviser, name)

        def counted(*arguments: object, compute: Callable[..., object] = compute, name: str = name) -> object:
            work.append(name)
            return compute(*arguments)

        monkeypatch.setattr(adviser, name, counted)
    return work


def test_another_seed_is_told_the_same_without_working_it_out(
    analyzer: SiteAnalyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = analyzer.analyze(FIRST)
    work = count_work(monkeypatch)
    text = SCRIPT.replace("SEED=1", "SEED=2")
    second = analyzer.analyze(replace(FIRST, text=text))
    assert not work
    assert replace(second, comment="", free=()) == replace(first, comment="")
    assert script_hash(text)[:12] in second.comment
    assert second == anew(analyzer, replace(FIRST, text=text))


@pytest.mark.parametrize("quick", [False, True])
def test_what_is_told_of_a_form_is_what_would_be_thought_of_the_script(analyzer: SiteAnalyzer, quick: bool) -> None:
    """Through the store, as the advisor does it, which then asks no worker."""
    store = AdviceCache(time.monotonic)
    for seed in (1, 2):
        asked = replace(FIRST, text=SCRIPT.replace("SEED=1", f"SEED={seed}"), quick=quick)
        store.put(Inquiry(uid=1, query=asked), analyzer.analyze(asked))
    for seed in ("3", "12345678", "0", "1e-7"):
        asked = replace(FIRST, text=SCRIPT.replace("SEED=1", f"SEED={seed}"), quick=quick)
        found = store.find(Inquiry(uid=1, query=asked))
        assert found is not None
        assert found.analysis == replace(anew(analyzer, asked), free=())
    other = replace(FIRST, text=SCRIPT.replace("--num-layers 24", "--num-layers 48"), quick=quick)
    assert store.find(Inquiry(uid=1, query=other)) is None


def test_a_script_that_takes_long_to_read_is_not_read_again_to_learn_from(
    analyzer: SiteAnalyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site_analyzer, "SLOW_S", -1.0)
    for seed in (1, 2, 3):
        assert analyzer.analyze(replace(FIRST, text=SCRIPT.replace("SEED=1", f"SEED={seed}"))).free == ()


def test_nothing_is_learned_in_a_crowd(analyzer: SiteAnalyzer) -> None:
    for seed in (1, 2, 3):
        asked = replace(FIRST, text=SCRIPT.replace("SEED=1", f"SEED={seed}"), is_hurried=True)
        assert analyzer.analyze(asked).free == ()


@pytest.mark.parametrize(
    "other",
    [
        replace(FIRST, text=SCRIPT.replace("--num-layers 24", "--num-layers 48")),
        replace(FIRST, text=SCRIPT.replace("SEED=1\n", "SEED=1\n\n")),
        replace(FIRST, text=SCRIPT + "#OPSK off\n"),
        replace(FIRST, file="other.sh"),
        replace(FIRST, quick=True),
        replace(FIRST, detail="long"),
        replace(FIRST, detail="short"),
        replace(FIRST, ascii_only=True),
        replace(FIRST, request=replace(REQUEST, is_array=True)),
        replace(FIRST, request=replace(REQUEST, partition="big")),
        replace(FIRST, request=replace(REQUEST, memory={"mem": "1G"})),
    ],
    ids=["layers", "line", "off", "file", "quick", "long", "short", "ascii", "array", "partition", "memory"],
)
def test_whatever_is_told_otherwise_is_told_as_if_it_were_the_first(
    analyzer: SiteAnalyzer, other: AnalysisRequest
) -> None:
    for first, second in ((FIRST, other), (other, FIRST)):
        expected = anew(analyzer, second)
        analyzer.analyze(first)
        assert analyzer.analyze(second) == expected


def test_what_was_cut_short_is_worked_out_when_there_is_time(analyzer: SiteAnalyzer) -> None:
    text = SCRIPT.replace("--num-layers 24", "--num-layers 30")
    hurried = analyzer.analyze(replace(FIRST, text=text, is_hurried=True))
    full = analyzer.analyze(replace(FIRST, text=text))
    assert hurried.is_short
    assert not full.is_short
    assert analyzer.analyze(replace(FIRST, text=text, is_hurried=True)) == full


def test_each_answer_is_given_the_present_state_of_the_cluster(
    analyzer: SiteAnalyzer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Reader:
        now = LiveState(nodes=(), generation="one")

        def state(self) -> LiveState:
            return self.now

    states: list[LiveState | None] = []
    advise = Adviser.advise

    def recorded(self: Adviser, *arguments: object) -> Advice:
        states.append(self.live)
        return advise(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Adviser, "advise", recorded)
    reader = Reader()
    analyzer._live = reader  # type: ignore[assignment]
    for state in (reader.now, replace(reader.now, generation="two"), replace(reader.now, age_s=61.0)):
        reader.now = state
        analyzer.analyze(FIRST)
        assert states[-1] is state
