"""`%%echelon` in a real kernel: what a cell needs goes with it, its output comes back, errors are short."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import PATIENCE

# The kernel's own libraries warn about what is none of our business.
pytestmark = pytest.mark.filterwarnings("default")


class Kernel:
    """A kernel that has loaded the extension."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client

    def run(self, cell: str, on_text: Callable[[str], object] = lambda _: None) -> tuple[str, str, str]:
        """What a cell prints, what it shows as HTML or text, and its error as the notebook shows it."""
        asked = self._client.execute(cell)
        printed = result = error = ""
        while True:
            message = self._message()
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream":
                printed += content["text"]
                on_text(printed)
            elif kind in ("execute_result", "display_data") and content["data"].get("text/html") != "":
                result = content["data"].get("text/html") or content["data"]["text/plain"]
            elif kind == "error":
                error = "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                return printed, result, error

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def _message(self) -> Any:
        try:
            return self._client.get_iopub_msg(timeout=PATIENCE)
        except queue.Empty:
            pytest.fail("the kernel says nothing")


@pytest.fixture
def kernel(home: Path) -> Iterator[Kernel]:
    pytest.importorskip("ipykernel")
    start_new_kernel = pytest.importorskip("jupyter_client.manager").start_new_kernel
    manager, client = start_new_kernel(startup_timeout=PATIENCE, cwd=str(Path.cwd()))
    try:
        kernel = Kernel(manager, client)
        assert kernel.run("%load_ext echelon") == ("", "", "")
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_cell_runs_on_workers_with_what_it_needs(kernel: Kernel) -> None:
    Path("beside.py").write_text("NAME = 'a module of the project'\n")
    kernel.run(
        "import os, beside\nscale, unused = 3, open(os.devnull)\ndef helper(x):\n    return x * scale\nn = 2"
    )
    printed, shown, error = kernel.run(
        "%%echelon -n {n} --name fm --out run\n"
        "rank = int(os.environ['ECHELON_RANK'])\n"
        "scale = scale + 1\n"
        "unused = None\n"
        "text = '''\n    as it\n  was typed'''\n"
        "print(beside.NAME, helper(2), repr(text))\n"
        "{'rank': rank, 'scale': scale}"
    )
    assert error == ""
    line = "a module of the project 8 '\\n    as it\\n  was typed'"
    assert sorted(printed.splitlines()) == [f"[{rank}] {line}" for rank in range(2)]
    assert "succeeded" in shown
    assert "<table" in shown
    printed, _, _ = kernel.run("print(run.results(), scale)")
    assert printed == "[{'rank': 0, 'scale': 4}, {'rank': 1, 'scale': 4}] 3\n"  # the notebook keeps its own


def test_what_goes_wrong_is_told_in_short(kernel: Kernel) -> None:
    kernel.run("log = open('log', 'w')\nvalue = 1")

    def refused(cell: str) -> str:
        printed, shown, error = kernel.run(cell)
        assert (printed, shown) == ("", "")
        assert "Traceback" not in error
        return error

    assert "uses 'log', which is an open file" in refused("%%echelon\nlog.write('x')")
    assert "open it in the cell" in refused("%%echelon\nlog.write('x')")
    assert "the cell, line 3: 'lr' is not defined" in refused("%%echelon\nvalue\nlr + 1")
    assert "uses 'get_ipython'" in refused("%%echelon\n!ls")
    assert "the cell, line 2: 'await' outside function" in refused("%%echelon\nawait value")
    assert "No such option" in refused("%%echelon --worker 2\n1")
    assert "workers: 0 " in refused("%%echelon -n 0\n1")
    printed, _, error = kernel.run("%%echelon -n 2 --out run\nimport sys\nraise ValueError(value)")
    assert re.search(r'the-cell\.py", line 3', printed)
    assert error.startswith("RunFailed: run 'cell-")
    assert "ValueError: 1" in error
    assert "Traceback" not in error
    assert kernel.run("print(run.status().state)")[0] == "failed\n"
    printed, shown, error = kernel.run("%%echelon --help\n1")
    assert "--workers" in printed
    assert (shown, error) == ("", "")


def test_an_interrupted_kernel_stops_the_run(kernel: Kernel) -> None:
    sent = []

    def interrupt(printed: str) -> None:
        if not sent and printed.count("ready") == 2:
            sent.append(kernel.interrupt())

    _, _, error = kernel.run(
        "%%echelon -n 2 --out run\nimport time\nprint('ready', flush=True)\ntime.sleep(600)", interrupt
    )
    assert sent
    assert "was stopped" in error
    assert "Traceback" not in error
    assert kernel.run("print(run.status().state)")[0] == "stopped\n"


def test_a_detached_cell(kernel: Kernel) -> None:
    printed, shown, error = kernel.run("%%echelon -d --name fm\n40 + 2")
    assert (printed, error) == ("", "")
    assert "fm" in shown
    assert kernel.run("import echelon\nprint(echelon.attach('fm').result())")[0].splitlines()[-1] == "42"
