"""Why the Job controller can create no pod: refusals by the API server, in the events of the Job. Pure.

No pod exists then, so the events are the only source: a quota, the namespace's Pod Security level, limit
ranges, a missing service account or priority class, webhooks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from echelon.engines.kubernetes.diagnose.cluster_events import ClusterEvent, Events, last_of
from echelon.engines.kubernetes.diagnose.trouble import Finding, Kind
from echelon.engines.kubernetes.fields import moment
from echelon.engines.kubernetes.pods import Pod
from echelon.engines.kubernetes.quantities import to_thousandths

if TYPE_CHECKING:
    from echelon.engines.kubernetes.client.api import Object

_SILENCE = 10.0  # seconds within which a healthy Job controller creates pods
_UNTOLD = 4.0  # the same where its events, which give the reason, may not be read
_QUOTA = re.compile(
    r"exceeded quota: (?P<name>[^,]+), requested: (?P<asked>.+), used: (?P<used>.+), limited: (?P<limit>.+)"
)
_UNSPECIFIED = re.compile(r"failed quota: (?P<name>[^:]+): must specify (?P<what>.+)")
_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^":]+)[^"]*": (?P<what>.+)')
_DENIED = re.compile(
    r'admission (webhook) "([^"]+)" denied the request:? ?(.*)'
    r"""|(?:Admission)?([Pp]olicy) ['"]([^'"]+)['"].*?denied request:? ?(.*)"""
)
_CALLING = re.compile(
    r'failed calling webhook "(?P<name>[^"]+)": (?:failed to call webhook: Post "[^"]*": )?(?P<why>.*)'
)
_ACCOUNT = re.compile(r'error looking up service account [^:]+: serviceaccount "(?P<name>[^"]+)" not found')
_PRIORITY = re.compile(r"no PriorityClass with name (?P<name>\S+) was found")
_RANGE = re.compile(r"(?:maximum|minimum) \S+ usage per \S+ is|max limit to request ratio per")


def missing_pods(
    job: Object, pods: Sequence[Pod], missing: Sequence[int], events: Events, now: float
) -> list[Finding]:
    """Why those workers of a Job have no pod; empty if its controller has had no time yet."""
    if not missing:
        return []
    newest = max((moment(pod.metadata.creation_timestamp) or 0.0 for pod in pods), default=0.0)
    about = job["metadata"]
    refusal = last_of(events.of("Job", about["name"], about.get("uid")), "FailedCreate")
    if refusal is not None and refusal.last >= newest:
        return [_refused(refusal, tuple(missing))]
    started = moment((job.get("status") or {}).get("startTime")) or moment(about.get("creationTimestamp"))
    if pods or started is None or now - started < (_SILENCE if events.known else _UNTOLD):
        return []  # a pod that failed is replaced after a pause
    if not events.known:
        return [
            Finding(
                kind="silent",
                text=f"no pod of Job {job['metadata']['name']} was made yet, and you may not list the events "
                "that say why",
                hint="a quota, a limit range or a policy? `echelon doctor --on k8s` names the missing right",
                since=started,
            )
        ]
    return [
        Finding(
            kind="silent",
            text=f"the Job controller has made no pod of Job {job['metadata']['name']} yet",
            hint="if that goes on, the cluster's controller manager is not at work:"
            " `echelon doctor --on k8s`",
            since=started,
        )
    ]


def _refused(refusal: ClusterEvent, workers: tuple[int, ...]) -> Finding:
    message = refusal.message.removeprefix("Error creating: ")
    kind, text, hint, healable = _read_refusal(message)
    return Finding(
        kind=kind, text=text, workers=workers, hint=hint, healable=healable, since=refusal.first or None
    )


def _read_refusal(message: str) -> tuple[Kind, str, str, bool]:
    if found := _QUOTA.search(message):
        return _quota(found)
    if found := _UNSPECIFIED.search(message):
        what = re.sub(r" for: [^;]+", "", found["what"])
        return (
            "refused",
            f"quota {found['name']} lets in only pods that say what they need: {what}",
            "say it with --cpus and --memory, each with its limit: --cpus 2:2 --memory 8Gi:8Gi",
            False,
        )
    if found := _SECURITY.search(message):
        level, what = found["level"], _violations(found["what"])
        return (
            "restricted" if level == "restricted" else "refused",
            f"the namespace's Pod Security level {level} forbids {{who}}: {what}",
            "leave out what it forbids (a hostPath mount?), or use a namespace with another level",
            False,
        )
    if _RANGE.search(message):
        return (
            "refused",
            f"the namespace's limit range forbids {{who}}: {_reason(message)}",
            "change --cpus and --memory; `kubectl describe limitrange` shows the limits",
            False,
        )
    if found := _ACCOUNT.search(message):
        return (
            "refused",
            f"service account {found['name']} does not exist in the namespace",
            f"`kubectl create serviceaccount {quote(found['name'])}`, or name another with --service-account",
            False,
        )
    if found := _PRIORITY.search(message):
        return (
            "refused",
            f"priority class {found['name']} does not exist",
            "name one of `kubectl get priorityclasses` with --priority-class, or leave it out",
            False,
        )
    if found := _DENIED.search(message):
        kind, name, why = (found[1], found[2], found[3]) if found[1] else ("policy", found[5], found[6])
        hint = "the cluster's administrators have set it up, and know what it wants"
        return (
            "refused",
            f"the cluster's {kind} {name} refuses {{who}}: {why or 'without a reason'}",
            hint,
            False,
        )
    if found := _CALLING.search(message):
        return (
            "webhook",
            f"no pod can be made while the cluster's webhook {found['name']} fails: {found['why']}",
            "tell the cluster's administrators; the run starts as soon as it answers",
            True,
        )
    return (
        "refused",
        f"the API server refuses {{who}}: {_reason(message)}",
        "`kubectl describe job` has more",
        False,
    )


def _quota(found: re.Match[str]) -> tuple[Kind, str, str, bool]:
    asked, used, limits = (_amounts(found[part]) for part in ("asked", "used", "limit"))
    parts = [
        f"{_name(name)}: {amount} asked for, {used.get(name, '0')} of {limits.get(name, '?')} used"
        for name, amount in asked.items()
    ]
    # What exceeds the whole quota will not fit when others have ended, either.
    never = any(_exceeds(amount, limits.get(name)) for name, amount in asked.items())
    look = f"`kubectl describe quota {quote(found['name'])}` shows it"
    hint = (
        f"ask for less for each worker, or ask an administrator for more; {look}"
        if never
        else f"wait until others have ended, ask for less, or ask an administrator for more; {look}"
    )
    text = f"quota {found['name']} has no room for {{who}} ({'; '.join(parts)})"
    return ("refused" if never else "quota"), text, hint, not never


def _amounts(text: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in text.split(",") if "=" in part)


def _exceeds(amount: str, limit: str | None) -> bool:
    try:
        return limit is not None and to_thousandths(amount) > to_thousandths(limit)
    except ValueError:
        return False


def _name(resource: str) -> str:
    """A quota's name of a resource, as users call it."""
    plain = resource.removeprefix("requests.")
    return {"nvidia.com/gpu": "GPUs", "amd.com/gpu": "GPUs", "cpu": "CPUs"}.get(plain, plain)


def _violations(text: str) -> str:
    """What a level forbids, without the advice on each field; with the volume's name, if it is one."""
    text = re.sub(
        r'\([^()]*restricted volume types? ("[^()]*)\)', lambda found: found[1].replace('"', ""), text
    )
    return re.sub(r" \([^()]*\)", "", text)


def _reason(message: str) -> str:
    """The refusal without the name of the pod, which never existed."""
    return re.sub(r'^pods "[^"]*" is forbidden: ', "", message)
