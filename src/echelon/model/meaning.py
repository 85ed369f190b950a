"""What the settings of a run mean: the Job that they are made into, checked, and back.

A setting that is one field of the Job is read and written by its declaration (`settings.py`). What several
settings decide together stands here, each way: the shape, the roles, who keeps the results."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

from echelon.errors import InvalidJob
from echelon.model.elastic import check_elastic, parse_workers, range_of
from echelon.model.forms import Form
from echelon.model.job import Job, Role, validate
from echelon.model.open_shape import OpenShape, parse_open_shape
from echelon.model.pods import pod
from echelon.model.pods.way_home import choose_keeper
from echelon.model.resources import Resources, parse_size, write_duration
from echelon.model.settings import NAMES, RoleSettings, Settings, written_out
from echelon.values import frozen

_ON_CPUS = ("ps", "launcher")  # roles that compute on the CPU, unless set otherwise
_FOUND_ANEW = ("python",)  # what every run finds by itself, and of which a Job does not show that it was set


@frozen
class JobField:
    """A setting that is one field of the Job, `at` a path such as `pod.shm`."""

    setting: str
    at: str
    form: Form
    title: str  # of its line in a dry run; "" if it has none
    in_pods: bool  # in a cluster only
    agent: bool  # the agents act on it


def _declared() -> Iterator[JobField]:
    for each in fields(Settings):
        about = each.metadata
        if about["form"] is not None:
            line = about["line"]
            yield JobField(
                setting=each.name,
                at=about["of"] or f"{'pod.' if about['in_pods'] else ''}{each.name}",
                form=about["form"],
                title=line if isinstance(line, str) else each.name.replace("_", " ") if line else "",
                in_pods=about["in_pods"],
                agent=about["agent"],
            )


JOB_FIELDS = tuple(_declared())
_OF_ROLES = tuple(each.name for each in fields(RoleSettings))


def to_job(settings: Settings, *, name: str) -> Job:
    """Make the Job that the settings mean, checked. `name` is used where the user gave none."""
    if settings.sweep is not None:
        hint = "`echelon sweep -f FILE` runs its trials"
        raise InvalidJob("sweep", "…", "is of many runs, and this is one", hint=hint)
    settings, per_gpu = split_per_gpu(settings)
    given = _read(settings)
    resources = Resources(**given["resources"])
    roles = tuple(_role(key, written_out(value), resources) for key, value in (settings.roles or {}).items())
    shape = parse_open_shape(
        settings.total_gpus,
        shares=settings.shares,
        gpus=settings.gpus,
        workers=given[""].get("workers"),
        per_worker={"cpus": settings.cpus, "memory": settings.memory},
        per_gpu=per_gpu,
        rank_per_gpu=settings.procs is None,
    )
    detached = bool(settings.detach)
    keep, size = (None, None) if settings.keep is None else pod.parse_keep(settings.keep)
    if settings.keep_size is not None:
        size = parse_size("keep_size", settings.keep_size)
    keeper = choose_keeper(
        pod.KEEP if keep is None else keep,
        pod.KEEP_SIZE if size is None else size,
        devices=_has_devices(shape, resources, roles),
        detached=detached,
        output=given["pod"].get("output"),
        checkpoints=given["pod"].get("checkpoints"),
    )
    usual = {
        "ttl": _usual_ttl(detached=detached, secrets=bool(settings.secret)),
        "linger": keep if keep is not None and keeper is None and (keep or size == 0) else pod.LINGER,
    }
    least, most = parse_workers("workers", 1 if settings.workers is None else settings.workers)
    options = pod.PodOptions(**{**usual, **given["pod"]}, keeper=keeper)
    pod.parse_job_kind(options.job_kind, queue=options.queue)
    job = Job(
        **{"procs": max(1, resources.gpus), **given[""]},
        name=settings.name if settings.name is not None else name,
        least=least if least < most else None,
        resources=resources,
        shape=shape,
        roles=roles,
        pod=options,
    )
    validate(job)
    check_elastic(job)
    return job


def split_per_gpu(settings: Settings) -> tuple[Settings, dict[str, str | None]]:
    """The settings without the CPUs and the memory that are given for each GPU (`4/gpu`), and those."""
    given = {name: str(getattr(settings, name)).strip() for name in ("cpus", "memory")}
    per_gpu = {name: text[:-4] if text.endswith("/gpu") else None for name, text in given.items()}
    return replace(settings, **{name: None for name, text in per_gpu.items() if text is not None}), per_gpu


def to_settings(job: Job) -> Settings:
    """The settings that mean this Job; what is as it would be without them is not given."""
    found = {"name": job.name, **_write(job, Job(name=job.name))}
    for name in _FOUND_ANEW:
        found.pop(name, None)
    one_per_gpu = job.procs == max(1, job.resources.gpus) if job.shape is None else job.shape.rank_per_gpu
    found["procs"] = None if one_per_gpu else job.procs
    if job.shape is not None:
        if job.shape.gpus is None:  # what one worker has is decided later
            found = {name: value for name, value in found.items() if name not in ("cpus", "memory")}
        found |= _write_shape(job.shape)
    if job.roles:
        found["roles"] = {role.name: _write_role(role, job.resources) for role in job.roles}
    if job.least is not None:
        found["workers"] = range_of(job)
    found |= _write_keeper(job)
    usual_ttl = _usual_ttl(detached=found.get("detach", False), secrets=bool(job.secrets))
    found["ttl"] = None if job.pod.ttl == usual_ttl else write_duration(job.pod.ttl)
    return Settings(**found)


def lines_of(job: Job, *, in_pods: bool) -> Iterator[tuple[str, str]]:
    """What is set of a job, for its dry run: titles and values; `in_pods` for a cluster."""
    usual = Job(name=job.name)
    for each in JOB_FIELDS:
        get = attrgetter(each.at)
        if each.title and (in_pods or not each.in_pods) and get(job) != get(usual):
            yield each.title, each.form.show(get(job))


def _read(given: Settings | RoleSettings, where: str = "") -> dict[str, dict[str, Any]]:
    """The Job's fields that are given: those of its own, of its resources, of its pods."""
    found: dict[str, dict[str, Any]] = {"": {}, "resources": {}, "pod": {}}
    for each in JOB_FIELDS:
        value = getattr(given, each.setting, None)
        if value is not None:
            part, _, name = each.at.rpartition(".")
            found[part][name] = each.form.read(f"{where}{each.setting}", value)
    return found


def _write(value: Job | Role, usual: Job | Role, only: Collection[str] = NAMES) -> dict[str, Any]:
    """The settings of the fields that are not as usual. A role has fields of a pod as its own."""
    found = {}
    for each in JOB_FIELDS:
        if each.setting in only:
            get = attrgetter(each.at.removeprefix("pod.") if isinstance(value, Role) else each.at)
            if get(value) != get(usual):
                found[each.setting] = each.form.write(get(value))
    return found


def _role(name: str, written: RoleSettings, default: Resources) -> Role:
    """Parameter servers and the launcher compute on the CPU unless set otherwise; other roles need what a
    worker needs.
    """
    given = _read(written, f"role {name}: ")
    least, most = parse_workers(f"role {name}: workers", written.workers or 0)
    if least != most:
        raise InvalidJob(f"role {name}: workers", written.workers, "is a range", hint="give one number")
    gpus = given["resources"].get("gpus", 0 if name in _ON_CPUS else default.gpus)
    usual = {"gpus": gpus, "cpus": default.cpus, "memory": default.memory}
    of_gpus = {"gpu_type": default.gpu_type, "other": default.other} if gpus else {}
    return Role(
        **{"workers": 1, **given[""]},
        name=name,
        resources=Resources(**{**usual, **of_gpus, **given["resources"]}),
        **given["pod"],
    )


def _write_role(role: Role, default: Resources) -> int | RoleSettings:
    written = _write(role, _role(role.name, RoleSettings(), default), _OF_ROLES)
    return role.workers if written.keys() <= {"workers"} else RoleSettings(**written)


def _write_shape(shape: OpenShape) -> dict[str, Any]:
    per_gpu = {"cpus": shape.cpus_per_gpu, "memory": shape.memory_per_gpu}
    return {
        "total_gpus": shape.least if shape.least == shape.most else f"{shape.least}..{shape.most}",
        "shares": None if shape.shares == "equal" else shape.shares,
        "workers": shape.workers,
        **{name: f"{value:.15g}/gpu" for name, value in per_gpu.items() if value is not None},
    }


def _write_keeper(job: Job) -> dict[str, Any]:
    """What a keeper, or that there is none, shows of `keep`, and of `detach` if nothing else brought one."""
    keeper, hold = job.pod.keeper, job.pod.linger
    usual = _has_devices(job.shape, job.resources, job.roles) or job.pod.checkpoints is not None
    if keeper is None:
        said = hold != pod.LINGER or (usual and job.pod.output is None)
        return {"keep": f"{write_duration(hold)}:0", "linger": None} if said else {}
    size = "" if keeper.size == pod.KEEP_SIZE else f":{keeper.size}"
    keep = f"{write_duration(keeper.keep)}{size}"
    return {"detach": None if usual else True, "keep": None if keeper == pod.Keeper() else keep}


def _has_devices(shape: OpenShape | None, resources: Resources, roles: Collection[Role]) -> bool:
    """Whether workers have what other runs wait for."""
    needs = (resources, *(role.resources for role in roles))
    return shape is not None or any(need.gpus or need.other for need in needs)


def _usual_ttl(*, detached: bool, secrets: bool) -> float:
    return pod.SECRETS_TTL if detached and secrets else pod.TTL
