"""What the settings of a run mean: the Job that they are made into, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from echelon.errors import InvalidJob
from echelon.model.job import GRACE, QUEUE_TIMEOUT, Job, Role, Secret, validate
from echelon.model.open_shape import parse_open_shape
from echelon.model.pods import pod
from echelon.model.pods.way_home import choose_keeper
from echelon.model.resources import Resources, parse_cpus, parse_duration, parse_memory, parse_size
from echelon.model.settings import RoleSettings, Settings, Text, written_out
from echelon.model.tracking import Tracking, parse_tracker


def to_job(settings: Settings, *, name: str) -> Job:
    """Make the Job that the settings mean, checked. `name` is used where the user gave none."""
    if settings.sweep is not None:
        hint = "`echelon sweep -f FILE` runs its trials"
        raise InvalidJob("sweep", "…", "is of many runs, and this is one", hint=hint)
    settings, per_gpu = split_per_gpu(settings)
    resources = Resources(
        gpus=_number("gpus", settings.gpus, 0),
        gpu_type=settings.gpu_type,
        cpus=None if settings.cpus is None else parse_cpus("cpus", settings.cpus),
        memory=None if settings.memory is None else parse_memory("memory", settings.memory),
        other={key: _number(f"resource {key}", count, 0) for key, count in (settings.resource or {}).items()},
    )
    roles = tuple(_role(key, value, resources) for key, value in (settings.roles or {}).items())
    job = Job(
        name=settings.name if settings.name is not None else name,
        script=settings.script,
        module=settings.module,
        command=split_command(settings.command),
        args=tuple(str(word) for word in settings.args or ()),
        workers=_number("workers", settings.workers, 1),
        procs=_number("procs", settings.procs, max(1, resources.gpus)),
        resources=resources,
        shape=parse_open_shape(
            settings.total_gpus,
            shares=settings.shares,
            gpus=settings.gpus,
            workers=settings.workers,
            per_worker={"cpus": settings.cpus, "memory": settings.memory},
            per_gpu=per_gpu,
            rank_per_gpu=settings.procs is None,
        ),
        roles=roles,
        framework=settings.framework or "auto",
        env={key: str(value) for key, value in (settings.env or {}).items()},
        secrets=tuple(_secret(text) for text in settings.secret or ()),
        python=settings.python,
        restarts=_number("restarts", settings.restarts, 0),
        timeout=None if settings.timeout is None else parse_duration("timeout", settings.timeout),
        grace=GRACE if settings.grace is None else parse_duration("grace", settings.grace),
        stall=None if settings.stall is None else parse_duration("stall", settings.stall),
        priority=_number("priority", settings.priority, 0),
        queue_timeout=QUEUE_TIMEOUT
        if settings.queue_timeout is None
        else parse_duration("queue_timeout", settings.queue_timeout),
        results=settings.results,
        resume=bool(settings.reuse_results),
        snapshot=bool(settings.snapshot),
        include=tuple(settings.include or ()),
        metric_patterns=tuple(settings.metric_pattern or ()),
        tracking=_tracking(settings.track),
        pod=_pod(settings, [resources, *(role.resources for role in roles)]),
    )
    validate(job)
    return job


def split_per_gpu(settings: Settings) -> tuple[Settings, dict[str, str | None]]:
    """The settings without the CPUs and the memory that are given for each GPU (`4/gpu`), and those."""
    given = {name: str(getattr(settings, name)).strip() for name in ("cpus", "memory")}
    per_gpu = {name: text[:-4] if text.endswith("/gpu") else None for name, text in given.items()}
    return replace(settings, **{name: None for name, text in per_gpu.items() if text is not None}), per_gpu


def _pod(settings: Settings, needs: Sequence[Resources]) -> pod.PodOptions:
    named = pod.parse_object_name
    output = None if settings.output is None else pod.parse_output(settings.output)
    checkpoints = None if settings.checkpoints is None else pod.parse_checkpoints(settings.checkpoints)
    keep, size = (None, None) if settings.keep is None else pod.parse_keep(settings.keep)
    if settings.keep_size is not None:
        size = parse_size("keep_size", settings.keep_size)
    keeper = choose_keeper(
        pod.KEEP if keep is None else keep,
        pod.KEEP_SIZE if size is None else size,
        devices=settings.total_gpus is not None or any(need.gpus or need.other for need in needs),
        detached=bool(settings.detach),
        output=output,
        checkpoints=checkpoints,
    )
    linger = pod.LINGER if keeper is not None or not keep else keep
    return pod.PodOptions(
        image=None if settings.image is None else pod.parse_image(settings.image),
        pull=settings.pull or "missing",
        pull_secrets=tuple(named("pull_secret", text) for text in settings.pull_secret or ()),
        mounts=tuple(pod.parse_mount(text) for text in settings.mount or ()),
        node_selector=pod.parse_node_selector(settings.node_selector or {}),
        tolerations=tuple(pod.parse_toleration(text) for text in settings.toleration or ()),
        service_account=settings.service_account and named("service_account", settings.service_account),
        priority_class=settings.priority_class and named("priority_class", settings.priority_class),
        shm=None if settings.shm is None else parse_size("shm", settings.shm),
        code=None if settings.code in (None, pod.IMAGE) else pod.parse_volume_path("code", settings.code),
        code_volume=(
            None
            if settings.code_volume is None
            else pod.parse_volume_path("code_volume", settings.code_volume)
        ),
        pip=tuple(pod.parse_package(text) for text in settings.pip or ()),
        requirements=settings.requirements,
        output=output,
        linger=linger if settings.linger is None else pod.parse_linger(settings.linger),
        keeper=keeper,
        checkpoints=checkpoints,
        queue=settings.local_queue and named("local_queue", settings.local_queue),
        job_kind=pod.parse_job_kind(settings.job_kind or pod.JOB, queue=settings.local_queue),
        scale_up=bool(settings.scale_up),
        ttl=_ttl(settings),
        collect=tuple(settings.collect or ()),
        template=dict(settings.template or {}),
        labels=pod.parse_labels(settings.label or {}),
        annotations=pod.parse_annotations(settings.annotation or {}),
    )


def _tracking(text: str | None) -> Tracking | None:
    tracker = None if text is None else parse_tracker(text)
    return None if tracker is None else Tracking(to=tracker)


def _ttl(settings: Settings) -> float:
    if settings.ttl is not None:
        return pod.parse_ttl(settings.ttl)
    return pod.SECRETS_TTL if settings.detach and settings.secret else pod.TTL


def _number(field_name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(
            field_name, value, "is not a whole number", hint=f"for example {field_name}: {default or 1}"
        )
    return value


def split_command(command: Sequence[Text] | str | None) -> tuple[str, ...]:
    """The arguments of a command that was given as a list, or as one line."""
    if isinstance(command, str):
        import shlex

        try:
            return tuple(shlex.split(command))
        except ValueError as error:
            raise InvalidJob(
                "command", command, f"cannot be split: {error}", hint="give a list of words"
            ) from None
    return tuple(str(word) for word in command or ())


def _role(name: str, value: int | RoleSettings, default: Resources) -> Role:
    """Parameter servers and the launcher compute on the CPU unless set otherwise; other roles need what a
    worker needs.
    """
    written, where = written_out(value), f"role {name}"
    gpus = _number(f"{where}: gpus", written.gpus, 0 if name in ("ps", "launcher") else default.gpus)
    resources = Resources(
        gpus=gpus,
        gpu_type=default.gpu_type if gpus else None,
        cpus=default.cpus if written.cpus is None else parse_cpus(f"{where}: cpus", written.cpus),
        memory=default.memory if written.memory is None else parse_memory(f"{where}: memory", written.memory),
        other=default.other if gpus else {},
    )
    return Role(
        name=name,
        workers=_number(where, written.workers, 1),
        procs=_number(f"{where}: procs", written.procs, 1),
        resources=resources,
        command=split_command(written.command),
        args=None if written.args is None else tuple(map(str, written.args)),
        env={key: str(each) for key, each in (written.env or {}).items()},
        image=None if written.image is None else pod.parse_image(written.image),
        template=dict(written.template or {}),
    )


def _secret(text: str) -> Secret:
    name, separator, value = text.partition("=")
    if separator and not value.startswith("@"):
        raise InvalidJob(
            "secret",
            f"{name}=…",
            "has its value in the open",
            hint=f"export {name} and say --secret {name}, or {name}=@FILE",
        )
    return Secret(name=name, file=value[1:] if separator else None)
