"""The packages that a run requests, installed by pip for the ranks' Python before the first start.

They go into a folder of our own, never into the image's Python, which may be read-only or another user's.
What that Python has already is not fetched again (torch, above all), except in a virtual environment, where
pip cannot see past the target folder: there the packages come with all their dependencies. An image without
pip uses the wheel that was shipped with the code. Indexes and proxies are those of the environment, including
the run's own variables."""

from __future__ import annotations

import os
import re
import time

from echelon.agent.loop import Loop
from echelon.agent.output.sink import RankLog, Sink, Stream
from echelon.agent.ranks import report
from echelon.agent.ranks.child import Child
from echelon.agent.ranks.interpreter import find_python
from echelon.agent.setup.unpack import join_parts
from echelon.agent.task import Place, Task

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

EXIT_CODE = 119  # of a run whose packages cannot be installed
_KEPT = 4096  # bytes of the end of pip's output that are kept for a failure
# pip prints this only when it retries.
_UNREACHED = re.compile(r"Retrying \(Retry\(.* after connection broken by ")
_CREDENTIALS = re.compile(r"//[^/@\s]*@")

# Run by the ranks' Python. The working folder is removed from the path: a `pip.py` of the project is not pip.
_DRIVER = """
import runpy, sys
sys.path[:] = [entry for entry in sys.path if entry]
lent, target, arguments = sys.argv[1], sys.argv[2], sys.argv[3:]
try:
    import pip
except ImportError:
    if not lent:
        sys.exit("ERROR: this Python has no pip")
    sys.path.insert(0, lent)
if sys.prefix != getattr(sys, "base_prefix", sys.prefix):
    where = ["--target", "%s/lib/python%d.%d/site-packages" % (target, *sys.version_info[:2])]
else:
    where = ["--user"]
sys.argv[:] = ["pip", "install"] + where + arguments
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_UNSET = ("PYTHONNOUSERSITE", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")
_SET = {
    "PIP_BREAK_SYSTEM_PACKAGES": "1",  # nothing of the system's is touched
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_NO_WARN_SCRIPT_LOCATION": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONUNBUFFERED": "1",
}


class Installation:
    """One run of pip: calls `on_done(ahead)` with what to prepend to the ranks' variables, or
    `on_failed(cause)`.
    """

    def __init__(
        self,
        loop: Loop,
        children: dict[int, Callable[[int], object]],
        task: Task,
        place: Place,
        sink: Sink,
        on_done: Callable[[dict[str, str]], object],
        on_failed: Callable[[dict[str, object]], object],
    ) -> None:
        assert task.pip is not None
        self._wish = task.pip
        self._loop = loop
        self._children = children
        self._task = task
        self._place = place
        self._sink = sink
        self._on_done = on_done
        self._on_failed = on_failed
        self._site = os.path.join(task.reports, "site")
        self._making = "%s.%d" % (self._site, os.getpid())
        self._output = b""
        self._began = time.monotonic()
        self._child: Child | None = None
        self._log: RankLog | None = None
        self._streams: list[Stream] = []

    def begin(self) -> None:
        """Start pip, unless the packages are installed already."""
        if os.path.isdir(self._site):
            self._on_done(folders_ahead(self._site))
            return
        names = [str(name) for name in self._wish.get("packages") or ()]
        requirements = self._wish.get("requirements")
        shown = names + (["-r %s" % os.path.basename(requirements)] if requirements else [])
        reason = "installing packages: %s" % hide_credentials(", ".join(shown))
        self._sink.event("note", worker=self._place.worker, reason=reason)
        arguments = (["-r", requirements] if requirements else []) + ["--", *names]
        argv = self._task.groups[self._place.group]["launch"]["argv"]
        env = self._environment()
        python = find_python(argv[0], env.get("PATH", os.defpath))
        name = "pip-worker-%d.log" % self._place.worker
        self._log = RankLog(os.path.join(self._task.logs, name))
        self._streams = [Stream(self._sink, self._log, None, letter) for letter in "oe"]
        try:
            lent = self._lend_pip()
            os.makedirs(self._making, exist_ok=True)
            self._child = Child(
                self._loop,
                self._children,
                [python, "-c", _DRIVER, lent, self._making, *arguments],
                env,
                self._on_data,
                self._on_end,
                cwd=self._task.cwd if os.path.isdir(self._task.cwd) else None,
            )
        except OSError as error:
            self._fail("%s: %s" % (error.filename or python, error.strerror))

    def cancel(self) -> None:
        """End pip without a callback."""
        if self._child is not None:
            self._child.cancel()

    def _environment(self) -> dict[str, str]:
        env = {**os.environ, **self._task.env, **_SET, "PYTHONUSERBASE": self._making}
        for key in _UNSET:
            env.pop(key, None)
        if "PIP_CACHE_DIR" not in env:
            env["PIP_NO_CACHE_DIR"] = "1"  # the cache would be lost with the pod
        return env

    def _lend_pip(self) -> str:
        """Pip's own wheel as a folder; "" where none was shipped."""
        parts = self._wish.get("wheel_parts")
        if not parts:
            return ""
        folder = os.path.join(self._task.reports, "pip.%d" % os.getpid())
        if not os.path.isdir(folder):
            import io
            import zipfile

            with zipfile.ZipFile(io.BytesIO(join_parts(parts))) as wheel:
                wheel.extractall(folder)
        return folder

    def _on_data(self, stream: int, data: bytes) -> None:
        self._output = (self._output + data)[-_KEPT:]
        self._streams[stream - 1].feed(data)

    def _on_end(self, code: int) -> None:
        for stream in self._streams:
            stream.close()
        if self._log is not None:
            self._log.close()
        if code != 0:
            self._fail(last_error(self._output) or report.describe_end(code, None))
            return
        try:
            os.rename(self._making, self._site)
        except OSError as error:
            if not os.path.isdir(self._site):
                self._fail("%s: %s" % (self._site, error.strerror))
                return
        took = "packages installed in %.1f s" % (time.monotonic() - self._began)
        self._sink.event("note", worker=self._place.worker, reason=took)
        self._on_done(folders_ahead(self._site))

    def _fail(self, error: str) -> None:
        worker = self._place.worker
        cause: dict[str, object] = {
            "summary": "worker %d: the packages cannot be installed: %s" % (worker, error),
            "worker": worker,
            "exit_code": EXIT_CODE,
            "error": error,
            "tail": report.last_lines(self._output),
        }
        self._on_failed(cause)


def folders_ahead(site: str) -> dict[str, str]:
    """PYTHONPATH and PATH entries with which the ranks find what was installed there."""
    library = os.path.join(site, "lib")
    versions = sorted(os.listdir(library)) if os.path.isdir(library) else []
    modules = [os.path.join(library, version, "site-packages") for version in versions]
    programs = [os.path.join(folder, "bin") for folder in [site, *modules]]
    found = {
        "PYTHONPATH": [folder for folder in modules if os.path.isdir(folder)],
        "PATH": [folder for folder in programs if os.path.isdir(folder)],
    }
    return {key: os.pathsep.join(folders) for key, folders in found.items() if folders}


def last_error(output: bytes) -> str | None:
    """The last error in pip's output, else its last line. Of an unreachable index pip reports in the end only
    that it has not found the package.
    """
    lines = [line for line in output.decode("utf-8", "backslashreplace").splitlines() if line.strip()]
    errors = [line for line in lines if line.lstrip().upper().startswith("ERROR")]
    if not lines:
        return None
    if errors and "No matching distribution" in errors[-1] and any(map(_UNREACHED.search, lines)):
        return "the package index cannot be reached from there (PIP_INDEX_URL in the environment names one)"
    return hide_credentials(re.sub(r"^\s*ERROR:?\s*", "", (errors or lines)[-1])).strip()


def hide_credentials(text: str) -> str:
    """A package's address without the password in it."""
    return _CREDENTIALS.sub("//***@", text)
