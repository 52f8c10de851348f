"""Which readers are there? One framework a file; of several that know a command, the one that knows most reads it."""

from __future__ import annotations

from opsk_jobcheck.readers.axolotl import AXOLOTL
from opsk_jobcheck.readers.bionemo import BIONEMO_READER
from opsk_jobcheck.readers.composer import COMPOSER_READER
from opsk_jobcheck.readers.fms_fsdp import FMS_FSDP
from opsk_jobcheck.readers.frameworks import NAMED_BY_WORDS
from opsk_jobcheck.readers.fsdp_examples import AWS_FSDP
from opsk_jobcheck.readers.gpt_neox import NEOX_READER
from opsk_jobcheck.readers.hf_trainer import HF_TRAINER
from opsk_jobcheck.readers.litgpt import LITGPT_READER
from opsk_jobcheck.readers.llama_cookbook import LLAMA_COOKBOOK
from opsk_jobcheck.readers.llama_factory import LLAMA_FACTORY
from opsk_jobcheck.readers.megatron import MEGATRON
from opsk_jobcheck.readers.nanotron import NANOTRON_READER
from opsk_jobcheck.readers.nemo import NEMO_READER
from opsk_jobcheck.readers.olmo import OLMO_READER
from opsk_jobcheck.readers.other_work import CONNECTIVITY_READER
from opsk_jobcheck.readers.picotron import PICOTRON_READER
from opsk_jobcheck.readers.pytorch_ddp import PYTORCH
from opsk_jobcheck.readers.reading import Reader
from opsk_jobcheck.readers.torchtitan import TORCHTITAN
from opsk_jobcheck.readers.torchtune import TORCHTUNE

READERS: tuple[Reader, ...] = (
    MEGATRON,
    BIONEMO_READER,
    AWS_FSDP,
    FMS_FSDP,
    LLAMA_COOKBOOK,
    TORCHTITAN,
    NANOTRON_READER,
    COMPOSER_READER,
    OLMO_READER,
    LITGPT_READER,
    TORCHTUNE,
    PICOTRON_READER,
    NEMO_READER,
    NEOX_READER,
    LLAMA_FACTORY,
    AXOLOTL,
    HF_TRAINER,
    PYTORCH,
    CONNECTIVITY_READER,
)
FRAMEWORKS = frozenset(name for reader in READERS for name in reader.frameworks) | NAMED_BY_WORDS
"""All names that a workload's framework can have, unless its user says another."""
