"""Lists the readers, one for each framework.

If several readers recognise a command, the one that recognises most of its settings reads it.
"""

from __future__ import annotations

from opsk_jobcheck.scripts.frameworks.axolotl import AXOLOTL
from opsk_jobcheck.scripts.frameworks.composer import COMPOSER_READER, OLMO_READER
from opsk_jobcheck.scripts.frameworks.gpt_neox import NEOX_READER
from opsk_jobcheck.scripts.frameworks.huggingface.trainer import HF_TRAINER
from opsk_jobcheck.scripts.frameworks.litgpt import LITGPT_READER
from opsk_jobcheck.scripts.frameworks.llama_factory import LLAMA_FACTORY
from opsk_jobcheck.scripts.frameworks.megatron.megatron import BIONEMO_READER, MEGATRON
from opsk_jobcheck.scripts.frameworks.nanotron import NANOTRON_READER, PICOTRON_READER
from opsk_jobcheck.scripts.frameworks.nemo import NEMO_READER
from opsk_jobcheck.scripts.frameworks.openrlhf import OPENRLHF_READER
from opsk_jobcheck.scripts.frameworks.pytorch_programs import AWS_FSDP, FMS_FSDP, LLAMA_COOKBOOK, PYTORCH
from opsk_jobcheck.scripts.frameworks.recognition import NAMED_BY_WORDS
from opsk_jobcheck.scripts.frameworks.swift import SWIFT_READER
from opsk_jobcheck.scripts.frameworks.torchtitan import TORCHTITAN
from opsk_jobcheck.scripts.frameworks.torchtune import TORCHTUNE
from opsk_jobcheck.scripts.frameworks.verl.sft import VERL_SFT_READER
from opsk_jobcheck.scripts.frameworks.verl.verl import VERL_READER
from opsk_jobcheck.scripts.frameworks.vision.nnunet import NNUNET_READER
from opsk_jobcheck.scripts.frameworks.vision.published_programs import PUBLISHED
from opsk_jobcheck.scripts.frameworks.vision.ultralytics import ULTRALYTICS_READER
from opsk_jobcheck.scripts.launchers.programs import CONNECTIVITY_READER
from opsk_jobcheck.scripts.settings.reader import Reader

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
    VERL_READER,
    VERL_SFT_READER,
    OPENRLHF_READER,
    SWIFT_READER,
    LLAMA_FACTORY,
    AXOLOTL,
    PUBLISHED,
    ULTRALYTICS_READER,
    NNUNET_READER,
    HF_TRAINER,
    PYTORCH,
    CONNECTIVITY_READER,
)
FRAMEWORKS = frozenset(name for reader in READERS for name in reader.frameworks) | NAMED_BY_WORDS
"""All names that a workload's framework can have, unless its user states another."""
