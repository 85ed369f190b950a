"""The settings of a run before they are made into a Job: one vocabulary for flags, job files and keywords.

Each field is a flag of `run` (dashes for underscores), a key of the job file and of `[tool.echelon]`, and a
keyword of `echelon.run`. It is declared here once: its type sets how its value is written (a sequence comes
several times, a mapping as KEY=VALUE, a literal is a choice), its metadata has the rest (`_setting`): also
which field of the Job it is, and in which form (`forms.py`). `meaning.py` goes both ways by that. None means:
not given, so that a weaker source, or the default, applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Literal

from echelon.model import forms
from echelon.model.forms import Form
from echelon.model.open_shape import Shares
from echelon.model.tracking import OFF, TRACKERS
from echelon.values import frozen

Text = str | int | float
SERVER_CPUS, SERVER_MEMORY = "250m", "512Mi"  # requested of a Jupyter server where nothing else is said
ON_KUBERNETES = "On Kubernetes"
"""The section of `--help` for what only pods have; on this machine it has no effect."""


@frozen
class RoleSettings:
    """A role written out, where its workers are not like the rest; a field means what the setting of the same
    name means for a run.
    """

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


def _setting(
    text: str,
    form: Form | None = None,
    *,
    metavar: str | None = None,
    short: str | None = None,
    flag: str | bool = True,
    section: str | None = None,
    everywhere: bool = False,
    path: Literal["file", "dir", "pattern", "program", "script", "command"] | None = None,
    one_run: bool = False,
    hint: str | None = None,
    words: Sequence[str] = (),
    of: str | None = None,
    line: str | bool = True,
    steps: bool = False,
    server: str | bool = False,
    in_pods: bool = False,
    agent: bool = False,
) -> Any:
    """Declare a setting: what `--help` and the schema contain of it, and what it is in a Job.

    `flag` is its name where that differs from the field's, or False for what is no flag; `everywhere` gives
    it to every command. `path` is what it names on this machine: shells complete it, and in a file it is
    relative to the file's folder (see `jobfile`). `one_run` settings cannot be a project's default.
    `hint` is added to the error for a mapping that is not written KEY=VALUE. `words` are values that shells
    complete, of a text that is checked by `to_job`. `metavar` stands for the value in help, where that is not
    its form's.

    `form` is how the value is written in a job file, and read from it into the Job's field of that name, or
    `of` (`resources.gpus`). A setting without one is for the command, or decided together with others
    (`meaning.py`). `line` is its title in a dry run, where that is not its name, or False if it is shown
    there in another way. Every setting applies to a run; to a role, if `RoleSettings` has it; with `steps`,
    to the steps of a notebook; with `server`, to a Jupyter server (a text is its help there); with
    `in_pods`, in a cluster only. With `agent` it is a field of the agents' task, by the name in the Job."""
    about = {
        "help": text,
        "metavar": metavar or (form.metavar if form is not None else None),
        "short": short,
        "flag": flag,
        "section": section,
        "everywhere": everywhere,
        "path": path,
        "one_run": one_run,
        "hint": hint,
        "words": words,
        "of": of,
        "form": form,
        "line": line,
        "steps": steps,
        "server": server,
        "in_pods": in_pods,
        "agent": agent,
    }
    return field(default=None, metadata=about)


@frozen
class SweepSettings:
    """A sweep in a job file; each but the first is an option of `echelon sweep`."""

    space: Mapping[str, Sequence[Text] | Text] | None = _setting(
        "the parameters: of each a list of values, or what stands after its = on the command line"
    )
    array: str | None = _setting("a trial for each of these numbers: {index}")
    seeds: int | None = _setting("repeat every trial N times, with {seed} 0 to N-1")
    trials: int | None = _setting("draw this many trials at random from all combinations")
    search: Literal["random", "tpe"] | None = _setting(
        "how trials are drawn: random (default), or tpe, by Optuna from the results of earlier trials"
    )
    seed: int | None = _setting("seed of the draw: the same seed gives the same trials")
    parallel: int | None = _setting("trials at the same time")
    minimize: str | None = _setting("the best trial has the lowest value of this metric")
    maximize: str | None = _setting("the best trial has the highest value of this metric")
    value: str | None = _setting("which value of that metric counts: last, best, or mean:N of the last N")
    fail_fast: bool | None = _setting("end all trials when one fails")
    early_stop: bool | None = _setting("end trials that are behind the median of the others at the same step")


def _of_pods(text: str, form: Form | None = None, **more: Any) -> Any:
    return _setting(text, form, section=ON_KUBERNETES, in_pods=True, **more)


@frozen
class Settings:
    """Everything that can be set of a run."""

    name: str | None = _setting(
        "the run's name; made from the script's when left out", metavar="NAME", one_run=True
    )
    script: str | None = _setting(
        "the Python script to train", forms.AS_IT_IS, flag=False, path="script", one_run=True, line=False
    )
    module: str | None = _setting(
        "a Python module to run, as python -m does",
        forms.AS_IT_IS,
        short="-m",
        metavar="MODULE",
        one_run=True,
        line=False,
    )
    command: Sequence[Text] | str | None = _setting(
        "a command that is not Python", forms.COMMAND, flag=False, path="command", one_run=True, line=False
    )
    args: Sequence[Text] | None = _setting(
        "arguments; {output} and {run} are filled in", forms.TEXTS, flag=False, one_run=True, line=False
    )
    sweep: SweepSettings | None = _setting(
        "with `echelon sweep -f FILE`: the parameters, and how many trials", flag=False, one_run=True
    )
    workers: Text | None = _setting(
        "how many workers (default 1); 2..8: as many as there is room for, which changes while it runs",
        forms.WORKERS,
        short="-n",
        metavar="N[..M]",
        line=False,
    )
    settle: Text | None = _setting(
        "with a range of workers: none are added sooner after a start (default 2m)",
        forms.TIME,
        metavar="TIME",
        agent=True,
    )
    procs: int | None = _setting("ranks per worker (default: one per GPU, else 1)", forms.NUMBER, line=False)
    gpus: int | None = _setting(
        "GPUs per worker", forms.NUMBER, of="resources.gpus", line=False, server="GPUs"
    )
    gpu_type: str | None = _setting(
        "only GPUs of this model, e.g. A100", forms.AS_IT_IS, metavar="MODEL", of="resources.gpu_type"
    )
    total_gpus: Text | None = _setting(
        "GPUs in all, or a range, 4..8: echelon chooses how many workers share them, and on which nodes",
        metavar="N[..M]",
    )
    shares: Shares | None = _setting(
        "with --total-gpus, the GPUs of each worker: equal (default), any or largest-first"
    )
    cpus: Text | None = _setting(
        "CPU cores per worker: request, or request:limit (in pods, default 100m); 4/gpu, with --total-gpus",
        forms.CPUS,
        of="resources.cpus",
        line=False,
        server=f"CPU cores: request, or request:limit (default {SERVER_CPUS})",
    )
    memory: Text | None = _setting(
        "memory per worker, e.g. 16Gi: request, or request:limit (in pods, default 128Mi); 32Gi/gpu",
        forms.MEMORY,
        of="resources.memory",
        line=False,
        server=f"memory, e.g. 16Gi: request, or request:limit (default {SERVER_MEMORY})",
    )
    resource: Mapping[str, int] | None = _setting(
        "any other resource per worker: NAME=N (MIG, AMD, RDMA)",
        forms.COUNTS,
        of="resources.other",
        line=False,
    )
    roles: Mapping[str, int | RoleSettings] | None = _setting(
        "workers with another role: ps=1, chief=1, evaluator=1, launcher=1", flag="role"
    )
    framework: (
        Literal["auto", "torch", "torchrun", "tensorflow", "jax", "xgboost", "horovod", "mpi", "plain"] | None
    ) = _setting(
        "how ranks find each other (default auto: by the imports); torchrun: the command calls it",
        forms.AS_IT_IS,
        line=False,
    )
    env: Mapping[str, Text] | None = _setting(
        "a variable for the ranks: KEY=VALUE",
        forms.VARIABLES,
        line=False,
        steps=True,
        server="a variable: KEY=VALUE",
    )
    secret: Sequence[str] | None = _setting(
        "a secret variable: NAME from your environment, or NAME=@FILE",
        forms.SECRETS,
        of="secrets",
        line="secrets",
        steps=True,
    )
    python: str | None = _setting(
        "the Python that runs the ranks (default: the active environment's)",
        forms.AS_IT_IS,
        metavar="FILE",
        path="program",
        line=False,
    )
    restarts: int | None = _setting(
        "start the workers again after a failure, up to N times (default 0)", forms.AT_MOST, agent=True
    )
    timeout: Text | None = _setting(
        "end the run after this time, e.g. 90m", forms.TIME, line="time limit", agent=True
    )
    grace: Text | None = _setting(
        "the time between SIGTERM and SIGKILL, for ranks to save (default 10s)",
        forms.TIME,
        agent=True,
    )
    stall: Text | None = _setting(
        "if ranks hang for this time, e.g. 10m, show where, and fail or restart the run",
        forms.TIME,
        line="stuck after",
        agent=True,
    )
    priority: int | None = _setting(
        "runs with a higher priority start first (default 0); the namespace of a cluster limits it",
        forms.NUMBER,
    )
    queue_timeout: Text | None = _setting(
        "end a run that waits in the queue for longer, e.g. 12h (default 7d)",
        forms.TIME,
        line="queued at most",
    )
    results: str | None = _setting(
        "where results go (default ./runs/RUN)", forms.AS_IT_IS, metavar="DIR", path="dir", line=False
    )
    reuse_results: bool | None = _setting(
        "start although the results folder has files; they stay", forms.SWITCH, of="resume"
    )
    replace: bool | None = _setting(
        "remove a run of the same --name first, if it has ended; its results are kept as runs/RUN.1, .2, ..."
    )
    snapshot: bool | None = _setting("run on a copy of the project as it is now", forms.SWITCH, line=False)
    include: Sequence[str] | None = _setting(
        "ship these files even if .gitignore excludes them",
        forms.TEXTS,
        metavar="PATTERN",
        path="pattern",
        steps=True,
    )
    metric_pattern: Sequence[str] | None = _setting(
        "how metrics are found in what ranks print: a regular expression with named groups (default: "
        "NAME=VALUE and other usual formats)",
        forms.TEXTS,
        metavar="REGEX",
        of="metric_patterns",
    )
    track: str | None = _setting(
        "forward the metrics to an experiment tracker: mlflow, at MLFLOW_TRACKING_URI; tensorboard, as files "
        "among the results; none",
        forms.TRACKER,
        words=(*TRACKERS, OFF),
        of="tracking",
    )
    detach: bool | None = _setting("return at once; the run continues", short="-d")
    no_wait: bool | None = _setting("fail instead of waiting in the queue for GPUs", forms.SWITCH, line=False)
    force: bool | None = _setting("start the run though it has many more ranks than this machine has cores")
    dry_run: bool | None = _setting("show what would happen, do nothing")
    format: Literal["text", "json", "yaml"] | None = _setting(
        "how to print: text, json or yaml", short="-o", everywhere=True
    )
    on: Literal["local", "k8s"] | None = _setting("where: local (default) or k8s", everywhere=True)
    context: str | None = _of_pods("the kubeconfig context, for k8s", metavar="NAME", everywhere=True)
    namespace: str | None = _of_pods("the namespace, for k8s", metavar="NAME", everywhere=True)
    image: str | None = _of_pods(
        "the workers' image (default: one for the framework)",
        forms.IMAGE,
        line=False,
        steps=True,
        server="the image, with Jupyter in it",
    )
    pull: Literal["missing", "always"] | None = _of_pods(
        "when to pull the image (default missing)", forms.AS_IT_IS, steps=True, server=True
    )
    pull_secret: Sequence[str] | None = _of_pods(
        "a Secret that lets nodes pull the image",
        forms.OBJECT_NAMES,
        of="pod.pull_secrets",
        line="pull secrets",
        steps=True,
        server=True,
    )
    mount: Sequence[str] | None = _of_pods(
        "a volume in every worker; KIND: pvc, configmap, secret, nfs (SERVER:/export), hostPath, emptydir",
        forms.MOUNTS,
        of="pod.mounts",
        line="volume",
        steps=True,
        server="another volume; KIND: pvc, configmap, secret, nfs (SERVER:/export), hostPath, emptydir",
    )
    code: str | None = _of_pods(
        "run code that is on a volume, or in the image (image); nothing is shipped",
        forms.CODE,
        line=False,
    )
    code_volume: str | None = _of_pods(
        "ship the code through this volume, which takes more than 5 MiB",
        forms.VOLUME_PATH,
        line=False,
    )
    pip: Sequence[str] | None = _of_pods(
        "install this package before the start",
        forms.PACKAGES,
        line="packages",
        steps=True,
    )
    requirements: str | None = _of_pods(
        "install the packages of this file before the start",
        forms.AS_IT_IS,
        metavar="FILE",
        path="file",
        steps=True,
    )
    output: str | None = _of_pods(
        "results on a volume: pvc:NAME[/path], or new:[SIZE][@CLASS] for one made for the run (default 10Gi)",
        forms.OUTPUT,
        line=False,
    )
    linger: Text | None = _of_pods(
        "now `keep`: how long workers keep results",
        forms.TIME_OR_ZERO,
        line="kept by workers",
    )
    keep: Text | None = _of_pods(
        "how long results that are on no volume and not fetched are kept: by a small pod of that SIZE, so "
        "that workers can go, of runs with GPUs, --checkpoints or -d (default 24h:20Gi), else by the workers "
        "(default 5m); TIME:0: no such pod",
        metavar="TIME[:SIZE]",
    )
    keep_size: Text | None = _of_pods("now `keep`: the size of the small pod", metavar="SIZE")
    checkpoints: str | None = _of_pods(
        "keep the checkpoints in this folder of {output}, one entry each, outside of the workers during the "
        "run; with --restarts, pods that replace others get the newest back",
        forms.CHECKPOINTS,
        line=False,
    )
    collect: Sequence[str] | None = _of_pods(
        "fetch this folder of the workers too", forms.TEXTS, metavar="PATH"
    )
    shm: Text | None = _of_pods(
        "the size of /dev/shm (default: half of the memory's limit)",
        forms.SIZE,
        steps=True,
        server="the size of /dev/shm",
    )
    node_selector: Mapping[str, Text] | None = _of_pods(
        "only on nodes with this label: KEY=VALUE",
        forms.NODE_LABELS,
        hint="`kubectl get nodes --show-labels` shows what nodes have",
        line="node labels",
        steps=True,
        server=True,
    )
    toleration: Sequence[str] | None = _of_pods(
        "allow nodes with this taint",
        forms.TOLERATIONS,
        of="pod.tolerations",
        line="tolerations",
        steps=True,
        server=True,
    )
    service_account: str | None = _of_pods(
        "the workers' service account",
        forms.OBJECT_NAME,
        line="account",
        steps=True,
        server="the service account whose rights programs in it have (default: none)",
    )
    priority_class: str | None = _of_pods(
        "the workers' priority class",
        forms.OBJECT_NAME,
        steps=True,
        server="its priority class",
    )
    job_kind: Literal["job", "pytorchjob", "tfjob", "mpijob", "trainjob", "native"] | None = _of_pods(
        "what the workers are made of: Jobs (default), or a job that Kubeflow's controller runs; native: the "
        "Kubeflow job in -f FILE, as it is",
        forms.AS_IT_IS,
        flag="as",
        line="as",
    )
    local_queue: str | None = _of_pods(
        "let Kueue admit the run, by its LocalQueue of this name",
        forms.OBJECT_NAME,
        of="pod.queue",
        line="queue",
        steps=True,
    )
    scale_up: bool | None = _of_pods(
        "start although no node has room: the cluster adds nodes for waiting pods (default where the cluster "
        "autoscaler or Karpenter is found)",
        forms.SWITCH,
        steps=True,
    )
    ttl: Text | None = _of_pods(
        "remove the run this long after its end (default 7d; 3d if it is detached and has secrets)",
        forms.TTL,
        steps=True,
    )
    label: Mapping[str, Text] | None = _of_pods(
        "a label on every object of the run: KEY=VALUE",
        forms.LABELS,
        of="pod.labels",
        line="labels",
        steps=True,
        server="a label on every object of it: KEY=VALUE",
    )
    annotation: Mapping[str, Text] | None = _of_pods(
        "an annotation on every object of the run: KEY=VALUE",
        forms.ANNOTATIONS,
        of="pod.annotations",
        line="annotations",
        steps=True,
        server="an annotation on every object of it: KEY=VALUE",
    )
    pod_patch: str | None = _of_pods(
        "a YAML file that is merged over the workers' pods, last", metavar="FILE", path="file", steps=True
    )
    template: Mapping[str, Any] | None = _of_pods(
        "a Kubernetes pod template, merged under what echelon sets itself",
        forms.TEMPLATE,
        flag=False,
        line=False,
    )


NAMES = tuple(setting.name for setting in fields(Settings))
OF_ONE_RUN = tuple(setting.name for setting in fields(Settings) if setting.metadata["one_run"])
IN_PODS = tuple(setting.name for setting in fields(Settings) if setting.metadata["in_pods"])
OF_STEPS = tuple(setting.name for setting in fields(Settings) if setting.metadata["steps"])
OF_SERVERS = {
    setting.name: text if isinstance(text := setting.metadata["server"], str) else setting.metadata["help"]
    for setting in fields(Settings)
    if setting.metadata["server"]
}
"""The settings that a Jupyter server has too, each with its help there."""
WHAT_TO_RUN = ("script", "module", "command")
"""A job gives exactly one of these."""


def merge(strong: Settings, weak: Settings) -> Settings:
    """Take what `strong` gives, and what `weak` gives besides. Mappings (variables, roles) add up by name."""
    has_own = any(getattr(strong, name) is not None for name in WHAT_TO_RUN)
    merged: dict[str, Any] = {}
    for name in NAMES:
        mine, theirs = getattr(strong, name), getattr(weak, name)
        replaced = has_own and name in (*WHAT_TO_RUN, "args")  # arguments belong to what they are given to
        merged[name] = mine if replaced else add_up(mine, theirs)
    return Settings(**merged)


def add_up(strong: Any, weak: Any) -> Any:
    """Merge two values of one setting: mappings add up, and so do two descriptions of one role."""
    if strong is None or weak is None:
        return weak if strong is None else strong
    if isinstance(strong, Mapping):
        return {**weak, **{name: add_up(value, weak.get(name)) for name, value in strong.items()}}
    if isinstance(strong, RoleSettings) or isinstance(weak, RoleSettings):
        mine, theirs = written_out(strong), written_out(weak)
        if mine.command is not None:
            theirs = replace(theirs, args=None)  # arguments belong to the command they are given to
        return RoleSettings(
            **{
                each.name: add_up(getattr(mine, each.name), getattr(theirs, each.name))
                for each in fields(mine)
            }
        )
    return strong


def written_out(role: int | RoleSettings) -> RoleSettings:
    """A role of which only its number of workers was given, as any other."""
    return role if isinstance(role, RoleSettings) else RoleSettings(workers=role)
