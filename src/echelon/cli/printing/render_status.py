"""How a run stands, as `echelon status` prints it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from echelon.cli.printing.render import data, table
from echelon.cli.printing.say import say, style
from echelon.cli.printing.words import cause_lines, duration, near, one_line, phases, ranges, state
from echelon.model.output.progress import words
from echelon.model.program import DONE
from echelon.model.resources import format_memory
from echelon.model.run import parse_uri
from echelon.model.status import Status
from echelon.model.trials import by_objective, short, state_of, steps_as_csv, words_of_best

_MOST_MISSING = 8  # workers whose missing results are listed


def show_status(found: Status, format_: str, advice: str | None = None) -> None:
    """How a run stands, and what helps if it failed."""
    conditions = _conditions(found)
    if format_ != "text":
        _show_as_data(found, format_, conditions)
        return
    now = time.time()
    reason = f"  {one_line(found.reason)}" if found.reason else ""
    say(f"{style(found.name, bold=True)}  {state(found.state)}{reason}")
    if found.state == "damaged":
        return  # nothing else is known of it
    if found.steps:
        _show_steps(found, now)
        return
    facts = [
        ("command", found.command or "-"),
        ("framework", found.framework or "-"),
        ("kind", found.kind or ""),
        ("conditions", " ".join(f"{each['type']}={each['status']}" for each in conditions)),
        ("without", ", ".join(found.not_downloaded)),
        ("image", found.image or ""),
        ("namespace", found.namespace or ""),
        ("nodes", ", ".join(sorted({each.node for each in found.workers if each.node}))),
        *_times(found, now),
        ("phases", phases(found, now)),
        ("progress", _progress(found)),
        ("checkpoint", _checkpoint(found, now)),
        ("workers", _size(found)),
        ("restarts", _restarts(found)),
        ("results", near(found.results)),
    ]
    facts += [("where", each) for each in found.places]
    if found.exit_code is not None:
        facts.append(("exit code", str(found.exit_code)))
    if found.released is not None and found.ended is not None:
        facts.append(("released", _released(found, found.released - found.ended)))
    if found.held_until is not None:
        facts.append(("holds", _holding(found, found.held_until - now)))
    facts += [("missing", each) for each in found.missing[:_MOST_MISSING]]
    if len(found.missing) > _MOST_MISSING:
        facts.append(("missing", f"results of {len(found.missing) - _MOST_MISSING} more workers"))
    if found.kept:
        facts.append(("kept", _keeping(found)))
    _show_facts(facts)
    if found.workers:
        say()
        rows = [
            (
                str(each.worker),
                each.role,
                ranges(each.ranks),
                state(each.state),
                each.node or "-",
                ",".join(each.gpus) or "-",
                ",".join(map(str, each.rank_pids.values())) or "-",
                each.reason or "",
            )
            for each in found.workers
        ]
        table(
            *_without_empty(("WORKER", "ROLE", "RANKS", "STATE", "NODE", "GPUS", "RANK PIDS", "REASON"), rows)
        )
    if found.root_cause is not None:
        say()
        for text in cause_lines(found.root_cause, with_tail=True):
            say(text)
    if advice:
        say(f"  hint: {one_line(advice)}")


def _show_as_data(found: Status, format_: str, conditions: Sequence[dict[str, Any]]) -> None:
    if format_ == "csv":
        click.echo(steps_as_csv(found.steps, found.objective), nl=False)
        return
    import msgspec

    data(found if found.kind is None else {**msgspec.to_builtins(found), "conditions": conditions}, format_)


def _times(found: Status, now: float) -> list[tuple[str, str]]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.created))
    return [("started", started), ("elapsed", duration((found.ended or now) - found.created))]


def _show_facts(facts: Sequence[tuple[str, str]]) -> None:
    for name, value in facts:
        if value:
            say(f"  {name:<10} {one_line(value)}")


def _show_steps(found: Status, now: float) -> None:
    """What there is to say of a run that is made of runs as a whole, and each of its steps in a line."""
    code = "" if found.exit_code is None else str(found.exit_code)
    facts = [("command", found.command), *_times(found, now), ("results", near(found.results))]
    if found.step_word == "trial":
        facts.append(("trials", _done_and_best(found)))
    _show_facts([*facts, ("exit code", code), *(("missing", each) for each in found.missing)])
    say()
    if found.step_word == "trial":
        _show_trials(found, now)
        return
    rows = [
        (
            step.name,
            state(step.state),
            "-" if step.started is None else duration((step.ended or now) - step.started),
            parse_uri(step.run, "").name if step.run else "-",
            step.reason,
        )
        for step in found.steps
    ]
    table(("STEP", "STATE", "TOOK", "RUN", "REASON"), rows)
    for each in dict.fromkeys(step.hint for step in found.steps if step.hint):
        say(f"  hint: {one_line(each)}")


def _done_and_best(found: Status) -> str:
    done = sum(step.state in DONE for step in found.steps)
    best = "" if found.objective is None else words_of_best(found.steps, found.objective)
    return f"{done} of {len(found.steps)} done{f', {best}' if best else ''}"


def _show_trials(found: Status, now: float) -> None:
    """The trials of a sweep, the best first."""
    names = list(dict.fromkeys(name for step in found.steps for name in step.params))
    metric = [] if found.objective is None else [found.objective.metric]
    rows = [
        (
            step.name,
            *(short(step.params.get(name, "")) for name in names),
            *("-" if step.value is None else f"{step.value:.6g}" for _ in metric),
            state(state_of(step)),
            "-" if step.started is None else duration((step.ended or now) - step.started),
            step.reason,
        )
        for step in by_objective(found.steps, found.objective)
    ]
    table(("TRIAL", *names, *metric, "STATE", "TOOK", "REASON"), rows)


def _conditions(found: Status) -> list[dict[str, Any]]:
    """Those of a Kubeflow job, as its users know them."""
    if found.kind is None:
        return []
    from echelon.kubeflow.sdk.describe import conditions_shown

    return conditions_shown(found.kind, found)


def _without_empty(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """A table without the columns in which no row has anything."""
    kept = [at for at in range(len(heads)) if any(row[at] not in ("", "-") for row in rows)]
    return [heads[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _progress(found: Status) -> str:
    """How far its training has come, and which rank printed it, unless it is the first."""
    if found.progress is None:
        return ""
    rank = f" (rank {found.progress.rank})" if found.progress.rank else ""
    return ", ".join(words(found.progress)) + rank


def _checkpoint(found: Status, now: float) -> str:
    """The newest checkpoint that the run's keeper has, and since when."""
    kept = found.checkpoint
    if kept is None:
        return ""
    return f"{kept.path}, {format_memory(kept.size)}, kept {duration(now - kept.kept_at)} ago"


def _size(found: Status) -> str:
    """How many workers take part, where their number changes."""
    if found.sizes is None:
        return ""
    least, most = found.sizes
    return f"{len(found.members) if found.members is not None else '-'} of {least}..{most}"


def _restarts(found: Status) -> str:
    """How many restarts were used, of how many; those after which nothing had failed are apart."""
    counted = f"{found.restarts - found.restarts_spared} of {found.restarts_allowed}"
    spared = found.restarts_spared
    if not spared:
        return counted
    why = "workers had to leave" if found.sizes is None else "the number of workers changed"
    return f"{counted}; {spared} more {'do' if spared > 1 else 'does'} not count: {why}"


def _released(found: Status, after: float) -> str:
    """How soon a run that is over gave back what it had."""
    return f"{_place(found)}, {duration(max(0.0, after))} after its end"


def _holding(found: Status, left: float) -> str:
    """What a run that is over still has, and for how long."""
    until = time.strftime("%H:%M:%S", time.localtime(found.held_until))
    why = f" ({found.held_why})" if found.held_why else ""
    return (
        f"{_place(found)}, with its results{why}, until {until} (for {duration(max(0.0, left))}); "
        f"`echelon get {found.name}` fetches them and lets go"
    )


def _place(found: Status) -> str:
    gpus = sum(len(worker.gpus) for worker in found.workers)
    return f"its {gpus} GPU{'s' * (gpus != 1)}" if gpus else "its place"


def _keeping(found: Status) -> str:
    """What the keeper of a run that is over has."""
    some = len(found.kept) < len(found.workers)
    whose = f"the results of workers {ranges(found.kept)}" if some else "its results"
    until = ""
    if found.kept_until is not None:
        until = time.strftime(", until %Y-%m-%d %H:%M", time.localtime(found.kept_until))
    return f"{whose}, by a small pod without GPUs{until}; `echelon get {found.name}` fetches them"
