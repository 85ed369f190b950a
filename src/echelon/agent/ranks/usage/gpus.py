"""What the GPUs do that a worker's ranks see: asked of `nvidia-smi`, where it is there."""

from __future__ import annotations

from echelon.agent.loop import Loop
from echelon.agent.ranks.child import Child

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

PROGRAM = "nvidia-smi"
PATIENCE = 10.0  # seconds for an answer; a driver that hangs is not waited for
MOST_FAILURES = 3  # in a row, after which it is not asked again
_QUESTION = "--query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu"


class Gpus:
    """The newest answer. A question is asked at a time, and none of a machine that has no such program."""

    def __init__(
        self, loop: Loop, children: dict[int, Callable[[int], object]], env: Mapping[str, str]
    ) -> None:
        self._loop = loop
        self._children = children
        self._env = dict(env)
        self._failures = 0
        self._asked: Child | None = None
        self.newest: list[dict[str, Any]] = []
        self.pids: frozenset[int] = frozenset()  # of the program, while it runs
        self.visible = self._env.get("CUDA_VISIBLE_DEVICES")
        from shutil import which

        self._program = which(PROGRAM, path=self._env.get("PATH"))

    def ask(self) -> None:
        """Ask, unless an answer is still waited for; `newest` has it when it comes."""
        names_none = self.visible is not None and self.visible.strip() in ("", "-1")
        if self._program is None or names_none or self._asked is not None or self._failures >= MOST_FAILURES:
            return
        output = bytearray()

        def on_data(stream: int, data: bytes) -> None:
            if stream == 1 and len(output) < 1 << 20:
                output.extend(data)

        def on_end(code: int) -> None:
            self._asked, self.pids = None, frozenset()
            self._failures = self._failures + 1 if code else 0
            if self._failures >= MOST_FAILURES:
                self.newest = []  # what was true once is not any more
            elif code == 0:
                self.newest = visible_gpus(output.decode("utf-8", "replace"), self.visible)

        argv = [self._program, _QUESTION, "--format=csv,noheader,nounits"]
        try:
            asked = self._asked = Child(self._loop, self._children, argv, self._env, on_data, on_end)
        except OSError:
            self._failures = MOST_FAILURES
            return
        self.pids = frozenset((asked.pid,))

        def give_up() -> None:
            if self._asked is asked:
                asked.cancel()
                on_end(1)

        self._loop.call_later(PATIENCE, give_up)


def visible_gpus(answer: str, visible: str | None) -> list[dict[str, Any]]:
    """The GPUs of an answer that CUDA_VISIBLE_DEVICES names, in its order; all where it names none of them by
    index or uuid, as parts of GPUs (MIG) are.
    """
    found = []
    for line in answer.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 6:
            index, uuid, _name, memory, used, busy = cells
            found.append(
                {
                    "gpu": index,
                    "uuid": uuid,
                    "busy": int(busy) if busy.isdigit() else None,
                    "memory_used": _bytes(used),
                    "memory": _bytes(memory),
                }
            )
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    chosen = [
        gpu
        for name in names
        for gpu in found
        if gpu["gpu"] == name or (name.startswith("GPU-") and str(gpu["uuid"]).startswith(name))
    ]
    return [{key: gpu[key] for key in gpu if key != "uuid"} for gpu in chosen or found]


def _bytes(mebibytes: str) -> int:
    return int(mebibytes) << 20 if mebibytes.isdigit() else 0
