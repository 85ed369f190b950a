"""What a run would be in the cluster, on a page: the dry run's text. The objects themselves are its YAML.

What pods request is read from the rendered objects, so that it is what the API server would get. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from echelon.bundle.travel import what_travels
from echelon.engines.kubernetes import names
from echelon.engines.kubernetes.render.image import image_of
from echelon.engines.kubernetes.render.payload import MOST_CODE
from echelon.engines.task import shown_command
from echelon.model.job import Job
from echelon.model.meaning import lines_of
from echelon.model.plan import Plan
from echelon.model.pods.pod import write_output, write_volume_path
from echelon.model.resources import format_memory
from echelon.model.world import Group

if TYPE_CHECKING:
    from echelon.bundle import Bundle

Object = dict[str, Any]

_WIDTH = 12  # of the names, if none is longer
_NAMED = 8  # paths or nodes that are named on one line


def summarize(job: Job, plan: Plan, bundle: Bundle | None, objects: Sequence[Object]) -> str:
    """The page: a name and what it is on each line, then each group's command, place and requests."""
    namespace = objects[0]["metadata"].get("namespace")
    lines = [f"run {job.name} in namespace {namespace} of the cluster, framework {job.framework}"]
    facts = list(_facts(job, bundle, objects))
    width = max(_WIDTH, *(len(name) for name, _ in facts))
    lines += [f"  {name:<{width}} {text}" for name, text in facts]
    templates = [each["spec"]["template"]["spec"] for each in objects if "template" in each.get("spec", {})]
    code = names.CODE if job.pod.code is None else names.CODE_VOLUME
    output = names.OUTPUT if job.pod.output is None else names.RESULTS_VOLUME
    first = 0
    for number, (group, launch) in enumerate(zip(plan.world.groups, plan.launches, strict=True)):
        ranks = group.procs if launch.per == "rank" else 1
        each = "" if group.workers == 1 else " each"
        lines += ["", f"{group.workers} x {group.role}, {_count(ranks, 'process', 'es')}{each}"]
        lines += [
            f"  {'command':<{width}} {shown_command(launch.argv, code=code, output=output, run=job.name)}",
            f"  {'image':<{width}} {image_of(job, group.role)}",
        ]
        if number < len(templates):
            lines.append(f"  {'requests':<{width}} {_requests(templates[number]) or 'nothing'}{each}")
        lines.append(f"  {'nodes':<{width}} {_nodes(plan, group, first)}")
        first += group.workers
    return "\n".join(lines) + "\n"


def _facts(job: Job, bundle: Bundle | None, objects: Sequence[Object]) -> Iterator[tuple[str, str]]:
    options = job.pod
    if options.code is not None:
        yield "code", f"on a volume: {write_volume_path(options.code)}"
    elif bundle is not None:
        on = options.code_volume
        way = f", through {write_volume_path(on)}" if on is not None else ""
        if on is None and len(bundle.data) > MOST_CODE:
            way = ", sent to worker 0 when it has started, and from there to the others"
        yield "code", f"{what_travels(bundle)}; {format_memory(len(bundle.data))} compressed{way}"
        stays = [each.path for each in bundle.withheld]
        if stays:
            yield "stays here", _some(stays)
    else:
        yield "code", "in the image"
    yield "results", _results(job)
    if options.checkpoints is not None and options.keeper is not None:
        yield "checkpoints", f"of {{output}}/{options.checkpoints}, kept while the run goes on"
    yield from lines_of(job, in_pods=True)
    counts = Counter(each["kind"] for each in objects)
    made = ", ".join(_count(number, kind) for kind, number in counts.items())
    yield "objects", f"{made}; -o yaml prints them"


def _results(job: Job) -> str:
    output, folder = job.pod.output, job.results or f"runs/{job.name}"
    if output is None:
        return f"fetched to {folder}"
    if output.claim is None:
        return f"on a new volume of {format_memory(output.size)}, then fetched to {folder}"
    return f"on a volume: {write_output(output)}"


def _requests(template: Object) -> str:
    """What one pod requests; a limit counts where no request is given, as Kubernetes has it."""
    total: dict[str, str] = {}
    for container in template["containers"][:1]:
        asked = container.get("resources") or {}
        total |= asked.get("limits") or {}
        total |= asked.get("requests") or {}
    return ", ".join(f"{name} {amount}" for name, amount in total.items())


def _nodes(plan: Plan, group: Group, first: int) -> str:
    seats = plan.placement.seats[first : first + group.workers]
    found = dict.fromkeys(seat.node for seat in seats if seat.node)
    return _some(list(found)) if found else "as the scheduler decides"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _count(number: int, what: str, plural: str = "s") -> str:
    return f"{number} {what}{plural * (number != 1)}"
