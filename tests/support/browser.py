"""A real browser without a window: Debian's Chromium, spoken to through its pipe of the DevTools protocol."""

from __future__ import annotations

import base64
import json
import os
import selectors
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE = 120.0
"""Seconds for an answer, on a machine that has much else to do."""


def browser() -> str | None:
    """The path of a browser; None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One page, opened from a file. `messages` has all that came onto its console, and all errors; `requests` the URLs
    that it asked for."""

    def __init__(self, folder: Path, *, dark: bool = False, scripts: bool = True, width: int = 1280) -> None:
        command = browser()
        assert command is not None
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._loaded = False
        self._buffer = b""
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        arguments = (
            command, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder}", "--remote-debugging-pipe", "about:blank",
        )  # fmt: skip
        # The protocol's pipe is by definition of the descriptors 3 and 4.
        shell = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *arguments], pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        target = self._call("Target.createTarget", {"url": "about:blank"}, None)["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True}, None)
        self._session: str | None = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call("Browser.close", {}, None)
        except (OSError, EOFError):
            self._process.kill()
        finally:
            self._process.wait(PATIENCE)
            os.close(self._write)
            os.close(self._read)

    def open(self, file: Path, anchor: str = "") -> None:
        """Loads a file, and waits until it is there."""
        self._loaded = False
        self.call("Page.navigate", url=file.resolve().as_uri() + anchor)
        while not self._loaded:
            self._take()

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, file: Path) -> None:
        """The whole page as a PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A method of the protocol, of this page."""
        return self._call(method, parameters, self._session)

    def _call(self, method: str, parameters: dict[str, Any], session: str | None) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        while (answer := self._take()).get("id") != number:
            pass
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _take(self) -> dict[str, Any]:
        """The next message, noted where it is an event."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            with selectors.DefaultSelector() as waiting:
                waiting.register(self._read, selectors.EVENT_READ)
                assert waiting.select(max(deadline - time.monotonic(), 0.0)), "the browser does not answer"
            data = os.read(self._read, 1 << 20)
            if not data:
                raise EOFError("the browser has left")
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        facts = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.consoleAPICalled":
                self.messages.append(f"console: {facts['args']}")
            case "Runtime.exceptionThrown":
                self.messages.append(f"exception: {facts['exceptionDetails']}")
            case "Log.entryAdded":
                self.messages.append(f"log: {facts['entry']['text']}")
            case "Network.requestWillBeSent":
                self.requests.append(facts["request"]["url"])
        return message
