"""Lists the readers of all frameworks whose progress lines are supported."""

from __future__ import annotations

from collections.abc import Callable

from opsk.telemetry.progress.frameworks.composer import ComposerReader
from opsk.telemetry.progress.frameworks.deepspeed import DeepSpeedReader
from opsk.telemetry.progress.frameworks.fms_fsdp import FmsFsdpReader
from opsk.telemetry.progress.frameworks.generic import GenericReader
from opsk.telemetry.progress.frameworks.gpt_neox import GptNeoxReader
from opsk.telemetry.progress.frameworks.hf_trainer import HfTrainerReader
from opsk.telemetry.progress.frameworks.litgpt import LitgptReader
from opsk.telemetry.progress.frameworks.llama_factory import LlamaFactoryReader
from opsk.telemetry.progress.frameworks.maxtext import MaxtextReader
from opsk.telemetry.progress.frameworks.megatron import MegatronReader
from opsk.telemetry.progress.frameworks.nanotron import NanotronReader
from opsk.telemetry.progress.frameworks.nemo import NemoReader
from opsk.telemetry.progress.frameworks.olmo import OlmoReader
from opsk.telemetry.progress.frameworks.opsk_report import OwnLoopReader
from opsk.telemetry.progress.frameworks.picotron import PicotronReader
from opsk.telemetry.progress.frameworks.pytorch_fsdp import PytorchFsdpReader
from opsk.telemetry.progress.frameworks.torchtitan import TorchtitanReader
from opsk.telemetry.progress.frameworks.torchtune import TorchtuneReader
from opsk.telemetry.progress.frameworks.verl import VerlReader
from opsk.telemetry.progress.records import Reader

READERS: tuple[Callable[[], Reader], ...] = (
    OwnLoopReader,
    GptNeoxReader,
    MegatronReader,
    NemoReader,
    TorchtitanReader,
    NanotronReader,
    PicotronReader,
    MaxtextReader,
    TorchtuneReader,
    LitgptReader,
    VerlReader,
    LlamaFactoryReader,
    PytorchFsdpReader,
    ComposerReader,
    OlmoReader,
    DeepSpeedReader,
    HfTrainerReader,
    FmsFsdpReader,
    GenericReader,
)
"""In the order in which they are tried; the first that parses a line takes it."""
