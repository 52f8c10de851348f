"""Parses the matrices of ``nvidia-smi topo -m`` and ``topo -p2p``.

The header names the columns: GPUs, then NICs as ``NIC0`` with a legend, or as ``mlx5_0`` with older drivers, then the
affinity columns, whose number depends on the driver. Terminals wrap the lines, and nvidia-smi underlines the header
with escapes: the matrix is read as words, not as columns of characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from opsk.fabric.node.node_topology import Gpu, GpuPath, Nic, NodeTopology, PathClass

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Za-z0-9]")
_GPU_NAME = re.compile(r"GPU([0-9]{1,4})")
_DEVICE_NAME = re.compile(r"(?:NIC[0-9]{1,3}|[A-Za-z][\w.-]*[0-9][\w.-]*)")
_PATH = re.compile(r"X|NV[0-9]{1,3}|NVL|XGMI|PIX|PXB|PHB|NODE|SYS|SOC|PSB|PIXB?|N/A|ERR!?|UNK(?:NOWN)?")
_P2P = re.compile(r"X|OK|CNS|GNS|TNS|DR|NS|U")
_A_HEADER = re.compile(
    r"^[ \t>|*#]*GPU[0-9]{1,4}(?:[ \t|]*$|[ \t|]+(?!X\b)[A-Za-z]\w*[0-9]|[ \t|]+CPU\b)", re.MULTILINE
)
_A_ROW = re.compile(
    r"^[ \t>|*#]*GPU[0-9]{1,4}[ \t|]+(?:X|NV[0-9L]+|P[HIX]B|PIX|NODE|SYS|SOC|OK|[CGT]?NS|U)\b", re.MULTILINE
)
_LEGEND = re.compile(r"^[ \t>|*]*(NIC[0-9]{1,3})[ \t]*:[ \t]*(\S+)", re.MULTILINE)
_CPUS = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")

_CLASSES = {"SOC": PathClass.SYS, "PSB": PathClass.PIX} | {
    kind.value: kind for kind in PathClass if kind is not PathClass.NV
}
"""Words of older drivers: SOC, a socket-level link, is SYS now; PSB, inside one board, PIX."""

_AFFINITY_WORDS = frozenset({"CPU", "NUMA", "GPU", "Affinity", "ID"})
_AFFINITY_CELL = re.compile(r"N/A|[0-9a-fA-Fx][0-9a-fA-Fx,-]*")

_MAX_HEADER_WORDS = 2000
_MAX_HEADERS = 100
_MAX_BLANK_LINES = 4
_MAX_BAD_LINES = 3
"""Bounds of what is looked at: more than any node has, and little enough that a hostile file costs no time."""


@dataclass(slots=True, kw_only=True)
class _Row:
    """One row: its name, its cells, the words after them, and the line it starts on."""

    name: str
    line: int
    cells: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    cut: bool = False


@dataclass(slots=True, kw_only=True)
class _Matrix:
    """The words of a matrix."""

    columns: list[str] = field(default_factory=list)
    affinity: list[str] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)
    p2p: bool = False
    problems: list[str] = field(default_factory=list)


def holds_matrix(text: str) -> bool:
    """Return whether a text seems to hold such a matrix: a header, and a row of a GPU."""
    plain = _ESCAPE.sub("", text)
    return _A_HEADER.search(plain) is not None and _A_ROW.search(plain) is not None


def read_topo_matrix(text: str, *, source: str) -> NodeTopology | None:
    """Return the node of the first matrix in a text; ``None`` when there is none."""
    plain = _ESCAPE.sub("", text)
    matrix = _find_matrix(plain, source)
    if matrix is None:
        return None
    legend = dict(_LEGEND.findall(plain))
    if matrix.p2p:
        return _p2p(matrix, source)
    nics = tuple(_nic(name, legend) for name in matrix.columns if not _GPU_NAME.fullmatch(name))
    names = {name: nic.name for name, nic in zip(_nic_columns(matrix), nics, strict=True)}
    weights = _cells(matrix, source)
    gpu_paths: dict[tuple[int, int], GpuPath] = {}
    nic_paths: dict[tuple[int, str], PathClass] = {}
    nic_pairs: dict[tuple[str, str], PathClass] = {}
    for (first, second), path in weights.items():
        first_gpu, second_gpu = _GPU_NAME.fullmatch(first), _GPU_NAME.fullmatch(second)
        if first_gpu and second_gpu:
            low, high = sorted((int(first_gpu[1]), int(second_gpu[1])))
            gpu_paths[low, high] = path
        elif first_gpu:
            nic_paths[int(first_gpu[1]), names[second]] = path.kind
        elif second_gpu:
            nic_paths[int(second_gpu[1]), names[first]] = path.kind
        else:
            nic_pairs[names[first], names[second]] = path.kind
    contents: dict[str, object] = {
        "rows": len(matrix.rows),
        "nics_in_the_header": len(nics),
        "nic_legend": legend,
        "affinity_columns": matrix.affinity,
    }
    return NodeTopology(
        gpus=tuple(_gpus(matrix)),
        nics=nics,
        gpu_paths=dict(sorted(gpu_paths.items())),
        nic_paths=nic_paths,
        nic_pairs=nic_pairs,
        source=source,
        dialect="topo_matrix",
        contents=contents,
        problems=tuple(matrix.problems),
    )


def _find_matrix(text: str, source: str) -> _Matrix | None:
    """Return the first matrix: a header, and at least one row that begins with one of its names."""
    lines = text.splitlines()
    headers = 0
    for number, line in enumerate(lines):
        words = _words(line)
        if words and _GPU_NAME.fullmatch(words[0]) and (len(words) == 1 or not _is_cell(words[1])):
            headers += 1
            matrix = _read_matrix(lines, number, source)
            if matrix is not None or headers == _MAX_HEADERS:
                return matrix
    return None


def _words(line: str) -> list[str]:
    """Return the words of a line, without the marks of a quotation or a table."""
    words = line.replace("|", " ").split()
    while words and words[0] in {">", "*", "#"}:
        words = words[1:]
    return words


@lru_cache(maxsize=1024)
def _is_cell(word: str) -> bool:
    return bool(_PATH.fullmatch(word) or _P2P.fullmatch(word))


def _read_matrix(lines: list[str], start: int, source: str) -> _Matrix | None:
    """Read a header at ``start`` and the rows below it; ``None`` when no row follows."""
    matrix = _Matrix()
    header: list[str] = []
    position = start
    while position < len(lines):
        words = _words(lines[position])
        if position > start and (not words or (words[0] in header and len(words) > 1 and _is_cell(words[1]))):
            break
        header += words
        position += 1
        if len(header) > _MAX_HEADER_WORDS:
            return None
    _read_header(matrix, header)
    _read_rows(matrix, lines, position, source)
    if not matrix.rows:
        return None
    values = {cell for row in matrix.rows for cell in row.cells} - {"X"}
    matrix.p2p = bool(values) and all(_P2P.fullmatch(cell) for cell in values)
    _report_incomplete(matrix, source)
    return matrix


def _read_header(matrix: _Matrix, words: list[str]) -> None:
    """Sort the words of the header into columns and affinity."""
    for number, word in enumerate(words):
        if word in _AFFINITY_WORDS or (matrix.affinity and not _GPU_NAME.fullmatch(word)):
            matrix.affinity = _affinity_titles(words[number:])
            return
        if _DEVICE_NAME.fullmatch(word) and word not in matrix.columns:
            matrix.columns.append(word)


def _affinity_titles(words: list[str]) -> list[str]:
    """Return ``CPU Affinity``, ``NUMA Affinity``, ``GPU NUMA ID`` of the words of all titles."""
    titles = re.findall(r"CPU Affinity|NUMA Affinity|GPU NUMA ID", " ".join(words))
    return titles or [" ".join(words)]


def _read_rows(matrix: _Matrix, lines: list[str], start: int, source: str) -> None:
    """Read the rows; a line that does not begin one goes on with the row before, as a narrow terminal wraps it."""
    known = set(matrix.columns)
    row: _Row | None = None
    bad: list[int] = []
    for number in range(start, len(lines)):
        words = _words(lines[number])
        if words and words[0].startswith(("Legend", "```")):
            break
        if not words:
            if _has_ended(lines, number, known):
                break
        elif words[0] in known and (len(words) == 1 or _is_cell(words[1])):
            row = _Row(name=words[0], line=number + 1)
            matrix.rows.append(row)
            _append_words(row, words[1:], len(matrix.columns))
        elif row is not None and _continues_row(row, words, matrix):
            _append_words(row, words, len(matrix.columns))
        else:
            bad.append(number + 1)
            if len(bad) > _MAX_BAD_LINES or "=" in words:
                break
    last = matrix.rows[-1].line if matrix.rows else 0
    matrix.problems += [f"{source}:{number}: no row of the matrix" for number in bad if number < last]


def _continues_row(row: _Row, words: list[str], matrix: _Matrix) -> bool:
    """Return whether words can be the rest of a row."""
    cells_left = len(matrix.columns) - len(row.cells)
    if cells_left and not row.rest:
        return _is_cell(words[0])
    return len(row.rest) < len(matrix.affinity) and all(_AFFINITY_CELL.fullmatch(word) for word in words)


def _has_ended(lines: list[str], number: int, known: set[str]) -> bool:
    """Return whether no row follows an empty line."""
    ahead = (words for line in lines[number + 1 : number + 1 + _MAX_BLANK_LINES] if (words := _words(line)))
    following = next(ahead, [])
    return not (len(following) > 1 and following[0] in known and _is_cell(following[1]))


def _append_words(row: _Row, words: list[str], columns: int) -> None:
    """Add words to a row: cells while they are path classes and columns are left, then the rest."""
    for word in words:
        if len(row.cells) < columns and not row.rest and _is_cell(word):
            row.cells.append(word)
        elif row.rest and row.rest[-1].endswith(","):
            row.rest[-1] += word
        else:
            row.rest.append(word)


def _report_incomplete(matrix: _Matrix, source: str) -> None:
    """Report rows that are short, twice or missing."""
    seen: set[str] = set()
    unique = []
    for row in matrix.rows:
        if row.name in seen:
            matrix.problems.append(f"{source}:{row.line}: a second row {row.name}; the first is kept")
            continue
        seen.add(row.name)
        unique.append(row)
        if len(row.cells) < len(matrix.columns):
            row.cut = True
            matrix.problems.append(
                f"{source}:{row.line}: row {row.name} has {len(row.cells)} of {len(matrix.columns)} cells"
            )
    matrix.rows = unique
    missing = [name for name in matrix.columns if name not in seen]
    if missing:
        matrix.problems.append(f"{source}: no row {', '.join(missing)}: the matrix is cut")


def _cells(matrix: _Matrix, source: str) -> dict[tuple[str, str], GpuPath]:
    """Return the path between every two names; where the two halves differ, that of the whole row counts."""
    paths: dict[tuple[str, str], GpuPath] = {}
    order = {name: place for place, name in enumerate(matrix.columns)}
    for row in sorted(matrix.rows, key=lambda entry: entry.cut):
        # The last word of a cut row may be half a word: NV1 of NV12.
        cells = row.cells[:-1] if row.cut and not row.rest else row.cells
        for name, cell in zip(matrix.columns, cells, strict=False):
            path = _path(cell)
            if name == row.name or path is None:
                if name != row.name and cell != "X":
                    matrix.problems.append(f"{source}:{row.line}: {row.name} to {name}: says {cell}, no path")
                continue
            key = (row.name, name) if order[row.name] < order[name] else (name, row.name)
            if paths.setdefault(key, path) != path:
                matrix.problems.append(
                    f"{source}:{row.line}: {row.name} to {name} is {path}, and {paths[key]} the other way"
                )
    return paths


@lru_cache(maxsize=1024)
def _path(cell: str) -> GpuPath | None:
    """Return the path of a cell; ``None`` for X, N/A and what no driver prints."""
    if match := re.fullmatch(r"NV([0-9]+|L)", cell):
        return GpuPath(kind=PathClass.NV, links=int(match[1]) if match[1].isdecimal() else None)
    kind = _CLASSES.get(cell)
    return GpuPath(kind=kind) if kind is not None else None


def _nic_columns(matrix: _Matrix) -> list[str]:
    return [name for name in matrix.columns if not _GPU_NAME.fullmatch(name)]


def _nic(column: str, legend: dict[str, str]) -> Nic:
    device = legend.get(column, None if re.fullmatch(r"NIC[0-9]+", column) else column)
    return Nic(name=device or column, device=device, label=column)


def _gpus(matrix: _Matrix) -> list[Gpu]:
    """Return the GPUs of header and rows, with the values of the affinity columns."""
    rest = {row.name: row.rest for row in matrix.rows}
    gpus = []
    for name in matrix.columns:
        match = _GPU_NAME.fullmatch(name)
        if match is None:
            continue
        affinity = dict(zip(matrix.affinity, rest.get(name, []), strict=False))
        cpus, numa = affinity.get("CPU Affinity", ""), affinity.get("NUMA Affinity", "")
        gpus.append(
            Gpu(
                index=int(match[1]),
                cpus=cpus if _CPUS.fullmatch(cpus) else None,
                numa=int(numa) if re.fullmatch(r"[0-9]{1,4}", numa) else None,
            )
        )
    return gpus


def _p2p(matrix: _Matrix, source: str) -> NodeTopology:
    """Return the node of a ``topo -p2p`` matrix: no paths, but which GPU can reach which."""
    access: dict[tuple[int, int], str] = {}
    for row in matrix.rows:
        row_gpu = _GPU_NAME.fullmatch(row.name)
        for name, cell in zip(matrix.columns, row.cells, strict=False):
            column_gpu = _GPU_NAME.fullmatch(name)
            if row_gpu and column_gpu and name != row.name and cell != "X":
                pair = (min(int(row_gpu[1]), int(column_gpu[1])), max(int(row_gpu[1]), int(column_gpu[1])))
                if access.setdefault(pair, cell) == "OK":
                    access[pair] = cell
    refused = [f"GPU {first} and GPU {second} ({cell})" for (first, second), cell in access.items() if cell != "OK"]
    if refused:
        matrix.problems.append(f"{source}: no peer-to-peer between {', '.join(refused[:8])}" + _more(refused, 8))
    gpus = [Gpu(index=int(match[1])) for name in matrix.columns if (match := _GPU_NAME.fullmatch(name))]
    return NodeTopology(
        gpus=tuple(gpus),
        p2p=dict(sorted(access.items())),
        source=source,
        dialect="topo_p2p",
        contents={"rows": len(matrix.rows)},
        problems=tuple(matrix.problems),
    )


def _more(entries: list[str], shown: int) -> str:
    return f" and {len(entries) - shown} more" if len(entries) > shown else ""
