"""What a user says, before it is made into a Job: one vocabulary for flags, job files and the Python call.

Each field is a flag of `run` (underscores for dashes), a key of the job file and of `[tool.echelon]`, and a
keyword of `echelon.run`; its help text stands here once, for `--help` and the job file's schema. None means:
not said, so that a weaker source, or the default, may speak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from echelon.errors import InvalidJob
from echelon.model import pod
from echelon.model.job import Job, Role, Secret, validate
from echelon.model.resources import Resources, parse_cpus, parse_duration, parse_memory, parse_size

Text = str | int | float
ON_KUBERNETES = "On Kubernetes"
"""The section of `--help` for what only pods have; on this machine it has no effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSettings:
    """A role written out, where its workers are not like the rest; a field means what it means for a run."""

    workers: int | None = None
    procs: int | None = None
    gpus: int | None = None
    cpus: Text | None = None
    memory: Text | None = None
    command: Sequence[Text] | str | None = None
    args: Sequence[Text] | None = None
    env: Mapping[str, Text] | None = None
    image: str | None = None
    template: Mapping[str, Any] | None = None


def _said(text: str, **more: object) -> Any:
    return field(default=None, metadata={"help": text, **more})


def _of_pods(text: str, **more: object) -> Any:
    return _said(text, section=ON_KUBERNETES, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be said of a run."""

    name: str | None = _said("the run's name; made from the script's when left out")
    script: str | None = _said("the Python script to train", flag=False)
    module: str | None = _said("a Python module to run, as python -m does", short="-m")
    command: Sequence[Text] | str | None = _said("a command that is not Python", flag=False)
    args: Sequence[Text] | None = _said("arguments; {output} and {run} are filled in", flag=False)
    workers: int | None = _said("how many workers (default 1)", short="-n")
    procs: int | None = _said("ranks per worker (default: one per GPU, else 1)")
    gpus: int | None = _said("GPUs per worker")
    gpu_type: str | None = _said("only GPUs of this model, e.g. A100")
    cpus: Text | None = _said("CPU cores per worker: request, or request:limit")  # noqa: RUF009 - as the others
    memory: Text | None = _said("memory per worker, e.g. 16Gi: request, or request:limit")  # noqa: RUF009 - as the others
    resource: Mapping[str, int] | None = _said("any other resource per worker: NAME=N (MIG, AMD, RDMA)")
    roles: Mapping[str, int | RoleSettings] | None = _said(
        "workers with another role: ps=1, chief=1, evaluator=1, launcher=1", flag="role"
    )
    framework: Literal["auto", "torch", "tensorflow", "horovod", "mpi", "plain"] | None = _said(
        "how ranks find each other (default auto: by the script's imports)"
    )
    env: Mapping[str, Text] | None = _said("a variable for the ranks: KEY=VALUE")
    secret: Sequence[str] | None = _said(
        "a variable kept out of sight: NAME from your environment, or NAME=@FILE"
    )
    python: str | None = _said("the Python that runs the ranks (default: the active environment's)")
    restarts: int | None = _said("start the workers again after a failure, up to N times (default 0)")
    timeout: Text | None = _said("end the run after this time, e.g. 90m")  # noqa: RUF009 - as the others
    results: str | None = _said("where results go (default ./runs/RUN)")
    resume: bool | None = _said("go on in a results folder that exists")
    snapshot: bool | None = _said("run on a copy of the project as it is now")
    include: Sequence[str] | None = _said("ship these files although .gitignore names them")
    detach: bool | None = _said("return at once; the run goes on", short="-d")
    no_wait: bool | None = _said("fail instead of standing in line for GPUs")
    dry_run: bool | None = _said("show what would happen, do nothing")
    format: Literal["text", "json", "yaml"] | None = _said(
        "how to print: text, json or yaml", short="-o", everywhere=True
    )
    on: Literal["local", "k8s"] | None = _said("where: local (default) or k8s", everywhere=True)
    context: str | None = _of_pods("the kubeconfig context, for k8s", everywhere=True)
    namespace: str | None = _of_pods("the namespace, for k8s", everywhere=True)
    image: str | None = _of_pods("the workers' image (default: one for the framework)")
    pull: Literal["missing", "always"] | None = _of_pods("when to pull the image (default missing)")
    pull_secret: Sequence[str] | None = _of_pods("a Secret that lets nodes pull the image")
    mount: Sequence[str] | None = _of_pods(
        "a volume in every worker; KIND: pvc, configmap, secret, nfs (SERVER:/export), hostPath, emptydir"
    )
    code: str | None = _of_pods("run code that lies on a volume; nothing is shipped")
    pip: Sequence[str] | None = _of_pods("install this package before the start")
    requirements: str | None = _of_pods("install what this file names before the start")
    output: str | None = _of_pods(
        "results on a volume: pvc:NAME[/path], or new:[SIZE] for one made for the run (default 10Gi)"
    )
    linger: Text | None = _of_pods(  # noqa: RUF009 - as the others
        "how long workers keep results that are on no volume and not fetched yet (default 5m)"
    )
    collect: Sequence[str] | None = _of_pods("fetch this folder of the workers too")
    shm: Text | None = _of_pods("the size of /dev/shm (default: half of the memory's limit)")  # noqa: RUF009 - as the others
    node_selector: Mapping[str, Text] | None = _of_pods("only on nodes with this label: KEY=VALUE")
    toleration: Sequence[str] | None = _of_pods("on nodes with this taint too")
    service_account: str | None = _of_pods("the workers' service account")
    priority_class: str | None = _of_pods("the workers' priority class")
    template: Mapping[str, Any] | None = _of_pods(
        "a Kubernetes pod template, merged under what echelon sets itself", flag=False
    )
    ttl: Text | None = _of_pods("forget the run this long after its end (default 7d)")  # noqa: RUF009 - as the others


NAMES = tuple(setting.name for setting in fields(Settings))


def merge(strong: Settings, weak: Settings) -> Settings:
    """Let `strong` speak, and `weak` where it is silent. Mappings (variables, roles) add up, name by name."""
    what = ("script", "module", "command")
    said_what = any(getattr(strong, name) is not None for name in what)
    merged: dict[str, Any] = {}
    for name in NAMES:
        mine, theirs = getattr(strong, name), getattr(weak, name)
        silent = said_what and name in (*what, "args")  # arguments belong to what they are given to
        merged[name] = mine if silent else add_up(mine, theirs)
    return Settings(**merged)


def add_up(strong: Any, weak: Any) -> Any:
    """Merge two values of one setting: mappings add up, and so do two descriptions of one role."""
    if strong is None or weak is None:
        return weak if strong is None else strong
    if isinstance(strong, Mapping):
        return {**weak, **{name: add_up(value, weak.get(name)) for name, value in strong.items()}}
    if isinstance(strong, RoleSettings) or isinstance(weak, RoleSettings):
        mine, theirs = _written_out(strong), _written_out(weak)
        if mine.command is not None:
            theirs = replace(theirs, args=None)  # arguments belong to the command they are given to
        return RoleSettings(
            **{
                each.name: add_up(getattr(mine, each.name), getattr(theirs, each.name))
                for each in fields(mine)
            }
        )
    return strong


def to_job(said: Settings, *, name: str) -> Job:
    """Make the Job that the settings mean, checked. `name` is used where the user gave none."""
    resources = Resources(
        gpus=_number("gpus", said.gpus, 0),
        gpu_type=said.gpu_type,
        cpus=None if said.cpus is None else parse_cpus("cpus", said.cpus),
        memory=None if said.memory is None else parse_memory("memory", said.memory),
        other={key: _number(f"resource {key}", count, 0) for key, count in (said.resource or {}).items()},
    )
    job = Job(
        name=said.name if said.name is not None else name,
        script=said.script,
        module=said.module,
        command=split_words(said.command),
        args=tuple(str(word) for word in said.args or ()),
        workers=_number("workers", said.workers, 1),
        procs=_number("procs", said.procs, max(1, resources.gpus)),
        resources=resources,
        roles=tuple(_role(key, value, resources) for key, value in (said.roles or {}).items()),
        framework=said.framework or "auto",
        env={key: str(value) for key, value in (said.env or {}).items()},
        secrets=tuple(_secret(text) for text in said.secret or ()),
        python=said.python,
        restarts=_number("restarts", said.restarts, 0),
        timeout=None if said.timeout is None else parse_duration("timeout", said.timeout),
        results=said.results,
        resume=bool(said.resume),
        snapshot=bool(said.snapshot),
        include=tuple(said.include or ()),
        pod=_pod(said),
    )
    validate(job)
    return job


def _pod(said: Settings) -> pod.PodOptions:
    named = pod.parse_object_name
    return pod.PodOptions(
        image=None if said.image is None else pod.parse_image(said.image),
        pull=said.pull or "missing",
        pull_secrets=tuple(named("pull_secret", text) for text in said.pull_secret or ()),
        mounts=tuple(pod.parse_mount(text) for text in said.mount or ()),
        node_selector=pod.parse_node_selector(said.node_selector or {}),
        tolerations=tuple(pod.parse_toleration(text) for text in said.toleration or ()),
        service_account=said.service_account and named("service_account", said.service_account),
        priority_class=said.priority_class and named("priority_class", said.priority_class),
        shm=None if said.shm is None else parse_size("shm", said.shm),
        code=None if said.code is None else pod.parse_volume_path("code", said.code),
        pip=tuple(pod.parse_package(text) for text in said.pip or ()),
        requirements=said.requirements,
        output=None if said.output is None else pod.parse_output(said.output),
        linger=pod.LINGER if said.linger is None else pod.parse_linger(said.linger),
        ttl=pod.TTL if said.ttl is None else pod.parse_ttl(said.ttl),
        collect=tuple(said.collect or ()),
        template=dict(said.template or {}),
    )


def _number(field_name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidJob(
            field_name, value, "is not a whole number", hint=f"for example {field_name}: {default or 1}"
        )
    return value


def split_words(command: Sequence[Text] | str | None) -> tuple[str, ...]:
    """The words of a command that was given as a list, or as one line."""
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
    """Parameter servers and the launcher compute on the CPU unless told otherwise; other roles need what a
    worker needs.
    """
    written, where = _written_out(value), f"role {name}"
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
        command=split_words(written.command),
        args=None if written.args is None else tuple(map(str, written.args)),
        env={key: str(each) for key, each in (written.env or {}).items()},
        image=None if written.image is None else pod.parse_image(written.image),
        template=dict(written.template or {}),
    )


def _written_out(role: int | RoleSettings) -> RoleSettings:
    return role if isinstance(role, RoleSettings) else RoleSettings(workers=role)


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
