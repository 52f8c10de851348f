"""Shapes of public models by family, from their papers and their published configurations.

Only sizes are taken over: facts, no text. `public_models` writes them into the table of names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    (
        "encoder-decoder",
        {"gated_mlp": False, "tied_embeddings": True, "encoder_seq": 512},
        "OPUS-MT (Tiedemann and Thottingal, EAMT 2020), Marian's base: config.json",
        """
        6 512 8 2048 58101 512 encoder_layers=6 Helsinki-NLP/opus-mt-en-de Helsinki-NLP/opus-mt-de-en
        6 512 8 2048 59514 512 encoder_layers=6 Helsinki-NLP/opus-mt-en-fr Helsinki-NLP/opus-mt-fr-en
        6 512 8 2048 65001 512 encoder_layers=6 Helsinki-NLP/opus-mt-en-es Helsinki-NLP/opus-mt-es-en
        6 512 8 2048 65001 512 encoder_layers=6 Helsinki-NLP/opus-mt-en-zh Helsinki-NLP/opus-mt-zh-en
        6 512 8 2048 65001 512 encoder_layers=6 Helsinki-NLP/opus-mt-en-ROMANCE Helsinki-NLP/opus-mt-ROMANCE-en
        """,
    ),
    (
        "encoder",
        _PLAIN_ENCODER,
        "GTE (arXiv 2308.03281), of MiniLM's shape: config.json",
        """
        12 384 12 1536 30522 512 thenlper/gte-small
        """,
    ),
    (
        "decoder",
        _LLAMA,
        "Bielik 7B (arXiv 2410.18565), trained from Mistral 7B: config.json",
        """
        32 4096 32 14336 32000 4096 kv_heads=8 speakleash/Bielik-7B-v0.1 speakleash/Bielik-7B-Instruct-v0.1
        """,
    ),
    (
        "decoder",
        _LLAMA,
        "Baichuan (arXiv 2309.10305, table 2), InternLM 1, 2, 2.5, 3 (InternLM2: arXiv 2403.17297), "
        "Chinese-LLaMA-2: config.json",
        """
        32 4096 32 11008 64000 4096 baichuan-inc/Baichuan-7B
        40 5120 40 13696 64000 4096 baichuan-inc/Baichuan-13B-Base baichuan-inc/Baichuan-13B-Chat
        32 4096 32 11008 125696 4096 baichuan-inc/Baichuan2-7B-Base baichuan-inc/Baichuan2-7B-Chat
        40 5120 40 13696 125696 4096 baichuan-inc/Baichuan2-13B-Base baichuan-inc/Baichuan2-13B-Chat
        60 5120 40 13824 103168 2048 internlm/internlm-20b internlm/internlm-chat-20b
        24 2048 16 8192 92544 4096 kv_heads=8 internlm/internlm2-1_8b internlm/internlm2-chat-1_8b
        24 2048 16 8192 92544 4096 kv_heads=8 internlm/internlm2_5-1_8b internlm/internlm2_5-1_8b-chat
        32 4096 32 14336 92544 4096 kv_heads=8 internlm/internlm2_5-7b internlm/internlm2_5-7b-chat
        32 4096 32 14336 92544 4096 kv_heads=8 internlm/internlm2_5-7b-chat-1m internlm/internlm2-chat-7b
        48 6144 48 16384 92544 4096 kv_heads=8 internlm/internlm2_5-20b internlm/internlm2_5-20b-chat
        48 6144 48 16384 92544 4096 kv_heads=8 internlm/internlm2-chat-20b
        48 4096 32 10240 128512 4096 kv_heads=2 internlm/internlm3-8b-instruct
        32 4096 32 11008 55296 4096 hfl/chinese-llama-2-7b hfl/chinese-alpaca-2-7b
        40 5120 40 13824 55296 4096 hfl/chinese-llama-2-13b hfl/chinese-alpaca-2-13b
        4 4096 32 11008 55296 4096 hfl/chinese-llama-2-1.3b hfl/chinese-alpaca-2-1.3b
        52 4608 36 12288 65519 4096 Skywork/Skywork-13B-base
        """,
    ),
    (
        "decoder",
        _LLAMA,
        "later models of Mistral, Falcon3, DeepSeek, Yi-Coder and EuroLLM (arXiv 2409.16235): config.json",
        """
        36 4096 32 12288 131072 8192 kv_heads=8 head_dim=128 mistralai/Ministral-8B-Instruct-2410
        56 6144 48 16384 32768 8192 kv_heads=8 mistralai/Codestral-22B-v0.1 mistralai/Mistral-Small-Instruct-2409
        30 4096 32 11008 102400 4096 deepseek-ai/deepseek-coder-7b-base-v1.5
        30 4096 32 11008 102400 4096 deepseek-ai/deepseek-coder-7b-instruct-v1.5 deepseek-ai/deepseek-math-7b-rl
        48 4096 32 11008 64000 4096 kv_heads=4 01-ai/Yi-Coder-9B 01-ai/Yi-Coder-9B-Chat
        24 2048 16 5504 64000 4096 01-ai/Yi-Coder-1.5B 01-ai/Yi-Coder-1.5B-Chat
        24 2048 16 5632 128000 4096 kv_heads=8 utter-project/EuroLLM-1.7B utter-project/EuroLLM-1.7B-Instruct
        42 4096 32 12288 128000 4096 kv_heads=8 utter-project/EuroLLM-9B utter-project/EuroLLM-9B-Instruct
        """,
    ),
    (
        "decoder",
        _LLAMA,
        "models that were trained on from Llama's and Mistral's: their shapes, and the vocabulary of each config.json",
        """
        32 4096 32 11008 32016 4096 EleutherAI/llemma_7b codellama/CodeLlama-7b codellama-7b
        48 8192 64 22016 32000 4096 kv_heads=8 EleutherAI/llemma_34b
        32 4096 32 11008 32000 2048 lmsys/vicuna-7b-v1.1
        32 4096 32 11008 32000 2048 openlm-research/open_llama_7b_v2 NousResearch/Nous-Hermes-llama-2-7b
        32 4096 32 11008 32000 2048 epfl-llm/meditron-7b lmsys/vicuna-7b-delta-v1.1 stanford-crfm/alpaca-7b
        40 5120 40 13824 32000 2048 lmsys/vicuna-13b-v1.1 NousResearch/Nous-Hermes-Llama2-13b
        26 3200 32 8640 32000 2048 openlm-research/open_llama_3b_v2
        32 4096 32 14336 32000 4096 kv_heads=8 BioMistral/BioMistral-7B Intel/neural-chat-7b-v3-1
        32 4096 32 14336 32002 4096 kv_heads=8 openchat/openchat-3.5-0106 openchat/openchat_3.5
        32 4096 32 14336 32002 4096 kv_heads=8 teknium/OpenHermes-2.5-Mistral-7B berkeley-nest/Starling-LM-7B-alpha
        32 4096 32 14336 32000 4096 kv_heads=8 peiyi9979/math-shepherd-mistral-7b-sft
        32 4096 32 14336 128264 4096 kv_heads=8 allenai/Llama-3.1-Tulu-3-8B allenai/Llama-3.1-Tulu-3-8B-SFT
        32 4096 32 14336 128264 4096 kv_heads=8 allenai/Llama-3.1-Tulu-3-8B-DPO
        32 4096 32 14336 128256 4096 kv_heads=8 NousResearch/Hermes-3-Llama-3.1-8B meta-llama/Llama-Guard-3-8B
        32 4096 32 14336 128256 4096 kv_heads=8 nvidia/Llama-3.1-Nemotron-Nano-8B-v1
        32 4096 32 14336 128256 4096 kv_heads=8 Skywork/Skywork-o1-Open-Llama-3.1-8B
        32 4096 32 14336 128288 4096 kv_heads=8 NousResearch/Hermes-2-Pro-Llama-3-8B
        32 4096 32 14336 128256 4096 kv_heads=8 aaditya/Llama3-OpenBioLLM-8B RLHFlow/Llama3.1-8B-PRM-Deepseek-Data
        22 2048 32 5632 32000 2048 kv_heads=4 TinyLlama/TinyLlama_v1.1 TinyLlama/TinyLlama-1.1B-Chat-v0.6
        """,
    ),
    (
        "decoder",
        {"gated_mlp": True, "tied_embeddings": False, "qkv_bias": True},
        "Qwen (arXiv 2309.16609, table 1), Qwen1.5, Qwen2-Math, ChatGLM2, 3 and GLM-4 (arXiv "
        "2406.12793), StableLM 2: config.json",
        """
        24 2048 16 5504 151936 8192 Qwen/Qwen-1_8B Qwen/Qwen-1_8B-Chat
        32 4096 32 11008 151936 8192 Qwen/Qwen-7B Qwen/Qwen-7B-Chat
        40 5120 40 13696 152064 2048 Qwen/Qwen-14B Qwen/Qwen-14B-Chat
        80 8192 64 24576 152064 4096 Qwen/Qwen-72B Qwen/Qwen-72B-Chat Qwen/Qwen1.5-72B Qwen/Qwen1.5-72B-Chat
        24 2048 16 5504 151936 4096 Qwen/Qwen1.5-1.8B Qwen/Qwen1.5-1.8B-Chat
        40 2560 20 6912 151936 4096 Qwen/Qwen1.5-4B Qwen/Qwen1.5-4B-Chat
        64 5120 40 27392 152064 4096 kv_heads=8 Qwen/Qwen1.5-32B Qwen/Qwen1.5-32B-Chat
        80 8192 64 49152 152064 4096 kv_heads=8 Qwen/Qwen1.5-110B Qwen/Qwen1.5-110B-Chat
        28 3584 28 18944 152064 4096 kv_heads=4 Qwen/Qwen2-Math-7B Qwen/Qwen2-Math-7B-Instruct
        28 3584 28 18944 152064 4096 kv_heads=4 Qwen/Qwen2.5-Math-PRM-7B open-thoughts/OpenThinker-7B
        80 8192 64 29568 152064 4096 kv_heads=8 Qwen/Qwen2-Math-72B Qwen/Qwen2-Math-72B-Instruct
        28 4096 32 13696 65024 4096 kv_heads=2 THUDM/chatglm2-6b THUDM/chatglm3-6b THUDM/chatglm3-6b-base
        40 4096 32 13696 151552 4096 kv_heads=2 THUDM/glm-4-9b THUDM/glm-4-9b-chat THUDM/glm-4-9b-chat-hf
        24 2048 32 5632 100352 4096 stabilityai/stablelm-2-1_6b stabilityai/stablelm-2-zephyr-1_6b
        """,
    ),
    (
        "decoder",
        {"gated_mlp": True, "tied_embeddings": True, "qkv_bias": True},
        "the smallest of Qwen1.5 and of Qwen2-Math, and models on Qwen2.5-1.5B: config.json",
        """
        24 1024 16 2816 151936 4096 Qwen/Qwen1.5-0.5B Qwen/Qwen1.5-0.5B-Chat
        28 1536 12 8960 151936 4096 kv_heads=2 Qwen/Qwen2-Math-1.5B Qwen/Qwen2-Math-1.5B-Instruct
        """,
    ),
    (
        "decoder",
        {"gated_mlp": True, "tied_embeddings": False, "qk_norm": True},
        "Qwen3 (arXiv 2505.09388, table 1): models that were trained on from Qwen3-8B and its embedding model",
        """
        36 4096 32 12288 151936 4096 kv_heads=8 head_dim=128 deepseek-ai/DeepSeek-R1-0528-Qwen3-8B
        36 4096 32 12288 151665 4096 kv_heads=8 head_dim=128 Qwen/Qwen3-Embedding-8B Qwen/Qwen3-Reranker-8B
        """,
    ),
    (
        "decoder",
        {"gated_mlp": True, "tied_embeddings": True, "qk_norm": True},
        "Qwen3's embedding models and rerankers (arXiv 2506.05176, table 1), Hunyuan dense models "
        "(Tencent): config.json",
        """
        28 1024 16 3072 151669 4096 kv_heads=8 head_dim=128 Qwen/Qwen3-Embedding-0.6B Qwen/Qwen3-Reranker-0.6B
        36 2560 32 9728 151665 4096 kv_heads=8 head_dim=128 Qwen/Qwen3-Embedding-4B Qwen/Qwen3-Reranker-4B
        32 4096 32 14336 128256 4096 kv_heads=8 tencent/Hunyuan-7B-Pretrain
        32 4096 32 14336 128256 4096 kv_heads=8 tencent/Hunyuan-7B-Instruct tencent/Hunyuan-MT-7B
        """,
    ),
    (
        "decoder",
        _TIED_LLAMA,
        "Granite 3.0 to 3.3 and Granite Code (IBM), MiniCPM (arXiv 2404.06395, table 2): config.json",
        """
        40 2048 32 8192 49155 4096 kv_heads=8 ibm-granite/granite-3.0-2b-base ibm-granite/granite-3.0-2b-instruct
        40 2048 32 8192 49155 4096 kv_heads=8 ibm-granite/granite-3.1-2b-base ibm-granite/granite-3.1-2b-instruct
        40 2048 32 8192 49155 4096 kv_heads=8 ibm-granite/granite-3.2-2b-instruct ibm-granite/granite-3.3-2b-instruct
        40 2048 32 8192 49155 4096 kv_heads=8 ibm-granite/granite-3.3-2b-base
        40 4096 32 12800 49155 4096 kv_heads=8 ibm-granite/granite-3.0-8b-base ibm-granite/granite-3.0-8b-instruct
        40 4096 32 12800 49155 4096 kv_heads=8 ibm-granite/granite-3.1-8b-base ibm-granite/granite-3.1-8b-instruct
        40 4096 32 12800 49155 4096 kv_heads=8 ibm-granite/granite-3.2-8b-instruct ibm-granite/granite-3.3-8b-instruct
        40 4096 32 12800 49155 4096 kv_heads=8 ibm-granite/granite-3.3-8b-base
        40 2304 36 5760 122753 4096 openbmb/MiniCPM-2B-sft-bf16 openbmb/MiniCPM-2B-dpo-bf16
        """,
    ),
    (
        "decoder",
        {**_LLAMA, "qk_norm": True, "qk_norm_whole": True},
        "OLMo 2 (arXiv 2501.00656, table 1): config.json",
        """
        16 2048 16 8192 100352 4096 allenai/OLMo-2-0425-1B allenai/OLMo-2-0425-1B-Instruct allenai/OLMo-2-0425-1B-SFT
        """,
    ),
    (
        "decoder",
        {"gated_mlp": False, "tied_embeddings": False, "qk_norm": True},
        "Apertus (swiss-ai; arXiv 2509.14233, table of architectures)",
        """
        32 4096 32 21504 131072 4096 kv_heads=8 swiss-ai/Apertus-8B-2509 swiss-ai/Apertus-8B-Instruct-2509
        80 8192 64 43008 131072 4096 kv_heads=8 swiss-ai/Apertus-70B-2509 swiss-ai/Apertus-70B-Instruct-2509
        """,
    ),
    (
        "decoder",
        _GPT,
        "DialoGPT (arXiv 1911.00536), GPT (Radford et al. 2018), BioMedLM, OPT-350M (arXiv 2205.01068), "
        "Galactica (arXiv 2211.09085)",
        """
        12 768 12 3072 50257 1024 microsoft/DialoGPT-small
        24 1024 16 4096 50257 1024 microsoft/DialoGPT-medium
        36 1280 20 5120 50257 1024 microsoft/DialoGPT-large
        12 768 12 3072 40478 512 openai-community/openai-gpt openai-gpt
        32 2560 20 10240 28896 1024 stanford-crfm/BioMedLM
        24 1024 16 4096 50272 2048 facebook/opt-350m
        12 768 12 3072 50000 2048 facebook/galactica-125m
        24 2048 32 8192 50000 2048 facebook/galactica-1.3b
        32 4096 32 16384 50000 2048 facebook/galactica-6.7b
        """,
    ),
    (
        "decoder",
        {**_GPT, "kv_heads": 1},
        "StarCoderBase and SantaCoder (arXiv 2305.06161, 2301.03988): one key and value head, config.json",
        """
        24 2048 16 8192 49152 8192 bigcode/starcoderbase-1b
        36 2816 22 11264 49152 8192 bigcode/starcoderbase-3b
        42 4096 32 16384 49152 8192 bigcode/starcoderbase-7b
        24 2048 16 8192 49280 2048 bigcode/santacoder bigcode/gpt_bigcode-santacoder
        """,
    ),
    (
        "decoder",
        {"gated_mlp": False, "tied_embeddings": True},
        "XGLM (arXiv 2112.10668, table 2): positions are computed",
        """
        24 1024 16 4096 256008 2048 facebook/xglm-564M
        24 2048 16 8192 256008 2048 facebook/xglm-1.7B
        48 2048 16 16384 256008 2048 facebook/xglm-4.5B
        32 4096 32 16384 256008 2048 facebook/xglm-7.5B
        """,
    ),
    (
        "decoder",
        {"gated_mlp": False, "tied_embeddings": True, "embedding_norm": True},
        "BLOOMZ and its variant on translated prompts (arXiv 2211.01786): BLOOM's shapes",
        """
        30 4096 32 16384 250880 2048 bigscience/bloomz-7b1 bigscience/bloomz-7b1-mt
        """,
    ),
    (
        "decoder",
        _ROTARY_GPT,
        "Dolly v2 (Databricks): the shapes of Pythia, config.json",
        """
        32 2560 32 10240 50280 2048 databricks/dolly-v2-3b
        32 4096 32 16384 50280 2048 databricks/dolly-v2-7b
        36 5120 40 20480 50688 2048 databricks/dolly-v2-12b
        """,
    ),
    (
        "encoder",
        {**_PLAIN_ENCODER, "flash_attention": False},
        "DeBERTa (arXiv 2006.03654, tables of the appendix), v2 and v3 (arXiv 2111.09543): scores are "
        "stored, config.json",
        """
        12 768 12 3072 50265 512 microsoft/deberta-base microsoft/deberta-base-mnli
        24 1024 16 4096 50265 512 microsoft/deberta-large microsoft/deberta-large-mnli
        48 1024 16 4096 50265 512 microsoft/deberta-xlarge microsoft/deberta-xlarge-mnli
        24 1536 24 6144 128100 512 microsoft/deberta-v2-xlarge microsoft/deberta-v2-xlarge-mnli
        48 1536 24 6144 128100 512 microsoft/deberta-v2-xxlarge microsoft/deberta-v2-xxlarge-mnli
        12 384 6 1536 128100 512 microsoft/deberta-v3-xsmall
        6 768 12 3072 128100 512 microsoft/deberta-v3-small
        12 768 12 3072 128100 512 microsoft/deberta-v3-base
        24 1024 16 4096 128100 512 microsoft/deberta-v3-large
        12 768 12 3072 251000 512 microsoft/mdeberta-v3-base
        """,
    ),
    (
        "encoder",
        {**_PLAIN_ENCODER, "learned_positions": False, "flash_attention": False},
        "XLNet (arXiv 1906.08237): relative positions, config.json",
        """
        12 768 12 3072 32000 512 xlnet/xlnet-base-cased xlnet-base-cased
        24 1024 16 4096 32000 512 xlnet/xlnet-large-cased xlnet-large-cased
        """,
    ),
    (
        "encoder",
        _PLAIN_ENCODER,
        "ELECTRA (arXiv 2003.10555, table 6), MPNet (arXiv 2004.09297), MiniLM (arXiv 2002.10957), "
        "TinyBERT (arXiv 1909.10351)",
        """
        12 256 4 1024 30522 512 google/electra-small-discriminator
        12 768 12 3072 30522 512 google/electra-base-discriminator
        24 1024 16 4096 30522 512 google/electra-large-discriminator
        12 768 12 3072 30527 512 microsoft/mpnet-base sentence-transformers/all-mpnet-base-v2
        12 768 12 3072 30527 512 sentence-transformers/multi-qa-mpnet-base-dot-v1
        12 384 12 1536 30522 512 microsoft/MiniLM-L12-H384-uncased cross-encoder/ms-marco-MiniLM-L-12-v2
        6 384 12 1536 30522 512 nreimers/MiniLM-L6-H384-uncased cross-encoder/ms-marco-MiniLM-L-6-v2
        6 384 12 1536 30522 512 sentence-transformers/multi-qa-MiniLM-L6-cos-v1
        12 384 12 1536 250037 512 microsoft/Multilingual-MiniLM-L12-H384
        12 384 12 1536 250037 512 sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2
        12 384 12 1536 250037 512 intfloat/multilingual-e5-small
        4 312 12 1200 30522 512 huawei-noah/TinyBERT_General_4L_312D
        6 768 12 3072 30522 512 huawei-noah/TinyBERT_General_6L_768D
        """,
    ),
    (
        "encoder",
        _PLAIN_ENCODER,
        "models of BERT's and RoBERTa's shapes, trained on or trained anew in other languages and fields: config.json",
        """
        12 768 12 3072 30522 512 facebook/dpr-question_encoder-single-nq-base facebook/dpr-ctx_encoder-single-nq-base
        12 768 12 3072 30522 512 facebook/contriever facebook/contriever-msmarco nlptown/bert-base-uncased
        12 768 12 3072 30522 512 microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract-fulltext
        12 768 12 3072 30522 512 microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract-fulltext
        12 768 12 3072 30522 512 cambridgeltl/SapBERT-from-PubMedBERT-fulltext Snowflake/snowflake-arctic-embed-m
        24 1024 16 4096 30522 512 mixedbread-ai/mxbai-embed-large-v1 Snowflake/snowflake-arctic-embed-l
        24 1024 16 4096 30522 512 google-bert/bert-large-uncased-whole-word-masking
        24 1024 16 4096 30522 512 bert-large-uncased-whole-word-masking
        24 1024 16 4096 28996 512 google-bert/bert-large-cased-whole-word-masking
        12 768 12 3072 28996 512 dslim/bert-base-NER dmis-lab/biobert-base-cased-v1.1 dmis-lab/biobert-v1.1
        12 768 12 3072 31090 512 allenai/specter allenai/specter2_base allenai/scibert_scivocab_cased
        12 768 12 3072 21128 512 BAAI/bge-base-zh-v1.5
        24 1024 16 4096 21128 512 BAAI/bge-large-zh-v1.5 hfl/chinese-roberta-wwm-ext-large
        12 768 12 3072 30000 512 google-bert/bert-base-german-cased
        12 768 12 3072 30000 512 bert-base-german-cased CAMeL-Lab/bert-base-arabic-camelbert-mix
        12 768 12 3072 31102 512 dbmdz/bert-base-german-cased deepset/gbert-base
        24 1024 16 4096 31102 512 deepset/gbert-large
        12 768 12 3072 31002 512 dccuchile/bert-base-spanish-wwm-cased dccuchile/bert-base-spanish-wwm-uncased
        12 768 12 3072 31102 512 dbmdz/bert-base-italian-cased dbmdz/bert-base-italian-uncased
        12 768 12 3072 35000 512 nlpaueb/bert-base-greek-uncased-v1
        12 768 12 3072 50101 512 TurkuNLP/bert-base-finnish-uncased-v1
        12 768 12 3072 50325 512 KB/bert-base-swedish-cased KBLab/bert-base-swedish-cased
        12 768 12 3072 119547 512 NbAiLab/nb-bert-base DeepPavlov/rubert-base-cased
        12 768 12 3072 30073 512 GroNLP/bert-base-dutch-cased
        12 768 12 3072 64000 512 aubmindlab/bert-base-arabertv02 aubmindlab/bert-base-arabertv2
        12 768 12 3072 100000 512 UBC-NLP/MARBERT UBC-NLP/ARBERT HooshvareLab/bert-fa-base-uncased
        12 768 12 3072 197285 512 google/muril-base-cased l3cube-pune/hindi-bert-v2
        12 768 12 3072 501153 512 sentence-transformers/LaBSE setu4993/LaBSE
        12 768 12 3072 32000 512 klue/bert-base cl-tohoku/bert-base-japanese tohoku-nlp/bert-base-japanese
        12 768 12 3072 32000 512 tohoku-nlp/bert-base-japanese-whole-word-masking klue/roberta-base
        24 1024 16 4096 32000 512 klue/roberta-large
        12 768 12 3072 32768 512 cl-tohoku/bert-base-japanese-v3 tohoku-nlp/bert-base-japanese-v3
        24 1024 16 4096 29794 512 neuralmind/bert-large-portuguese-cased
        12 768 12 3072 50265 512 microsoft/graphcodebert-base
        12 768 12 3072 50265 512 microsoft/codebert-base-mlm cardiffnlp/twitter-roberta-base
        12 768 12 3072 50265 512 cardiffnlp/twitter-roberta-base-sentiment
        12 768 12 3072 50265 512 cardiffnlp/twitter-roberta-base-sentiment-latest
        12 768 12 3072 50265 512 deepset/roberta-base-squad2 princeton-nlp/sup-simcse-roberta-base
        6 768 12 3072 50265 512 sentence-transformers/all-distilroberta-v1
        12 768 12 3072 30522 512 princeton-nlp/sup-simcse-bert-base-uncased princeton-nlp/unsup-simcse-bert-base-uncased
        24 1024 16 4096 50265 512 FacebookAI/roberta-large-mnli
        24 1024 16 4096 50265 512 roberta-large-mnli sentence-transformers/all-roberta-large-v1
        12 768 12 3072 51416 1024 microsoft/unixcoder-base
        12 768 12 3072 250002 512 cardiffnlp/twitter-xlm-roberta-base BAAI/bge-reranker-base Davlan/afro-xlmr-base
        24 1024 16 4096 250002 512 BAAI/bge-reranker-large Davlan/afro-xlmr-large
        24 1024 16 4096 250002 8192 BAAI/bge-reranker-v2-m3 Snowflake/snowflake-arctic-embed-l-v2.0
        24 1024 16 4096 32005 512 almanach/camembert-large camembert/camembert-large
        24 1024 16 4096 64001 256 vinai/phobert-large vinai/bertweet-large
        12 768 12 3072 50262 512 PlanTL-GOB-ES/roberta-base-bne
        6 768 12 3072 767 512 seyonec/ChemBERTa-zinc-base-v1
        3 384 12 464 600 512 DeepChem/ChemBERTa-77M-MLM DeepChem/ChemBERTa-77M-MTR
        """,
    ),
    (
        "encoder-decoder",
        {"gated_mlp": False, "learned_positions": True, "tied_embeddings": True, "encoder_seq": 1500},
        "Whisper for English (arXiv 2212.04356), Distil-Whisper (arXiv 2311.00430): config.json",
        """
        4 384 6 1536 51864 448 encoder_layers=4 openai/whisper-tiny.en
        6 512 8 2048 51864 448 encoder_layers=6 openai/whisper-base.en
        12 768 12 3072 51864 448 encoder_layers=12 openai/whisper-small.en
        24 1024 16 4096 51864 448 encoder_layers=24 openai/whisper-medium.en
        2 1280 20 5120 51865 448 encoder_layers=32 distil-whisper/distil-large-v2
        2 1280 20 5120 51866 448 encoder_layers=32 distil-whisper/distil-large-v3
        """,
    ),
    (
        "encoder-decoder",
        {"gated_mlp": False, "learned_positions": True, "tied_embeddings": True, "encoder_seq": 1024},
        "BART and mBART that were trained on (arXiv 1910.13461, 2001.08210), PLBART (arXiv 2103.06333): config.json",
        """
        12 1024 16 4096 50265 1024 encoder_layers=12 facebook/bart-large-mnli
        12 1024 16 4096 50264 1024 encoder_layers=12 facebook/bart-large-xsum
        12 1024 16 4096 250027 1024 encoder_layers=12 facebook/mbart-large-cc25
        12 1024 16 4096 250054 1024 encoder_layers=12 facebook/mbart-large-50-one-to-many-mmt
        6 768 12 3072 50005 1024 encoder_layers=6 uclanlp/plbart-base
        """,
    ),
    (
        "encoder-decoder",
        {"gated_mlp": False, "tied_embeddings": True, "encoder_seq": 1024},
        "PEGASUS (arXiv 1912.08777, section 6): positions are computed, config.json",
        """
        16 1024 16 4096 96103 256 encoder_layers=16 google/pegasus-large google/pegasus-cnn_dailymail
        16 1024 16 4096 96103 256 encoder_layers=16 google/pegasus-xsum google/pegasus-arxiv google/pegasus-pubmed
        """,
    ),
    (
        "encoder-decoder",
        {**_T5, "gated_mlp": True, "tied_embeddings": False},
        "Flan-T5 (arXiv 2210.11416), T5 1.1, T0 (arXiv 2110.08207), ByT5 (arXiv 2105.13626, table 1), mT0: config.json",
        """
        8 512 6 1024 32128 512 encoder_layers=8 head_dim=64 google/flan-t5-small google/t5-v1_1-small
        12 768 12 2048 32128 512 encoder_layers=12 head_dim=64 google/t5-v1_1-base
        24 1024 16 2816 32128 512 encoder_layers=24 head_dim=64 google/t5-v1_1-large
        24 2048 32 5120 32128 512 encoder_layers=24 head_dim=64 google/t5-v1_1-xl bigscience/T0_3B
        24 4096 64 10240 32128 512 encoder_layers=24 head_dim=64 google/t5-v1_1-xxl bigscience/T0pp
        4 1472 6 3584 384 1024 encoder_layers=12 head_dim=64 google/byt5-small
        6 1536 12 3968 384 1024 encoder_layers=18 head_dim=64 google/byt5-base
        12 1536 16 3840 384 1024 encoder_layers=36 head_dim=64 google/byt5-large
        8 512 6 1024 250112 512 encoder_layers=8 head_dim=64 bigscience/mt0-small
        12 768 12 2048 250112 512 encoder_layers=12 head_dim=64 bigscience/mt0-base csebuetnlp/mT5_multilingual_XLSum
        24 1024 16 2816 250112 512 encoder_layers=24 head_dim=64 bigscience/mt0-large
        24 2048 32 5120 250112 512 encoder_layers=24 head_dim=64 bigscience/mt0-xl
        """,
    ),
    (
        "encoder-decoder",
        {**_T5, "gated_mlp": False, "tied_embeddings": True},
        "CodeT5 (arXiv 2109.00859) and CodeT5+ (arXiv 2305.07922): config.json",
        """
        6 512 8 2048 32100 512 encoder_layers=6 head_dim=64 Salesforce/codet5-small
        12 768 12 3072 32100 512 encoder_layers=12 head_dim=64 Salesforce/codet5-base Salesforce/codet5p-220m
        24 1024 16 4096 32100 512 encoder_layers=24 head_dim=64 Salesforce/codet5-large Salesforce/codet5p-770m
        """,
    ),
)
