"""Is stored advice found by whoever may have it, as long as it holds, and no longer?"""

from __future__ import annotations

from opsk_jobcheck.request import SlurmRequest
from opsk_jobcheck.stored import KEPT_S, SHOWN_FOR_S, TYPED_FOR_S, AdviceStore, Stored, context_of, key_of, script_hash
from opsk_jobcheck.thinking import Advised, Thought

FITS = Advised(verdict="fits", lines=("x",))


class Clock:
    """A clock that ticks on demand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def thought(text: str = "torchrun", nodes: int | None = 2, **files: str) -> Thought:
    return Thought(text=text, file="train.sh", request=SlurmRequest(nodes=nodes), files=files)


def put(store: AdviceStore, asked: Thought, *, uid: int = 1, advised: Advised = FITS) -> Stored:
    return store.put(context_of(uid, asked), uid, asked, advised)


def key(uid: int, asked: Thought) -> str:
    return key_of(context_of(uid, asked), asked.text)


def test_the_same_question_finds_its_answer() -> None:
    store = AdviceStore(Clock())
    entry = put(store, thought())
    assert store.exact(key(1, thought())) is entry
    assert store.exact(key(2, thought())) is None
    assert store.exact(key(1, thought(nodes=4))) is None
    assert store.exact(key(1, thought(config="{}"))) is None


def test_a_script_is_found_by_its_user_whatever_files_it_came_with() -> None:
    store = AdviceStore(Clock())
    entry = put(store, thought(config="{}"))
    assert store.alike(1, thought(nodes=None)) is entry
    assert store.alike(2, thought()) is None
    assert store.alike(1, thought(text="other")) is None
    assert store.alike(1, thought(nodes=4)) is None


def test_the_latest_advice_that_does_not_contradict_counts() -> None:
    store = AdviceStore(Clock())
    put(store, thought(nodes=2))
    entry = put(store, thought(nodes=2, config="{}"))
    put(store, thought(nodes=4))
    assert store.alike(1, thought(nodes=2)) is entry


def test_what_was_said_again_is_the_latest() -> None:
    """The same question twice, another in between: the record is that of the last submission."""
    store = AdviceStore(Clock())
    entry = put(store, thought(nodes=None))
    put(store, thought(nodes=2))
    store.said_again(entry)
    assert store.alike(1, thought(nodes=None)) is entry


def test_a_wish_for_files_is_no_advice() -> None:
    store = AdviceStore(Clock())
    put(store, thought(), advised=Advised(wanted=("config.json",)))
    assert store.alike(1, thought()) is None


def test_advice_is_forgotten_in_time() -> None:
    clock = Clock()
    store = AdviceStore(clock)
    put(store, thought())
    clock.now += KEPT_S + 1
    assert store.alike(1, thought()) is None
    assert len(store) == 0


def test_the_number_is_bounded_and_the_oldest_goes() -> None:
    store = AdviceStore(Clock(), max_entries=10)
    for number in range(100):
        put(store, thought(text=f"script {number}"), uid=number % 3)
    assert len(store) == 10
    assert store.alike(89 % 3, thought(text="script 89")) is None
    assert store.alike(90 % 3, thought(text="script 90")) is not None
    assert sum(map(len, store._keys.values())) == 10


def test_being_shown_counts_for_a_while() -> None:
    clock = Clock()
    store = AdviceStore(clock)
    entry = put(store, thought())
    assert not store.told(entry)
    store.shown(entry)
    assert store.told(entry)
    clock.now += SHOWN_FOR_S + 1
    assert not store.told(entry)


ASKED = SlurmRequest(nodes=2)


def test_what_was_just_typed_is_found_without_its_words() -> None:
    clock = Clock()
    store = AdviceStore(clock)
    put(store, thought(text="batch"))
    entry = put(store, thought(text="srun torchrun"))
    store.typed(entry, ("torchrun", "train.py"))
    assert store.just_typed(1, SlurmRequest(nodes=3), ()) is None
    assert store.just_typed(2, ASKED, ()) is None
    assert store.just_typed(1, SlurmRequest(nodes=2, arguments=("x",)), ("torchrun",)) is entry


def test_typed_advice_is_for_one_submission() -> None:
    """The next interactive job of the same size may be about anything."""
    store = AdviceStore(Clock())
    entry = put(store, thought())
    store.typed(entry, ())
    store.typed(entry, ())
    assert store.just_typed(1, ASKED, ()) is entry
    assert store.just_typed(1, ASKED, ()) is entry
    assert store.just_typed(1, ASKED, ()) is None


def test_typed_advice_soon_belongs_to_nobody() -> None:
    clock = Clock()
    store = AdviceStore(clock)
    store.typed(put(store, thought()), ())
    clock.now += TYPED_FOR_S + 1
    assert store.just_typed(1, ASKED, ()) is None


def test_typed_words_must_agree_where_slurm_shows_them() -> None:
    """23.02 and later show job_submit all words, ``bash`` before the script too."""
    store = AdviceStore(Clock())
    entry = put(store, thought())
    store.typed(entry, ("train.sh", "8"))
    assert store.just_typed(1, ASKED, ("hostname", "-f")) is None
    assert store.just_typed(1, ASKED, ("bash", "train.sh", "8")) is entry


def test_clearing_forgets_everything() -> None:
    store = AdviceStore(Clock())
    put(store, thought())
    store.clear()
    assert store.alike(1, thought()) is None


def test_blank_lines_at_the_end_do_not_change_a_script() -> None:
    """sbatch ends the script that --wrap makes with one more line than the hook can know."""
    assert script_hash("a\n\n") == script_hash("a\n") != script_hash("a b\n")


def test_no_script_text_is_kept() -> None:
    store = AdviceStore(Clock())
    secret = "export TOKEN=hush"
    assert secret not in repr(put(store, thought(text=secret, config=secret)))
