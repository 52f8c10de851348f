"""Lists the readers of all frameworks whose progress lines are supported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from opsk.telemetry.progress.frameworks.formats import FRAMEWORKS, FormatReader, LitgptReader, OwnLoopReader
from opsk.telemetry.progress.frameworks.generic import GenericReader
from opsk.telemetry.progress.frameworks.hf_trainer import HfTrainerReader, LlamaFactoryReader
from opsk.telemetry.progress.frameworks.keras import KerasReader
from opsk.telemetry.progress.frameworks.language import LANGUAGE_FRAMEWORKS
from opsk.telemetry.progress.frameworks.megatron import GptNeoxReader, MegatronReader
from opsk.telemetry.progress.frameworks.nemo import NemoReader
from opsk.telemetry.progress.frameworks.vision import VISION_FRAMEWORKS
from opsk.telemetry.progress.records import Reader

READERS: tuple[Callable[[], Reader], ...] = (
    OwnLoopReader,
    GptNeoxReader,
    MegatronReader,
    NemoReader,
    *(partial(FormatReader, framework) for framework in (*FRAMEWORKS, *LANGUAGE_FRAMEWORKS, *VISION_FRAMEWORKS)),
    KerasReader,
    LitgptReader,
    LlamaFactoryReader,
    HfTrainerReader,
    GenericReader,
)
"""In the order in which they are tried; the first that parses a line takes it."""
