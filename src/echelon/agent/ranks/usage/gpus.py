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
_USED = "index,uuid,name,memory.total,memory.used,utilization.gpu"
_CLOCKS = "clocks.sm,clocks.max.sm,temperature.gpu,power.draw,power.limit,clocks_throttle_reasons.active"
_UNKNOWN = 2  # what the program ends with that does not know a field
# What slows a clock down, of the bits of `clocks_throttle_reasons.active` (nvml.h), as nvidia-smi names it.
# Idle clocks and those that somebody has set are none of it; "HW slowdown" is said beside its cause.
_SLOWED = (
    (0x40, "HW thermal slowdown"),
    (0x80, "HW power brake slowdown"),
    (0x20, "SW thermal slowdown"),
    (0x04, "SW power cap"),
)
_HW_SLOWDOWN = 0x08


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
        self._questions = ["%s,%s" % (_USED, _CLOCKS), _USED]  # an older program answers only the second
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
            if code == _UNKNOWN and len(self._questions) > 1:
                del self._questions[0]
                self.ask()
                return
            self._failures = self._failures + 1 if code else 0
            if self._failures >= MOST_FAILURES:
                self.newest = []  # what was true once is not any more
            elif code == 0:
                self.newest = visible_gpus(output.decode("utf-8", "replace"), self.visible)

        argv = [self._program, "--query-gpu=%s" % self._questions[0], "--format=csv,noheader,nounits"]
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
        if len(cells) in (6, 12):
            index, uuid, _name, memory, used, busy = cells[:6]
            found.append(
                {
                    "gpu": index,
                    "uuid": uuid,
                    "busy": int(busy) if busy.isdigit() else None,
                    "memory_used": _bytes(used),
                    "memory": _bytes(memory),
                }
            )
            found[-1].update(_clocks(*cells[6:]) if cells[6:] else {})
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    chosen = [
        gpu
        for name in names
        for gpu in found
        if gpu["gpu"] == name or (name.startswith("GPU-") and str(gpu["uuid"]).startswith(name))
    ]
    return [{key: gpu[key] for key in gpu if key != "uuid"} for gpu in chosen or found]


def _clocks(clock: str, most: str, temperature: str, power: str, limit: str, active: str) -> dict[str, Any]:
    """Its clock in MHz, its temperature in degrees Celsius, its power in watts, and what slows it down."""
    try:
        bits = int(active, 16)
    except ValueError:  # [N/A]
        bits = 0
    slowed = [name for bit, name in _SLOWED if bits & bit]
    if bits & _HW_SLOWDOWN and not bits & 0xC0:
        slowed.insert(0, "HW slowdown")
    numbers = {
        "clock": clock,
        "clock_most": most,
        "temperature": temperature,
        "power": power,
        "power_limit": limit,
    }
    return dict({name: _number(text) for name, text in numbers.items()}, slowed=slowed)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _bytes(mebibytes: str) -> int:
    return int(mebibytes) << 20 if mebibytes.isdigit() else 0
