"""Resolves ``--model``: the name of a public model, or the path of a HuggingFace ``config.json``."""

from __future__ import annotations

import difflib
from pathlib import Path

from opsk.errors import InputError
from opsk.text import escape
from opsk.workload.defaults import Assumption
from opsk.workload.huggingface.model import MAX_CHARACTERS, parse_model_config
from opsk.workload.model import ModelShape
from opsk.workload.public_models.lookup import public_model, public_models

_HINT = "name a public model, as in its paper, or the path of a HuggingFace config.json"


def load_model(named: str, *, seq: int | None = None) -> tuple[ModelShape, tuple[Assumption, ...]]:
    """Return the shape of the model ``named``, and the assumptions.

    A name that ends in ``.json`` is a file; any other is a public model.

    Parameters
    ----------
    seq
        Tokens of a training sequence; ``None`` takes the public model's own, or the longest of a file's model.

    Raises
    ------
    InputError
        Names the file and every violation in it, or the closest names of public models.
    """
    if named.endswith(".json"):
        config = parse_model_config(_read(named), origin=escape(named), seq=seq)
        return config.shape, config.assumed
    shape = public_model(named)
    if shape is None:
        close = difflib.get_close_matches(named.casefold(), list(public_models()), n=3, cutoff=0.5)
        like = f"; did you mean {' or '.join(close)}?" if close else ""
        raise InputError(escape(f"{named[:80]!r} is no public model that is known{like}"), hint=_HINT)
    if seq is not None:
        return shape, ()
    why = f"{shape.name} was trained on sequences of so many tokens, at first"
    return shape, (Assumption(field="model.seq", value=shape.seq, why=why),)


def _read(path: str) -> str:
    """Return the text of a ``config.json``."""
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_CHARACTERS + 1)
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(escape(f"{path}: no UTF-8 text at byte {error.start}"), hint=_HINT) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(escape(f"{path}: {reason}"), hint=_HINT) from error
