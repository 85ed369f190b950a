"""The addresses that the panel calls, below /echelon/ of the Jupyter server, and the dashboards it opens:
one for each place that runs are in, in threads of the server, so that they end with it.

Jupyter decides who may call an address: its token or cookie, its check of the Origin and its XSRF check stand
before each of them.

A request names a notebook by the path that the server's own contents have; nothing outside of its root is
reached."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.utils import url_path_join
from tornado.web import HTTPError, authenticated

from echelon.engines.choose import choose_engine
from echelon.engines.decoding import decode
from echelon.errors import EchelonError
from echelon.lab import state
from echelon.lab.analysis import analyse, problem_of
from echelon.lab.requests import Compiling, Document, NotebookRun, RunRequest, Tagging, within
from echelon.lab.state import start
from echelon.model.settings import Settings
from echelon.notebook.analysis.cells import read_notebook
from echelon.notebook.analysis.pipeline import read_pipeline
from echelon.notebook.analysis.tags import followed, retagged
from echelon.notebook.export.files import compiled, write_files
from echelon.preparation.sources import Target
from echelon.ui import load_server

_COMPILED = "compiled"  # the folder beside a notebook that compiled ones come to
_REFUSED = 422  # what the user asked for cannot be; the answer says why


class Dashboards:
    """Those that were opened."""

    def __init__(self) -> None:
        self._addresses: dict[Target, str] = {}
        self._lock = threading.Lock()

    def address(self, place: Target) -> str:
        """Where the dashboard of a place is, with its token; it is started the first time."""
        with self._lock:
            if place not in self._addresses:
                engine = choose_engine(place.on, context=place.context, namespace=place.namespace)
                server = load_server().Server(engine)
                threading.Thread(target=server.run, name=f"dashboard {place.on}", daemon=True).start()
                self._addresses[place] = server.address
            return self._addresses[place]


class _Handler(APIHandler):
    """One address: a JSON object in, one out."""

    auth_resource = "kernels"  # a user who may not run code here may not run a notebook either

    def initialize(self, answer: Callable[[_Handler, bytes], object], dashboards: Dashboards) -> None:
        """Take what the route was made with."""
        self.answer, self.dashboards = answer, dashboards

    @authenticated
    @authorized
    async def post(self) -> None:
        """Answer in a thread: a look at a large notebook or at a cluster takes a while."""
        try:
            found = await asyncio.to_thread(self.answer, self, self.request.body)
        except msgspec.DecodeError as error:
            raise HTTPError(400, f"{error}") from None
        except EchelonError as error:
            self.set_status(_REFUSED)
            found = problem_of(error)
        self.finish(msgspec.json.encode(found))

    def notebook(self, path: str) -> Path:
        """The file that a path of the contents means."""
        root = getattr(self.contents_manager, "root_dir", None)
        if not root:
            raise EchelonError("this server keeps no files", hint="download the notebook, and run it there")
        found = within(Path(root), path)
        if found is None:
            raise HTTPError(404, "there is no such notebook")
        return found

    def python_of(self, notebook: Path) -> str:
        """The Python of the notebook's kernel, where that is known, else the server's own."""
        named = (read_notebook(notebook).document.get("metadata") or {}).get("kernelspec")
        name = named.get("name") if isinstance(named, Mapping) else None
        try:
            spec = self.kernel_spec_manager.get_kernel_spec(str(name))
        except (KeyError, ValueError, OSError):  # NoSuchKernel is a KeyError
            return sys.executable
        first = spec.argv[0] if spec.argv and spec.language.lower() == "python" else ""
        return first if os.path.isabs(first) else sys.executable  # noqa: PTH117 - a text of others


def _analyse(_handler: _Handler, body: bytes) -> object:
    asked = decode(body, Document)
    return analyse(asked.document, Path(asked.path))


def _tags(_handler: _Handler, body: bytes) -> object:
    asked = decode(body, Tagging)
    tags = retagged(asked.tags.get(asked.cell, ()), asked.choice, asked.cell)
    return {"tags": followed(asked.tags, asked.cell, tags)}


def _run(handler: _Handler, body: bytes) -> object:
    asked = decode(body, RunRequest)
    notebook = handler.notebook(asked.path)
    python = None if asked.in_cluster else handler.python_of(notebook)
    return {"name": start(notebook, asked, python)}


def _state(handler: _Handler, body: bytes) -> object:
    asked = decode(body, NotebookRun)
    notebook = handler.notebook(asked.path)
    found = state.newest_run(notebook) if asked.name is None else state.run_of(notebook, asked.name)
    return {"run": None if found is None else state.state_of(found)}


def _output(handler: _Handler, body: bytes) -> object:
    asked = decode(body, NotebookRun)
    found = state.run_of(handler.notebook(asked.path), asked.name or "")
    return {"lines": state.last_lines(found, asked.step or "")}


def _stop(handler: _Handler, body: bytes) -> object:
    asked = decode(body, NotebookRun)
    return {"note": state.stop(state.run_of(handler.notebook(asked.path), asked.name or ""))}


def _compile(handler: _Handler, body: bytes) -> object:
    asked = decode(body, Compiling)
    notebook = handler.notebook(asked.path)
    settings = Settings(image=asked.image, namespace=asked.namespace)
    made = compiled(read_pipeline(notebook, asked.parameters), asked.kind, settings)
    written = write_files(made.files, notebook.parent / _COMPILED)
    return {"files": [str(path.relative_to(notebook.parent)) for path in written], "notes": made.notes}


def _dashboard(handler: _Handler, body: bytes) -> object:
    asked = decode(body, NotebookRun)
    found = state.run_of(handler.notebook(asked.path), asked.name or "")
    return {"address": handler.dashboards.address(state.place_of(found))}


_ANSWERS = {
    "analyse": _analyse,
    "tags": _tags,
    "run": _run,
    "state": _state,
    "output": _output,
    "stop": _stop,
    "compile": _compile,
    "dashboard": _dashboard,
}


def add_handlers(server: Any) -> None:
    """Give a Jupyter server the addresses."""
    dashboards = Dashboards()
    base = server.web_app.settings["base_url"]
    routes = [
        (url_path_join(base, "echelon", name), _Handler, {"answer": answer, "dashboards": dashboards})
        for name, answer in _ANSWERS.items()
    ]
    server.web_app.add_handlers(".*$", routes)
