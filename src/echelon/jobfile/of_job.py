"""A job that ran, as the job file that asks for the same again: for a person who wants to see it, or run it.

What a job file has no words for, or what this does not write, stands below it as a comment: nothing is left
out in silence, since the file is read back and compared."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from echelon.errors import EchelonError
from echelon.jobfile.writing import write_job_file
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.pods.pod import Keeper, PodOptions, Toleration
from echelon.model.resources import Amount
from echelon.model.settings import Settings

# Found anew by every run: the Python, the folder, how often it was started, and who keeps its results.
_SETTLED = ("python", "cwd", "earlier", "starts_ranks", "keeper", "ttl", "commit", "changed", "began")
_SAME = ("script", "module", "gpu_type", "restarts", "results", "snapshot", "priority", "no_wait")
_SAME_OF_PODS = (
    "image",
    "pull",
    "node_selector",
    "service_account",
    "priority_class",
    "requirements",
    "checkpoints",
)
_LISTS_OF_PODS = {"pip": "pip", "collect": "collect", "pull_secrets": "pull_secret"}
_MAPPINGS_OF_PODS = {"labels": "label", "annotations": "annotation", "template": "template"}


def job_file_of(job: Job) -> str:
    """The text of the job file."""
    usual = Job(name="")
    found: dict[str, Any] = {"name": job.name, "framework": job.framework}
    found |= {key: getattr(job, key) for key in _SAME if hasattr(job, key)}
    found |= {
        "command": list(job.command),
        "reuse_results": job.resume,
        "args": list(job.args),
        "workers": job.workers,
        "gpus": job.resources.gpus,
        "gpu_type": job.resources.gpu_type,
        "cpus": _amount(job.resources.cpus),
        "memory": _amount(job.resources.memory),
        "resource": dict(job.resources.other),
        "procs": None if job.procs == max(1, job.resources.gpus) else job.procs,
        "env": dict(job.env),
        "secret": [each.name if each.file is None else f"{each.name}=@{each.file}" for each in job.secrets],
        "timeout": _seconds(job.timeout),
        "queue_timeout": None if job.queue_timeout == usual.queue_timeout else _seconds(job.queue_timeout),
        "include": list(job.include),
        "metric_pattern": list(job.metric_patterns),
        "track": None if job.tracking is None else job.tracking.to,
        **_of_pods(job.pod),
        "keep": _keep(job),
    }
    defaults = {"workers": 1, "pull": "missing"}
    given = {
        key: value
        for key, value in found.items()
        if value not in (None, 0, False, (), [], {}, "") and value != defaults.get(key)
    }
    settings = Settings(**given)
    return f"{write_job_file(settings)}{_comment(job, settings)}"


def _of_pods(pod: PodOptions) -> dict[str, Any]:
    found: dict[str, Any] = {key: getattr(pod, key) for key in _SAME_OF_PODS}
    found["local_queue"] = pod.queue
    found |= {name: list(getattr(pod, key)) for key, name in _LISTS_OF_PODS.items()}
    found |= {name: dict(getattr(pod, key)) for key, name in _MAPPINGS_OF_PODS.items()}
    found["node_selector"] = dict(pod.node_selector)
    found["mount"] = [
        f"{each.kind}:{each.source}:{each.path}{':ro' if each.read_only else ''}" for each in pod.mounts
    ]
    found["toleration"] = [_toleration(each) for each in pod.tolerations]
    found["shm"] = None if pod.shm is None else str(pod.shm)
    found["scale_up"] = pod.scale_up
    found["job_kind"] = None if pod.job_kind == PodOptions().job_kind else pod.job_kind
    return found


def _keep(job: Job) -> str | None:
    pod, needs = job.pod, job.resources
    if pod.keeper is None:
        return None if pod.linger == PodOptions().linger else f"{_seconds(pod.linger)}:0"
    if pod.keeper == Keeper() or not (needs.gpus or needs.other or pod.checkpoints):
        return None  # of a run that had it since it was detached
    return f"{_seconds(pod.keeper.keep)}:{pod.keeper.size}"


def _toleration(given: Toleration) -> str:
    value = "" if given.value is None else f"={given.value}"
    return f"{given.key}{value}{f':{given.effect}' if given.effect else ''}"


def _amount(amount: Amount | None) -> str | None:
    if amount is None:
        return None
    ends = [each for each in (amount.request, amount.limit) if each is not None]
    return ":".join(f"{each:.15g}" for each in ends)


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.15g}s"


def _comment(job: Job, settings: Settings) -> str:
    """What the settings do not say of the job."""
    asked = msgspec.to_builtins(job)
    try:
        read = msgspec.to_builtins(to_job(settings, name=job.name))
    except EchelonError:
        read = msgspec.to_builtins(Job(name=job.name))
    left = _differing(asked, read)
    if not left:
        return ""
    text = yaml.safe_dump(left, sort_keys=False, allow_unicode=True, width=100)
    return "".join(f"# {line}\n" for line in ["and, which this file does not say:", *text.splitlines()])


def _differing(given: dict[str, Any], read: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in given.items():
        other = read.get(key)
        if key in _SETTLED or value == other:
            continue
        if isinstance(value, dict) and isinstance(other, dict):
            found[key] = _differing(value, other)
        else:
            found[key] = value
    return {key: value for key, value in found.items() if value not in ({}, None)}
