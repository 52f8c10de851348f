"""Writes the table of names and shapes of public models from public tables of configurations.

``python docs/programs/tables/public_models.py --litgpt CONFIG.py --timm VISION_TRANSFORMER.py,DEIT.py --open-clip
FOLDER`` reads ``litgpt/config.py`` of LitGPT (which needs ``yaml`` and ``typing_extensions``), ``timm/models/*.py`` of
timm and ``model_configs`` of OpenCLIP, and the families below, whose shapes are those of their papers. Only sizes are
taken over: facts, no text. Names that the catalogue's other files have are left out.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from opsk.workload.public_models.lookup import TABLE, join_words, normalise_words, public_models

TARGET = Path(__file__).parents[3] / "opsk/workload/public_models/catalogue" / TABLE
_TIED = re.compile(
    r"(code)?gemma.*|llama-3\.2-[13]b|qwen2\.5-(coder-|math-)?(0\.5|1\.5|3)b|qwen3-(0\.6|1\.7|4)b.*|smollm2-.*|phi-4-mini.*|olmo-1b.*"
    r"|falcon-.*",
    re.IGNORECASE,
)
"""Models of LitGPT whose head is the embedding; its table does not say."""
_GATED = {"LLaMAMLP": True, "GemmaMLP": True, "LLaMAMoE": True, "GptNeoxMLP": False}
_PLAIN_ENCODER = {"gated_mlp": False, "learned_positions": True, "tied_embeddings": True, "qkv_bias": True}
_VISION = {"gated_mlp": False, "learned_positions": True, "tied_embeddings": False, "vocab": 1000, "qkv_bias": True}
_LLAMA = {"gated_mlp": True, "tied_embeddings": False}
_TIED_LLAMA = {"gated_mlp": True, "tied_embeddings": True}
_GPT = {"gated_mlp": False, "learned_positions": True, "tied_embeddings": True}
_ROTARY_GPT = {"gated_mlp": False, "tied_embeddings": False}
_T5 = {
    **{"relative_positions": 32, "qkv_bias": False, "output_bias": False, "mlp_bias": False, "norm_bias": False},
    **{"flash_attention": False, "encoder_seq": 512},
}

Row = tuple[str, Mapping[str, Any], str, tuple[str, ...]]
"""Kind, shape, source and names."""

FAMILIES: tuple[tuple[str, Mapping[str, Any], str, str], ...] = (
    # kind, what all have, source, then: layers hidden heads ffn vocab seq, names
    (
        "encoder",
        _PLAIN_ENCODER,
        "BERT (arXiv 1810.04805) and models of its shape: google-research/bert, config.json",
        """
        12 768 12 3072 30522 512 google-bert/bert-base-uncased bert-base-uncased
        12 768 12 3072 28996 512 google-bert/bert-base-cased bert-base-cased
        24 1024 16 4096 30522 512 google-bert/bert-large-uncased bert-large-uncased
        24 1024 16 4096 28996 512 google-bert/bert-large-cased bert-large-cased
        12 768 12 3072 119547 512 google-bert/bert-base-multilingual-cased bert-base-multilingual-cased
        12 768 12 3072 105879 512 google-bert/bert-base-multilingual-uncased bert-base-multilingual-uncased
        12 768 12 3072 21128 512 google-bert/bert-base-chinese bert-base-chinese
        2 128 2 512 30522 512 google/bert_uncased_L-2_H-128_A-2 prajjwal1/bert-tiny
        4 256 4 1024 30522 512 google/bert_uncased_L-4_H-256_A-4 prajjwal1/bert-mini
        4 512 8 2048 30522 512 google/bert_uncased_L-4_H-512_A-8 prajjwal1/bert-small
        8 512 8 2048 30522 512 google/bert_uncased_L-8_H-512_A-8 prajjwal1/bert-medium
        6 768 12 3072 30522 512 distilbert/distilbert-base-uncased distilbert-base-uncased
        6 768 12 3072 28996 512 distilbert/distilbert-base-cased distilbert-base-cased
        6 768 12 3072 119547 512 distilbert/distilbert-base-multilingual-cased
        12 768 12 3072 31090 512 allenai/scibert_scivocab_uncased
        12 768 12 3072 28996 512 dmis-lab/biobert-v1.1 dmis-lab/biobert-base-cased-v1.2
        12 768 12 3072 28996 512 emilyalsentzer/Bio_ClinicalBERT
        12 768 12 3072 30522 512 microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract BAAI/bge-base-en-v1.5
        24 1024 16 4096 30522 512 BAAI/bge-large-en-v1.5
        12 384 12 1536 30522 512 BAAI/bge-small-en-v1.5 sentence-transformers/all-MiniLM-L12-v2
        6 384 12 1536 30522 512 sentence-transformers/all-MiniLM-L6-v2
        12 768 12 3072 30522 512 intfloat/e5-base-v2 thenlper/gte-base
        12 768 12 3072 30522 512 ProsusAI/finbert nlpaueb/legal-bert-base-uncased
        12 768 12 3072 21128 512 hfl/chinese-roberta-wwm-ext hfl/chinese-bert-wwm-ext
        12 768 12 3072 29794 512 neuralmind/bert-base-portuguese-cased
        12 768 12 3072 50105 512 TurkuNLP/bert-base-finnish-cased-v1
        12 768 12 3072 32000 512 dbmdz/bert-base-turkish-cased
        24 1024 16 4096 30522 512 intfloat/e5-large-v2 thenlper/gte-large
        """,
    ),
    (
        "encoder",
        _PLAIN_ENCODER,
        "RoBERTa (arXiv 1907.11692), XLM-R (arXiv 1911.02116), CodeBERT: config.json",
        """
        12 768 12 3072 50265 512 FacebookAI/roberta-base roberta-base
        12 768 12 3072 50265 512 allenai/biomed_roberta_base microsoft/codebert-base
        24 1024 16 4096 50265 512 FacebookAI/roberta-large roberta-large
        6 768 12 3072 50265 512 distilbert/distilroberta-base distilroberta-base
        12 768 12 3072 250002 512 FacebookAI/xlm-roberta-base xlm-roberta-base intfloat/multilingual-e5-base
        24 1024 16 4096 250002 512 FacebookAI/xlm-roberta-large xlm-roberta-large
        24 1024 16 4096 250002 512 intfloat/multilingual-e5-large BAAI/bge-m3
        12 768 12 3072 64001 256 vinai/bertweet-base vinai/phobert-base
        12 768 12 3072 32005 512 almanach/camembert-base camembert-base
        """,
    ),
    (
        "encoder",
        {"gated_mlp": False, "learned_positions": False, "tied_embeddings": True, "qkv_bias": True},
        "ESM-2 (Lin et al. 2023, facebookresearch/esm): layers and widths are in the names; 33 tokens",
        """
        6 320 20 1280 33 1024 facebook/esm2_t6_8M_UR50D esm2_t6_8M_UR50D
        12 480 20 1920 33 1024 facebook/esm2_t12_35M_UR50D esm2_t12_35M_UR50D
        30 640 20 2560 33 1024 facebook/esm2_t30_150M_UR50D esm2_t30_150M_UR50D
        33 1280 20 5120 33 1024 facebook/esm2_t33_650M_UR50D esm2_t33_650M_UR50D
        36 2560 40 10240 33 1024 facebook/esm2_t36_3B_UR50D esm2_t36_3B_UR50D
        48 5120 40 20480 33 1024 facebook/esm2_t48_15B_UR50D esm2_t48_15B_UR50D
        """,
    ),
    (
        "encoder",
        {"gated_mlp": True, "tied_embeddings": True, "mlp_bias": False, "qkv_bias": False, "norm_bias": False},
        "ModernBERT (arXiv 2412.13663, table of architectures)",
        """
        22 768 12 1152 50368 8192 answerdotai/ModernBERT-base
        28 1024 16 2624 50368 8192 answerdotai/ModernBERT-large
        """,
    ),
    (
        "vision",
        _VISION,
        "ViT (arXiv 2010.11929), DeiT (arXiv 2012.12877), MAE (arXiv 2111.06377), DINO (arXiv 2104.14294)",
        """
        12 768 12 3072 1000 197 google/vit-base-patch16-224 google/vit-base-patch16-224-in21k
        12 768 12 3072 1000 197 vit_b_16 facebook/vit-mae-base
        12 768 12 3072 1000 577 google/vit-base-patch16-384
        12 768 12 3072 1000 50 google/vit-base-patch32-224-in21k vit_b_32
        12 768 12 3072 1000 145 google/vit-base-patch32-384
        24 1024 16 4096 1000 197 google/vit-large-patch16-224 google/vit-large-patch16-224-in21k
        24 1024 16 4096 1000 197 vit_l_16 facebook/vit-mae-large
        24 1024 16 4096 1000 577 google/vit-large-patch16-384
        24 1024 16 4096 1000 50 google/vit-large-patch32-224-in21k vit_l_32
        32 1280 16 5120 1000 257 google/vit-huge-patch14-224-in21k vit_h_14 facebook/vit-mae-huge
        12 192 3 768 1000 197 facebook/deit-tiny-patch16-224
        12 384 6 1536 1000 197 facebook/deit-small-patch16-224 facebook/dino-vits16
        12 768 12 3072 1000 197 facebook/deit-base-patch16-224 facebook/dino-vitb16
        12 384 6 1536 1000 257 facebook/dinov2-small dinov2_vits14
        12 768 12 3072 1000 257 facebook/dinov2-base dinov2_vitb14
        24 1024 16 4096 1000 257 facebook/dinov2-large dinov2_vitl14
        """,
    ),
    (
        "encoder-decoder",
        {"gated_mlp": False, "learned_positions": True, "tied_embeddings": True, "encoder_seq": 1500},
        "Whisper (arXiv 2212.04356, table 1): 448 tokens of text, 1,500 of sound",
        """
        4 384 6 1536 51865 448 encoder_layers=4 openai/whisper-tiny
        6 512 8 2048 51865 448 encoder_layers=6 openai/whisper-base
        12 768 12 3072 51865 448 encoder_layers=12 openai/whisper-small
        24 1024 16 4096 51865 448 encoder_layers=24 openai/whisper-medium
        32 1280 20 5120 51865 448 encoder_layers=32 openai/whisper-large openai/whisper-large-v2
        32 1280 20 5120 51866 448 encoder_layers=32 openai/whisper-large-v3
        4 1280 20 5120 51866 448 encoder_layers=32 openai/whisper-large-v3-turbo
        """,
    ),
    (
        "encoder-decoder",
        {"gated_mlp": False, "learned_positions": True, "tied_embeddings": True, "encoder_seq": 1024},
        "BART (arXiv 1910.13461), mBART (arXiv 2001.08210), PEGASUS (arXiv 1912.08777)",
        """
        6 768 12 3072 50265 1024 encoder_layers=6 facebook/bart-base
        12 1024 16 4096 50265 1024 encoder_layers=12 facebook/bart-large
        12 1024 16 4096 50264 1024 encoder_layers=12 facebook/bart-large-cnn
        12 1024 16 4096 250054 1024 encoder_layers=12 facebook/mbart-large-50
        12 1024 16 4096 250054 1024 encoder_layers=12 facebook/mbart-large-50-many-to-many-mmt
        """,
    ),
    (
        "speech",
        {"gated_mlp": False, "tied_embeddings": False},
        "wav2vec 2.0 (arXiv 2006.11477), HuBERT (arXiv 2106.07447), WavLM (arXiv 2110.13900), XLS-R (arXiv 2111.09296)",
        """
        12 768 12 3072 32 768 facebook/wav2vec2-base facebook/wav2vec2-base-960h facebook/hubert-base-ls960
        12 768 12 3072 32 768 microsoft/wavlm-base microsoft/wavlm-base-plus
        24 1024 16 4096 32 768 facebook/wav2vec2-large facebook/wav2vec2-large-960h
        24 1024 16 4096 32 768 facebook/hubert-large-ll60k
        24 1024 16 4096 32 768 microsoft/wavlm-large facebook/wav2vec2-large-xlsr-53
        24 1024 16 4096 32 768 facebook/wav2vec2-xls-r-300m
        48 1280 16 5120 32 768 facebook/wav2vec2-xls-r-1b facebook/hubert-xlarge-ll60k
        48 1920 16 7680 32 768 facebook/wav2vec2-xls-r-2b
        """,
    ),
    (
        "diffusion",
        {"gated_mlp": False, "tied_embeddings": False},
        "DiT (arXiv 2212.09748, table 1: 256 tokens at 256 pixels and patch 2), SiT (arXiv 2401.08740), PixArt",
        """
        12 384 6 1536 1000 256 DiT-S-2 SiT-S-2
        12 768 12 3072 1000 256 DiT-B-2 SiT-B-2
        24 1024 16 4096 1000 256 DiT-L-2 SiT-L-2
        28 1152 16 4608 1000 256 DiT-XL-2 SiT-XL-2 facebook/DiT-XL-2-256
        28 1152 16 4608 1000 1024 facebook/DiT-XL-2-512 PixArt-alpha/PixArt-XL-2-512x512
        28 1152 16 4608 1000 4096 PixArt-alpha/PixArt-XL-2-1024-MS
        """,
    ),
    (
        "decoder",
        _GPT,
        "GPT-2 (Radford et al. 2019), DistilGPT-2, Cerebras-GPT (arXiv 2304.03208, table 1), BioGPT (arXiv 2210.10341)",
        """
        6 768 12 3072 50257 1024 distilbert/distilgpt2 distilgpt2
        10 768 12 3072 50257 2048 cerebras/Cerebras-GPT-111M
        14 1088 17 4352 50257 2048 cerebras/Cerebras-GPT-256M
        18 1536 24 6144 50257 2048 cerebras/Cerebras-GPT-590M
        24 2048 16 8192 50257 2048 cerebras/Cerebras-GPT-1.3B
        32 2560 32 10240 50257 2048 cerebras/Cerebras-GPT-2.7B
        32 4096 32 16384 50257 2048 cerebras/Cerebras-GPT-6.7B
        40 5120 40 20480 50257 2048 cerebras/Cerebras-GPT-13B
        24 1024 16 4096 42384 1024 microsoft/biogpt
        48 1600 25 6400 57717 1024 microsoft/BioGPT-Large
        12 768 12 3072 50257 2048 EleutherAI/gpt-neo-125m
        24 2048 16 8192 50257 2048 EleutherAI/gpt-neo-1.3B
        32 2560 20 10240 50257 2048 EleutherAI/gpt-neo-2.7B
        12 768 12 3072 50272 2048 facebook/opt-125m
        32 2560 32 10240 50272 2048 facebook/opt-2.7b
        """,
    ),
    (
        "decoder",
        {"gated_mlp": False, "tied_embeddings": True, "embedding_norm": True},
        "BLOOM (arXiv 2211.05100, table 3)",
        """
        24 1024 16 4096 250880 2048 bigscience/bloom-560m bigscience/bloomz-560m
        24 1536 16 6144 250880 2048 bigscience/bloom-1b1 bigscience/bloomz-1b1
        24 2048 16 8192 250880 2048 bigscience/bloom-1b7 bigscience/bloomz-1b7
        30 2560 32 10240 250880 2048 bigscience/bloom-3b bigscience/bloomz-3b
        """,
    ),
    (
        "decoder",
        {**_ROTARY_GPT, "norms_per_layer": 1, "qkv_bias": False, "output_bias": False, "head_bias": True},
        "CodeGen (arXiv 2203.13474, appendix)",
        """
        20 1024 16 4096 51200 2048 Salesforce/codegen-350M-mono Salesforce/codegen-350M-multi
        20 1024 16 4096 51200 2048 Salesforce/codegen-350M-nl
        32 2560 32 10240 51200 2048 Salesforce/codegen-2B-mono Salesforce/codegen-2B-multi
        32 2560 32 10240 51200 2048 Salesforce/codegen-2B-nl
        33 4096 16 16384 51200 2048 Salesforce/codegen-6B-mono Salesforce/codegen-6B-multi
        33 4096 16 16384 51200 2048 Salesforce/codegen-6B-nl
        34 6144 24 24576 51200 2048 Salesforce/codegen-16B-mono Salesforce/codegen-16B-multi
        34 6144 24 24576 51200 2048 Salesforce/codegen-16B-nl
        """,
    ),
    (
        "decoder",
        _LLAMA,
        "models of Llama's and Mistral's architecture: config.json of each, trained from or shaped as the named ones",
        """
        32 4096 32 11008 32000 4096 lmsys/vicuna-7b-v1.5 lmsys/vicuna-7b-v1.3 NousResearch/Llama-2-7b-hf
        40 5120 40 13824 32000 4096 lmsys/vicuna-13b-v1.5 lmsys/vicuna-13b-v1.3 NousResearch/Llama-2-13b-hf
        32 4096 32 14336 32000 4096 kv_heads=8 HuggingFaceH4/zephyr-7b-beta HuggingFaceH4/zephyr-7b-alpha
        32 4096 32 14336 32000 4096 kv_heads=8 HuggingFaceH4/mistral-7b-sft-beta
        32 4096 32 14336 128256 8192 kv_heads=8 deepseek-ai/DeepSeek-R1-Distill-Llama-8B
        32 4096 32 14336 128256 8192 kv_heads=8 NousResearch/Meta-Llama-3-8B
        80 8192 64 28672 128256 8192 kv_heads=8 deepseek-ai/DeepSeek-R1-Distill-Llama-70B
        30 4096 32 11008 102400 4096 deepseek-ai/deepseek-llm-7b-base deepseek-ai/deepseek-llm-7b-chat
        30 4096 32 11008 102400 4096 deepseek-ai/deepseek-math-7b-base deepseek-ai/deepseek-math-7b-instruct
        95 8192 64 22016 102400 4096 kv_heads=8 deepseek-ai/deepseek-llm-67b-base
        95 8192 64 22016 102400 4096 kv_heads=8 deepseek-ai/deepseek-llm-67b-chat
        24 2048 16 5504 32256 16384 deepseek-ai/deepseek-coder-1.3b-base
        24 2048 16 5504 32256 16384 deepseek-ai/deepseek-coder-1.3b-instruct
        32 4096 32 11008 32256 16384 deepseek-ai/deepseek-coder-6.7b-base
        32 4096 32 11008 32256 16384 deepseek-ai/deepseek-coder-6.7b-instruct
        62 7168 56 19200 32256 16384 kv_heads=8 deepseek-ai/deepseek-coder-33b-base
        62 7168 56 19200 32256 16384 kv_heads=8 deepseek-ai/deepseek-coder-33b-instruct
        40 5120 32 14336 131072 8192 kv_heads=8 head_dim=128 mistralai/Mistral-Nemo-Base-2407
        40 5120 32 14336 131072 8192 kv_heads=8 head_dim=128 mistralai/Mistral-Nemo-Instruct-2407
        40 5120 32 32768 131072 8192 kv_heads=8 head_dim=128 mistralai/Mistral-Small-24B-Base-2501
        40 5120 32 32768 131072 8192 kv_heads=8 head_dim=128 mistralai/Mistral-Small-24B-Instruct-2501
        32 4096 32 11008 64000 4096 kv_heads=4 01-ai/Yi-6B-Chat 01-ai/Yi-1.5-6B 01-ai/Yi-1.5-6B-Chat
        48 4096 32 11008 64000 4096 kv_heads=4 01-ai/Yi-9B 01-ai/Yi-1.5-9B 01-ai/Yi-1.5-9B-Chat
        60 7168 56 20480 64000 4096 kv_heads=8 01-ai/Yi-34B-Chat 01-ai/Yi-1.5-34B 01-ai/Yi-1.5-34B-Chat
        48 4096 32 14336 32000 4096 kv_heads=8 upstage/SOLAR-10.7B-v1.0 upstage/SOLAR-10.7B-Instruct-v1.0
        """,
    ),
    (
        "decoder",
        _TIED_LLAMA,
        "SmolLM (HuggingFaceTB): config.json",
        """
        30 576 9 1536 49152 2048 kv_heads=3 HuggingFaceTB/SmolLM-135M HuggingFaceTB/SmolLM-135M-Instruct
        32 960 15 2560 49152 2048 kv_heads=5 HuggingFaceTB/SmolLM-360M HuggingFaceTB/SmolLM-360M-Instruct
        24 2048 32 8192 49152 2048 HuggingFaceTB/SmolLM-1.7B HuggingFaceTB/SmolLM-1.7B-Instruct
        """,
    ),
    (
        "decoder",
        {"gated_mlp": True, "tied_embeddings": False, "qkv_bias": True},
        "Qwen1.5 and Qwen2 (arXiv 2407.10671, table 1), DeepSeek-R1's distillations of Qwen2.5: config.json",
        """
        32 4096 32 11008 151936 8192 Qwen/Qwen1.5-7B Qwen/Qwen1.5-7B-Chat
        40 5120 40 13696 152064 8192 Qwen/Qwen1.5-14B Qwen/Qwen1.5-14B-Chat
        80 8192 64 29568 152064 8192 kv_heads=8 Qwen/Qwen2-72B Qwen/Qwen2-72B-Instruct
        28 1536 12 8960 151936 4096 kv_heads=2 deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B
        28 3584 28 18944 152064 4096 kv_heads=4 deepseek-ai/DeepSeek-R1-Distill-Qwen-7B
        48 5120 40 13824 152064 4096 kv_heads=8 deepseek-ai/DeepSeek-R1-Distill-Qwen-14B
        64 5120 40 27648 152064 4096 kv_heads=8 deepseek-ai/DeepSeek-R1-Distill-Qwen-32B
        """,
    ),
    (
        "encoder",
        {"gated_mlp": False, "learned_positions": True, "tied_embeddings": True, "qkv_bias": True},
        "ESM-1b and ESM-1v (Rives et al. 2021, Meier et al. 2021; facebookresearch/esm, config.json)",
        """
        33 1280 20 5120 33 1024 facebook/esm1b_t33_650M_UR50S esm1b_t33_650M_UR50S
        33 1280 20 5120 33 1024 facebook/esm1v_t33_650M_UR90S_1 facebook/esm1v_t33_650M_UR90S_2
        33 1280 20 5120 33 1024 facebook/esm1v_t33_650M_UR90S_3 facebook/esm1v_t33_650M_UR90S_4
        33 1280 20 5120 33 1024 facebook/esm1v_t33_650M_UR90S_5
        """,
    ),
    (
        "encoder",
        {"gated_mlp": True, "tied_embeddings": False, "mlp_bias": False, "qkv_bias": False},
        "ESM C (evolutionaryscale/esm: esm/pretrained.py; the inner width is 8/3 of the width, rounded up to 256)",
        """
        30 960 15 2560 64 2048 EvolutionaryScale/esmc-300m-2024-12 esmc_300m
        36 1152 18 3072 64 2048 EvolutionaryScale/esmc-600m-2024-12 esmc_600m
        """,
    ),
    (
        "encoder",
        _PLAIN_ENCODER,
        "ProtBert (arXiv 2007.06225), DNABERT (Ji et al. 2021), Geneformer (Theodoris et al. 2023): config.json",
        """
        30 1024 16 4096 30 512 Rostlab/prot_bert Rostlab/prot_bert_bfd
        12 768 12 3072 69 512 zhihan1996/DNA_bert_3
        12 768 12 3072 261 512 zhihan1996/DNA_bert_4
        12 768 12 3072 1029 512 zhihan1996/DNA_bert_5
        12 768 12 3072 4101 512 zhihan1996/DNA_bert_6
        6 256 4 512 25426 2048 gf-6L-30M-i2048
        12 512 8 1024 25426 2048 gf-12L-30M-i2048
        12 512 8 1024 20275 4096 gf-12L-95M-i4096
        20 896 14 1792 20275 4096 gf-20L-95M-i4096
        """,
    ),
    (
        "encoder",
        {"gated_mlp": False, "learned_positions": False, "tied_embeddings": True, "qkv_bias": True},
        "scGPT (Cui et al. 2024, bowang-lab/scGPT: args.json of the whole-human model): values come out, not genes",
        """
        12 512 8 512 60697 1200 bowang-lab/scGPT tdc/scGPT scGPT_human
        """,
    ),
    (
        "encoder",
        {"gated_mlp": True, "tied_embeddings": True, "qkv_bias": True},
        "DNABERT-2 (arXiv 2306.15006): BERT with a gated MLP and ALiBi, config.json",
        """
        12 768 12 3072 4096 512 zhihan1996/DNABERT-2-117M
        """,
    ),
    (
        "encoder",
        {"gated_mlp": False, "learned_positions": True, "tied_embeddings": False, "qkv_bias": True},
        "Nucleotide Transformer (Dalla-Torre et al. 2024, table of models): six letters a token",
        """
        24 1280 20 5120 4105 1000 InstaDeepAI/nucleotide-transformer-500m-human-ref
        24 1280 20 5120 4105 1000 InstaDeepAI/nucleotide-transformer-500m-1000g
        32 2560 20 10240 4105 1000 InstaDeepAI/nucleotide-transformer-2.5b-1000g
        32 2560 20 10240 4105 1000 InstaDeepAI/nucleotide-transformer-2.5b-multi-species
        """,
    ),
    (
        "encoder",
        {"gated_mlp": True, "tied_embeddings": False, "mlp_bias": False, "qkv_bias": True},
        "Nucleotide Transformer v2 (Dalla-Torre et al. 2024, table of models): rotary, gated",
        """
        12 512 16 2048 4107 2048 InstaDeepAI/nucleotide-transformer-v2-50m-multi-species
        22 512 16 2048 4107 2048 InstaDeepAI/nucleotide-transformer-v2-100m-multi-species
        24 768 16 3072 4107 2048 InstaDeepAI/nucleotide-transformer-v2-250m-multi-species
        29 1024 16 4096 4107 2048 InstaDeepAI/nucleotide-transformer-v2-500m-multi-species
        """,
    ),
    (
        "decoder",
        _ROTARY_GPT,
        "ProGen2 (Nijkamp et al. 2023, table 1; salesforce/progen)",
        """
        12 1024 16 4096 32 1024 hugohrban/progen2-small progen2-small
        27 1536 16 6144 32 1024 hugohrban/progen2-medium progen2-medium
        27 1536 16 6144 32 2048 hugohrban/progen2-base progen2-base
        32 2560 32 10240 32 1024 hugohrban/progen2-large progen2-large
        32 4096 16 16384 32 1024 hugohrban/progen2-xlarge progen2-xlarge
        """,
    ),
    (
        "encoder-decoder",
        {**_T5, "gated_mlp": False, "tied_embeddings": True},
        "ProtT5 (arXiv 2007.06225): the shape of T5-3B, config.json",
        """
        24 1024 32 16384 128 512 encoder_layers=24 head_dim=128 Rostlab/prot_t5_xl_uniref50 Rostlab/prot_t5_xl_bfd
        """,
    ),
    (
        "encoder-decoder",
        {**_T5, "gated_mlp": True, "tied_embeddings": False},
        "mT5 (arXiv 2010.11934), Ankh (arXiv 2301.06568): config.json",
        """
        8 512 6 1024 250112 512 encoder_layers=8 head_dim=64 google/mt5-small
        12 768 12 2048 250112 512 encoder_layers=12 head_dim=64 google/mt5-base
        24 1024 16 2816 250112 512 encoder_layers=24 head_dim=64 google/mt5-large
        24 2048 32 5120 250112 512 encoder_layers=24 head_dim=64 google/mt5-xl
        24 4096 64 10240 250112 512 encoder_layers=24 head_dim=64 google/mt5-xxl
        24 768 12 3072 144 512 encoder_layers=48 head_dim=64 ElnaggarLab/ankh-base
        24 1536 16 3840 144 512 encoder_layers=48 head_dim=64 ElnaggarLab/ankh-large
        """,
    ),
    (
        "encoder-decoder",
        {"gated_mlp": False, "tied_embeddings": True, "encoder_seq": 512},
        "NLLB (arXiv 2207.04672), M2M-100 (arXiv 2010.11125): config.json",
        """
        12 1024 16 4096 256206 512 encoder_layers=12 facebook/nllb-200-distilled-600M
        24 1024 16 8192 256206 512 encoder_layers=24 facebook/nllb-200-distilled-1.3B facebook/nllb-200-1.3B
        24 2048 16 8192 256206 512 encoder_layers=24 facebook/nllb-200-3.3B
        12 1024 16 4096 128112 512 encoder_layers=12 facebook/m2m100_418M
        24 1024 16 8192 128112 512 encoder_layers=24 facebook/m2m100_1.2B
        """,
    ),
)


def list_families() -> Iterator[Row]:
    """Yield the rows of the families of this file."""
    for kind, common, source, text in FAMILIES:
        for line in text.strip().splitlines():
            words = line.split()
            sizes = dict(zip(("layers", "hidden", "heads", "ffn", "vocab", "seq"), map(int, words[:6]), strict=True))
            more = {key: int(value) for key, _, value in (word.partition("=") for word in words[6:]) if value}
            names = tuple(word for word in words[6:] if "=" not in word)
            yield kind, {**common, **sizes, **more}, source, names


def list_litgpt(path: Path) -> Iterator[Row]:
    """Yield the rows of LitGPT's table; its module needs nothing but ``yaml`` and ``typing_extensions``."""
    place = spec_from_file_location("litgpt_config", path)
    if place is None or place.loader is None:
        return
    module = sys.modules["litgpt_config"] = module_from_spec(place)
    place.loader.exec_module(module)
    for entry in module.configs:
        config = module.Config(**entry)
        if config.mlp_class_name not in _GATED:
            continue
        shape: dict[str, Any] = {
            "layers": config.n_layer,
            "hidden": config.n_embd,
            "heads": config.n_head,
            "kv_heads": config.n_query_groups,
            "head_dim": config.head_size,
            "ffn": config.intermediate_size,
            "vocab": config.padded_vocab_size,
            "seq": min(config.block_size, 4096),
            "gated_mlp": _GATED[config.mlp_class_name],
            "tied_embeddings": _TIED.fullmatch(entry["name"]) is not None,
            "qkv_bias": config.bias or config.attn_bias,
            "output_bias": config.bias,
            "mlp_bias": config.bias,
            "norm_bias": config.norm_class_name == "LayerNorm",
            "norms_per_layer": 4
            if config.post_mlp_norm and config.norm_qk_type != "olmo2"
            else 1
            if config.shared_attention_norm
            else 2,
            "qk_norm": config.norm_qk,
            "qk_norm_whole": config.norm_qk_type == "olmo2",
            "head_bias": config.lm_head_bias,
        }
        if config.n_expert:
            width = config.moe_intermediate_size or config.intermediate_size
            shape |= {"experts": config.n_expert, "top_k": config.n_expert_per_token, "expert_ffn": width}
        source = "litgpt/config.py of LitGPT"
        names = [entry["name"]]
        if org := entry["hf_config"].get("org"):
            names.append(f"{org}/{entry['hf_config'].get('name', entry['name'])}")
        yield "decoder", shape, source, tuple(dict.fromkeys(names))


def list_timm(paths: list[Path]) -> Iterator[Row]:
    """Yield the rows of timm's vision transformers, read by ``ast``."""
    for path in paths:
        tree = ast.parse(path.read_text())
        sizes = dict(_list_image_sizes(tree))
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and (arguments := _find_model_arguments(function)) is not None:
                yield from _make_vision_rows(
                    function.name, arguments, sizes, f"timm/models/{path.name.removeprefix('timm_')}"
                )


def _make_vision_rows(name: str, arguments: dict[str, Any], sizes: dict[str, int], source: str) -> Iterator[Row]:
    """Yield one row for each size of images that weights of an architecture are for."""
    needed = ("embed_dim", "depth", "num_heads", "patch_size")
    if not all(isinstance(arguments.get(key), int) for key in needed) or "?" in (
        arguments.get("mlp_layer"),
        arguments.get("mlp_ratio"),
    ):
        return
    if arguments.get("swiglu_mlp"):
        return
    by_size: dict[int, list[str]] = {}
    for tag, size in sizes.items():
        if tag.partition(".")[0] == name:
            by_size.setdefault(size, []).append(f"timm/{tag}")
    size = arguments.get("img_size") or next(iter(by_size), 0)
    for image, tags in by_size.items():
        if image % arguments["patch_size"]:
            continue
        width = int(arguments["embed_dim"] * arguments.get("mlp_ratio", 4))
        tokens = (image // arguments["patch_size"]) ** 2 + 1 + arguments.get("reg_tokens", 0)
        shape = {
            **_VISION,
            "layers": arguments["depth"],
            "hidden": arguments["embed_dim"],
            "heads": arguments["num_heads"],
            "ffn": width,
            "seq": tokens,
            "qkv_bias": arguments.get("qkv_bias", True),
        }
        yield "vision", shape, source, (*([name] if image == size else []), *tags)


def _find_model_arguments(function: ast.FunctionDef) -> dict[str, Any] | None:
    """Return the literal arguments of an architecture; one that is computed is a question mark."""
    for statement in function.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            call = statement.value
            target = statement.targets[0]
            if isinstance(target, ast.Name) and target.id == "model_args" and isinstance(call.func, ast.Name):
                return {word.arg: _literal(word.value) for word in call.keywords if word.arg}
    return None


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return "?"


def _list_image_sizes(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of weights with the size of their images."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(value, ast.Call):
                continue
            if isinstance(value.func, ast.Name) and value.func.id == "_cfg":
                given = {word.arg: _literal(word.value) for word in value.keywords}
                size = given.get("input_size", (3, 224, 224))
                if isinstance(size, tuple):
                    yield str(key.value), size[-1]


def list_open_clip(folder: Path) -> Iterator[Row]:
    """Yield the vision towers of OpenCLIP's transformers."""
    for path in sorted(folder.glob("*.json")):
        vision = json.loads(path.read_text()).get("vision_cfg", {})
        if isinstance(vision.get("layers"), int) and "width" in vision and "patch_size" in vision:
            width, image = vision["width"], vision["image_size"]
            image = image if isinstance(image, int) else image[0]
            shape = {
                **_VISION,
                "layers": vision["layers"],
                "hidden": width,
                "heads": width // vision.get("head_width", 64),
                "ffn": int(width * vision.get("mlp_ratio", 4)),
                "seq": (image // vision["patch_size"]) ** 2 + 1,
            }
            yield "clip", shape, "open_clip/model_configs of OpenCLIP: the vision tower", (path.stem,)


def write_table(rows: Iterator[Row]) -> tuple[int, int]:
    """Write the rows, those of one shape together; return how many rows and names there are."""
    known = {key for name, model in public_models().items() for entry in (name, *model.aliases) for key in _keys(entry)}
    merged: dict[tuple[str, str, str], list[str]] = {}
    for kind, shape, source, names in rows:
        written = " ".join(f"{key}={int(value)}" for key, value in shape.items())
        for name in names:
            if known.isdisjoint(_keys(name)[:1]):
                known.add(_keys(name)[0])
                merged.setdefault((kind, written, source), []).append(name)
    lines = []
    for (kind, written, source), group in merged.items():
        keys = " ".join(_keys(name)[0] for name in group)
        lines.append("\t".join((kind, written, source, " ".join(group), keys)))
    head = "# Written by docs/programs/tables/public_models.py: kind, shape, source, names and keys, a tab between.\n"
    TARGET.write_text(head + "".join(f"{line}\n" for line in lines))
    return len(lines), sum(map(len, merged.values()))


def _keys(name: str) -> tuple[str, str]:
    words = normalise_words(name)
    return words, join_words(words)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--litgpt", type=Path, required=True)
    parser.add_argument("--timm", required=True)
    parser.add_argument("--open-clip", type=Path, required=True)
    asked = parser.parse_args()
    rows = [
        *list_families(),
        *list_litgpt(asked.litgpt),
        *list_timm([Path(part) for part in asked.timm.split(",")]),
        *list_open_clip(asked.open_clip),
    ]
    count, names = write_table(iter(rows))
    print(f"{count} rows, {names} names")


if __name__ == "__main__":
    main()
