"""The workers of a distributed step in a cluster: an Indexed Job, made from the pod of the step and followed
to its end.

The pod owns the Job, so that both go together when the pipeline run is cancelled. It speaks to the API server
with its service account, which may make Jobs and Services and read logs, and nothing else."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Tuple

_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_PAUSE = 1.0
_PATIENCE = 120.0  # seconds without an answer of the API server
_GRACE = 10.0
_LONGEST_NAME = 40  # of a Job, before the digest: its pods' host names have their index beside it


class RequestRefused(Exception):
    """The API server does not do what it is asked."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__("the API server answers %d: %s" % (status, text))
        self.status = status


class Api:
    """The API server, as a pod sees it."""

    def __init__(self) -> None:
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
        self._context = ssl.create_default_context(cafile=_ACCOUNT + "/ca.crt")

    def open(self, method: str, path: str, content: Any = None) -> Tuple[Any, http.client.HTTPResponse]:
        """A connection and its answer; raises RequestRefused, or OSError."""
        with open(_ACCOUNT + "/token", encoding="utf-8") as file:  # it is renewed now and then
            token = file.read().strip()
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._context, timeout=60)
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content)
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        if answer.status >= 300:
            text = answer.read().decode("utf-8", "replace")
            connection.close()
            raise RequestRefused(answer.status, _message(text))
        return connection, answer

    def call(self, method: str, path: str, content: Any = None) -> Dict[str, Any]:
        """What the API server answers; what passes is asked again for a while."""
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                connection, answer = self.open(method, path, content)
                try:
                    found: Dict[str, Any] = json.loads(answer.read().decode())
                    return found
                finally:
                    connection.close()
            except (OSError, http.client.HTTPException):
                if time.monotonic() > until:
                    raise
            except RequestRefused as error:
                if error.status == 409 and method == "POST":  # made by a request whose answer was lost
                    return {}
                if error.status not in (429, 500, 502, 503, 504) or time.monotonic() > until:
                    raise
            time.sleep(_PAUSE)


def run_workers(told: Dict[str, Any], variables: Dict[str, str]) -> int:
    """Make a step's Service and Job, and follow the Job; returns an exit code."""
    pod, namespace = os.environ["ECHELON_POD"], os.environ["ECHELON_NAMESPACE"]
    digest = hashlib.sha256(pod.encode()).hexdigest()[:8]
    name = "%s-%s" % (pod[:_LONGEST_NAME].strip("-."), digest)
    values = {
        "{job}": name,
        "{claim}": os.environ["ECHELON_CLAIM"],
        "{program}": os.environ["ECHELON_PROGRAM"],
        "{pipeline}": os.environ["ECHELON_PIPELINE"],
    }
    service, job = fill(told["service"], values), fill(told["job"], values)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": os.environ["ECHELON_POD_UID"]}
    for made in (service, job):
        made["metadata"]["ownerReferences"] = [owner]
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["env"] += [{"name": key, "value": text} for key, text in sorted(variables.items())]
    api = Api()
    try:
        api.call("POST", "/api/v1/namespaces/%s/services" % namespace, service)
        api.call("POST", "/apis/batch/v1/namespaces/%s/jobs" % namespace, job)
        return _Following(api, namespace, name).follow()
    except (RequestRefused, OSError) as error:
        sys.stderr.write("echelon: %s\n" % error)
        return 1


def fill(template: Any, values: Dict[str, str]) -> Any:
    """A template with its placeholders replaced, wherever they stand."""
    if isinstance(template, dict):
        return {key: fill(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(each, values) for each in template]
    if isinstance(template, str):
        for placeholder, value in values.items():
            template = template.replace(placeholder, value)
    return template


class _Following:
    """A Job to its end, with what its workers print and what they wait for."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._readers: Dict[str, threading.Thread] = {}
        self._told = ""

    def follow(self) -> int:
        job = "/apis/batch/v1/namespaces/%s/jobs/%s" % (self._namespace, self._name)
        pods = "/api/v1/namespaces/%s/pods?labelSelector=batch.kubernetes.io%%2Fjob-name%%3D%s"
        while True:
            end = _end(self._api.call("GET", job))
            for pod in self._api.call("GET", pods % (self._namespace, self._name)).get("items", []):
                self._look(pod)
            if end is not None:
                break
            time.sleep(_PAUSE)
        for reader in self._readers.values():
            reader.join(30)
        state, message = end
        if state != "Complete":
            sys.stderr.write("echelon: the workers failed: %s\n" % message)
            return 1
        return 0

    def _look(self, pod: Dict[str, Any]) -> None:
        name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase")
        if phase == "Pending":
            reason = waits_for(pod)
            if reason and reason != self._told:
                self._told = reason
                sys.stderr.write("echelon: %s waits: %s\n" % (name, reason))
        elif name not in self._readers:
            index = pod["metadata"].get("labels", {}).get("batch.kubernetes.io/job-completion-index", "?")
            self._readers[name] = threading.Thread(target=self._read, args=(name, index), daemon=True)
            self._readers[name].start()

    def _read(self, pod: str, index: str) -> None:
        path = "/api/v1/namespaces/%s/pods/%s/log?follow=true" % (self._namespace, pod)
        try:
            connection, answer = self._api.open("GET", path)
            connection.sock.settimeout(None)
            for line in answer:
                sys.stdout.write("[%s] %s" % (index, line.decode("utf-8", "replace")))
                sys.stdout.flush()
            connection.close()
        except (RequestRefused, OSError, http.client.HTTPException) as error:
            sys.stderr.write("echelon: the log of worker %s cannot be read: %s\n" % (index, error))


def waits_for(pod: Dict[str, Any]) -> str:
    """Why a pod has not started, if that is more than its start taking time."""
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return str(condition.get("message") or condition.get("reason") or "")
    for container in pod["status"].get("containerStatuses", []):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return "%s %s" % (waiting["reason"], waiting.get("message", ""))
    return ""


def _end(job: Dict[str, Any]) -> Any:
    """How a Job has ended, and why; None while it runs."""
    for condition in job.get("status", {}).get("conditions", []):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return condition["type"], condition.get("message") or condition.get("reason") or ""
    return None


def _message(text: str) -> str:
    try:
        return str(json.loads(text).get("message") or text)
    except (ValueError, AttributeError):
        return text[:300]


def wait_for_name(host: str, patience: float = 600.0) -> None:
    """Wait until a worker's name is known: a pod has one only once it has an address."""
    until = time.monotonic() + patience
    while not _is_known(host):
        if time.monotonic() > until:
            sys.exit("echelon: %s has no address after %d seconds" % (host, patience))
        time.sleep(0.3)


def _is_known(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except OSError:
        return False


def wait_for_all(processes: List["subprocess.Popen[bytes]"]) -> int:
    """Wait for processes; when one fails, end the others. Returns the first exit code that is not 0."""
    running = list(processes)
    code, kill_at = 0, float("inf")
    while running:
        if time.monotonic() > kill_at:  # TensorFlow ignores SIGTERM while it waits for a peer
            for other in running:
                other.kill()
        for each in list(running):
            found = each.poll()
            if found is None:
                continue
            running.remove(each)
            if found and not code:
                code, kill_at = found, time.monotonic() + _GRACE
                for other in running:
                    other.terminate()
        time.sleep(0.1)
    return code if code >= 0 else 128 - code
