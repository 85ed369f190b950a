"""What the user wants, as one frozen value, and the checks that need nothing but the value itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from echelon.errors import InvalidJob
from echelon.model.open_shape import OpenShape
from echelon.model.pods.pod import PodOptions, check_mounts
from echelon.model.pods.template import check_template
from echelon.model.program import Parent, Program
from echelon.model.resources import Resources
from echelon.model.tracking import Tracking
from echelon.values import frozen

FRAMEWORKS = ("auto", "torch", "torchrun", "tensorflow", "jax", "xgboost", "horovod", "mpi", "plain")
ROLES = ("launcher", "chief", "ps", "evaluator")
LEADING = ("launcher", "chief")  # roles of one worker, whose group comes first
NAME_LENGTH = 40
QUEUE_TIMEOUT = 7 * 86400.0
GRACE = 10.0  # seconds from SIGTERM to SIGKILL, where a job says nothing else
STEP = "ECHELON_STEP"  # what a run that is a step of another one is called there
FUNCTIONS = ".echelon"  # the folder among shipped code that holds a function's script
_MOST_PRIORITY = 1000
_MOST_WORKERS, _MOST_PROCS = 10_000, 1_000  # more is a slip of the hand, and would take the machine down
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@frozen
class Role:
    """Workers with another part to play than the rest: a launcher, a chief, parameter servers, an evaluator.

    What is left open is as for the other workers: `command` (with `args`) replaces what the job runs, `args`
    alone gives the job's script other arguments, `env` adds to the job's variables, `image` replaces the
    job's. `template` is a Kubernetes pod template, merged under what echelon sets itself."""

    name: str
    workers: int
    resources: Resources
    procs: int = 1
    command: tuple[str, ...] = ()
    args: tuple[str, ...] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    template: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Secret:
    """A value that travels apart from everything else: from the caller's environment, or from a file."""

    name: str
    file: str | None = None


@frozen
class Job:
    """A script, a module or a command, how many workers run it, and what they need.

    Where the shape is open, `workers`, and the GPUs, CPUs and memory in `resources`, are not decided yet.
    With `least`, the number of workers changes while it runs, and `workers` are the most."""

    name: str
    script: str | None = None
    module: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    workers: int = 1
    least: int | None = None
    settle: float | None = None  # seconds after a start in which no workers are added
    procs: int = 1
    resources: Resources = field(default_factory=Resources)
    shape: OpenShape | None = None
    roles: tuple[Role, ...] = ()
    framework: str = "auto"
    starts_ranks: bool = False  # what it runs calls mpirun by itself: it is started once, on worker 0
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[Secret, ...] = ()
    python: str | None = None
    restarts: int = 0
    timeout: float | None = None
    grace: float = GRACE  # seconds that ranks have from SIGTERM to SIGKILL
    stall: float | None = None  # seconds without output and computing after which its ranks are stuck
    queue_timeout: float = QUEUE_TIMEOUT  # seconds after which a run that is not admitted ends
    no_wait: bool = False  # once it was admitted, it is not queued again
    priority: int = 0  # in a queue, before age: the higher, the sooner
    results: str | None = None
    resume: bool = False
    earlier: int = 0  # starts before the run was resumed, on which ECHELON_RESTART counts on
    cwd: str = "."  # where the ranks start; `{code}` is the folder that shipped code is unpacked into
    snapshot: bool = False
    include: tuple[str, ...] = ()
    metric_patterns: tuple[str, ...] = ()  # where given, the only rule by which metrics are found
    tracking: Tracking | None = None
    pod: PodOptions = field(default_factory=PodOptions)
    parent: Parent | None = None  # the run that it is a part of
    program: Program | None = None  # of a run that is made of runs


def validate(job: Job) -> None:
    """Raise InvalidJob for the first field that cannot be, naming it, its value and the fix."""
    check_name(job.name)
    given = [kind for kind in ("script", "module", "command") if getattr(job, kind)]
    if len(given) != 1:
        raise InvalidJob(
            "script",
            " and ".join(given) or None,
            "leaves it open what to run",
            hint="give one of script, module, command",
        )
    _at_least("workers", job.workers, 1, "a run has at least one worker")
    _at_least("procs", job.procs, 1, "a worker has at least one process; leave it out for one per GPU")
    _at_most("workers", job.workers, _MOST_WORKERS)
    _at_most("procs", job.procs, max(_MOST_PROCS, job.resources.gpus))  # of GPUs, placement says how many are
    _at_least("restarts", job.restarts, 0, "0 means: do not restart")
    if abs(job.priority) > _MOST_PRIORITY:
        hint = f"a whole number from -{_MOST_PRIORITY} to {_MOST_PRIORITY}; 0 is as any other run"
        raise InvalidJob("priority", job.priority, "is out of range", hint=hint)
    _check_resources("", job.resources, some=job.shape is not None)
    if job.framework not in FRAMEWORKS:
        raise InvalidJob("framework", job.framework, "is not known", hint=f"one of {', '.join(FRAMEWORKS)}")
    for role in job.roles:
        _check_role(role)
    if job.metric_patterns:
        from echelon.model.output.metric_pattern import parse_metric_patterns

        parse_metric_patterns(job.metric_patterns)
    _check_variables("env", [*job.env, *(secret.name for secret in job.secrets)])
    check_mounts(job.pod.mounts)
    check_template("template", job.pod.template)
    _check_text(job)


def role_named(job: Job, name: str) -> Role | None:
    """The job's role of that name; None for the ordinary workers."""
    return next((role for role in job.roles if role.name == name), None)


def is_function(job: Job) -> bool:
    """Whether the job was made from a Python function."""
    return job.script is not None and job.script.startswith(f"{{code}}/{FUNCTIONS}/")


def asks_for_gpus(job: Job) -> bool:
    """Whether any worker needs a GPU."""
    needs = (job.resources, *(role.resources for role in job.roles))
    return job.shape is not None or any(need.gpus for need in needs)


def asks_for_any(job: Job) -> bool:
    """Whether any worker needs what other runs may have: GPUs, CPUs or memory."""
    needs = (job.resources, *(role.resources for role in job.roles))
    return job.shape is not None or any(need.gpus or need.cpus or need.memory for need in needs)


def workers_asked(job: Job) -> int:
    """How many workers a job names, before it has a plan; at least, if it gives a range, or only its GPUs."""
    shape = job.shape
    workers = job.least or job.workers
    if shape is not None:
        workers = shape.workers or shape.least // (shape.gpus or shape.least)
    return workers + sum(role.workers for role in job.roles)


def ranks_asked(job: Job) -> int:
    """How many ranks a job names, before it has a plan."""
    workers = job.workers * job.procs
    if job.shape is not None and job.shape.rank_per_gpu:
        workers = job.shape.most
    return workers + sum(role.workers * role.procs for role in job.roles)


def gpus_asked(job: Job) -> int:
    """How many GPUs a job names, before it has a plan; at least, if it gives a range."""
    workers = (job.least or job.workers) * job.resources.gpus if job.shape is None else job.shape.least
    return workers + sum(role.workers * role.resources.gpus for role in job.roles)


def is_name(text: str) -> bool:
    """Whether a text can name a run."""
    return len(text) <= NAME_LENGTH and _NAME.fullmatch(text) is not None


def check_name(name: str) -> None:
    """Raise InvalidJob unless `name` can name a run everywhere, a Kubernetes object included."""
    if not is_name(name):
        raise InvalidJob(
            "name",
            name,
            "is not a run's name",
            hint=f"lower case letters, digits and -, a letter first, at most {NAME_LENGTH} characters;"
            f" for example {suggest_name(name)!r}",
        )


def suggest_name(text: str) -> str:
    """Make the nearest valid name from any text."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    name = re.sub(r"^[^a-z]+", "", name)[:NAME_LENGTH].rstrip("-")
    return name or "run"


def is_unicode(text: str) -> bool:
    """Whether a text can be written down: what the system gave us need not be UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_role(role: Role) -> None:
    where = f"role {role.name}"
    if role.name not in ROLES:
        raise InvalidJob(
            "role", role.name, "is not known", hint=f"one of {', '.join(ROLES)}, as in --role ps=1"
        )
    _at_least(where, role.workers, 1, "leave the role out to have none")
    _at_least(f"{where}: procs", role.procs, 1, "a worker has at least one process")
    _at_most(where, role.workers, _MOST_WORKERS)
    _at_most(f"{where}: procs", role.procs, _MOST_PROCS)
    if role.name in LEADING and role.workers != 1:
        raise InvalidJob(where, role.workers, "is more than one", hint=f"there is exactly one {role.name}")
    _check_resources(f"{where}: ", role.resources)
    _check_variables(f"{where}: env", role.env)
    check_template(f"{where}: template", role.template)


def _check_variables(field_name: str, names: Iterable[str]) -> None:
    for name in names:
        if not _ENV_NAME.fullmatch(name):
            raise InvalidJob(
                field_name,
                name,
                "is not a variable's name",
                hint="letters, digits and _, as in --env KEY=VALUE",
            )


def _at_least(field_name: str, value: int, least: int, hint: str) -> None:
    if isinstance(value, bool) or value < least:
        raise InvalidJob(field_name, value, f"is less than {least}", hint=hint)


def _at_most(field_name: str, value: int, most: int) -> None:
    if value > most:
        raise InvalidJob(field_name, value, f"is more than {most}", hint="give a smaller number")


def _check_resources(where: str, resources: Resources, *, some: bool = False) -> None:
    _at_least(f"{where}gpus", resources.gpus, 0, "0 means: no GPU")
    if resources.gpu_type is not None and resources.gpus == 0 and not some:
        raise InvalidJob(f"{where}gpu_type", resources.gpu_type, "is given without GPUs", hint="add --gpus N")
    for name, count in resources.other.items():
        _at_least(f"{where}resource {name}", count, 1, "leave it out to have none")


def _check_text(job: Job) -> None:
    """No argument, variable or path may hold a NUL byte: no operating system can pass it on."""
    texts: dict[str, Iterable[str | None]] = {
        "script": [job.script],
        "module": [job.module],
        "command": job.command,
        "args": job.args,
        "env": job.env.values(),
        "secret": [secret.file for secret in job.secrets],
        "python": [job.python],
        "results": [job.results],
        "include": job.include,
        "pip": job.pod.pip,
        "requirements": [job.pod.requirements],
        "collect": job.pod.collect,
        "checkpoints": [job.pod.checkpoints],
    }
    for role in job.roles:
        where = f"role {role.name}"
        texts |= {
            f"{where}: command": role.command,
            f"{where}: args": role.args or (),
            f"{where}: env": role.env.values(),
        }
    for field_name, values in texts.items():
        for text in values:
            if text is not None and "\0" in text:
                raise InvalidJob(field_name, text, "holds a NUL byte", hint="no program can be given one")
            if text is not None and not is_unicode(text):
                raise InvalidJob(
                    field_name, text, "is not UTF-8", hint="rename it, or pass it in another way"
                )
