"""A headless Chromium for tests, driven through Debian's chromedriver by the WebDriver protocol."""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

PACKAGES = "chromium chromium-driver"
PROGRAMS = ("chromium", "chromedriver")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--force-prefers-reduced-motion",
)  # fmt: skip
KEYS = {"Enter": "\ue007", "Tab": "\ue004", "ArrowDown": "\ue015", "ArrowRight": "\ue014", "Escape": "\ue00c"}


@contextmanager
def chromium():
    """A browser with a profile of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="gpuenv-browser-", ignore_cleanup_errors=True) as folder:
        program = [shutil.which("chromedriver"), f"--port={port}", "--log-level=SEVERE"]
        with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
            try:
                browser = Browser(f"http://127.0.0.1:{port}", folder)
                try:
                    yield browser
                finally:
                    browser.close()
            finally:
                driver.terminate()


class Browser:
    """One window."""

    def __init__(self, address, folder):
        self._address = address
        options = {
            "binary": shutil.which("chromium"),
            "args": [*_FLAGS, f"--user-data-dir={folder}/profile"],
        }
        asked = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        started = self._started({"capabilities": {"alwaysMatch": asked}})
        self._session = f"/session/{started['sessionId']}"

    def _started(self, asked):
        for attempt in range(100):
            try:
                return self._call("POST", "/session", asked)
            except urllib.error.HTTPError:
                raise
            except OSError:  # chromedriver does not listen yet
                if attempt == 99:
                    raise
                time.sleep(0.1)
        raise AssertionError

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._address + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            error.msg = f"{error.msg}: {error.read().decode(errors='replace')[:600]}"
            raise

    def _do(self, method, path, body=None):
        return self._call(method, self._session + path, body)

    def close(self):
        self._do("DELETE", "")

    def open(self, address):
        self._do("POST", "/url", {"url": address})

    def run(self, script, *arguments):
        """What a function body returns in the page."""
        return self._do("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def wait_for(self, script, seconds=30):
        """Wait until a function body returns something true."""
        deadline = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < deadline, script
            time.sleep(0.05)

    def devtools(self, command, **parameters):
        return self._do("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def show(self, *, width, height=900, dark=False):
        """The size of the window, and light or dark."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def press(self, keys):
        """Type keys into whatever has the focus; names of KEYS are special ones."""
        value = KEYS.get(keys, keys)
        actions = [a for k in value for a in ({"type": "keyDown", "value": k}, {"type": "keyUp", "value": k})]
        self._do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def picture(self, path, *, whole=True):
        """Write a picture of the page."""
        made = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))

    def problems(self):
        """What the console has of warnings and errors."""
        return [
            e for e in self._do("POST", "/se/log", {"type": "browser"}) if e["level"] in ("SEVERE", "WARNING")
        ]
