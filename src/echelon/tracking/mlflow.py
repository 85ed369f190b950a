"""MLflow, by its REST API: a run of it for each run, found again by a tag.

How many points it has stands in tags, which are written by the same request as the points. MLflow's own
variables say where it is and who we are; the credentials among them are in no message."""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote, urlsplit
from zlib import crc32

from echelon.errors import InvalidJob
from echelon.model.output.metric import Metric
from echelon.model.status import Status
from echelon.tracking.sink import Away, Facts, Point, Rejected, Sent
from echelon.values import frozen

if TYPE_CHECKING:
    import httpx2

URI = "MLFLOW_TRACKING_URI"
_API = "api/2.0/mlflow"
_ID, _SENT = "echelon.id", "echelon.sent"
_TOOK = 30.0  # seconds for an answer
_CONNECTED = 5.0
_LARGEST = 16 * 1024 * 1024  # bytes of an answer
_PARAMETERS = 100  # of one request
_LONGEST_NAME = 250
_RANKS = 200  # whose counts are in one tag, which holds 5,000 characters
_OTHERS = 16  # tags with the counts of all else
_ODD = re.compile(r"[^\w. /-]", re.ASCII)
_STATES = {"succeeded": "FINISHED", "stopped": "KILLED"}


@frozen
class Server:
    """Where MLflow is, without a password in the address, and who asks."""

    url: str
    experiment: str = "Default"
    experiment_id: str = ""
    token: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    certificates: str = ""
    insecure: bool = False


def server_of(environment: Mapping[str, str]) -> Server:
    """The server that MLflow's variables name. Raises InvalidJob where that is none that speaks HTTP."""
    text = environment.get(URI, "")
    if not text:
        hint = "export MLFLOW_TRACKING_URI=http://HOST:5000; `mlflow server` starts one"
        raise InvalidJob("track", "mlflow", f"has no address: {URI} is not set", hint=hint)
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        url, port = SplitResult("", "", "", "", ""), None
    if url.scheme not in ("http", "https") or not url.hostname:
        hint = "a file store or a database is served by `mlflow server --backend-store-uri ...`"
        raise InvalidJob("track", "mlflow", f"cannot be reached: {URI} is not an http address", hint=hint)
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    address = f"{url.scheme}://{host}{f':{port}' if port else ''}{url.path.rstrip('/')}"
    return Server(
        url=address,
        experiment=environment.get("MLFLOW_EXPERIMENT_NAME") or "Default",
        experiment_id=environment.get("MLFLOW_EXPERIMENT_ID", ""),
        token=environment.get("MLFLOW_TRACKING_TOKEN", ""),
        user=environment.get("MLFLOW_TRACKING_USERNAME") or unquote(url.username or ""),
        password=environment.get("MLFLOW_TRACKING_PASSWORD") or unquote(url.password or ""),
        certificates=environment.get("MLFLOW_TRACKING_SERVER_CERT_PATH", ""),
        insecure=environment.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() == "true",
    )


class MLflow:
    """A Sink."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._client: httpx2.Client | None = None
        self._experiment = self._run = ""

    @property
    def name(self) -> str:
        """The tracker, and where it is."""
        return f"MLflow at {self._server.url}"

    def wants(self, metric: Metric) -> bool:  # noqa: ARG002
        """All of them."""
        return True

    def open(self, facts: Facts) -> Sent:
        """Find or make the run, which is active then."""
        try:
            return self._opened(facts)
        except (AttributeError, KeyError, TypeError) as error:
            raise Away(f"it does not answer as MLflow does; is {URI} that of an MLflow server?") from error

    def _opened(self, facts: Facts) -> Sent:
        self._experiment = self._find_experiment()
        found = self._find(facts.id)
        if found is None:
            created = self._ask("POST", "runs/create", self._new(facts))
            found = created["run"]
        self._run = found["info"]["run_id"]
        if found["info"].get("status") != "RUNNING":
            self._ask("POST", "runs/update", {"run_id": self._run, "status": "RUNNING"})
        self._add_parameters(facts, {each["key"] for each in found.get("data", {}).get("params", ())})
        return sent_of({each["key"]: each["value"] for each in found.get("data", {}).get("tags", ())})

    def place(self) -> str:
        """The address of the run's page."""
        return f"{self._server.url}/#/experiments/{self._experiment}/runs/{self._run}"

    def send(self, points: Sequence[Point], sent: Sent) -> None:
        """Hand over points, with how many there are then."""
        tags = tags_of(sent, {_tag(point.key) for point in points})
        metrics = [
            {
                "key": name_of(point.metric),
                "value": _number(point.metric.value),
                "timestamp": int(point.metric.at * 1000),
                "step": point.step,
            }
            for point in points
        ]
        self._ask("POST", "runs/log-batch", {"run_id": self._run, "metrics": metrics, "tags": _pairs(tags)})

    def end(self, status: Status) -> None:
        """Say how it ended, and where its results are."""
        tags = {"echelon.state": status.state, "echelon.results": _with_host(status.results or "")}
        self._ask("POST", "runs/log-batch", {"run_id": self._run, "tags": _pairs(tags)})
        change: dict[str, Any] = {"run_id": self._run, "status": _STATES.get(status.state, "FAILED")}
        if status.ended is not None:
            change["end_time"] = int(status.ended * 1000)
        self._ask("POST", "runs/update", change)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _find_experiment(self) -> str:
        if self._server.experiment_id:
            return self._server.experiment_id
        name = self._server.experiment
        path = f"experiments/get-by-name?experiment_name={quote(name, safe='')}"
        found = self._ask("GET", path, none_if="RESOURCE_DOES_NOT_EXIST")
        if found:
            return str(found["experiment"]["experiment_id"])
        return str(self._ask("POST", "experiments/create", {"name": name})["experiment_id"])

    def _find(self, id_: str) -> dict[str, Any] | None:
        wanted = {
            "experiment_ids": [self._experiment],
            "filter": f"tags.`{_ID}` = '{id_}'",
            "max_results": 1,
        }
        runs: list[dict[str, Any]] = self._ask("POST", "runs/search", wanted).get("runs") or []
        return runs[0] if runs else None

    def _new(self, facts: Facts) -> dict[str, Any]:
        tags = {
            "mlflow.source.type": "JOB",
            "mlflow.source.name": facts.source,
            "mlflow.user": facts.user,
            "echelon.results": _with_host(facts.results),
            **facts.labels,
            _ID: facts.id,
        }
        if facts.commit:
            tags["mlflow.source.git.commit"] = facts.commit
        return {
            "experiment_id": self._experiment,
            "run_name": facts.name,
            "user_id": facts.user,
            "start_time": int(facts.created * 1000),
            "tags": _pairs(tags),
        }

    def _add_parameters(self, facts: Facts, known: set[str]) -> None:
        """Parameters are set once: those of a run that is resumed are what they were."""
        there = {_name(key): value for key, value in facts.parameters.items()}
        new = _pairs({key: value for key, value in there.items() if key not in known})
        for at in range(0, len(new), _PARAMETERS):
            self._ask("POST", "runs/log-batch", {"run_id": self._run, "params": new[at : at + _PARAMETERS]})

    def _ask(
        self, method: str, path: str, content: Mapping[str, Any] | None = None, *, none_if: str = ""
    ) -> dict[str, Any]:
        """An answer; empty if it is the error `none_if`."""
        import httpx2

        if self._client is None:
            self._client = _connected(self._server)
        body = None if content is None else json.dumps(content).encode()
        text = b""
        try:
            with self._client.stream(method, f"{self._server.url}/{_API}/{path}", content=body) as response:
                for piece in response.iter_bytes():
                    text += piece
                    if len(text) > _LARGEST:
                        raise Away("its answer has no end")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise Away(f"it does not answer ({type(error).__name__})") from error
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if response.is_success and isinstance(answer, dict):
            return answer
        code, why = _error(answer)
        if none_if and code == none_if:
            return {}
        reason = f"HTTP {response.status_code}{f', {why}' if why else ''}"
        if response.status_code in (401, 403):
            reason += "; MLFLOW_TRACKING_USERNAME and _PASSWORD, or MLFLOW_TRACKING_TOKEN, say who you are"
        elif not code and not response.is_server_error:
            reason += f"; is {URI} that of an MLflow server?"
        if response.status_code == 400:
            raise Rejected(reason)
        raise Away(reason)


def sent_of(tags: Mapping[str, str]) -> dict[str, int]:
    """How many points a run has, as its tags say. Others may have written them."""
    found: dict[str, int] = {}
    for name, text in tags.items():
        if not name.startswith(_SENT):
            continue
        try:
            counts = json.loads(text)
        except ValueError:
            continue
        if isinstance(counts, dict):
            found |= {key: count for key, count in counts.items() if isinstance(count, int)}
    return found


def tags_of(sent: Sent, names: set[str]) -> dict[str, str]:
    """The same as tags, as far as these change."""
    found: dict[str, dict[str, int]] = {}
    for key, count in sent.items():
        if (name := _tag(key)) in names:
            found.setdefault(name, {})[key] = count
    return {name: json.dumps(counts, separators=(",", ":")) for name, counts in found.items()}


def name_of(metric: Metric) -> str:
    """What a metric is called there: by its name alone if rank 0 has printed it."""
    parts = [metric.part or ""]
    if metric.source is not None:
        parts.append("tensorboard" if metric.source == "." else metric.source)
    elif metric.rank:
        parts.append(f"rank {metric.rank}")
    return _name("/".join(filter(None, (*parts, metric.name))))


def _name(text: str) -> str:
    """A name as every MLflow takes it: no other signs, and none that it would take for a path elsewhere."""
    parts = [part for part in _ODD.sub("_", text).split("/") if part.strip(". ")]
    return "/".join(parts)[:_LONGEST_NAME].rstrip("/") or "_"


def _tag(key: str) -> str:
    """The tag with the count of a key."""
    if key.isdecimal():
        return f"{_SENT}.{int(key) // _RANKS}"
    return f"{_SENT}.x{crc32(key.encode()) % _OTHERS}"


def _with_host(results: str) -> str:
    """Where results are, for those who are not on this machine."""
    return f"{socket.gethostname()}:{results}" if results.startswith("/") else results


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in values.items()]


def _number(value: float) -> float | str:
    """JSON has no word for what is not a number; protobuf's JSON has a text."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _error(answer: object) -> tuple[str, str]:
    """The code and the first line of an error."""
    if not isinstance(answer, dict):
        return "", ""
    message = str(answer.get("message", "")).partition("\n")[0]
    return str(answer.get("error_code", "")), message[:200]


def _connected(server: Server) -> httpx2.Client:
    import httpx2

    headers = {"Content-Type": "application/json", "User-Agent": "echelon"}
    auth = None
    if server.token and not server.user:
        headers["Authorization"] = f"Bearer {server.token}"
    elif server.user:
        auth = httpx2.BasicAuth(server.user, server.password)
    timeout = httpx2.Timeout(_TOOK, connect=_CONNECTED)
    verify: ssl.SSLContext | bool = True
    if server.insecure or server.certificates:
        try:
            verify = ssl.create_default_context(cafile=server.certificates or None)
        except OSError as error:
            raise Away(f"MLFLOW_TRACKING_SERVER_CERT_PATH cannot be read: {error.strerror}") from error
        if server.insecure:
            verify.check_hostname, verify.verify_mode = False, ssl.CERT_NONE
    return httpx2.Client(headers=headers, auth=auth, timeout=timeout, verify=verify)
