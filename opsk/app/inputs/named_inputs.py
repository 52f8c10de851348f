"""Loads what an option names: a cluster, a model or efficiencies, from the catalogue or from a file."""

from __future__ import annotations

import difflib
import re
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

_MODEL_HINT = "give the name of a public model, as in its paper, or the path of a HuggingFace config.json"


def load_cluster(named: str) -> ClusterSpec:
    """Return the cluster ``named``: a file when it ends in ``.toml`` or has a slash, else a catalogue name.

    Raises
    ------
    InputError
        Names the file or the closest catalogue names, and what to do.
    """
    if not named.endswith(".toml") and "/" not in named:
        return cluster(named)
    text = read_text_file(
        named, max_bytes=MAX_CLUSTER_TOML_BYTES, hint="give a cluster of the catalogue, or a cluster TOML"
    )
    return parse_cluster(text, origin=escape(named))


def resolve_cluster(named: str | None, wrong: list[str]) -> ClusterSpec | None:
    """Return the cluster of a request, or the site's; on an error append it to ``wrong`` and return ``None``."""
    named = named or load_site().cluster
    if named is None:
        wrong.append("no cluster is given: give --cluster, or set cluster in the plan file or in /etc/opsk/opsk.toml")
        return None
    try:
        return load_cluster(named)
    except OpskError as error:
        wrong.append(f"{error.message} ({error.hint})" if error.hint else error.message)
        return None


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
        text = read_text_file(named, max_bytes=MAX_CHARACTERS, hint=_MODEL_HINT)
        config = parse_model_config(text, origin=escape(named), seq=seq)
        return config.shape, config.assumed
    shape = public_model(named)
    if shape is None:
        close = _list_close_names(named.casefold())
        like = f"; did you mean {' or '.join(close)}?" if close else ""
        raise InputError(escape(f"{named[:80]!r} is not a known public model{like}"), hint=_MODEL_HINT)
    if seq is not None:
        return shape, ()
    why = f"{shape.name} was first trained on sequences of this many tokens"
    return shape, (Assumption(field="model.seq", value=shape.seq, why=why),)


def _list_close_names(named: str) -> list[str]:
    """Return names of public models that are like one: of its own family if there are any, else very like it."""
    family = re.match(r"[a-z]*", named)
    names = list(public_models())
    own = [name for name in names if family and family[0] and name.startswith(family[0])]
    return difflib.get_close_matches(named, own, n=3, cutoff=0.5) or difflib.get_close_matches(named, names, 3, 0.75)


def load_efficiency(path: str | Path | None) -> Efficiency:
    """Return the efficiencies of a file; without one the site's, and without those the ones that ship with opsk.

    The site's are the published fit where the site learns, else those that its configuration names.

    Raises
    ------
    InputError
        Names the file and everything that is wrong in it.
    """
    path = path or load_site().find_efficiency_file()
    if path is None:
        return DEFAULT
    text = read_text_file(path, max_bytes=MAX_BYTES, hint="opsk calibrate RUNS.csv --output FILE writes one")
    return parse_efficiency(text, origin=escape(str(path)))


def find_unmeasured(efficiency: Efficiency, software: Software, cluster: ClusterSpec) -> tuple[Assumption, ...]:
    """Return the note that this software was never measured on this generation of chips, where it was not."""
    architecture = cluster.node.gpu.architecture
    if efficiency.knows(architecture, software):
        return ()
    why = f"no run of {software.value} on {architecture or 'this GPU'} was measured: combined from others"
    return (Assumption(field="efficiency", value=f"{architecture or 'other'}/{software.value}", why=why),)


def read_text_file(path: str | Path, *, max_bytes: int, hint: str) -> str:
    """Return the text of a file, or of its first ``max_bytes`` and one more: parsers refuse what is longer.

    Raises
    ------
    InputError
        It cannot be read, or is not UTF-8; the hint says what to give instead.
    """
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(max_bytes + 1)
        return data.decode("utf-8-sig", "strict" if len(data) <= max_bytes else "replace")
    except UnicodeDecodeError as error:
        raise InputError(escape(f"{path}: not UTF-8 text at byte {error.start}"), hint=hint) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(escape(f"{path}: {reason}"), hint=hint) from error
