"""How is one part of a search run, and how is what it found kept in a file that can be trusted again?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsk import __version__
from opsk.cli.plan.digest import Digests
from opsk.cli.plan.folder import write_atomically
from opsk.cli.plan.run import run
from opsk.errors import InputError
from opsk.planning.search.found import Found
from opsk.planning.search.parts import part_searched, part_sizes
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.written import found_values, read_found
from opsk.text import escape
from opsk.units import MIB

MAX_BYTES = 64 * MIB
"""A part with 1,000 plans in each list has 3 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Which part of how many: 0 to parts - 1."""

    number: int
    parts: int

    def __str__(self) -> str:
        """Return ``3/8``."""
        return f"{self.number}/{self.parts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    """What was found of one part, and how long it took."""

    found: Found
    seconds: float


class ForeignPartError(InputError):
    """A part that is sound, but of another search."""


class _Document(BaseModel):
    """The file of one part; what was found is checked by itself."""

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
    """Search one part and write what was found; return False where the file has it already.

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
    done = run(part_searched(requests, part.number, part.parts, walk=walk, front=front))
    if done.interrupted:
        raise click.Abort
    document = {
        "opsk": __version__,
        "request_sha256": digests.request,
        "efficiency_sha256": digests.efficiency,
        "part": part.number,
        "parts": part.parts,
        "seconds": done.seconds,
        "found": found_values(done.found),
    }
    write_atomically(output, (json.dumps(document, indent=1) + "\n").encode())
    return True


def read_part(
    path: Path, part: Part, *, requests: Sequence[PlanRequest], space: int, digests: Digests, front: bool = False
) -> PartResult:
    """Return what the file of a part says, once all of it is checked.

    Raises
    ------
    ForeignPartError
        It is of another request, of other efficiencies, or of another number of parts.
    FileNotFoundError
        There is no such file.
    InputError
        It is damaged.
    """
    document = _document(path)
    own = Part(number=document.part, parts=document.parts)
    other = [
        words
        for words, said, asked in (
            (f"part {own}, not {part}", own, part),
            (f"written by opsk {document.opsk}, this is {__version__}", document.opsk, __version__),
            ("of another request", document.request_sha256, digests.request),
            ("of other efficiencies", document.efficiency_sha256, digests.efficiency),
        )
        if said != asked
    ]  # fmt: skip
    if other:
        raise ForeignPartError(f"{path.name}: {'; '.join(other)}")
    try:
        return PartResult(
            found=read_found(document.found, requests=requests, space=space, front=front), seconds=document.seconds
        )
    except InputError as error:
        raise InputError(f"{path.name}: {error.message}") from error


def _document(path: Path) -> _Document:
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
