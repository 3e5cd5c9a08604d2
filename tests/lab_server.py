"""The explorer and notebooks as a reader has them: in Chromium, alone, in JupyterLab or in Voila.

Not named ``jupyterlab``: next to the tests, that would hide the real package.
"""

import base64
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import psutil
import pytest

# Every frame is painted late, every size seen late and every array unpacked late, so that a test
# that does not wait for it fails each time, not once.
LATE_FRAMES = """
const soon = requestAnimationFrame;
requestAnimationFrame = (paint) => soon(() => setTimeout(() => paint(performance.now()), 50));
const Observer = ResizeObserver;
ResizeObserver = class extends Observer {
  constructor(seen) {
    super((all, observer) => setTimeout(() => seen(all, observer), 50));
  }
};
const unpack = Response.prototype.arrayBuffer;
Response.prototype.arrayBuffer = async function () {
  await new Promise((then) => setTimeout(then, 100));
  return unpack.call(this);
};
"""


@contextmanager
def chromium():
    """A browser; its absence is a failure unless someone said that it is to be absent."""
    if os.environ.get("CELLREPRO_NO_BROWSER") == "1":
        pytest.skip("CELLREPRO_NO_BROWSER=1")
    wait_for_installer()
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.fail("install Chromium, or set CELLREPRO_NO_BROWSER=1 to skip these tests")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--disable-gpu"])
        yield browser
        browser.close()


def wait_until_sized(page):
    """Return once a page knows the size of each box it observes: the newest observer is last."""
    page.evaluate("new Promise((then) => new ResizeObserver(then).observe(document.body))")


def wait_for_installer():
    """Wait for a process that installs the browser meanwhile, as .ci/run starts one."""
    number = os.environ.get("CELLREPRO_BROWSER_INSTALLER")
    if number is None:
        return
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(number)).wait(timeout=300)


@contextmanager
def browsing(browser, **settings):
    """A page that remembers what it asked for; it meets no error and asks no other server."""
    page = browser.new_page(**{"viewport": {"width": 1400, "height": 1200}, **settings})
    page.set_default_timeout(10_000)
    page.add_init_script(LATE_FRAMES)
    page.asked, errors, own = [], [], ("http://127.0.0.1:", "data:", "blob:", "about:", "file:")
    page.on("request", lambda request: page.asked.append(request))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: "inline script" in said.text and errors.append(said.text))
    yield page
    # What the browser itself refuses to send is none.
    assert [r.url for r in page.asked if not r.url.startswith(own) and r.failure != "csp"] == []
    assert errors == []
    page.close()


# The model of a widget as a page has it; `kernel` answers with new values and messages.
MODEL = """
async ([esm, css, values]) => {
  const bytes = (text) => new DataView(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);
  const listeners = {};
  let changed = {};
  const fire = (event, ...args) => (listeners[event] ?? []).forEach((act) => act(...args));
  const tell = async (message) => {
    const answer = await kernel(message);
    for (const [key, value] of Object.entries(answer.values)) {
      if (JSON.stringify(value) === JSON.stringify(values[key])) continue;
      values[key] = value;
      fire(`change:${key}`);
    }
    for (const [content, data] of answer.sent) fire("msg:custom", content, data.map(bytes));
  };
  const model = {
    get: (key) => values[key],
    set: (key, value) => { values[key] = changed[key] = value; },
    save_changes: () => { const values = changed; changed = {}; tell({ values }); },
    send: (content) => tell({ content }),
    on: (event, act) => (listeners[event] ??= []).push(act),
    off: () => {},
  };
  document.head.append(Object.assign(document.createElement("style"), { textContent: css }));
  const address = URL.createObjectURL(new Blob([esm], { type: "text/javascript" }));
  const widget = (await import(address)).default();
  widget.initialize({ model });
  widget.render({ model, el: document.body });
}
"""


def show_widget(page, widget):
    """A widget of this very process on an empty page, which asks it for every plane."""
    sent = []
    widget.send = lambda content, buffers=(): sent.append((content, list(map(text, buffers))))

    def text(content):
        return base64.b64encode(content).decode()

    def values(names):
        return {name: getattr(widget, name) for name in names.split()}

    def kernel(message):
        for name, value in message.get("values", {}).items():
            setattr(widget, name, value)
        if "content" in message:
            widget._handle_custom_msg(message["content"], [])
        answer = {"values": values("scene choice answered problem"), "sent": sent.copy()}
        sent.clear()
        return answer

    state = values(
        "runs images scene choice answered problem selected title note held_bytes height drawing "
        "has_napari"
    )
    page.expose_function("kernel", kernel)
    page.evaluate(MODEL, [widget._esm, widget._css, {**state, "planes": {}}])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def jupyterlab(folder):
    """JupyterLab serving `folder`; gives the address of a ``{notebook}`` there."""
    port = free_port()
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
        *(f"--ServerApp.root_dir={folder}", "--IdentityProvider.token=explorer"),
        *("--LabApp.extension_manager=readonly", "--LabApp.news_url=None"),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    with serving(command, port, folder):
        yield f"http://127.0.0.1:{port}/lab/tree/{{notebook}}?token=explorer"


@contextmanager
def voila(folder, notebook, store):
    """Voila serving a notebook alone as `make explore` does; gives its address."""
    port = free_port()
    command = [sys.executable, "-m", "voila", str(notebook)]
    command += [f"--Voila.config_file_paths={notebook.parent}"]
    command += [f"--port={port}", "--Voila.port_retries=0"]
    variables = {"CELLREPRO_STORE": str(store), "JUPYTER_TOKEN": "explorer"}
    with serving(command, port, folder, **variables):
        yield f"http://127.0.0.1:{port}/?token=explorer"


@contextmanager
def serving(command, port, folder, **variables):
    """A server for the length of a block, once it listens; it does not see the user's settings."""
    home, log = folder / "home-of-the-server", folder / "server.log"
    home.mkdir(exist_ok=True)
    theirs = ("JUPYTER", "IPYTHON", "XDG_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(theirs)}
    environment = {**inherited, "HOME": str(home), **variables}
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            end = time.monotonic() + 40
            while not listens(port):
                if time.monotonic() > end or server.poll() is not None:
                    pytest.fail(f"the server does not answer:\n{log.read_text()[-3000:]}")
                time.sleep(0.1)
            yield
        finally:
            server.terminate()  # both end their kernels before they end themselves
            server.wait(timeout=20)


def listens(port):
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
