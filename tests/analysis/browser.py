"""A Chromium that a test drives: its own pointer, keyboard, window and colours, over the protocol of its tools."""

from __future__ import annotations

import json
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
OPTIONS = "--headless --no-sandbox --disable-gpu --remote-debugging-port=0 --no-first-run"


class Tab:
    """One page."""

    def __init__(self, connection: WebSocketClientConnection, loop: IOLoop) -> None:
        self._connection, self._loop, self._sent = connection, loop, 0
        self.said: list[str] = []
        """Errors, and whatever the page wrote to its console."""
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._sent += 1
        self._connection.write_message(json.dumps({"id": self._sent, "method": method, "params": params}))
        while True:
            message = json.loads(self._loop.run_sync(self._connection.read_message, timeout=PATIENCE))
            if message.get("id") == self._sent:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.said.append(json.dumps(message["params"])[:2000])

    def run(self, expression: str) -> Any:
        """The value of JavaScript in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until JavaScript is true."""
        until(lambda: self.run(expression), expression)

    def open(self, page: Path, width: int = 1440, scheme: str = "light", scripts: bool = True) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.dark(scheme == "dark")
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=page.as_uri())
        self.until(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(page.as_uri())})")

    def dark(self, dark: bool) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        for near in (2, 1, 0):
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x + near, y=y)

    def click(self, x: float, y: float) -> None:
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, text: str = "") -> None:
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=13, **more)


@contextmanager
def browser() -> Iterator[Tab]:
    """A browser of its own, with one page."""
    assert CHROMIUM
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, (Path(folder) / "said").open("w") as said:
        command = [CHROMIUM, *OPTIONS.split(), f"--user-data-dir={folder}/profile", "about:blank"]
        process = subprocess.Popen(command, stdout=said, stderr=said)
        try:
            port = Path(folder) / "profile" / "DevToolsActivePort"
            until(lambda: port.is_file() and "\n" in port.read_text(), "the browser listens", process)
            loop = IOLoop(make_current=False)
            yield Tab(loop.run_sync(lambda: _connect(int(port.read_text().split()[0]))), loop)
            loop.close()
        finally:
            process.kill()
            process.wait()


async def _connect(port: int) -> WebSocketClientConnection:
    from tornado.httpclient import AsyncHTTPClient

    pages = json.loads((await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json/list")).body)
    address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
    return await websocket_connect(address, max_message_size=2**28)
