"""A Chromium that tests drive: its pointer, keyboard, window and colours, over the protocol of its developer tools."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.processes import PATIENCE, until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OPTIONS = """--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run
--disable-background-networking --remote-debugging-port=0"""
KEYS = {"Tab": (9, ""), "Enter": (13, "\r")}
"""Their numbers, and what they type."""
SAID = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")


class Browser:
    """A Chromium and its connection."""

    def __init__(self, connection: WebSocketClientConnection, loop: IOLoop) -> None:
        self._connection, self._loop, self._sent = connection, loop, 0
        self._tab: tuple[str, str] | None = None
        self.said: list[str] = []
        """What the page wrote to its console, errors, and requests that failed."""
        self.asked: list[str] = []
        """Addresses that the page asked for; data in an address is no request."""

    def open(self, page: Path, width: int = 1440, scheme: str = "light", scripts: bool = True, part: str = "") -> None:
        """Show a page in a tab of its own, and close the one before.

        Where a tab leaves one page for another, an answer to `Page.navigate` can be lost: waiting for it has no end.
        """
        before = self._tab
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._tab = (target, self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"])
        if before:
            self.call("Target.closeTarget", targetId=before[0])
        self.said, self.asked = [], []
        for domain in ("Inspector", "Page", "Runtime", "Log", "Network"):
            self.tell(f"{domain}.enable")
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.dark(scheme == "dark")
        self.tell("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.tell("Page.navigate", url=page.as_uri() + part)
        self.until(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(page.as_uri())})")

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Ask the browser, or a tab of it, and wait for the answer."""
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": params} | ({"sessionId": session} if session else {})
        self._connection.write_message(json.dumps(message))
        while True:
            text = self._loop.run_sync(self._connection.read_message, PATIENCE)
            assert text is not None, f"the browser ended during {method}"
            answer = json.loads(text)
            if answer.get("id") == self._sent:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer, method)

    def _note(self, event: dict[str, Any], during: str) -> None:
        """What happens in the tab; its end, which leaves calls without an answer, is an error at once."""
        if not self._tab or event.get("sessionId") != self._tab[1]:
            return
        name, params = event["method"], event["params"]
        assert name not in ("Inspector.targetCrashed", "Inspector.detached"), (
            f"the page ended during {during}: {params}"
        )
        if name in SAID:
            self.said.append(json.dumps(params)[:2000])
        if name == "Network.requestWillBeSent" and not params["request"]["url"].startswith("data:"):
            self.asked.append(params["request"]["url"])

    def tell(self, method: str, **params: Any) -> dict[str, Any]:
        """Ask the tab."""
        assert self._tab
        return self.call(method, self._tab[1], **params)

    def run(self, expression: str) -> Any:
        """The value of JavaScript in the page."""
        result = self.tell("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until JavaScript is true."""
        until(lambda: self.run(expression), expression)

    def dark(self, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[feature])

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        for near in (2, 1, 0):
            self.tell("Input.dispatchMouseEvent", type="mouseMoved", x=x + near, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        number, text = KEYS[key]
        for kind in ("keyDown", "keyUp"):
            typed = {"text": text} if text and kind == "keyDown" else {}
            names = {"key": key, "code": key, "windowsVirtualKeyCode": number}
            self.tell("Input.dispatchKeyEvent", type=kind, **names, **typed)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser of its own."""
    assert CHROMIUM, "no chromium on this machine"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, (Path(folder) / "said").open("w") as said:
        command = [CHROMIUM, *OPTIONS.split(), f"--user-data-dir={folder}/profile", "about:blank"]
        process = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, "TMPDIR": folder})
        try:
            port = Path(folder) / "profile" / "DevToolsActivePort"
            until(lambda: port.is_file() and "\n" in port.read_text(), "the browser listens", process)
            number, path = port.read_text().split()
            loop = IOLoop(make_current=False)
            address = f"ws://127.0.0.1:{number}{path}"
            yield Browser(loop.run_sync(lambda: websocket_connect(address, max_message_size=2**28), PATIENCE), loop)
            loop.close()
        finally:
            process.kill()
            process.wait()
