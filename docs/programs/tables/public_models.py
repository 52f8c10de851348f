"""Writes the table of names and shapes of public models from public tables of configurations.

``python docs/programs/tables/public_models.py --litgpt CONFIG.py --timm VISION_TRANSFORMER.py,DEIT.py --open-clip
FOLDER`` reads ``litgpt/config.py`` of LitGPT (which needs ``yaml`` and ``typing_extensions``), ``timm/models/*.py`` of
timm and ``model_configs`` of OpenCLIP, and `model_families`. Only sizes are taken over: facts, no text. Names that the
catalogue's other files have are left out.
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

from model_families import FAMILIES

from opsk.workload.public_models.lookup import TABLE, join_words, normalise_words, public_models

TARGET = Path(__file__).parents[3] / "opsk/workload/public_models/catalogue" / TABLE
_TIED = re.compile(
    r"(code)?gemma.*|llama-3\.2-[13]b|qwen2\.5-(coder-|math-)?(0\.5|1\.5|3)b|qwen3-(0\.6|1\.7|4)b.*|smollm2-.*|phi-4-mini.*|olmo-1b.*"
    r"|falcon-.*",
    re.IGNORECASE,
)
"""Models of LitGPT whose head is the embedding; its table does not say."""
_GATED = {"LLaMAMLP": True, "GemmaMLP": True, "LLaMAMoE": True, "GptNeoxMLP": False}
_VISION = {"gated_mlp": False, "learned_positions": True, "tied_embeddings": False, "vocab": 1000, "qkv_bias": True}

Row = tuple[str, Mapping[str, Any], str, tuple[str, ...]]
"""Kind, shape, source and names."""


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
