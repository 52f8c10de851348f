"""Names what functions and classes of packages mean for the modules of a program."""

from __future__ import annotations

import re

from opsk_jobcheck.scripts.frameworks.own_models.layers import CONTAINERS, LAYERS, STACKS

NO_LAYERS = ("torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.nn.parallel", "torch.nn.attention")
"""Parts of ``torch.nn`` that are no layers."""
TENSORS = re.compile(r"torch\.(zeros|ones|randn?|empty|full|randint|normal|Tensor|FloatTensor)")
ROWS = re.compile(r"torch\.(arange|linspace|tensor|eye|zeros_like|ones_like|randn_like|from_numpy|as_tensor|cat|stack)")
MODEL_BASES = re.compile(
    r"torch\.nn\.(modules\.module\.)?Module|(pytorch_lightning|lightning(\.pytorch)?)\.(\w+\.)*LightningModule"
    r"|(pl|L)\.LightningModule|transformers\.(\w+\.)*(PreTrainedModel|PretrainedModel|GenerationMixin)"
    r"|huggingface_hub\.(\w+\.)*PyTorchModelHubMixin|diffusers\.(\w+\.)*(ModelMixin|ConfigMixin)"
)
PLAIN_BASES = re.compile(r"(abc|typing|enum|object|builtins)\b.*|.*\b(ABC|Generic|Protocol|object|Enum)")
WRAPPERS = re.compile(
    r".*\b(DataParallel|DistributedDataParallel|FullyShardedDataParallel|DDP|FSDP|compile|convert_sync_batchnorm|prepare"
    r"|prepare_model|setup|setup_module|script|to_ddp|wrap|weight_norm|spectral_norm|DP|checkpoint_wrapper|fully_shard)"
)
"""What takes a module and returns it, or one around it."""
HARMLESS = re.compile(
    r"(torch\.(optim|utils|distributed|cuda|amp|backends|random|autograd|nn\.(init|functional|utils)|device|manual_seed|save"
    r"|load|float\w*|bfloat16|half|int\w*|long|bool|no_grad|set_\w+|get_\w+|Generator|profiler|finfo|multiprocessing)"
    r"|torchvision\.(transforms|datasets|utils|io)|torchaudio\.(transforms|datasets|functional)"
    r"|torchmetrics|numpy|os|sys|math|json|yaml|logging|random|time|datetime|pathlib|pandas|sklearn|scipy|wandb|tqdm|shutil"
    r"|argparse|collections|itertools|functools|warnings|matplotlib|seaborn|PIL|cv2|h5py|pickle|glob|re|gc|csv|copy|typing"
    r"|dataclasses|datasets|tokenizers|albumentations|rdkit|nltk|tensorboard\w*|einops|omegaconf|hydra\.(core|utils\.(get|to)\w*)"
    r"|socket|signal|uuid|subprocess|platform|psutil|submitit|accelerate|scanpy|anndata|nibabel|monai\.(transforms|data|utils"
    r"|metrics|losses|inferers)|librosa|soundfile|click|absl|fire|io|enum|string|inspect|pprint|traceback|contextlib"
    r"|print|open|type|isinstance|hasattr|id|callable|iter|next|eval|globals|locals|exit|input|format|repr|hash|ord|chr|set"
    r"|\w*Error|\w*Exception|\w*Warning|transformers\.(\w*(Tokenizer|Processor|FeatureExtractor)\w*|set_seed|get_\w+schedule\w*"
    r"|logging|optimization|TrainingArguments|DataCollator\w*))(\.|$)"
)
"""Packages, and parts of them, that make no modules."""
LOADS_SETTINGS = re.compile(
    r"(yaml\.\w*load\w*|omegaconf\.OmegaConf\.(load|merge|create|to_container)|json\.loads?|toml\w*\.loads?)"
)
RECORDS = re.compile(
    r"ml_collections\.(\w+\.)*ConfigDict|easydict\.EasyDict|argparse\.Namespace|types\.SimpleNamespace|(munch|box)\.\w+"
    r"|yacs\.config\.CfgNode|omegaconf\.(DictConfig|OmegaConf\.create)|addict\.Dict"
)
"""Classes of tables whose items are attributes."""
NO_MODULES = re.compile(
    r"Config|Dataset|Dict$|Sampler|Loader|Argument|Tokenizer|Processor|Collator|Metric|Accuracy|Logger|Optim|Schedul|Tensor"
    r"|Callback|Writer|Generator$|Args$|Params$|Monitor|Timer|Meter|Scaler|Checkpoint|Trainer|EMA|Ema|Strategy|Plugin|Evaluator"
)
"""Words in the names of classes whose objects are no modules."""
PARSES = frozenset({"parse_args", "parse_known_args", "parse_intermixed_args"})
SAME = frozenset(
    {
        *(
            "to",
            "cuda",
            "cpu",
            "half",
            "float",
            "double",
            "bfloat16",
            "eval",
            "train",
            "apply",
            "requires_grad_",
            "compile",
        )
    }
)
"""Methods of a module that return it."""
TRAINS = frozenset({"parameters", "named_parameters"})
USES = SAME | TRAINS | {"state_dict", "load_state_dict"}
KEEPS_SIZE = re.compile(
    r"(unsqueeze|squeeze|view|reshape|permute|transpose|float|half|to|cuda|clone|detach|contiguous|requires_grad_|fill_|zero_"
    r"|normal_|uniform_|t|div|mul|add|sub|abs|sqrt|exp|log|T|data|long|double|flatten|type_as|mul_|add_|copy_|bfloat16)$"
)


def is_model_base(name: str) -> bool:
    """Return whether a class of a package makes its heirs modules, with no weights but those of a known layer."""
    first, _, last = name.rpartition(".")
    is_layer = first.startswith("torch.nn") and (last in CONTAINERS or last in LAYERS or last in STACKS)
    return is_layer or MODEL_BASES.fullmatch(name) is not None
