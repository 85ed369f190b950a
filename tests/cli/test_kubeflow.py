from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubeflow.calling_torchrun import calling_torchrun
from tests.kubeflow.kinds.test_pytorchjob import DIFFERENT, MNIST
from tests.kubeflow.kinds.test_tfjob import DIST_MNIST
from tests.kubeflow.kinds.test_trainjob import JOB, RUNTIME, joined
from tests.kubeflow.test_documents import CLAIM

from echelon.cli import kubeflow, main
from echelon.cli.commands import runs
from echelon.engines.abilities import Put
from echelon.errors import Refused, Unavailable
from echelon.jobfile import read_job_file
from echelon.jobfile.writing import write_job_file
from echelon.kubeflow import read_manifest
from echelon.model.engine.traits import Traits
from echelon.model.meaning import to_job

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]

HELPERS = """
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: helpers}
    data:
      greeting.txt: hello
"""
TORCHRUN = joined(
    HELPERS,
    calling_torchrun(
        "/opt/mnist/src/train.py --greeting /etc/helpers/greeting.txt --nodes $(PET_NNODES)",
        "my/torch:2",
        procs=1,
        volumes={
            "/opt/mnist/src": "hostPath: {path: /mnt/src}",
            "/etc/helpers": "configMap: {name: helpers}",
        },
    ),
)
TRAIN = """
    import os, sys

    options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
    greeting = open(options["--greeting"]).read()
    print(greeting, os.environ["RANK"], os.environ["WORLD_SIZE"], options["--nodes"])
"""


def test_a_run_without_its_initializers_is_not_called_succeeded_as_if_they_had_run(
    cli: Call, write: Write
) -> None:
    more = "initializer: {dataset: {storageUri: 'hf://a/b'}, model: {storageUri: 's3://m'}}\n      trainer:"
    job = JOB.replace("trainer:\n", f"{more}\n", 1).replace("numNodes: 3", "numNodes: 1")
    job = job.replace("[torchrun, train.py]", "[python3, -c, pass]").replace('args: [--lr, "0.1"]', "")
    write("job.yaml", joined(RUNTIME, job.replace("resourcesPerNode: {requests: {cpu: 2}}", "")))
    done = cli("run", "-f", "job.yaml", "--on", "local")
    assert done.returncode == 0, done.stderr
    assert (
        "spec.initializer.dataset: hf://a/b is not downloaded; a volume at /workspace/dataset" in done.stderr
    )
    assert "succeeded without its initializers in" in done.stderr
    assert "not downloaded before it: dataset hf://a/b, model s3://m" in done.stderr
    status = json.loads(cli("status", "mnist", "-o", "json").stdout)
    assert status["not_downloaded"] == ["dataset hf://a/b", "model s3://m"]
    (complete,) = [each for each in status["conditions"] if each["type"] == "Complete"]
    assert complete["message"].endswith("completed, without dataset hf://a/b, model s3://m.")
    assert "without    dataset hf://a/b, model s3://m" in cli("status", "mnist").stdout
    waited = cli("wait", "mnist")
    assert waited.stdout == "mnist succeeded without its initializers\n"
    assert "not downloaded before it" in waited.stderr
    assert "without its initializers" in cli("ps", "-a").stdout


@pytest.mark.slow
def test_a_shell_that_calls_torchrun_with_its_variables(cli: Call, write: Write) -> None:
    write("job.yaml", TORCHRUN)
    write("src/train.py", TRAIN)
    done = cli("run", "-f", "job.yaml", "--on", "local", "--map", "/opt/mnist/src=./src", patience=240)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert sorted(line.partition("] ")[2] for line in done.stdout.splitlines() if "hello" in line) == [
        "hello 0 2 2",
        "hello 1 2 2",
    ]
    assert "image my/torch:2 is not used" in done.stderr
    assert "nothing is made in a cluster: ConfigMap helpers" in done.stderr


def test_master_and_workers_on_this_machine(cli: Call, write: Write) -> None:
    """A script that needs no torchrun finds its rank; what was not honoured is said before it starts."""
    write("job.yaml", MNIST.replace("nvidia.com/gpu: 1", "").replace("cpu: 500m", "cpu: 100m"))
    write(
        "src/mnist.py",
        """
        import os, sys
        print(os.environ["RANK"], os.environ["WORLD_SIZE"], os.environ["PET_NNODES"], sys.argv[-1])
        """,
    )
    Path("data").mkdir()
    done = cli(
        "run",
        "-f",
        "job.yaml",
        "--on",
        "local",
        "--map",
        "/opt/mnist/src=src",
        "--map",
        "/data=data",
        "-n",
        "3",
    )
    assert done.returncode == 0, done.stderr
    data = Path("data").resolve()
    assert sorted(done.stdout.splitlines())[:3] == [
        f"[{rank}] {rank} 3 3 --data={data}/train" for rank in range(3)
    ]


def test_arguments_instead_of_the_manifests(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("job.yaml", DIST_MNIST.replace("/app/", ""))
    write("dist_mnist.py", "print(1)")
    words = ("run", "-f", "job.yaml", "--on", "local", "--dry-run", "-o", "json", "--", "--epochs", "1")
    assert main.call(list(words)) == 0
    job = json.loads(capsys.readouterr().out)["job"]
    assert (job["command"], job["args"]) == (["python", "dist_mnist.py"], ["--epochs", "1"])


@pytest.mark.parametrize(
    "text", [MNIST, DIFFERENT, DIST_MNIST, joined(RUNTIME, JOB)], ids=["mnist", "chief", "ps", "trainjob"]
)
def test_the_converted_job_is_the_same_job(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    write("job.yaml", text)
    assert main.call(["convert", "job.yaml"]) == 0
    Path("converted").mkdir()
    Path("converted/job.yaml").write_text(capsys.readouterr().out)
    manifest = read_manifest(Path("job.yaml"))
    assert manifest is not None
    converted = read_job_file(Path("converted/job.yaml"))
    assert to_job(converted, name="x") == to_job(manifest.settings, name="x")
    assert (converted.on, converted.namespace) == ("k8s", manifest.settings.namespace)


@pytest.mark.parametrize(
    "word", ["yes", "1e3", "0x10", "null", "~", "on", "1:30", " x", "a\nb\n", "a \nb", "'", "{output}"]
)
def test_every_word_survives_the_job_file(write: Write, home: Path, word: str) -> None:
    from echelon.model.settings import Settings

    settings = Settings(command=("echo", word), env={"A": word}, framework="plain")
    Path("job.yaml").write_text(write_job_file(settings))
    assert to_job(read_job_file(Path("job.yaml")), name="x") == to_job(settings, name="x")


def test_what_is_not_honoured_stands_above_the_job_file(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("job.yaml", DIFFERENT)
    assert main.call(["convert", "job.yaml"]) == 0
    assert capsys.readouterr().out.startswith("# not honoured: restartPolicy: ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("run", "-f", "job.yaml", "--on", "local"), "'/data' (persistentVolumeClaim mnist-data) is not on"),
        (("run", "-f", "plain.yaml", "--map", "/a=."), "has nothing to map"),
        (("run", "-f", "job.yaml", "--map", "/a=."), "is for this machine"),
        (
            ("run", "-f", "job.yaml", "--as", "native", "-n", "3"),
            "has no effect on a job that is submitted as",
        ),
        (("run", "-f", "plain.yaml", "--as", "native"), "has nothing to submit"),
        (("convert", "plain.yaml"), "holds no Kubeflow job"),
        (("convert", "bad.yaml"), "bad.yaml:2: kind: 'Pod' is not a job"),
    ],
)
def test_what_cannot_be(home: Path, write: Write, capsys: Any, words: tuple[str, ...], says: str) -> None:
    write("job.yaml", MNIST)
    write("plain.yaml", "command: ['true']")
    write("bad.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")
    assert main.call(list(words)) == 110
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("kind: PyTorchJob", "kind: PyTorchJobs", "kind: 'PyTorchJobs'"),
        ("kubeflow.org/v1", "kubeflow.org/v2", "apiVersion: 'kubeflow.org/v2'"),
        ("- name: pytorch", "- tty: true", "template.spec.containers[0].name: None"),
        ("- name: pytorch", "- name: trainer", "template.spec.containers: 'trainer'"),
        ("replicas: 1", "replicas: 2", "spec.pytorchReplicaSpecs.Master.replicas: 2"),
        ("runPolicy:", "runPolicies:", "spec.runPolicies: 'runPolicies'"),
        ("image: docker.io/my/torch:2.9", 'image: "{{ .Values.image }}"', "containers[0].image:"),
        ("image: docker.io/my/torch:2.9", "image: {{ .Values.image }}", "job.yaml:23: 'image: {{ .V"),
    ],
)
@pytest.mark.parametrize("command", [("run", "-f"), ("run", "--dry-run", "-f"), ("convert",)])
def test_bad_yaml_is_one_line_and_nothing_is_made(
    home: Path, write: Write, capsys: Any, command: tuple[str, ...], old: str, new: str, place: str
) -> None:
    """Whichever the place, it is refused before a cluster is asked: here there is none."""
    assert old in MNIST
    write("job.yaml", MNIST.replace(old, new, 1))
    for where in ("k8s", "local"):
        assert main.call([*command, "job.yaml", "--on", where]) == 110
        said = capsys.readouterr()
        line, *hint = said.err.splitlines()
        assert line.startswith("echelon: job.yaml:")
        assert place in line
        assert [each.startswith("  hint: ") for each in hint] == [True]
        assert said.out == ""
    assert not home.exists()
    assert [each.name for each in Path.cwd().iterdir()] == ["job.yaml"]


SMALL = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {generateName: small-}
    spec:
      pytorchReplicaSpecs:
        Master:
          replicas: 1
          template:
            metadata: {annotations: {sidecar.istio.io/inject: "true"}}
            spec:
              containers: [{name: pytorch, image: a, command: [echo, hello]}]
"""


def test_a_job_from_standard_input_gets_the_name_that_it_asks_for(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "echelon.cli.main", "run", "-f", "-", "--on", "local"],
        input=dedent(SMALL),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert "run small-" in done.stderr
    assert "echelon's pods get no sidecar" in done.stderr


def test_what_a_job_of_kubeflows_has_no_use_for(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("job.yaml", SMALL)
    write("train.py", "print(1)")
    assert main.call(["run", "-f", "job.yaml", "--on", "local", "train.py"]) == 110
    assert "'train.py' is not for job.yaml" in capsys.readouterr().err
    assert main.call(["run", "-f", "https://example.org/job.yaml"]) == 110
    assert "download it first" in capsys.readouterr().err


def test_a_dry_run_says_that_the_name_is_taken(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "-f", str(write("job.yaml", SMALL)), "--on", "local", "--name", "taken"]
    assert main.call(words) == 0
    capsys.readouterr()
    assert main.call([*words, "--dry-run"]) == 0
    assert "there is a run 'taken' already" in capsys.readouterr().err


def test_convert_writes_json_and_tells_of_other_documents(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("job.yaml", TORCHRUN)
    assert main.call(["convert", "job.yaml", "-o", "json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["workers"] == 2
    assert "not in a job file: ConfigMap helpers" in told.err
    assert main.call(["convert", "job.yaml"]) == 0
    assert "# not in a job file: ConfigMap helpers" in capsys.readouterr().out
    write("small.yaml", SMALL)
    assert main.call(["convert", "small.yaml"]) == 0
    assert "name:" not in capsys.readouterr().out, "each run of the file gets one of its own"


class Foreign:
    """A job of somebody's, as a handle on a run."""

    name, uri, foreign = "pytorchjob/mnist", "k8s://team/pytorchjob/mnist", True

    def __init__(self) -> None:
        self.removed: list[str] = []

    def steps(self) -> dict[str, object]:
        return {}

    def remove(self, _tell: object, *, force: bool) -> list[str]:
        assert not force
        self.removed.append(self.uri)
        return []


def test_a_job_that_echelon_did_not_make_is_not_deleted_unasked(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Foreign()
    monkeypatch.setattr(runs, "find_runs", lambda *_: ([found], None))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main.call(["rm", found.uri]) != 0
    assert f"say --yes if it may be deleted: {found.uri}" in capsys.readouterr().err
    assert not found.removed
    assert main.call(["rm", "--yes", found.uri]) == 0
    assert found.removed == [found.uri]


def test_what_a_job_needs_in_a_file_of_its_own(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with kubectl, in any order; a second job file of echelon's is not silently dropped."""
    config, job = TORCHRUN.split("\n---\n")
    write("config.yaml", config)
    write("job.yaml", job)
    write("src/train.py", TRAIN)
    flags = ["--on", "local", "--dry-run", "-o", "json", "--map", "/opt/mnist/src=./src"]
    for order in (["config.yaml", "job.yaml"], ["job.yaml", "config.yaml"]):
        assert main.call(["run", "-f", order[0], "-f", order[1], *flags]) == 0
        assert "{code}/.volumes/helpers/greeting.txt" in capsys.readouterr().out
    write("own.yaml", "script: src/train.py")
    assert main.call(["run", "-f", "own.yaml", "-f", "own.yaml", "--dry-run"]) == 110
    assert "'own.yaml' holds no object of Kubernetes" in capsys.readouterr().err
    assert main.call(["convert", "config.yaml", "job.yaml"]) == 0
    assert "ConfigMap helpers" in capsys.readouterr().out


def test_what_a_map_does_not_reach_is_said_before_the_training(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("job.yaml", TORCHRUN)
    write("src/train.py", "open('/opt/mnist/src/model.pt', 'w').close()\n")
    maps = ["--map", "/opt/mnist/src=./src", "--map", "/opt/mnist/scr=./src"]
    assert main.call(["run", "-f", "job.yaml", "--on", "local", "--dry-run", *maps]) == 0
    said = capsys.readouterr().err
    assert "train.py has /opt/mnist/src in its own text (line 1), where --map does not reach" in said
    assert "--map /opt/mnist/scr: no path of the job is there, and nothing is mapped" in said


ALONE = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    metadata: {name: alone}
    spec:
      pytorchReplicaSpecs:
        Master:
          restartPolicy: Never
          template:
            spec:
              containers: [{name: pytorch, image: my/torch:2, command: [sh, -c, "exit 0"]}]
"""


def test_status_has_the_conditions_that_users_of_kubeflow_know(
    home: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("job.yaml", ALONE)
    assert main.call(["run", "-f", "job.yaml", "--on", "local"]) == 0
    capsys.readouterr()
    assert main.call(["status", "alone"]) == 0
    shown = capsys.readouterr().out
    assert "kind       PyTorchJob" in shown
    assert "conditions Created=True Running=False Succeeded=True" in shown
    assert main.call(["status", "alone", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["state"]) == ("PyTorchJob", "succeeded")
    last = found["conditions"][-1]
    assert (last["type"], last["status"], last["reason"]) == ("Succeeded", "True", "PyTorchJobSucceeded")
    assert main.call(["run", "--name", "plain", "--", "true"]) == 0
    capsys.readouterr()
    assert main.call(["status", "plain", "-o", "json"]) == 0
    assert "conditions" not in json.loads(capsys.readouterr().out)


def test_a_launcher_of_an_mpi_job_finds_the_hosts_on_this_machine(
    home: Path, write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    write(
        "job.yaml",
        """
        apiVersion: kubeflow.org/v1
        kind: MPIJob
        metadata: {name: hosts}
        spec:
          slotsPerWorker: 2
          mpiReplicaSpecs:
            Launcher:
              template: {spec: {containers: [{name: a, image: i, command: [sh, -c, "COMMAND"]}]}}
            Worker:
              replicas: 2
              template: {spec: {containers: [{name: a, image: i}]}}
        """.replace("COMMAND", "/etc/mpi/discover_hosts.sh; cat /etc/mpi/hostfile"),
    )
    assert main.call(["run", "-f", "job.yaml", "--on", "local"]) == 0
    shown = capfd.readouterr().out
    assert "localhost:4" in shown
    assert "localhost slots=4" in shown


class Cluster:
    """Takes what it is given, but for the kinds that it refuses; no controller takes a job up."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.made: list[str] = []
        self.left: list[str] = []

    def put(self, objects: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> list[Put]:
        kinds = [str(each["kind"]) for each in objects]
        if not dry_run:
            if set(kinds) & set(self.refused):
                raise Refused("the cluster refuses it")
            self.made += kinds
        return [Put(kind=each["kind"], name=each["metadata"]["name"], done="created") for each in objects]

    def take_back(self, objects: Sequence[Mapping[str, Any]], _done: Sequence[Put]) -> None:
        self.left = [kind for kind in self.made if kind not in {each["kind"] for each in objects}]

    def check_taken_up(self, *_given: object) -> None:
        raise Unavailable("no controller")


@pytest.mark.parametrize("order", [(RUNTIME, JOB, CLAIM), (CLAIM, JOB, RUNTIME)])
def test_the_runtime_comes_first_and_the_job_last(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    order: tuple[str, ...],
) -> None:
    cluster = Cluster()
    engine = SimpleNamespace(manifests=cluster, traits=Traits(place="a cluster", remote=True))
    monkeypatch.setattr(kubeflow, "engine_for", lambda _settings: engine)
    Path("job.yaml").write_text(joined(*order))
    assert main.call(["run", "-f", "job.yaml", "--as", "native", "--dry-run"]) == 0
    assert not cluster.made
    assert "ClusterTrainingRuntime torch-distributed: would be created" in capsys.readouterr().err
    main.call(["run", "-f", "job.yaml", "--as", "native"])
    assert "no controller" in capsys.readouterr().err
    assert cluster.made == ["ClusterTrainingRuntime", "PersistentVolumeClaim", "TrainJob"]


def test_a_job_that_is_refused_leaves_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster("TrainJob")
    engine = SimpleNamespace(manifests=cluster, traits=Traits(place="a cluster", remote=True))
    monkeypatch.setattr(kubeflow, "engine_for", lambda _settings: engine)
    Path("job.yaml").write_text(joined(RUNTIME, JOB))
    main.call(["run", "-f", "job.yaml", "--as", "native"])
    told = capsys.readouterr().err
    assert "the cluster refuses it" in told
    assert "what was created and replaced of the files is undone" in told
    assert (cluster.made, cluster.left) == (["ClusterTrainingRuntime"], [])
