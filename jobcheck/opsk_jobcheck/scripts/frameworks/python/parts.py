"""Names the modules beside a Python program that are read with it."""

from __future__ import annotations

import re
import sys

from opsk_jobcheck.scripts.frameworks.python.source import PythonSource

SETTINGS_MODULES = re.compile(r"conf|args|argument|option|opts|param|setting|parser|flags", re.IGNORECASE)
_SETTINGS_NAMES = re.compile(
    r"(\w{1,20}_)?(config|settings|constants|cfg|params|hparams|hyperparameters|options|defaults)"
)
"""Names of modules of settings."""
_PROGRAM_MODULES = re.compile(
    r"conf|args|argument|option|opts|param|setting|parser|flags|train|main|run", re.IGNORECASE
)
_PACKAGES = frozenset(
    {
        *("torch", "transformers", "numpy", "accelerate", "deepspeed", "datasets", "peft", "trl", "lightning", "tqdm"),
        *("pytorch_lightning", "omegaconf", "hydra", "wandb", "jax", "flax", "optax", "tensorflow", "keras", "timm"),
        *("torchvision", "torchaudio", "sklearn", "scipy", "pandas", "matplotlib", "yaml", "fire", "tyro", "click"),
        *("absl", "megatron", "apex", "fairscale", "diffusers", "open_clip", "tokenizers", "huggingface_hub", "ray"),
        *("vllm", "flash_attn", "triton", "packaging", "requests", "loguru", "rich", "openai", "tensordict", "seaborn"),
        *("torch_geometric", "nltk", "pydantic", "soundfile", "h5py", "dotenv", "sentence_transformers", "librosa"),
        *("typing_extensions", "jaxtyping", "typeguard", "sentencepiece", "rdkit", "skimage", "evaluate", "gymnasium"),
        *("gym", "psutil", "bitsandbytes", "regex", "safetensors", "monai", "nibabel", "albumentations", "ultralytics"),
        *("segmentation_models_pytorch", "kornia", "netCDF4", "xarray", "zarr", "clearml", "mlflow", "comet_ml"),
        *("tensorboard", "tensorboardX", "torchtext", "torchinfo", "torchsummary", "thop", "fvcore", "mamba_ssm"),
        *("xformers", "liger_kernel", "unsloth", "setfit", "optuna", "submitit", "termcolor", "tabulate", "imageio"),
        *(
            "plotly",
            "networkx",
            "numba",
            "joblib",
            "dill",
            "pyarrow",
            "polars",
            "lmdb",
            "webdataset",
            "decord",
            "spacy",
        ),
        *("stable_baselines3", "torchrl", "pytorch_model_summary", "sacred", "anndata", "scanpy", "attr", "attrs"),
        *("configargparse", "ml_collections", "simple_parsing", "jsonargparse", "torchmetrics", "einops", "PIL", "cv2"),
    }
)
"""Packages that are installed, not beside a program."""


def list_parts(source: PythonSource) -> list[str]:
    """Return the modules beside a program that may hold its settings, and its loop where the program has none.

    A function ``train`` that is called as it is was imported, mostly, and its loop with it.
    """
    calls = source.find_calls("backward", "train", "fit")
    has_loop = any(call.function == "backward" or call.owner for call in calls)
    modules = {name.rpartition(".")[0].lstrip(".") or name for name in source.imports}
    modules |= {name.lstrip(".") for name in source.imports if _is_settings_module(name)}
    own = sorted(name for name in modules if not is_installed(name))
    named = [name for name in own if SETTINGS_MODULES.search(name.rpartition(".")[2])]
    if has_loop:
        return named
    programs = [name for name in own if _PROGRAM_MODULES.search(name.rpartition(".")[2]) and name not in named]
    return [*programs, *named, *(name for name in own if name not in (*programs, *named))]


def _is_settings_module(name: str) -> bool:
    """Return whether what is imported from a package is a module of settings: ``from project import config``."""
    package, _, last = name.rpartition(".")
    is_named = _SETTINGS_NAMES.fullmatch(last) is not None
    return is_named and bool(package.strip(".")) and not SETTINGS_MODULES.search(package.rpartition(".")[2])


def is_installed(name: str) -> bool:
    """Return whether a module is one of Python or of a known package, not one beside a program."""
    return not name.startswith(".") and name.partition(".")[0] in sys.stdlib_module_names | _PACKAGES
