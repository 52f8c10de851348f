"""Resolves the cluster of a command: a catalogue name, or the path of a cluster TOML."""

from __future__ import annotations

import difflib
from pathlib import Path

from opsk.config import load_site
from opsk.costmodel.efficiency.default import DEFAULT, MAX_BYTES, parse_efficiency
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.errors import InputError, OpskError
from opsk.hardware.catalog import MAX_CLUSTER_TOML_BYTES, cluster, parse_cluster
from opsk.hardware.spec import ClusterSpec
from opsk.text import escape
from opsk.workload.defaults import Assumption
from opsk.workload.huggingface.model import MAX_CHARACTERS, parse_model_config
from opsk.workload.model import ModelShape
from opsk.workload.plan import Software
from opsk.workload.public_models.lookup import public_model, public_models


def load_efficiency(path: str | Path | None) -> Efficiency:
    """Return the efficiencies of a file; without one the site's, and without those the ones that ship with opsk.

    Raises
    ------
    InputError
        Names the file and everything that is wrong in it.
    """
    path = path or load_site().efficiency
    if path is None:
        return DEFAULT
    hint = "write one with: opsk calibrate RUNS.csv --output FILE"
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(escape(f"{path}: {reason}"), hint=hint) from error
    try:
        return parse_efficiency(data.decode("utf-8-sig"), origin=escape(str(path)))
    except UnicodeDecodeError as error:
        raise InputError(escape(f"{path}: no UTF-8 text at byte {error.start}"), hint=hint) from error


def find_unmeasured(efficiency: Efficiency, software: Software, cluster: ClusterSpec) -> tuple[Assumption, ...]:
    """Return the note that this software was never measured on this generation of chips, where it was not."""
    architecture = cluster.node.gpu.architecture
    if efficiency.knows(architecture, software):
        return ()
    why = f"no run of {software.value} on {architecture or 'this GPU'} was measured: put together from others"
    return (Assumption(field="efficiency", value=f"{architecture or 'other'}/{software.value}", why=why),)


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


def load_cluster(named: str) -> ClusterSpec:
    """Return the cluster ``named``: a file when it ends in ``.toml`` or has a slash, else a catalogue name.

    Raises
    ------
    InputError
        Names the file or the closest catalogue names, and what to do.
    """
    if not named.endswith(".toml") and "/" not in named:
        return cluster(named)
    try:
        with Path(named).open("rb") as stream:
            data = stream.read(MAX_CLUSTER_TOML_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(escape(f"{named}: {reason}"), hint="name a catalogue cluster or a cluster TOML") from error
    try:
        return parse_cluster(data.decode("utf-8-sig"), origin=escape(named))
    except UnicodeDecodeError as error:
        raise InputError(escape(f"{named}: no UTF-8 text at byte {error.start}"), hint="is this a TOML?") from error


def resolve_cluster(named: str | None, wrong: list[str]) -> ClusterSpec | None:
    """Return the cluster of a request, or the site's; on an error append it to ``wrong`` and return ``None``."""
    named = named or load_site().cluster
    if named is None:
        wrong.append("no cluster is named: give --cluster, or set cluster in the plan file or in /etc/opsk/opsk.toml")
        return None
    try:
        return load_cluster(named)
    except OpskError as error:
        wrong.append(f"{error.message} ({error.hint})" if error.hint else error.message)
        return None
