r"""How do the submit hooks and the advisor talk over the Unix socket, and what may each say?

A connection carries frames, each a 4-byte big-endian unsigned length and that many bytes of one JSON object in UTF-8.
The hook asks, the advisor answers; one connection may carry a few questions, one after the other::

    hook ──► {"v": 1, "kind": "advise", ...}        advisor ──► {"v": 1, "status": "files", "paths": [...]}
    hook ──► {"v": 1, "kind": "advise", ..., "files": {...}}    {"v": 1, "status": "advice", "lines": [...], ...}
    top  ──► {"v": 1, "kind": "cluster", "have": "..."}     a snapshot of Slurm (`opsk.slurm.snapshot`), no JSON
    any  ──► {"v": 1, "kind": "record", "records": [...]}   {"v": 1, "status": "taken"}

Every question carries its version ``v``; a version or kind that the advisor does not know gets
``{"status": "error"}``, and a frame that is too long or no JSON object gets that and a closed connection. Answers are
pure ASCII (``\uXXXX`` escapes), so that a hook may refuse any other byte. Where a question has ``as_text``, its answer
is rows of text instead, see `answer_text`.

Who asks ``advise`` shows what is answered, and hangs up then: that it was shown is taken from the end of the
connection, unless there was something left to read.

Who asks is never read from a question: the advisor takes the peer's uid from the kernel. Only a ``submit`` question,
which slurmctld asks on behalf of a user, names a uid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from opsk.units import KIB

_ESCAPED = re.compile(r"[^ -\[\]-~]")


def answer_text(version: int, status: str, rows: Iterable[tuple[str, str]]) -> bytes:
    """Return an answer as text; rows that say nothing are left out."""
    lines = [f"opsk {version} {status}\n", *(f"{name} {_ESCAPED.sub(_escape, text)}\n" for name, text in rows if text)]
    return "".join(lines).encode("ascii")


def _escape(found: re.Match[str]) -> str:
    """Return one sign as a hook reads it; what takes more than 16 bits is a question mark."""
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 1 << 16 else "?"


VERSION = 1
HEADER_BYTES = 4
MAX_QUESTION_BYTES = 3 << 19
"""Longest question, 1.5 MiB: a script of up to 1 MiB and what it names."""
MAX_ANSWER_BYTES = 64 * KIB
MAX_SCRIPT_CHARS = 1 << 20
MAX_FILE_CHARS = 256 << 10
MAX_FILES = 8
MAX_RECORDS = 128
MAX_DEPTH = 8
"""Deepest nesting of a question that is looked at; real ones have 3."""
MAX_INSIDE = 256
"""Lists and objects of one depth; real questions have 4."""

_Path = Annotated[str, Field(max_length=4096)]
_Word = Annotated[str, Field(max_length=65536)]
_Scalar = str | float | bool | None


class ProtocolError(ValueError):
    """A frame is no question; the message is short, harmless and may be sent back."""


class _Said(BaseModel):
    """Base of everything said on the socket: known keys are checked, later versions may add others."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = 1


class PingQuestion(_Said):
    """Is the advisor there and answering?"""

    kind: Literal["ping"]


class AdviseQuestion(_Said):
    """Asked by ``cli_filter.lua``, as the submitting user, before the request leaves the login node.

    Parameters
    ----------
    command
        ``sbatch``, ``salloc`` or ``srun``.
    script, script_name
        Text of the batch script (also the one that ``--wrap`` makes) and its path as typed; ``None`` when there is
        none or it could not be read.
    argv
        Script or program and its arguments, as typed.
    options_json
        The object that Slurm's ``json_cli_options`` gives, as text: a broken one must not spoil the question.
    env
        Those variables that the script mentions.
    files
        Text of files that an earlier answer wanted, by the path that it wanted.
    left_ms
        What is left of the hook's deadline [ms].
    detail
        How much the user wants to read (``OPSK_ADVICE``).
    heterogeneous
        The job has further components; ``options_json`` are those of the first.
    ascii
        The user's terminal shows ASCII alone.
    as_text
        The answer is to come as rows of text.
    """

    kind: Literal["advise"]
    as_text: bool = False
    command: Annotated[str, Field(max_length=16)] = "sbatch"
    script: Annotated[str, Field(max_length=MAX_SCRIPT_CHARS)] | None = None
    script_name: _Path = ""
    argv: Annotated[tuple[_Word, ...], Field(max_length=4096)] = ()
    options_json: Annotated[str, Field(max_length=MAX_SCRIPT_CHARS)] = ""
    env: Annotated[Mapping[str, _Word], Field(max_length=512)] = {}
    cwd: _Path = ""
    left_ms: Annotated[float, Field(gt=0)] | None = None
    detail: Literal["default", "long", "short"] = "default"
    ascii: bool = False
    heterogeneous: bool = False
    files: Annotated[Mapping[_Path, Annotated[str, Field(max_length=MAX_FILE_CHARS)]], Field(max_length=MAX_FILES)] = {}


class SubmitQuestion(_Said):
    """Asked by ``job_submit.lua`` under slurmctld's locks: has anything been said about this job, what may be added?

    Parameters
    ----------
    uid
        The submitting user.
    job
        Fields of ``job_desc`` under their own names; ``NO_VAL`` as the numbers that Slurm uses.
    quiet
        True when the user is to be told nothing, only the record is wanted.
    env
        Those variables of the job that the script mentions; ``None`` where the site's policy does not need them.
    ascii
        The user's terminal shows ASCII alone.
    as_text
        The answer is to come as rows of text.
    """

    kind: Literal["submit"]
    as_text: bool = False
    uid: Annotated[int, Field(ge=0, lt=1 << 32)]
    script: Annotated[str, Field(max_length=MAX_SCRIPT_CHARS)] | None = None
    argv: Annotated[tuple[_Word, ...], Field(max_length=4096)] = ()
    job: Annotated[Mapping[str, _Scalar], Field(max_length=128)] = {}
    quiet: bool = False
    ascii: bool = False
    env: Annotated[Mapping[str, _Word], Field(max_length=512)] | None = None


class ClusterQuestion(_Said):
    """Asked by ``opsk top``: all jobs and nodes, as far as the peer may see them.

    Parameters
    ----------
    have
        Digest of the snapshot that the asker has; what has not changed since is not sent again.
    """

    kind: Literal["cluster"]
    have: Annotated[str, Field(max_length=64)] = ""


class RecordQuestion(_Said):
    """What the store is to keep; the answer ``taken`` says that it is in the queue.

    Parameters
    ----------
    records
        Records as `opsk.store.writing.encode` writes them, a text each; who may write which is looked at later, beside
        the store.
    """

    kind: Literal["record"]
    records: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_SCRIPT_CHARS)], ...], Field(min_length=1, max_length=MAX_RECORDS)
    ]


Question = PingQuestion | AdviseQuestion | SubmitQuestion | ClusterQuestion | RecordQuestion
_QUESTION: TypeAdapter[Question] = TypeAdapter(Annotated[Question, Field(discriminator="kind")])


class Answer(_Said):
    """What the advisor says.

    Parameters
    ----------
    status
        ``advice``: there is something to say; ``files``: the texts of ``paths`` would say more, ask again with them;
        ``silent``: nothing is to be said (no training job, or opted out); ``later``: no answer within the deadline, or
        no room for records now; ``taken``: records will be kept; ``pong``; ``error``: the question was not understood
        or not allowed.
    lines
        What to show the user, without prefix; empty when the user has been told already.
    comment
        The record to leave in the job's comment.
    action
        ``hold`` or ``reject`` where the site's policy wants that of this job; ``lines`` then say why.
    release
        With ``pong``: which opsk answers, for ``opsk doctor``.
    """

    status: Literal["advice", "files", "silent", "later", "taken", "pong", "error"]
    verdict: str = ""
    lines: tuple[str, ...] = ()
    comment: str = ""
    action: Literal["", "hold", "reject"] = ""
    paths: tuple[str, ...] = ()
    error: str = ""
    release: str = ""


def parse_question(body: bytes) -> Question:
    """Return the question in one frame's body.

    Bytes that are no UTF-8 (a script in another encoding) become replacement characters.

    Raises
    ------
    ProtocolError
        When the body is no JSON object, or none that this version knows.
    """
    try:
        document = json.loads(body.decode("utf-8", errors="replace"), parse_constant=_no_constant)
    except RecursionError as error:
        raise ProtocolError("nested too deeply") from error
    except ValueError as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolError("not a JSON object")
    if document.get("v") != VERSION:
        raise ProtocolError(f"version not known, this advisor speaks {VERSION}")
    try:
        return _QUESTION.validate_python(_bounded(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ascii(".".join(str(part)[:40] for part in first["loc"][:3])).strip("'\"")
        raise ProtocolError(f"{where or 'kind'}: {first['type']}") from error


def frame(body: bytes) -> bytes:
    """Return a body with its length before it."""
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def render_answer(answer: Answer, *, as_text: bool = False) -> bytes:
    """Return an answer as a frame; what is longer than a hook reads loses lines from its end."""
    written = _rows if as_text else _ascii
    body = written(answer)
    while len(body) > MAX_ANSWER_BYTES and (answer.lines or answer.paths):
        answer = answer.model_copy(update={"lines": answer.lines[:-1], "paths": answer.paths[:-1]})
        body = written(answer)
    return frame(body)


def body_length(header: bytes) -> int:
    """Return the number of bytes that follow a header.

    Raises
    ------
    ProtocolError
        When that is more than a question may have, or nothing.
    """
    length = int.from_bytes(header, "big")
    if not 2 <= length <= MAX_QUESTION_BYTES:
        raise ProtocolError(f"frame of {length} bytes, at most {MAX_QUESTION_BYTES} are read")
    return length


def _ascii(answer: Answer) -> bytes:
    """Return an answer as JSON in ASCII, without the fields that say nothing."""
    return json.dumps(answer.model_dump(exclude_defaults=True) | {"v": VERSION}, separators=(",", ":")).encode("ascii")


def _rows(answer: Answer) -> bytes:
    """Return what of an answer a hook looks at, as rows of text."""
    rows = [("comment", answer.comment), ("action", answer.action), ("error", answer.error)]
    rows += [("path", path) for path in answer.paths] + [("line", line) for line in answer.lines]
    return answer_text(VERSION, answer.status, rows)


def _no_constant(name: str) -> Any:
    """Refuse ``NaN`` and ``Infinity``, which are no JSON."""
    raise ValueError(name)


def _bounded(document: dict[str, Any]) -> dict[str, Any]:
    """Refuse documents nested deeper than any question is."""
    level: list[Any] = [document]
    for _ in range(MAX_DEPTH):
        inside = (
            entry
            for part in level
            for entry in (part.values() if isinstance(part, dict) else part)
            if isinstance(entry, dict | list)
        )
        level = list(islice(inside, MAX_INSIDE + 1))
        if not level:
            return document
        if len(level) > MAX_INSIDE:
            raise ProtocolError("too many lists and objects")
    raise ProtocolError("nested too deeply")
