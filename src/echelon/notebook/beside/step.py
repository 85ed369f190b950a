"""A step in its own process: the prelude, its variables from the steps before, its cells, its variables for
the steps after.

Of several workers, worker 0 runs in the pipeline's working folder, keeps outputs and hands variables on.
Every other one works in a copy, so that its files never take the place of worker 0's. In pods (`pod.py`) the
pipeline's folder is on a volume."""

from __future__ import annotations
import __future__

import ast
import inspect
import json
import linecache
import os
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Optional

from echelon.notebook.beside import keras, pod, shell
from echelon.notebook.beside.changes import Changes
from echelon.notebook.beside.outputs import Recorder
from echelon.notebook.beside.state import SIGN, State
from echelon.notebook.beside.store import PICKLED, PUBLISHED, CannotKeep, Damaged, Store, read_secret

AT, FAILURE, CELLS, DONE = "at.json", "failure.json", "cells.jsonl", "done"


def main(spec: Dict[str, Any]) -> int:
    """Run a step; returns its exit code."""
    folder = Path(spec["folder"])
    output = Path(os.environ.get("ECHELON_OUTPUT") or tempfile.mkdtemp())
    chief = os.environ.get("ECHELON_RANK", "0") == "0"
    if spec.get("legacy_keras") and _has("tf_keras"):
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    # Of workers in pods, each has results of its own.
    done = folder / pod.STATE / spec["token"] if "token" in spec else output / DONE
    if spec.get("coordinated") and not chief:
        return _serve(done)
    lock = folder / "pip.lock"
    if "shipped" in spec:
        shipped = Path(spec["here"]).parent / spec["shipped"]
        spec = dict(spec, search=[str(shipped)], at=str(folder / pod.STATE / ("at-%s.json" % spec["step"])))
        pod.enter(folder, shipped, chief, spec["above"])
        lock = Path(tempfile.gettempdir()) / "pip.lock"
    elif not chief:
        _leave_for_a_copy(Path.cwd(), output / "workers" / ("rank-" + os.environ["ECHELON_RANK"]))
    sys.path[:0] = [os.getcwd(), *spec.get("search", [])]
    shell.install(lock)
    if chief:
        clear(output)
    step = _Step(spec, output if chief else None, output)
    try:
        return step.run()
    finally:
        if chief:
            done.touch()


def clear(output: Path) -> None:
    """Remove what an earlier start has left; another worker may have failed already in this one."""
    for name in (DONE, FAILURE, CELLS):
        if (output / name).exists() and not (name == FAILURE and _is_of_this_start(output / name)):
            (output / name).unlink()


def _is_of_this_start(failure: Path) -> bool:
    try:
        found = json.loads(failure.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("restart") == os.environ.get("ECHELON_RESTART", "0")


class _Step:
    def __init__(self, spec: Dict[str, Any], kept: Optional[Path], output: Path) -> None:
        self._spec, self._kept, self._output = spec, kept, output
        self._recorder = Recorder(kept / CELLS if kept else None)
        main_module = ModuleType("__main__")  # without __file__: a spawned process must not run the notebook
        sys.modules["__main__"] = main_module
        self._namespace: Dict[str, Any] = vars(main_module)
        self._namespace["__builtins__"] = __builtins__
        self._flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        self._loop: Any = None
        self._prelude: Dict[str, Any] = {}
        self._state = State(self._namespace, self._prelude, self._codes())
        self._changes = Changes(self._namespace, self._prelude)
        folder = Path(spec["folder"])
        secret = os.environ.pop(pod.SECRET, "").encode() or read_secret(folder / "secret")
        self._store = Store(folder / "values", spec["run"], secret, self._namespace, self._prelude)
        self._unloaded: Dict[str, Dict[str, str]] = {}
        self._cell = 0

    def run(self) -> int:
        try:
            for code in self._spec["defining"]:
                self._show_lines(code)
            for code in self._spec["prelude"]:
                self._run_cell(code)
            self._changes.prelude_is_over()
            self._state.prelude_is_over()
            for number, text in enumerate(self._spec["repeats"]):
                exec(compile(text, "<repeated %d>" % number, "exec", self._flags), self._namespace)  # noqa: S102
            self._load_inputs()
            for code in self._spec["cells"]:
                self._run_cell(code)
            self._publish()
        except CannotKeep as error:
            return self._refuse(error)
        except Damaged as error:
            return self._fail("echelon: %s" % error, None, self._cell, 0)
        except BaseException as error:
            return self._report(error)
        finally:
            if self._loop is not None:
                self._loop.close()
        return 0

    def _codes(self) -> List[Dict[str, Any]]:
        """All cells that may run here: the step's own, and those whose functions it may call."""
        return [*self._spec["prelude"], *self._spec["defining"], *self._spec["cells"]]

    # Cells

    def _run_cell(self, code: Dict[str, Any]) -> None:
        self._cell, text = code["cell"], code["text"]
        if self._kept is not None:
            for at in (self._kept / AT, *map(Path, [self._spec["at"]] if "at" in self._spec else [])):
                _replace(at, {"cell": self._cell})
        name = self._show_lines(code)
        body = ast.parse(text, name).body
        self._recorder.begin()
        began = time.monotonic()
        try:
            for number, statement in enumerate(body):
                last = number == len(body) - 1 and not text.rstrip().endswith(";")
                self._run_statement(statement, name, show=last)
        except SystemExit as leave:
            if leave.code not in (None, 0):
                raise
        except BaseException as error:
            shown = {"ename": type(error).__name__, "evalue": str(error), "traceback": self._lines(error)}
            self._recorder.end(self._cell, time.monotonic() - began, shown)
            raise
        self._recorder.end(self._cell, time.monotonic() - began)

    def _show_lines(self, code: Dict[str, Any]) -> str:
        """Let tracebacks and libraries find the text of a cell; returns the name of its file."""
        name = "%s, cell %d" % (os.path.basename(self._spec["notebook"]), code["cell"])
        lines = [line + "\n" for line in code["text"].split("\n")]
        linecache.cache[name] = (len(code["text"]), None, lines, name)
        return name

    def _run_statement(self, node: ast.stmt, name: str, show: bool) -> None:
        self._load_for(node)
        if isinstance(node, ast.Expr) and show:
            code = compile(ast.Expression(node.value), name, "eval", self._flags)
        else:
            code = compile(ast.Module([node], []), name, "exec", self._flags)
        value = eval(code, self._namespace)  # noqa: S307 - the notebook's own code
        if inspect.iscoroutine(value) and code.co_flags & inspect.CO_COROUTINE:
            import asyncio  # it takes longer than all the rest, and few notebooks need it

            self._loop = self._loop or asyncio.new_event_loop()
            value = self._loop.run_until_complete(value)
        if isinstance(node, ast.Expr) and show:
            self._recorder.result(value)
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                self._flags |= getattr(__future__, alias.name).compiler_flag
        if self._unloaded and _makes_strategy(node):
            for each in list(self._unloaded):
                self._load(each)

    # Variables

    def _load_inputs(self) -> None:
        inputs: Dict[str, Dict[str, Any]] = self._spec["inputs"]
        state = {name: source for name, source in inputs.items() if name.startswith(SIGN)}
        self._state.restore({name: self._loader(name, source) for name, source in state.items()})
        for name, source in inputs.items():
            if name in state:
                continue
            if not source["entry"]:  # the step has deleted it
                self._namespace.pop(name, None)
                continue
            self._unloaded[name] = source
            # TensorFlow refuses a strategy once a tensor or a model is there: those wait for it.
            codec = self._store.codec(source["step"], source["entry"]) if self._spec["deferred"] else ""
            if codec not in (PICKLED, keras.MODEL):
                self._load(name)
        for name in self._spec["outputs"]:
            if name in self._prelude and self._namespace.get(name) is self._prelude[name]:
                self._note(name)
        if self._kept is not None:
            self._state.note()
        self._tell_of_failed()
        for name, source in state.items():
            if "unordered" in source:
                both = " and ".join(repr(each) for each in source["unordered"])
                self._tell(
                    "the steps %s have left %s differently, and neither comes before the other: this step "
                    "has it as step %r left it (a prev: tag orders them)" % (both, name[1:], source["step"]),
                    self._spec["cells"][0]["cell"],
                )

    def _loader(self, name: str, source: Dict[str, Any]) -> Any:
        if not source["entry"]:
            return None
        return lambda: self._store.load(source["step"], source["entry"], name)

    def _load_for(self, node: ast.stmt) -> None:
        """Load the variables that a statement reads, itself or through functions that it may call."""
        if not self._unloaded or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                for name in [part.id, *self._spec["calls"].get(part.id, [])]:
                    self._load(name)

    def _load(self, name: str) -> None:
        source = self._unloaded.pop(name, None)
        if source is not None:
            self._namespace[name] = self._store.load(source["step"], source["entry"], name)
            self._note(name)

    def _note(self, name: str) -> None:
        if name in self._spec["outputs"] and self._kept is not None:
            self._changes.note(name)

    def _tell(self, text: str, cell: int) -> None:
        if self._kept is not None:
            _write_error("echelon: cell %d: %s" % (cell, text))

    def _publish(self) -> None:
        outputs = self._spec["outputs"]
        state, gone, same = self._state.changed() if self._kept is not None else ({}, [], {})
        for name in [name for name, value in state.items() if self._state.cannot_go(value)]:
            value = state.pop(name)
            kind = type(value).__name__
            text = "%s, a %s, cannot be handed on: steps after this one have it as it was"
            self._tell(text % (name[1:], kind), self._state.cell_of(name))
        handed = self._changes.handed_on(outputs, self._tell_of_changed, state, same)
        if self._kept is None:
            with tempfile.TemporaryDirectory() as folder:
                self._store.write_apart(handed, Path(folder))
            return
        gone += self._changes.deleted(outputs)
        self._store.publish(self._spec["step"], handed, {"metrics": self._metrics()}, gone)
        self._tell_of_failed()
        for names, lost in self._store.lost:
            text = "of %s, steps after this one do not get %s" % (", ".join(names), lost)
            self._tell(text, self._cell_that_binds(names[0]))
        if "shipped" in self._spec:  # the machine that started it reads this among the results
            published = Path(self._spec["folder"], "values", self._spec["step"], PUBLISHED)
            shutil.copy(str(published), str(self._kept / PUBLISHED))

    def _tell_of_failed(self) -> None:
        for name in list(self._state.failed):
            text = "%s is not as the step before has left it (%s)" % (name[1:], self._state.failed.pop(name))
            self._tell(text, self._spec["cells"][0]["cell"])

    def _tell_of_changed(self, name: str) -> None:
        self._tell(
            "this step has changed %s, which cannot be handed on and which every step makes anew: steps "
            "after it do not see the change" % name,
            self._cell_that_binds(name),
        )

    def _cell_that_binds(self, name: str) -> int:
        cells = [each["cell"] for each in self._spec["cells"] if _binds(each["text"], name)]
        return int(cells[-1] if cells else self._state.cell_of(name))

    def _metrics(self) -> Dict[str, Any]:
        found: Dict[str, Any] = {}
        for name in self._spec["metrics"]:
            if name in self._namespace and name not in self._prelude:
                value = self._namespace[name]
                try:
                    number = float(value)
                    found[name] = value if isinstance(value, (int, float)) else number
                except Exception:
                    found[name] = repr(value)[:200]
        return found

    # Failures

    def _report(self, error: BaseException) -> int:
        frames = _own_frames(error, os.path.basename(self._spec["notebook"]))
        line = traceback.extract_tb(frames)[0].lineno if frames is not None else 0
        text = "".join(self._lines(error))
        kind = type(error).__name__
        last = traceback.format_exception_only(type(error), error)[-1].strip()
        if isinstance(error, SyntaxError):
            line = error.lineno or 0
        code = error.code if isinstance(error, SystemExit) else 1
        exit_code = code if isinstance(code, int) else 1
        return self._fail(text.rstrip("\n"), kind and last, self._cell, line or 0, exit_code)

    def _refuse(self, error: CannotKeep) -> int:
        cell = self._cell_that_binds(error.name)
        hint = "hand on what it was made of, or make it in the step that reads it"
        if hasattr(self._namespace.get(error.name), "__name__"):  # a function, however it was compiled
            hint = "define it in a cell tagged functions, which every step runs"
        return self._fail("echelon: %s (%s)" % (error, hint), str(error), cell, 0)

    def _fail(self, text: str, error: Optional[str], cell: int, line: int, code: int = 1) -> int:
        _write_error(text)
        rank = os.environ.get("ECHELON_RANK", "0")
        told = error or text.splitlines()[-1]
        content = {
            "cell": cell,
            "line": line,
            "error": told,
            "rank": int(rank),
            "traceback": text,
            "restart": os.environ.get("ECHELON_RESTART", "0"),
        }
        if self._kept is not None or not _is_of_this_start(self._output / FAILURE):
            _replace(self._output / FAILURE, content)
        return code

    def _lines(self, error: BaseException) -> List[str]:
        frames = _own_frames(error, os.path.basename(self._spec["notebook"]))
        return traceback.format_exception(type(error), error, frames or error.__traceback__)


def _own_frames(error: BaseException, notebook: str) -> Any:
    """The traceback from the first line of a cell on."""
    frames = error.__traceback__
    while frames is not None and not frames.tb_frame.f_code.co_filename.startswith(notebook + ", cell "):
        frames = frames.tb_next
    return frames


def _write_error(text: str) -> None:
    """Write to the user's standard error, or, where a cell has put something there that cannot be written to,
    such as a file that it has closed, to the process's own.
    """
    for stream in (sys.stderr, sys.__stderr__):
        try:
            stream.write(text + "\n")  # type: ignore[union-attr]
            stream.flush()  # type: ignore[union-attr]
        except Exception:  # noqa: S112 - it must not hide the first error
            continue
        return


def _makes_strategy(node: ast.stmt) -> bool:
    calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    names = (getattr(each, "attr", getattr(each, "id", "")) for each in calls)
    return any(str(name).endswith("Strategy") for name in names)


def _binds(text: str, name: str) -> bool:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if getattr(node, "name", None) == name or getattr(node, "asname", None) == name:
            return True
    return False


def _has(module: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(module) is not None


def _serve(done: Path) -> int:
    """A worker or parameter server of ParameterServerStrategy: it serves until the chief is done."""
    import tensorflow as tf  # type: ignore[import-untyped]

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    while not done.exists():
        time.sleep(0.2)
    sys.stdout.flush()
    os._exit(0)  # the server has no other end


def _leave_for_a_copy(work: Path, copy: Path) -> None:
    """Work in a copy of the working folder. Links lead to the user's own files, as in the original."""
    if copy.exists():
        shutil.rmtree(str(copy))
    pod.copy_tree(work, copy)  # worker 0 may be at work in it already
    os.chdir(str(copy))


def _replace(path: Path, content: Any) -> None:
    partial = path.with_name("." + path.name)
    partial.write_text(json.dumps(content), encoding="utf-8")
    partial.replace(path)
