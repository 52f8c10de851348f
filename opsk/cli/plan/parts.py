"""Runs one part of a search, and reads and writes the validated file with its result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsk import __version__
from opsk.cli.plan.array_folder import write_atomically
from opsk.cli.plan.digest import Digests
from opsk.cli.plan.run import run_search
from opsk.errors import InputError
from opsk.planning.search.parts import part_sizes, search_part
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.serialisation import parse_result, serialise_result
from opsk.text import escape
from opsk.units import MIB

MAX_BYTES = 64 * MIB
"""A part with 1,000 plans in each list has 3 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a search: ``number`` from 0 to ``parts`` - 1."""

    number: int
    parts: int

    def __str__(self) -> str:
        """Return ``3/8``."""
        return f"{self.number}/{self.parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """The result of one part, and its duration."""

    found: SearchResult
    seconds: float


class ForeignPartError(InputError):
    """A valid part of another search."""


class _Document(BaseModel):
    """The file of one part; ``found`` is validated separately."""

    model_config = ConfigDict(extra="forbid", strict=True)

    opsk: Annotated[str, Field(max_length=100)]
    request_sha256: Annotated[str, Field(max_length=64)]
    efficiency_sha256: Annotated[str, Field(max_length=64)]
    part: int
    parts: int
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    found: dict[str, Any]


def run_part(
    requests: Sequence[PlanRequest], part: Part, output: Path, *, digests: Digests, force: bool, walk: bool | None,
    front: bool,
) -> bool:  # fmt: skip
    """Search one part and write the result; return False where the file has it already.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    if not force and output.exists():
        try:
            space = part_sizes(requests, part.parts)[part.number]
            read_part(output, part, requests=requests, space=space, digests=digests, front=front)
        except InputError as error:
            click.echo(f"opsk: {escape(error.message)}: searched again", err=True)
        else:
            return False
    result = run_search(search_part(requests, part.number, part.parts, walk=walk, front=front))
    if result.interrupted:
        raise click.Abort
    document = {
        "opsk": __version__,
        "request_sha256": digests.request,
        "efficiency_sha256": digests.efficiency,
        "part": part.number,
        "parts": part.parts,
        "seconds": result.seconds,
        "found": serialise_result(result.found),
    }
    write_atomically(output, (json.dumps(document, indent=1) + "\n").encode())
    return True


def read_part(
    path: Path, part: Part, *, requests: Sequence[PlanRequest], space: int, digests: Digests, front: bool = False
) -> PartResult:
    """Read and validate the file of a part.

    Raises
    ------
    ForeignPartError
        It belongs to another request, other efficiencies, or another number of parts.
    FileNotFoundError
        There is no such file.
    InputError
        The file is damaged.
    """
    document = _read_document(path)
    actual = Part(number=document.part, parts=document.parts)
    other = [
        text
        for text, written, expected in (
            (f"part {actual}, not {part}", actual, part),
            (f"written by opsk {document.opsk}, this is {__version__}", document.opsk, __version__),
            ("of another request", document.request_sha256, digests.request),
            ("of other efficiencies", document.efficiency_sha256, digests.efficiency),
        )
        if written != expected
    ]  # fmt: skip
    if other:
        raise ForeignPartError(f"{path.name}: {'; '.join(other)}")
    try:
        return PartResult(
            found=parse_result(document.found, requests=requests, space=space, front=front), seconds=document.seconds
        )
    except InputError as error:
        raise InputError(f"{path.name}: {error.message}") from error


def _read_document(path: Path) -> _Document:
    """Return the document in a file."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(f"{path.name}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path.name}: larger than {MAX_BYTES} bytes")
    try:
        return _Document.model_validate(json.loads(data))
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False)[:3]
        )
        raise InputError(f"{path.name}: {wrong}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name}: no JSON: {error}") from error
