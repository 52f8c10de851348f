r"""Defines the protocol between the submit hooks and the advisor on the Unix socket.

A connection carries frames, each a 4-byte big-endian unsigned length and that many bytes of one JSON object in UTF-8.
The hook sends a question, the advisor answers; one connection may carry a few questions, one after the other::

    hook ──► {"v": 1, "kind": "advise", ...}        advisor ──► {"v": 1, "status": "files", "paths": [...]}
    hook ──► {"v": 1, "kind": "advise", ..., "files": {...}}    {"v": 1, "status": "advice", "lines": [...], ...}
    top  ──► {"v": 1, "kind": "cluster", "have": "..."}     a snapshot of Slurm (`opsk.slurm.snapshot`), no JSON
    any  ──► {"v": 1, "kind": "record", "records": [...]}   {"v": 1, "status": "taken"}

Every question carries its version ``v``; a version or kind that the advisor does not know gets
``{"status": "error"}``, and a frame that is too long or no JSON object gets that and a closed connection. Answers are
pure ASCII (``\uXXXX`` escapes), so that a hook may refuse any other byte. Where a question has ``as_text``, its answer
is rows of text instead, see `answer_text`.

The sender of ``advise`` shows the answer and then closes the connection: the end of the connection counts as shown,
unless unread data was left.

The sender's identity is never read from a question: the advisor takes the peer's uid from the kernel. Only a ``submit``
question, which slurmctld sends on behalf of a user, names a uid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from opsk.units import KIB

_ESCAPED = re.compile(r"[^ -\[\]-~]")
VERSION = 1
HEADER_BYTES = 4
MAX_QUESTION_BYTES = 3 << 19
"""Longest question, 1.5 MiB: a script of up to 1 MiB and the files that it names."""
MAX_ANSWER_BYTES = 64 * KIB
MAX_SCRIPT_CHARS = 1 << 20
MAX_FILE_CHARS = 256 << 10
MAX_FILES = 24
"""Files of one question: a program of one's own is spread over many modules."""
MAX_REQUESTED_PATHS = 72
"""Paths that one conversation asks for: of a module several are tried, and most are not there."""
MAX_RECORDS = 128
MAX_DEPTH = 8
"""Deepest nesting of a question; real ones have 3."""
MAX_INSIDE = 256
"""Lists and objects of one depth; real questions have 4."""
_Path = Annotated[str, Field(max_length=4096)]
_Word = Annotated[str, Field(max_length=65536)]
_Scalar = str | float | bool | None


def render_answer_text(version: int, status: str, rows: Iterable[tuple[str, str]]) -> bytes:
    """Return an answer as text; empty rows are left out."""
    lines = [f"opsk {version} {status}\n", *(f"{name} {_ESCAPED.sub(_escape, text)}\n" for name, text in rows if text)]
    return "".join(lines).encode("ascii")


def _escape(match: re.Match[str]) -> str:
    """Return the escape sequence of a character for a hook; beyond 16 bits it is a question mark."""
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 1 << 16 else "?"


class ProtocolError(ValueError):
    """A frame is no question; the message is short, harmless and may be sent back."""


class _Message(BaseModel):
    """Base of all messages on the socket: known keys are validated, later versions may add others."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = 1


class PingQuestion(_Message):
    """Checks whether the advisor answers."""

    kind: Literal["ping"]


class AdviseQuestion(_Message):
    """Sent by ``cli_filter.lua``, as the submitting user, before the request leaves the login node.

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
        The object of Slurm's ``json_cli_options``, as text: an invalid one must not invalidate the question.
    env
        The variables that the script mentions.
    files
        Text of files that an earlier answer requested, by the path in that answer.
    left_ms
        The remaining time of the hook's deadline [ms].
    detail
        The level of detail that the user requests (``OPSK_ADVICE``).
    heterogeneous
        The job has further components; ``options_json`` are those of the first.
    ascii
        The user's terminal shows ASCII alone.
    as_text
        The answer is sent as rows of text.
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


class SubmitQuestion(_Message):
    """Sent by ``job_submit.lua`` under slurmctld's locks: asks for the record of the job, and whether advice was shown.

    Parameters
    ----------
    uid
        The submitting user.
    job
        Fields of ``job_desc`` under their own names; ``NO_VAL`` as the numbers that Slurm uses.
    quiet
        True when no lines are shown to the user, and only the record is needed.
    env
        The job's variables that the script mentions; ``None`` where the site's policy does not need them.
    ascii
        The user's terminal shows ASCII alone.
    as_text
        The answer is sent as rows of text.
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


class ClusterQuestion(_Message):
    """Sent by ``opsk top``: asks for all jobs and nodes, as far as the peer may see them.

    Parameters
    ----------
    have
        Digest of the client's snapshot; data that has not changed since is not sent again.
    """

    kind: Literal["cluster"]
    have: Annotated[str, Field(max_length=64)] = ""


class RecordQuestion(_Message):
    """Records for the store; the answer ``taken`` says that they are in the queue.

    Parameters
    ----------
    records
        Records as `opsk.store.writing.encode` writes them, one text each; write permissions are checked later, beside
        the store.
    """

    kind: Literal["record"]
    records: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_SCRIPT_CHARS)], ...], Field(min_length=1, max_length=MAX_RECORDS)
    ]


Question = PingQuestion | AdviseQuestion | SubmitQuestion | ClusterQuestion | RecordQuestion


_QUESTION: TypeAdapter[Question] = TypeAdapter(Annotated[Question, Field(discriminator="kind")])


class Answer(_Message):
    """An answer of the advisor.

    Parameters
    ----------
    status
        ``advice``: there is advice; ``files``: the texts of ``paths`` would improve it, ask again with them;
        ``silent``: there is no advice (no training job, or opted out); ``later``: no answer within the deadline, or no
        room for records now; ``taken``: records will be stored; ``pong``; ``error``: the question was invalid or not
        allowed.
    lines
        Lines to show to the user, without prefix; empty when the user has seen the advice already.
    comment
        The record for the job's comment.
    action
        ``hold`` or ``reject`` where the site's policy demands that for this job; ``lines`` then give the reason.
    release
        With ``pong``: the opsk release that answers, for ``opsk doctor``.
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
        document = json.loads(body.decode("utf-8", errors="replace"), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ProtocolError("nested too deeply") from error
    except ValueError as error:
        raise ProtocolError("not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolError("not a JSON object")
    if document.get("v") != VERSION:
        raise ProtocolError(f"version not known, this advisor speaks {VERSION}")
    try:
        return _QUESTION.validate_python(_check_depth(document))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ascii(".".join(str(part)[:40] for part in first["loc"][:3])).strip("'\"")
        raise ProtocolError(f"{where or 'kind'}: {first['type']}") from error


def frame(body: bytes) -> bytes:
    """Return a body with its length prefix."""
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def render_answer(answer: Answer, *, as_text: bool = False) -> bytes:
    """Return an answer as a frame; one that is longer than a hook reads loses lines from its end."""
    render = _render_rows if as_text else _render_json
    body = render(answer)
    while len(body) > MAX_ANSWER_BYTES and (answer.lines or answer.paths):
        answer = answer.model_copy(update={"lines": answer.lines[:-1], "paths": answer.paths[:-1]})
        body = render(answer)
    return frame(body)


def parse_body_length(header: bytes) -> int:
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


def _render_json(answer: Answer) -> bytes:
    """Return an answer as JSON in ASCII, without the fields that have their defaults."""
    return json.dumps(answer.model_dump(exclude_defaults=True) | {"v": VERSION}, separators=(",", ":")).encode("ascii")


def _render_rows(answer: Answer) -> bytes:
    """Return the fields of an answer that a hook uses, as rows of text."""
    rows = [("comment", answer.comment), ("action", answer.action), ("error", answer.error)]
    rows += [("path", path) for path in answer.paths] + [("line", line) for line in answer.lines]
    return render_answer_text(VERSION, answer.status, rows)


def _refuse_constant(name: str) -> Any:
    """Refuse ``NaN`` and ``Infinity``, which are no JSON."""
    raise ValueError(name)


def _check_depth(document: dict[str, Any]) -> dict[str, Any]:
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


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the next frame's body, ``None`` at the end of the stream."""
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES:
        return None
    body = stream.read(int.from_bytes(header, "big"))
    return body if len(body) == int.from_bytes(header, "big") else None
