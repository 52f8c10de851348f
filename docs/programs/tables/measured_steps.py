"""Measures what one training step of a program saves for its backward pass, and prints the bytes of each program.

``python docs/programs/tables/measured_steps.py FOLDER`` needs torch and einops; where torch is missing it says so and
does nothing. FOLDER has the programs and ``steps.toml``, which names each program's inputs and its type of autocast.
A program defines ``step``, which returns what the training loop holds. It runs on tensors without data of a GPU
(``FakeTensorMode``): neither a GPU nor the memory is needed. Each storage counts once, weights and buffers not at all.
"""

from __future__ import annotations

import contextlib
import sys
import tomllib
from pathlib import Path
from typing import Any

try:
    import torch
    import torch.cuda.amp.common
    from torch import nn
    from torch._subclasses.fake_tensor import FakeTensorMode
except ImportError:  # the rest of this file is not run then
    sys.exit("torch is not installed: nothing is measured")

VIEWS = ("TBackward", "ViewBackward", "TransposeBackward", "ExpandBackward", "PermuteBackward", "UnsafeViewBackward")


def attend(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False
) -> Any:
    """Return attention by the kernel that a GPU takes, under autocast in its type."""
    if torch.is_autocast_enabled("cuda"):
        query, key, value = (row.to(torch.get_autocast_dtype("cuda")) for row in (query, key, value))
    if attn_mask is None and query.dtype != torch.float32:
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal)[0]
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal
    )[0]


def drop(tensor: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Return dropout as a GPU computes it, with a mask of one byte for each element."""
    return torch.native_dropout(tensor, p, True)[0] if training and p > 0 else tensor


def is_weight(tensor: Any) -> bool:
    """Return whether a tensor is a weight, or a view of one."""
    function = tensor.grad_fn
    if function is None:
        return bool(tensor.requires_grad)
    while function is not None and function.name().rstrip("0") in VIEWS:
        function = function.next_functions[0][0]
    return function is not None and "AccumulateGrad" in function.name()


def measure(path: Path, inputs: list[list[Any]], autocast: str) -> int:
    """Return the bytes that a step of a program saves."""
    with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(path.read_text(encoding="utf-8"), path.name, "exec"), names)
        modules = [value for value in names.values() if isinstance(value, nn.Module)]
        states = {
            tensor.untyped_storage()._cdata
            for module in modules
            for tensor in (*module.parameters(), *module.buffers())
        }
        saved: dict[int, int] = {}
        held: list[Any] = []

        def note(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if tensor.device.type == "cuda" and storage._cdata not in states and not is_weight(tensor):
                saved[storage._cdata] = storage.nbytes()
                held.append(tensor)  # its address is not used again
            return tensor

        tensors = [torch.zeros(shape, dtype=getattr(torch, dtype)) for shape, dtype in inputs]
        context = torch.autocast("cuda", dtype=getattr(torch, autocast)) if autocast else contextlib.nullcontext()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), context:
            results = names["step"](*tensors)
        for tensor in (*tensors, *results):
            note(tensor)
        return sum(saved.values())


def main() -> None:
    """Print the bytes of each program of a folder."""
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda *_, **__: True
    nn.functional.scaled_dot_product_attention = attend
    nn.functional.dropout = drop
    folder = Path(sys.argv[1])
    for row in tomllib.loads((folder / "steps.toml").read_text(encoding="utf-8"))["step"]:
        size = measure(folder / f"{row['program']}.py", row["inputs"], row.get("autocast", ""))
        print(f"{row['program']} {row.get('autocast', 'float32')} {size}")


if __name__ == "__main__":
    main()
