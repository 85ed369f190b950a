"""Which step each step gets its variables from, and what can never work. Pure.

A step gets a name from the step before it, directly or not, that binds or changes it last. If two steps that
are not ordered both do, it is open whose value counts: the notebook is refused. What a step really hands
on is known when it has run: a name that was changed by a function is seen then (`beside/step.py`), and the
next step's sources are chosen among what is there (`beside/sources.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from echelon.notebook.analysis.cells import CellLine, InvalidNotebook, reading_order, refuse
from echelon.notebook.analysis.flow import BUILTIN, Flow, flow_of
from echelon.notebook.analysis.steps import Gathered, StepCells
from echelon.notebook.beside.sources import Unordered, last_of
from echelon.values import frozen


@frozen
class StepFlow:
    """The variables of one step."""

    inputs: Mapping[str, str]  # name -> the step that most likely hands it on
    perhaps: tuple[str, ...] = ()  # names that come in too if a step before has them
    outputs: tuple[str, ...] = ()  # names that it most likely hands on
    read_later: tuple[str, ...] = ()  # all names that steps after it read
    repeats: tuple[str, ...] = ()  # statements of steps before that this one repeats: star imports


@frozen
class DataFlow:
    """The variables of a pipeline."""

    steps: Mapping[str, StepFlow]
    before: Mapping[str, frozenset[str]]  # all steps that come before a step
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Known:
    flows: dict[str, Flow]
    prelude: Flow
    before: dict[str, frozenset[str]]
    builtin: frozenset[str]  # names that no step makes: Python has them
    called: frozenset[str] = frozenset()  # names that may be read: not only in functions that nothing calls
    notes: list[str] = field(default_factory=list)


def find_dataflow(gathered: Gathered) -> DataFlow:
    """The variables of all steps; raises InvalidNotebook, naming cell and line, with all that cannot work."""
    variables = _own_of_python(gathered)
    prelude = flow_of(gathered.prelude, variables=variables)
    flows = {}
    classes = prelude.classes
    for step in gathered.steps:
        flows[step.name] = flow_of(step.cells, classes, variables)
        classes |= flows[step.name].classes
    builtin = BUILTIN - variables
    known = _Known(flows=flows, prelude=prelude, before=_all_before(gathered.steps), builtin=builtin)
    known.called = _called((prelude, *flows.values()))
    problems = [*_of_prelude(known)]
    wanted = {step.name: _wanted(step.name, known) for step in gathered.steps}
    inputs = {step.name: _inputs(step, wanted[step.name], known, problems) for step in gathered.steps}
    problems += _of_metrics(gathered.metrics, known)
    steps = {}
    for step in gathered.steps:
        after = [name for name in flows if step.name in known.before[name]]
        read = {name for each in after for name in wanted[each]}
        repeats = [text for name in flows if name in known.before[step.name] for text in flows[name].stars]
        available = flows[step.name].changes | wanted[step.name]
        outputs = tuple(sorted(read & available))
        problems += _of_kept(step.name, outputs, known)
        steps[step.name] = StepFlow(
            inputs=inputs[step.name],
            perhaps=tuple(sorted(wanted[step.name] - inputs[step.name].keys())),
            outputs=outputs,
            read_later=tuple(sorted(read)),
            repeats=tuple(dict.fromkeys(repeats)),
        )
    refuse(problems)
    for flow in (prelude, *flows.values()):
        for star in flow.stars:
            known.notes.append(f"`{star}` hides which names it brings; unknown names are taken to be its")
    return DataFlow(steps=steps, before=known.before, warnings=tuple(dict.fromkeys(known.notes)))


def _own_of_python(gathered: Gathered) -> frozenset[str]:
    """The names that steps bind although Python has them, such as `input`: variables like all others."""
    bound = frozenset[str]().union(*(flow_of(step.cells).binds for step in gathered.steps))
    return frozenset(name for name in bound & BUILTIN if not name.startswith("__"))


def refuse_unordered(step: str, found: Unordered) -> InvalidNotebook:
    """What a step is refused with that gets a name from two steps."""
    return _two_branches(f"step {step}", found.name, found.steps, "changed")


def _called(flows: Sequence[Flow]) -> frozenset[str]:
    """The names that cells read when they run, and those that functions read which are among them."""
    found: set[str] = set()
    unseen = {name for flow in flows for name in flow.touches}
    while unseen:
        name = unseen.pop()
        found.add(name)
        unseen |= {read for flow in flows for read in flow.calls.get(name, ())} - found
    return frozenset(found)


def _all_before(steps: Sequence[StepCells]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for step in steps:  # in an order in which they can run
        found[step.name] = frozenset(step.after).union(*(found[name] for name in step.after))
    return found


def _wanted(step: str, known: _Known) -> set[str]:
    """Every name that a step reads, itself or through functions that it may call, and that is not surely its
    own."""
    flow = known.flows[step]
    sources = [flow, known.prelude, *(known.flows[each] for each in known.before[step])]
    found: set[str] = set(flow.needs) | flow.wants
    seen: set[str] = set()
    unseen = set(flow.reads)
    while unseen:
        name = unseen.pop()
        seen.add(name)
        for source in sources:
            called = source.calls.get(name, frozenset())
            # What functions of the step itself read is among its `wants`, unless it has bound it before.
            found |= called if source is not flow else frozenset()
            unseen |= (called | source.holds.get(name, frozenset())) - seen
    found |= {name for name in seen if _is_class_of_a_step(name, step, known)}
    return found - known.builtin


def _is_class_of_a_step(name: str, step: str, known: _Known) -> bool:
    """Whether a step before has made a class that another one, between that step and this, may have changed
    (`Model.size = 3`, `setattr`, a method): an object brings its class along as it was when the object was
    written, so the class must come beside it."""
    makers = [each for each in known.before[step] if name in known.flows[each].changes]
    made = [each for each in makers if name in known.flows[each].classes & known.flows[each].binds]
    last = last_of(makers, known.before)
    return len(last) == 1 and any(
        before in known.before[each] for before in made for each in known.before[step]
    )


def _inputs(
    step: StepCells, wanted: set[str], known: _Known, problems: list[InvalidNotebook]
) -> dict[str, str]:
    """Where the names that a step reads come from; a problem is one that it must have and that comes from
    nowhere, or from two steps."""
    flow, before = known.flows[step.name], known.before
    stars = known.prelude.stars or any(known.flows[each].stars for each in before[step.name]) or flow.stars
    found = {}
    missing: list[str] = []
    for name in sorted(wanted):
        makers = [each for each in before[step.name] if name in known.flows[each].changes]
        last = last_of(makers, before)
        place = flow.needs.get(name)
        if place is None and name in flow.binds and len(last) > 1:
            continue  # it binds the name itself, most likely before it reads it
        if len(last) > 1:
            where = place or f"step {step.name}"
            problems.append(_two_branches(where, name, sorted(last), "may both change"))
        elif last:
            found[name] = last[0]
            _warn_of_race(step, name, last[0], known)
        elif name not in known.prelude.binds and not stars and name not in BUILTIN:
            missing.append(name)
    problems += _of_missing(step, missing, known)
    return found


def _of_missing(step: StepCells, names: Iterable[str], known: _Known) -> Iterator[InvalidNotebook]:
    """What is wrong with names that come from nowhere. Of those that one `prev:` tag would bring, the first
    is told."""
    flow = known.flows[step.name]
    makers = {name: [each for each, other in known.flows.items() if name in other.binds] for name in names}
    places = {
        name: flow.needs.get(name) or (None if makers[name] else flow.later.get(name)) for name in names
    }
    told = set()
    for name in sorted(names, key=lambda name: reading_order(places[name])):
        place, others = places[name], [each for each in makers[name] if each != step.name]
        if place is None or (others and others[-1] in told):
            continue
        if others:
            maker = others[-1]
            told.add(maker)
            yield InvalidNotebook(
                place,
                f"step {step.name!r} reads {name!r}, which step {maker!r} makes; it does not come after it",
                hint=f"tag it prev:{maker}: `echelon notebook tag FILE {step.cells[0].cell} prev:{maker}`",
            )
            continue
        if name not in known.called:
            known.notes.append(_never_called(place, name))
            continue
        problem = f"{name!r} is read before it is defined" if makers[name] else f"{name!r} is defined nowhere"
        yield InvalidNotebook(place, problem, hint="define it in a step before, or correct its name")


def _of_prelude(known: _Known) -> Iterator[InvalidNotebook]:
    prelude = known.prelude
    if prelude.stars:
        return
    for name, place in prelude.needs.items():
        yield InvalidNotebook(
            place,
            f"{name!r} is not defined in the cells that every step runs first",
            hint="those are the imports, functions and pipeline-parameters; tag this cell as a step",
        )
    bound = prelude.binds.union(*(flow.binds for flow in known.flows.values()))
    for name, place in prelude.later.items():
        if name in bound or any(flow.stars for flow in known.flows.values()):
            continue
        if name not in known.called:
            known.notes.append(_never_called(place, name))
        else:
            yield InvalidNotebook(
                place, f"{name!r} is defined nowhere", hint="define it, or correct its name"
            )


def _never_called(place: CellLine, name: str) -> str:
    return f"{place}: {name!r} is defined nowhere; only a function reads it that nothing here calls"


def _of_metrics(metrics: Iterable[str], known: _Known) -> Iterator[InvalidNotebook]:
    bound = known.prelude.binds.union(*(flow.binds for flow in known.flows.values()))
    for name in metrics:
        if name not in bound | BUILTIN:
            yield InvalidNotebook(
                "pipeline-metrics", f"{name!r} is defined nowhere", hint="name variables of the steps"
            )


def _of_kept(step: str, outputs: Iterable[str], known: _Known) -> Iterator[InvalidNotebook]:
    for name in outputs:
        place = known.flows[step].generators.get(name)
        if place is not None:
            yield InvalidNotebook(
                place,
                f"step {step!r} hands {name!r} on, a generator or an open file, which cannot be kept",
                hint="make a list of it, or make it in the step that reads it",
            )


def _warn_of_race(step: StepCells, name: str, source: str, known: _Known) -> None:
    """A step that stands earlier in the notebook, and changes the name beside this one."""
    for other in known.flows:
        if other == step.name:
            return
        unordered = other not in known.before[step.name]
        if unordered and source in known.before[other] and name in known.flows[other].changes:
            known.notes.append(
                f"step {step.name!r} reads {name!r} as {source!r} left it: step {other!r}, which changes it, "
                f"does not come before (prev:{other} would order them)"
            )


def _two_branches(where: str | CellLine, name: str, steps: Sequence[str], what: str) -> InvalidNotebook:
    both = " and ".join(repr(each) for each in steps[:2])
    return InvalidNotebook(
        where,
        f"steps {both} {what} {name!r}, and neither comes before the other",
        hint=f"order them with a prev: tag, or use two names instead of {name!r}",
    )
