"""Is stored advice found by whoever may have it, as long as it holds, and no longer?"""

from __future__ import annotations

from dataclasses import replace

from opsk_jobcheck.service.advice_cache import (
    MAX_AGE_S,
    MAX_TEMPLATES,
    SHOWN_FOR_S,
    TYPED_FOR_S,
    AdviceCache,
    CachedAdvice,
    Inquiry,
)
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest, script_hash, short_hash

FITS = Analysis(verdict="fits", lines=("x",))


class Clock:
    """A clock that ticks on demand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def query(text: str = "torchrun", nodes: int | None = 2, **files: str) -> AnalysisRequest:
    return AnalysisRequest(text=text, file="train.sh", request=SlurmRequest(nodes=nodes), files=files)


def put(store: AdviceCache, query: AnalysisRequest, *, uid: int = 1, analysis: Analysis = FITS) -> CachedAdvice:
    return store.put(Inquiry(uid=uid, query=query), analysis)


def find(store: AdviceCache, query: AnalysisRequest, *, uid: int = 1, state: str = "") -> CachedAdvice | None:
    return store.find(Inquiry(uid=uid, query=query, state=state))


def find_similar(store: AdviceCache, query: AnalysisRequest, *, uid: int = 1) -> CachedAdvice | None:
    return store.find_similar(Inquiry(uid=uid, query=query))


def test_the_same_question_finds_its_answer() -> None:
    store = AdviceCache(Clock())
    entry = put(store, query())
    assert find(store, query()) is entry
    assert find(store, query(), uid=2) is None
    assert find(store, query(nodes=4)) is None
    assert find(store, query(config="{}")) is None
    assert find(store, query(), state="state-2") is None


SWEEP = "#!/bin/bash\nSEED=1 N=2\ntorchrun x.py $SEED 3\n"
SAID = Analysis(verdict="fits", lines=("x",), comment=f"opsk:v1 verdict=fits hash={short_hash(SWEEP)}", free=(0, 2))


def test_what_was_said_of_a_script_holds_for_one_with_other_free_numbers() -> None:
    store = AdviceCache(Clock())
    put(store, query(SWEEP), analysis=SAID)
    text = SWEEP.replace("SEED=1", "SEED=77").replace("$SEED 3", "$SEED 4e5")
    entry = find(store, query(text))
    assert entry is not None
    assert entry.analysis == replace(SAID, comment=f"opsk:v1 verdict=fits hash={short_hash(text)}", free=())
    assert find(store, query(text)) is entry
    assert find_similar(store, query(text)) is entry, "job_submit asks for the script, not for its form"


def test_nothing_is_said_of_another_form_number_user_or_question() -> None:
    store = AdviceCache(Clock())
    put(store, query(SWEEP), analysis=SAID)
    assert find(store, query(SWEEP.replace("N=2", "N=3"))) is None
    assert find(store, query(SWEEP.replace("x.py", "y.py"))) is None
    assert find(store, query(SWEEP), uid=2) is None
    assert find(store, query(SWEEP, nodes=4)) is None
    assert find(store, query(SWEEP, config="{}")) is None
    assert find(store, replace(query(SWEEP), quick=True)) is None


def test_what_is_found_by_its_form_is_as_old_as_what_was_said() -> None:
    clock = Clock()
    store = AdviceCache(clock)
    put(store, query(SWEEP), analysis=SAID)
    clock.now += MAX_AGE_S - 1
    other = query(SWEEP.replace("SEED=1", "SEED=2"))
    assert find(store, other) is not None
    clock.now += 2
    assert find(store, other) is None
    assert find(store, other) is None


def test_the_latest_that_was_found_to_be_free_is_tried_beside_what_was_before() -> None:
    store = AdviceCache(Clock())
    put(store, query(SWEEP), analysis=replace(SAID, free=(0,)))
    put(store, query(SWEEP.replace("$SEED 3", "$SEED 5")), analysis=replace(SAID, verdict="oom", free=(1,)))
    for text, verdict in ((SWEEP.replace("SEED=1", "SEED=9"), "fits"), (SWEEP.replace("N=2", "N=9"), None)):
        entry = find(store, query(text))
        assert (entry.analysis.verdict if entry else None) == verdict
    entry = find(store, query(SWEEP.replace("N=2", "N=9").replace("$SEED 3", "$SEED 5")))
    assert entry is not None
    assert entry.analysis.verdict == "oom"


def test_forms_are_bounded_and_forgotten_with_all_else() -> None:
    store = AdviceCache(Clock())
    for index in range(MAX_TEMPLATES + 3):
        put(store, query(f"{'x' * index} 1"), analysis=replace(SAID, free=(0,)))
    assert find(store, query("x 2")) is None
    assert find(store, query(f"{'x' * 9} 2")) is not None
    store.clear()
    assert find(store, query(f"{'x' * 9} 2")) is None


def test_a_script_is_found_by_its_user_whatever_files_it_came_with() -> None:
    store = AdviceCache(Clock())
    entry = put(store, query(config="{}"))
    assert find_similar(store, query(nodes=None)) is entry
    assert find_similar(store, query(), uid=2) is None
    assert find_similar(store, query(text="other")) is None
    assert find_similar(store, query(nodes=4)) is None


def test_the_latest_advice_that_does_not_contradict_counts() -> None:
    store = AdviceCache(Clock())
    put(store, query(nodes=2))
    entry = put(store, query(nodes=2, config="{}"))
    put(store, query(nodes=4))
    assert find_similar(store, query(nodes=2)) is entry


def test_what_was_said_again_is_the_latest() -> None:
    """The same question twice, another in between: the record is that of the last submission."""
    store = AdviceCache(Clock())
    entry = put(store, query(nodes=None))
    put(store, query(nodes=2))
    store.mark_latest(entry)
    assert find_similar(store, query(nodes=None)) is entry


def test_a_wish_for_files_is_no_advice() -> None:
    store = AdviceCache(Clock())
    put(store, query(), analysis=Analysis(missing_files=("config.json",)))
    assert find_similar(store, query()) is None


def test_advice_is_forgotten_in_time() -> None:
    clock = Clock()
    store = AdviceCache(clock)
    put(store, query())
    clock.now += MAX_AGE_S + 1
    assert find_similar(store, query()) is None
    assert len(store) == 0


def test_the_number_is_bounded_and_the_oldest_goes() -> None:
    store = AdviceCache(Clock(), max_entries=10)
    for number in range(100):
        put(store, query(text=f"script {number}"), uid=number % 3)
    assert len(store) == 10
    assert find_similar(store, query(text="script 89"), uid=89 % 3) is None
    assert find_similar(store, query(text="script 90"), uid=90 % 3) is not None
    assert sum(map(len, store._keys.values())) == 10


def test_being_shown_counts_for_a_while() -> None:
    clock = Clock()
    store = AdviceCache(clock)
    entry = put(store, query())
    assert not store.was_shown(entry)
    store.mark_shown(entry)
    assert store.was_shown(entry)
    clock.now += SHOWN_FOR_S + 1
    assert not store.was_shown(entry)


ASKED = SlurmRequest(nodes=2)


def test_what_was_just_typed_is_found_without_its_words() -> None:
    clock = Clock()
    store = AdviceCache(clock)
    put(store, query(text="batch"))
    entry = put(store, query(text="srun torchrun"))
    store.mark_typed(entry, ("torchrun", "train.py"))
    assert store.find_just_typed(1, SlurmRequest(nodes=3), ()) is None
    assert store.find_just_typed(2, ASKED, ()) is None
    assert store.find_just_typed(1, SlurmRequest(nodes=2, arguments=("x",)), ("torchrun",)) is entry


def test_typed_advice_is_for_one_submission() -> None:
    """The next interactive job of the same size may be about anything."""
    store = AdviceCache(Clock())
    entry = put(store, query())
    store.mark_typed(entry, ())
    store.mark_typed(entry, ())
    assert store.find_just_typed(1, ASKED, ()) is entry
    assert store.find_just_typed(1, ASKED, ()) is entry
    assert store.find_just_typed(1, ASKED, ()) is None


def test_typed_advice_soon_belongs_to_nobody() -> None:
    clock = Clock()
    store = AdviceCache(clock)
    store.mark_typed(put(store, query()), ())
    clock.now += TYPED_FOR_S + 1
    assert store.find_just_typed(1, ASKED, ()) is None


def test_typed_words_must_agree_where_slurm_shows_them() -> None:
    """23.02 and later show job_submit all words, ``bash`` before the script too."""
    store = AdviceCache(Clock())
    entry = put(store, query())
    store.mark_typed(entry, ("train.sh", "8"))
    assert store.find_just_typed(1, ASKED, ("hostname", "-f")) is None
    assert store.find_just_typed(1, ASKED, ("bash", "train.sh", "8")) is entry


def test_clearing_forgets_everything() -> None:
    store = AdviceCache(Clock())
    put(store, query())
    store.clear()
    assert find_similar(store, query()) is None


def test_blank_lines_at_the_end_do_not_change_a_script() -> None:
    """sbatch ends the script that --wrap makes with one more line than the hook can know."""
    assert script_hash("a\n\n") == script_hash("a\n") != script_hash("a b\n")


def test_no_script_text_is_kept() -> None:
    store = AdviceCache(Clock())
    secret = "export TOKEN=hush"
    assert secret not in repr(put(store, query(text=secret, config=secret)))
