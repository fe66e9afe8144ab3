"""A headless Chromium, driven by the DevTools protocol over a pair of pipes."""

import base64
import fcntl
import json
import os
import shutil
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

# The contrast of WCAG 2 between the ink of the pictures and the paper, and between the text and the paper.
CONTRAST = """(() => {
  const light = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const inks = [...document.querySelectorAll("svg text, p, td, figcaption, span, a, li")].map(element =>
    getComputedStyle(element)[element.tagName === "text" ? "fill" : "color"]);
  return Math.min(...inks.map(ink => ratio(light(ink), paper)));
})()"""


class Browser:
    """One page of a browser without a window.

    Attributes:
        complaints: what the pages opened so far wrote to the console as errors and warnings, or threw.
        requested: the addresses of everything that they asked for, themselves included.
    """

    def __init__(self) -> None:
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self._events: list[str] = []
        self._count = 0
        self._session: str | None = None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        (their_in, self._out), (self._in, their_out) = os.pipe(), os.pipe()
        # Chromium reads commands from 3 and answers on 4: those must not be overwritten before they are copied there.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (their_in, their_out)]
        os.close(their_in), os.close(their_out)
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        copies = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(ends, (3, 4), strict=True)]
        # In a container there is often no room for a sandbox, nor for shared memory; the page is our own.
        options = ["--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run"]
        options += ["--disable-dev-shm-usage", f"--user-data-dir={self._profile.name}", "about:blank"]
        assert CHROMIUM is not None
        self._pid = os.posix_spawn(
            CHROMIUM, [CHROMIUM, *options], dict(os.environ), file_actions=[*null, *copies], setpgroup=0
        )
        for end in ends:
            os.close(end)
        self._buffer = b""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *exception: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._in), os.close(self._out)
        self._profile.cleanup()

    def open(self, page: Path, width: int, height: int = 844, *, dark: bool = False, media: str = "screen") -> None:
        """Open a file at a width in CSS pixels, and wait until all of it is there."""
        phone = width < 600
        size = {"width": width, "height": height, "deviceScaleFactor": 1}
        self._ask("Emulation.setDeviceMetricsOverride", **size, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._events.clear()
        self._ask("Page.navigate", url=page.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._receive()

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        answer = self._ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self._ask("Page.printToPDF", preferCSSPageSize=True)["data"])

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            received = self._receive()
            if received.get("id") == number:
                if "error" in received:
                    raise RuntimeError(f"{method}: {received['error']}")
                return received["result"]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            read = os.read(self._in, 2**20)
            if not read:
                raise RuntimeError("the browser has ended")
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, told: dict[str, Any]) -> None:
        self._events.append(method)
        if method == "Network.requestWillBeSent":
            self.requested.append(told["request"]["url"])
        said = told.get("type") if method == "Runtime.consoleAPICalled" else told.get("entry", {}).get("level")
        if method == "Runtime.exceptionThrown" or said in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(told))
