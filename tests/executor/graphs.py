"""Steps for tests of the executor: a graph whose steps do what a script of the memory engine says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from echelon.engines.abilities import StopOrder
from echelon.engines.memory.engine import MemoryEngine
from echelon.engines.memory.script import Act
from echelon.executor.execution import Execution, Submission
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.program import Step
from echelon.model.status import Status, fold
from echelon.model.step_names import run_name
from echelon.preparation.prepare import Prepared

PARENT = "graph-1"
ACTS = {"well": Act(), "fails": Act(error="ValueError: bad luck", exit_code=3), "lasts": Act(lasts=True)}
Graph = Mapping[str, tuple[tuple[str, ...], str]]  # each step: those before it, and what it does


@st.composite
def graphs(draw: st.DrawFn, acts: Sequence[str]) -> Graph:
    """Up to six steps, each after some of those before it."""
    made: dict[str, tuple[tuple[str, ...], str]] = {}
    for number in range(draw(st.integers(1, 6))):
        after = tuple(name for name in made if draw(st.booleans()))
        made[f"s{number}"] = (after, draw(st.sampled_from(acts)))
    return made


class Scripted:
    """The work of a graph's steps."""

    def __init__(self, graph: Graph, key: str = "k", most: int = 6) -> None:
        self.graph, self.key, self.most = graph, key, most
        self.written: dict[str, Step] = {}
        self.started: list[str] = []
        self.results: dict[str, dict[str, bytes]] = {}  # of the engine

    def has_room(self, steps: Sequence[str]) -> bool:
        return len(steps) <= self.most

    def begins(self, step: Step) -> Step:
        return step

    def prepare(self, step: Step) -> Submission | Step:
        job = Job(name=run_name(PARENT, step.name), script=self.graph[step.name][1], framework="plain")
        return Submission(prepared=Prepared(job=job), key=self.key)

    def starts(self, step: Step) -> None:
        self.started.append(step.name)
        self.results.pop(f"runs/{run_name(PARENT, step.name)}", None)  # those of an earlier start

    def ended(self, step: Step, status: Status) -> Step:
        done = status.state == "succeeded"
        state = status.state if done or status.state == "stopped" else "failed"
        return replace(step, state=state, ended=status.ended, exit_code=status.exit_code)  # type: ignore[arg-type]

    def changed(self, step: Step) -> None:
        self.written[step.name] = step


def new_engine() -> MemoryEngine:
    return MemoryEngine(ACTS)


def steps_of(graph: Graph) -> list[Step]:
    return [Step(name=name, after=after) for name, (after, _) in graph.items()]


class Played:
    """An execution with all that it told."""

    def __init__(
        self,
        graph: Graph,
        *,
        engine: MemoryEngine | None = None,
        work: Scripted | None = None,
        steps: Sequence[Step] | None = None,
        asked: Callable[[Played], StopOrder | None] = lambda _: None,
    ) -> None:
        self.engine, self.work = engine or new_engine(), work or Scripted(graph)
        self.work.results = self.engine.results
        self.events: list[Event] = []
        self.execution = Execution(
            PARENT,
            steps_of(graph) if steps is None else steps,
            self.work,
            self.engine,
            self.events.append,
            lambda: asked(self),
        )

    def run(self) -> Played:
        self.execution.run()
        return self

    @property
    def states(self) -> dict[str, str]:
        return {name: step.state for name, step in self.execution.steps.items()}

    @property
    def status(self) -> Status:
        return fold(Status(name=PARENT, uri=f"memory://{PARENT}"), self.events)
