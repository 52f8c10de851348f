"""States what a sample of a program is, as far as its settings and its text tell."""

from __future__ import annotations

import re
from functools import lru_cache

from opsk.frameworks.settings.usual_settings import BATCHES, IMAGE_SIDES, LAST_LENGTHS
from opsk.workload.worst_case import CHECKED
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.own_models.training.usual_inputs import Inputs
from opsk_jobcheck.scripts.frameworks.own_program.numbers import FIELDS
from opsk_jobcheck.scripts.frameworks.python.image_models import MAX_SIDE, find_image_side
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings
from opsk_jobcheck.scripts.settings.findings import MAX_NUMBER, Findings, parse_integer

MAX_WORD = 4096
MAX_BATCH = 1 << 16
_FEW = (
    "(?<!re)(?<!inter)views|multi_?crop|two_?crop|crops_number|triplet|siamese|contrastive|multiple_?choice|swag"
    "|pairwise|mean_teacher|simclr"
)
_MANY = (
    r"(?<!values_)video(?!_(inputs|kwargs|grid)|s\s?=\s?video_inputs)|(?<!data)frames|clip_len|rerank|retriev(?:al|er)|episode|rollout|\bbags?\b|\bbag_|slices|negatives"
    r"|(?<!n)tiles"
)
_SEVERAL, _ANY_NUMBER = re.compile(f"(?i){_FEW}|{_MANY}"), re.compile(f"(?i){_MANY}")
"""Words of programs that work on several texts or images of a sample at a time, and of those on any number of them."""
MAX_PARTS = 10
"""Views of an image in DINO, which takes most of them: two large ones and eight small ones."""


_OF_ROLES = re.compile(r"(?i)episode|rollouts?|pairwise|negatives|contrastive|retriev\w*")
"""Those of them that programs of trainers on preferences, or on answers, have anyway."""


def check_samples(invocation: Invocation, text: str, findings: Findings, *, has_roles: bool = False) -> bool:
    """State, and return, whether nothing says that a sample has several parts of the size that is known.

    Parameters
    ----------
    has_roles
        Whether a trainer is known that works on answers, or pairs of them: how many they are is stated with its roles.
    """
    words = " ".join(word for word in invocation.shown_words if len(word) < MAX_WORD)
    if has_roles:
        words, text = _OF_ROLES.sub("", words), _OF_ROLES.sub("", text)
    is_one = not has_several_parts(words) and not has_several_parts(text)
    if is_one:
        findings.options[CHECKED] = "true"
    return is_one


@lru_cache(maxsize=32)
def has_several_parts(text: str) -> bool:
    """Return whether a text has words of programs whose samples have several parts."""
    return _SEVERAL.search(text) is not None


def find_inputs(settings: ProgramSettings) -> Inputs:
    """Return the sizes of a sample, or of one of its parts, by the settings of a program."""
    source = settings.source
    if source is None:
        return Inputs(is_single=False, parts=0)
    text = "\n".join(source.lines)
    is_single = not has_several_parts(text)
    return Inputs(
        is_single=is_single,
        parts=1 if is_single else 0 if _ANY_NUMBER.search(text) else MAX_PARTS,
        side=_find_number(settings, IMAGE_SIDES, MAX_SIDE) or find_image_side(source),
        length=_find_number(settings, (*FIELDS["model.seq"], *LAST_LENGTHS), MAX_NUMBER),
        batch=_find_number(settings, (*FIELDS["plan.micro_batch"], *BATCHES), MAX_BATCH),
    )


def _find_number(settings: ProgramSettings, names: tuple[str, ...], largest: int) -> int:
    """Return a whole number that settings state; 0 where it is not known."""
    entry = settings.find(names)
    number = parse_integer(entry.value) if entry is not None and not entry.why and entry.value is not None else None
    return number if number is not None and 0 < number <= largest else 0
