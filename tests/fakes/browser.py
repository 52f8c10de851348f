"""A real Chromium without a window, told what to do over a pipe; what it asks for and complains of is kept.

It speaks the DevTools protocol: JSON messages that end in a zero byte, on descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 60.0
_COMPLAINTS = {"Runtime.exceptionThrown", "Log.entryAdded"}


def chromium() -> str | None:
    """Return the browser of this machine, ``None`` where there is none."""
    # The first is Debian's without windows, which needs 57 packages fewer.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name))), None)


def chromium_or_skip() -> str:
    """Return the browser of this machine; the test is skipped where there is none."""
    found = chromium()
    if found is None:
        pytest.skip("no chromium on this machine")
    return found


class Browser:
    """One page of a browser.

    ``requested`` are the addresses that it asked for, ``complaints`` what stands in its console in red.
    """

    def __init__(self, send: int, receive: int) -> None:
        self.requested: list[str] = []
        self.complaints: list[str] = []
        self._send, self._receive = send, receive
        self._data, self._number, self._session = b"", 0, ""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._ask(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Go to a page, and wait until it is loaded."""
        self._ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Have a window of this size, in light or in dark."""
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[feature])

    def value(self, script: str) -> Any:
        """Return what JavaScript says."""
        result = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, script: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until JavaScript says yes."""
        end = time.monotonic() + deadline_s
        while not self.value(script):
            assert time.monotonic() < end, f"never: {script}"
            time.sleep(0.1)

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot", format="png")["data"]))

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        """Keep what an event tells that tests ask for."""
        parameters = event.get("params", {})
        if event["method"] == "Network.requestWillBeSent":
            self.requested.append(parameters["request"]["url"])
        elif event["method"] in _COMPLAINTS or (
            event["method"] == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "assert")
        ):
            self.complaints.append(json.dumps(parameters)[:500])

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._data:
            piece = os.read(self._receive, 1 << 16)
            assert piece, "the browser has ended"
            self._data += piece
        message, _, self._data = self._data.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Browser]:
    """Start a browser; it is ended again."""
    told, told_end = os.pipe()
    said_end, said = os.pipe()
    # A shell puts the ends of the pipes where the browser looks for them.
    words = [
        program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", f"--user-data-dir={profile}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{told} 4>&{said}', "bash", *words],
        pass_fds=(told, said), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(told)
    os.close(said)
    try:
        yield Browser(told_end, said_end)
    finally:
        _ended(process, lambda: os.close(told_end))
        os.close(said_end)


def _ended(process: subprocess.Popen[bytes], hang_up: Callable[[], None]) -> None:
    """End a browser, which goes when nobody speaks to it any more."""
    hang_up()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)
