"""The steps of a run as runs: in their order, stopped at any moment, and taken up again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.engines.abilities import StopOrder
from echelon.errors import InvalidJob
from echelon.model.event import Event
from echelon.model.job import Job
from echelon.model.program import DONE, OVER, Parent, Step
from echelon.model.status import FINAL, fold
from echelon.preparation.prepare import Prepared
from echelon.submit import submit
from tests.executor.graphs import PARENT, Graph, Played, Scripted, graphs, new_engine
from tests.properties import examples


def expected(graph: Graph) -> dict[str, str]:
    """The oracle: a step is reached if all before it are done."""
    found: dict[str, str] = {}
    for name, (after, act) in graph.items():
        reached = all(found[each] == "succeeded" for each in after)
        found[name] = ("succeeded" if act == "well" else "failed") if reached else "not-reached"
    return found


@settings(max_examples=examples(200))
@given(graphs(["well", "well", "fails"]), st.integers(1, 3))
def test_every_step_ends_as_those_before_it_allow(graph: Graph, most: int) -> None:
    played = Played(graph, work=Scripted(graph, most=most)).run()
    assert played.states == expected(graph)
    assert {step.name: step.state for step in played.status.steps} == played.states
    assert {name: step.state for name, step in played.work.written.items()} == played.states
    for position, name in enumerate(played.work.started):  # none before those that it comes after
        assert set(graph[name][0]) <= set(played.work.started[:position])
    parents = {row.parent for row in played.engine.runs()}
    assert parents <= {PARENT}


@settings(max_examples=examples(300))
@given(
    graphs(["well", "fails", "lasts"]), st.integers(0, 30), st.sampled_from(["SIGINT", "SIGTERM", "SIGKILL"])
)
def test_after_a_stop_at_any_moment_no_step_starts(graph: Graph, moment: int, signal: str) -> None:
    order = StopOrder(signal=signal)  # type: ignore[arg-type]

    def rests(played: Played) -> bool:
        """Whether nothing more would happen by itself."""
        on = {name: state for name, state in played.states.items() if state not in (*OVER, "waiting")}
        return bool(on) and all(
            graph[name][1] == "lasts" and state == "running" for name, state in on.items()
        )

    def asked(played: Played) -> bool:
        return len(played.events) > moment or rests(played)

    seen: list[int] = []

    def noted(played: Played) -> StopOrder | None:
        if not seen and asked(played):
            seen.append(len(played.events))
        return order if seen else None

    played = Played(graph, asked=noted).run()
    assert all(state in OVER for state in played.states.values())
    assert all(row.state in FINAL for row in played.engine.runs())  # nothing runs on
    if seen:
        before, after = played.events[: seen[0]], played.events[seen[0] :]
        begun = {step.name for event in before for step in event.steps or () if step.state != "waiting"}
        started = {
            step.name
            for event in after
            for step in event.steps or ()
            if step.state not in ("waiting", "not-reached")
        }
        assert started <= begun
        end = Event(kind="finished", at=1.0, outcome="stopped", exit_code=143)
        status = fold(played.status, [end])
        assert status.state == "stopped"
        assert {step.name: step.state for step in status.steps} == played.states


@pytest.mark.slow
def test_thousands_of_steps_wait_without_being_looked_at_each_time() -> None:
    graph = {f"s{number}": ((), "well") for number in range(1000)}
    asked: list[str] = []

    class Narrow(Scripted):
        def has_room(self, steps: Sequence[str]) -> bool:
            asked.append(steps[-1])
            return len(steps) <= self.most

    played = Played(graph, work=Narrow(graph, most=4)).run()
    assert set(played.states.values()) == {"succeeded"}
    assert sorted(played.work.started) == sorted(graph)
    assert len(asked) < 300 * len(graph)  # and not a million


def test_a_harder_stop_is_passed_on() -> None:
    graph = {"a": ((), "lasts"), "b": (("a",), "well")}
    orders = [None, StopOrder(signal="SIGINT"), StopOrder(signal="SIGKILL")]
    told: list[str] = []
    engine = new_engine()
    stop = engine.stop

    def noted(ref, *, signal="SIGTERM", grace=None):  # type: ignore[no-untyped-def]
        told.append(signal)
        if signal == "SIGKILL":
            stop(ref, signal=signal, grace=grace)

    engine.stop = noted  # type: ignore[method-assign]

    def asked(played: Played) -> StopOrder | None:
        running = played.states.get("a") == "running"
        return orders[0] if not running and not told else orders[min(2, 1 + len(told))]

    played = Played(graph, engine=engine, asked=asked).run()
    assert played.states == {"a": "stopped", "b": "not-reached"}
    assert told[0] == "SIGINT"
    assert told[-1] == "SIGKILL"


def test_what_is_done_stays_and_is_not_run_again() -> None:
    graph = {"a": ((), "well"), "b": (("a",), "fails"), "c": (("b",), "well")}
    engine = new_engine()
    first = Played(graph, engine=engine).run()
    assert first.states == {"a": "succeeded", "b": "failed", "c": "not-reached"}
    again = {**graph, "b": (("a",), "well")}
    steps = [
        step if step.state in DONE else Step(name=step.name, after=step.after)
        for step in first.execution.steps.values()
    ]
    second = Played(again, engine=engine, steps=steps).run()
    assert set(second.states.values()) == {"succeeded"}
    assert second.work.started == ["b", "c"]


@pytest.mark.parametrize(("key", "adopted"), [("k", True), ("other", False)])
def test_a_step_that_an_earlier_executor_left_running_is_followed_if_it_is_the_same(
    key: str, *, adopted: bool
) -> None:
    graph = {"a": ((), "lasts")}
    engine = new_engine()

    class Gone(Exception):
        """The executor is killed."""

    left = Played(graph, engine=engine)

    def asked(_: Played) -> StopOrder | None:
        if left.states.get("a") == "running":
            raise Gone
        return None

    left.execution._asked = lambda: asked(left)
    left.execution._stop_runs = lambda order: None  # type: ignore[method-assign] # noqa: ARG005 - killed, it stops nothing
    with pytest.raises(Gone):
        left.run()
    assert [row.state for row in engine.runs()] == ["running"]
    created = engine.runs()[0].created

    steps = list(left.work.written.values())
    again = Played(
        graph,
        engine=engine,
        work=Scripted(graph, key=key),
        steps=steps,
        asked=lambda played: StopOrder() if played.states.get("a") == "running" else None,
    ).run()
    assert again.states == {"a": "stopped"}
    assert again.work.started == ([] if adopted else ["a"])
    assert (engine.runs()[0].created == created) == adopted


def test_a_step_that_cannot_be_submitted_fails_with_its_reason() -> None:
    graph = {"a": ((), "well"), "b": (("a",), "well")}

    class Refusing(Scripted):
        def starts(self, step: Step) -> None:  # noqa: ARG002 - as every work has it
            raise InvalidJob("gpus", 9, "is more than there are", hint="ask for fewer")

    played = Played(graph, work=Refusing(graph)).run()
    assert played.states == {"a": "failed", "b": "not-reached"}
    step = played.execution.steps["a"]
    assert (step.hint, step.exit_code) == ("ask for fewer", InvalidJob.exit_code)
    status = fold(played.status, [Event(kind="finished", at=1.0, outcome="failed", exit_code=110)])
    assert status.reason == f"step a: {step.reason}"


def test_an_error_of_the_executor_itself_ends_what_runs() -> None:
    graph = {"a": ((), "lasts"), "b": ((), "well")}

    class Broken(Scripted):
        def ended(self, step: Step, status: object) -> Step:  # noqa: ARG002 - as above
            raise ZeroDivisionError

    played = Played(graph, work=Broken(graph))
    with pytest.raises(ZeroDivisionError):
        played.run()
    assert all(row.state in FINAL for row in played.engine.runs())


def test_a_run_that_was_recorded_and_never_started_is_submitted_again() -> None:
    graph = {"a": ((), "well")}
    engine = new_engine()
    own = Parent(run=PARENT, step="a", key="k")
    engine.record(Job(name=f"{PARENT}-a", script="well", framework="plain", parent=own), None)
    left = [Step(name="a", state="recorded", run=f"memory://{PARENT}-a")]
    assert Played(graph, engine=engine, steps=left).run().states == {"a": "succeeded"}


def test_one_that_succeeded_right_after_its_submission_is_not_run_again() -> None:
    """Its executor was killed before it had told of the run."""
    graph = {"a": ((), "well")}
    engine = new_engine()
    assert Played(graph, engine=engine).run().states == {"a": "succeeded"}
    again = Played(graph, engine=engine, steps=[Step(name="a", state="recorded")]).run()
    assert (again.states, again.work.started) == ({"a": "succeeded"}, [])


def test_a_run_of_that_name_that_is_not_its_own_is_left_alone() -> None:
    graph = {"a": ((), "well"), "b": ((), "well")}
    engine = new_engine()
    other = submit(Prepared(job=Job(name=f"{PARENT}-a", script="well", framework="plain")), engine)
    played = Played(graph, engine=engine).run()
    assert played.states == {"a": "failed", "b": "succeeded"}
    assert "there is a run 'graph-1-a' already" in played.execution.steps["a"].reason
    assert other.job().parent is None
