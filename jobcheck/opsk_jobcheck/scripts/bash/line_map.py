"""Maps line numbers to file and line when several files are read as one."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(slots=True)
class Places:
    """The files that are read as one sequence of lines: the script first, then what it sources and starts.

    A line of such a file is counted from ``starts[i]`` on, so that one number identifies file and line.
    """

    starts: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    end: int = 1 << 20

    def add(self, file: str, lines: int) -> int:
        """Add a file of so many lines and return the offset of its line numbers."""
        start = self.end
        self.starts.append(start)
        self.files.append(file)
        self.end += lines + 1
        return start

    def locate(self, line: int) -> tuple[str, int]:
        """Return the file and the line in it; the script itself has no name here."""
        index = bisect_right(self.starts, line) - 1
        return (self.files[index], line - self.starts[index]) if index >= 0 else ("", line)
