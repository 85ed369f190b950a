"""Where the ranks of a stuck gang are, found out by what there is: py-spy where the ranks' environment has
it, which shows a rank's children too; else the rank's own Python (`stacks.py`); else what the kernel tells of
its processes. All of it becomes part of the rank's output."""

from __future__ import annotations

import os
import re

from echelon.agent.loop import Loop
from echelon.agent.ranks import interpreter
from echelon.agent.ranks.child import Child
from echelon.agent.ranks.processes import descendants, state_of
from echelon.agent.ranks.stuck import stacks

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Callable

    from echelon.agent.output.sink import Stream

PROGRAM = "py-spy"
PATIENCE = 4.0  # seconds for py-spy
MOST_PROCESSES = 8  # of a rank, of which the kernel is asked
_LONGEST = 1 << 20  # bytes of an answer
_STATES = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a device",
    "T": "is stopped",
    "t": "is stopped by a debugger",
    "Z": "has ended",
    "I": "is idle",
}
_MAIN_THREAD = re.compile(r'Thread (?P<id>\S+) .*?(?P<named>: "MainThread")?$')
_FRAME = re.compile(r"^    (?P<function>.*) \((?P<file>.*):(?P<line>\d+)\)$")


def ask(
    loop: Loop,
    children: dict[int, Callable[[int], object]],
    ranks: dict[int, tuple[int, Stream]],
    env: dict[str, str],
    python: str,
    then: Callable[[dict[str, str]], object],
) -> None:
    """Have it written where each rank is (given with its process and its standard error), and call `then()`
    with a few words on each. `python` runs the ranks, in the environment `env`.
    """
    places: dict[str, str] = {}

    def ask_them(unknown: dict[int, tuple[int, Stream]]) -> None:
        stacks.ask(loop, unknown, lambda found: ask_kernel(unknown, found))

    def ask_kernel(unknown: dict[int, tuple[int, Stream]], found: dict[str, str]) -> None:
        places.update(found)
        for rank, (pid, stream) in unknown.items():
            if str(rank) not in places:
                lines, place = what_the_kernel_tells(pid)
                stream.feed("".join("%s\n" % line for line in lines).encode())
                if place:
                    places[str(rank)] = place
        then(places)

    program = _find_spy(env, python)
    if program is None:
        ask_them(ranks)
    else:
        _spy(loop, children, program, env, ranks, places, ask_them)


def _find_spy(env: dict[str, str], python: str) -> str | None:
    """On the PATH, or beside the Python that runs the ranks."""
    from shutil import which

    path = env.get("PATH") or os.defpath
    folder = os.path.dirname(python)
    return which(PROGRAM, path=os.pathsep.join([path, folder]) if folder else path)


def _spy(
    loop: Loop,
    children: dict[int, Callable[[int], object]],
    program: str,
    env: dict[str, str],
    ranks: dict[int, tuple[int, Stream]],
    places: dict[str, str],
    then: Callable[[dict[int, tuple[int, Stream]]], object],
) -> None:
    """Call `then()` with the ranks of which py-spy could not tell where they are."""
    unknown = dict(ranks)
    asked: dict[int, Child] = {}
    over: list[bool] = []

    def finish() -> None:
        if not over:
            over.append(True)
            for child in asked.values():
                child.cancel()
            then(unknown)

    def begin(rank: int, pid: int, stream: Stream) -> None:
        output = bytearray()

        def on_data(number: int, data: bytes) -> None:
            if number == 1 and len(output) < _LONGEST:
                output.extend(data)

        def on_end(code: int) -> None:
            asked.pop(rank, None)
            place = find_place(bytes(output))
            if code == 0 and place is not None:
                stream.feed(bytes(output))
                places[str(rank)] = place
                unknown.pop(rank)
            if not asked:
                finish()

        target = next(filter(_is_python, [pid, *descendants(pid)]), None)
        if target is None:
            return
        argv = [program, "dump", "--full-filenames", "--subprocesses", "--pid", str(target)]
        try:
            asked[rank] = Child(loop, children, argv, env, on_data, on_end)
        except OSError:
            pass

    for rank, (pid, stream) in ranks.items():
        begin(rank, pid, stream)
    loop.call_later(PATIENCE if asked else 0, finish)


def _is_python(pid: int) -> bool:
    try:
        return interpreter.is_python(os.readlink("/proc/%d/exe" % pid))
    except OSError:
        return False


def find_place(text: bytes) -> str | None:
    """Where the main thread of the first process is, of what py-spy writes: the innermost function, and the
    line of the user's own code.
    """
    lines = iter(text.decode("utf-8", "replace").splitlines())
    process = next(lines, "").partition(":")[0].rpartition(" ")[2]
    for line in lines:
        thread = _MAIN_THREAD.match(line)
        if thread is not None and (thread["named"] or thread["id"] == process):
            break
    frames = []
    for line in lines:
        frame = _FRAME.match(line)
        if frame is None:
            break
        frames.append((frame["function"], frame["file"], frame["line"]))
    return stacks.describe_place(frames)


def what_the_kernel_tells(pid: int) -> tuple[list[str], str | None]:
    """Lines on a process and those below it, and in a few words where the last of them waits."""
    lines, place = [], None
    for each in [pid, *descendants(pid)][:MOST_PROCESSES]:
        name, state = _read(each, "comm"), state_of(each)
        if not state:
            continue
        wait = _read(each, "wchan")
        wait = "" if wait == "0" else wait
        call = _read(each, "syscall").partition(" ")[0]
        parts = ["process %d (%s) %s" % (each, name, _STATES.get(state, "is in state %s" % state))]
        if wait:
            parts.append("in %s" % wait)
        if call.isdigit():
            parts.append("in system call %s" % call)
        lines.append(", ".join(parts))
        lines.extend("  %s" % line.split()[-1] for line in _read(each, "stack").splitlines() if line.strip())
        if wait or call.isdigit():
            place = "%s (%s)" % (wait or "system call %s" % call, name)
    return lines, place


def _read(pid: int, name: str) -> str:
    """One file of /proc on a process; "" where it is not told."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read(_LONGEST).decode("utf-8", "replace").strip()
    except OSError:
        return ""
