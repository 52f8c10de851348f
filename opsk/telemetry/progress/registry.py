"""Which frameworks' progress lines can be read?"""

from __future__ import annotations

from collections.abc import Callable

from opsk.telemetry.progress.composer import ComposerReader
from opsk.telemetry.progress.deepspeed import DeepSpeedReader
from opsk.telemetry.progress.fms_fsdp import FmsFsdpReader
from opsk.telemetry.progress.generic import GenericReader
from opsk.telemetry.progress.gpt_neox import GptNeoxReader
from opsk.telemetry.progress.hf_trainer import HfTrainerReader
from opsk.telemetry.progress.litgpt import LitgptReader
from opsk.telemetry.progress.llama_factory import LlamaFactoryReader
from opsk.telemetry.progress.maxtext import MaxtextReader
from opsk.telemetry.progress.megatron import MegatronReader
from opsk.telemetry.progress.nanotron import NanotronReader
from opsk.telemetry.progress.nemo import NemoReader
from opsk.telemetry.progress.olmo import OlmoReader
from opsk.telemetry.progress.own_loop import OwnLoopReader
from opsk.telemetry.progress.picotron import PicotronReader
from opsk.telemetry.progress.pytorch_fsdp import PytorchFsdpReader
from opsk.telemetry.progress.records import Reader
from opsk.telemetry.progress.torchtitan import TorchtitanReader
from opsk.telemetry.progress.torchtune import TorchtuneReader
from opsk.telemetry.progress.verl import VerlReader

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
"""In the order in which they are asked; the first that knows a line has it."""
