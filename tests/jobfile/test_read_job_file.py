"""A job file means what it says, and every mistake in one is a single clear line."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echelon.errors import InvalidJob
from echelon.jobfile import LARGEST, read_job_file
from echelon.model.meaning import to_job
from echelon.model.settings import RoleSettings, Settings


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, name: str = "job.yaml") -> Settings:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return read_job_file(path)


def refusal(text: str, name: str = "job.yaml") -> InvalidJob:
    with pytest.raises(InvalidJob) as caught:
        read(text, name)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)
    return caught.value


def test_a_whole_job() -> None:
    said = read(
        """\
# a job
name: fm
script: train.py
args: [--epochs, 3, --lr, 1e-3]
workers: 4
gpus: 2
gpu-type: A100
cpus: 2:4
memory: 16Gi
resource: {nvidia.com/mig-1g.5gb: 1}
roles:
  ps: 2
  evaluator: {gpus: 1, memory: 8Gi}
env:
  OMP_NUM_THREADS: 4
  DEBUG: on
secret: [HF_TOKEN]
on: local
timeout: 1h30m
dry-run: true
"""
    )
    assert said == Settings(
        name="fm",
        script="train.py",
        args=("--epochs", "3", "--lr", "1e-3"),
        workers="4",
        gpus=2,
        gpu_type="A100",
        cpus="2:4",
        memory="16Gi",
        resource={"nvidia.com/mig-1g.5gb": 1},
        roles={"ps": 2, "evaluator": RoleSettings(gpus=1, memory="8Gi")},
        env={"OMP_NUM_THREADS": "4", "DEBUG": "on"},
        secret=("HF_TOKEN",),
        on="local",
        timeout="1h30m",
        dry_run=True,
    )
    assert to_job(said, name="x").timeout == 5400


def test_a_role_written_out_with_a_pod_template_that_is_kept_as_it_is() -> None:
    said = read(
        """\
script: train.py
roles:
  ps:
    workers: 2
    command: [serve, --port, 7000]
    env: {DEBUG: true, RATE: 1e-3}
    image: my/server:2
    template:
      metadata: {annotations: {scrape: "true"}}
      spec:
        hostNetwork: true
        priority: 10
        schedulerName: null
        tolerations: [{key: spot, operator: Exists}]
"""
    )
    assert said.roles == {
        "ps": RoleSettings(
            workers=2,
            command=("serve", "--port", "7000"),
            env={"DEBUG": "true", "RATE": "1e-3"},
            image="my/server:2",
            template={
                "metadata": {"annotations": {"scrape": "true"}},
                "spec": {
                    "hostNetwork": True,
                    "priority": 10,
                    "schedulerName": None,
                    "tolerations": [{"key": "spot", "operator": "Exists"}],
                },
            },
        )
    }


def test_words_stay_as_they_were_written() -> None:
    words = ["prog", "1e-3", "0x10", "1.50", "010", "true", "No", "2024-01-01", "12:30", "1_000", ".5"]
    assert read(f"command: [{', '.join(words)}]\n").command == tuple(words)
    assert read("command: ['null', \"~\"]\n").command == ("null", "~")
    said = read("script: a.py\ncpus: 0.50\nmemory: 1000000000\ntimeout: 90\nenv: {A: 1.0, B: FALSE}\n")
    assert (said.cpus, said.memory, said.timeout) == ("0.50", "1000000000", "90")
    assert said.env == {"A": "1.0", "B": "FALSE"}


def test_either_spelling_of_a_key_and_the_flags_name() -> None:
    said = read("script: a.py\ngpu_type: A100\nno-wait: true\nrole: {ps: 1}\n")
    assert (said.gpu_type, said.no_wait, said.roles) == ("A100", True, {"ps": 1})


def test_a_command_in_one_line() -> None:
    assert to_job(read("command: prog --name 'two words'\n"), name="x").command == (
        "prog",
        "--name",
        "two words",
    )


def test_json_with_tabs_and_escapes() -> None:
    text = json.dumps({"script": "a.py", "workers": 2, "args": ["😀", "a/b", "\t"]}, indent="\t")
    said = read(text.replace("/", "\\/"), "job.json")
    assert (said.workers, said.args) == ("2", ("😀", "a/b", "\t"))


def test_a_byte_order_mark_and_windows_line_ends() -> None:
    said = read("\ufeffscript: a.py\r\nworkers: 2\r\n")
    assert (said.script, said.workers) == ("a.py", "2")


def test_an_anchor_used_twice() -> None:
    assert read("script: a.py\nargs: [&x lr, *x]\n").args == ("lr", "lr")


def test_a_pipe_can_be_read() -> None:
    readable, writable = os.pipe()
    os.write(writable, b"module: pkg.train\n")
    os.close(writable)
    try:
        assert read_job_file(Path(f"/dev/fd/{readable}")).module == "pkg.train"
    finally:
        os.close(readable)


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("script: a.py\nwrokers: 2\n", 2, "wrokers", "did you mean 'workers'?"),
        ("script: a.py\nGPUs: 2\n", 2, "GPUs", "did you mean 'gpus'?"),
        ("script: a.py\ngpu-typ: x\n", 2, "gpu-typ", "did you mean 'gpu_type'?"),
        ("script: a.py\nzzz: x\n", 2, "zzz", "`echelon run --help` has them all"),
        ("script: a.py\nroles:\n  ps:\n    zzz: 1\n", 4, "zzz", "the settings are workers, procs"),
        (
            "script: a.py\nroles:\n  ps:\n    gpu: 1\n",
            4,
            "gpu",
            "roles.ps: 'gpu' is not a setting (did you mean 'gpus'?",
        ),
        ("script: a.py\nprocs: two\n", 2, "procs", "'two' is text, not a whole number"),
        ("script: a.py\nprocs: '8'\n", 2, "procs", "leave the quotes out: 8"),
        ("script: a.py\nprocs: 2.5\n", 2, "procs", "2.5 is a decimal number, not a whole number"),
        ("script: a.py\nprocs: .inf\n", 2, "procs", "inf is a decimal number"),
        ("script: a.py\nprocs: true\n", 2, "procs", "True is a boolean, not a whole number"),
        (f"script: a.py\nprocs: {'9' * 5000}\n", 2, "procs", "not a whole number"),
        (f"script: a.py\nname: 0x{'f' * 5000}\n", 2, "name", "not text"),
        ("script: a.py\nprocs: [2]\n", 2, "procs", "[2] is a list, not a whole number"),
        ("script: a.py\nprocs:\n", 2, "procs", "leave it out"),
        ("script: a.py\nargs: [a, ~]\n", 2, "args[1]", "quote it"),
        ("script: a.py\nargs: --epochs 3\n", 2, "args", "write a list: [--epochs, 3]"),
        ("script: a.py\nargs:\n- --out\n- {output}\n", 4, "args[1]", 'as in "{output}"'),
        ("script: a.py\nargs: [[a]]\n", 2, "args[0]", "not text or a number"),
        ("script: a.py\ncpus: true\n", 2, "cpus", "True is a boolean, not text or a number"),
        ("script: a.py\nframework: torhc\n", 2, "framework", "did you mean 'torch'?"),
        ("script: a.py\nframework: caffe\n", 2, "framework", "is not one of auto, torch"),
        (
            "script: a.py\nreuse_results: yes\n",
            2,
            "reuse_results",
            "'yes' is text, not a boolean (give true or false)",
        ),
        ("script: a.py\ngpu_type: 4090\n", 2, "gpu_type", 'quote it: "4090"'),
        ("script: a.py\npython: 3.10\n", 2, "python", 'quote it: "3.10"'),
        ("script: a.py\nenv: [A=1]\n", 2, "env", "write names and values: {NAME: VALUE}"),
        ("script: a.py\nenv:\n  A: {b: c}\n", 3, "env.A", "is a mapping, not text"),
        (
            "script: a.py\nroles: {ps: many}\n",
            2,
            "roles.ps",
            "'many' is text, not a whole number or a mapping",
        ),
        ("script: ''\n", 1, "script", "is empty"),
        ("script: a.py\ngpu-type: a\ngpu_type: b\n", 3, "gpu_type", "the same as 'gpu-type'"),
        ("script: a.py\nname: " + "x, " * 1000 + "\nargs: " + "x" * 1000, 3, "args", "…"),
    ],
)
def test_a_wrong_key_or_value(text: str, line: int, field: str, words: str) -> None:
    error = refusal(text)
    assert error.message.startswith(f"job.yaml:{line}: ")
    assert error.field == field
    assert words in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    "text", ["secret: PASS=hunter2\n", "secret: {PASS: hunter2}\n", "secret: [[hunter2]]\n"]
)
def test_a_secret_in_the_wrong_place_is_not_repeated(text: str) -> None:
    error = refusal("script: a.py\n" + text)
    assert error.field.startswith("secret")
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("script: a.py\nscript: b.py\n", ":2", "it stands in line 1 already"),
        ("script: a.py\nenv: {A: 1, A: 2}\n", ":2", "'A' is given twice"),
        ("script: a: b\n", ":1:10", "quote text that holds a colon"),
        ("script: a.py\nname: @x\n", ":2:7", "begins with a special character"),
        ("script: a.py\n\tworkers: 2\n", ":2:1", "indent with spaces"),
        ("script: a.py\n workers: 2\n", ":2:9", "indented more than the line above"),
        ("script: a.py\n\n# two\n  workers: 2\n", ":4:3", "indented more than the line above"),
        ("script: a.py\nargs: a: b\n", ":2:8", "quote text that holds a colon"),
        ("script: a.py\nargs:\n- {output}/ckpt\n", ":3:11", 'as in "{output}/model"'),
        ("script: a.py\nargs: [a, b\n", ":3:1", "'args: [a, b' is not YAML"),
        ("script: a.py\nargs: [*.txt]\n", ":2:9", "begins with *"),
        ("script: a.py\n---\nscript: b.py\n", ":2:1", "a file holds one job"),
        ("script: !!python/name:os.system\n", ":1", "leave the tag out"),
        ("script: !mine a\n", ":1", "'!mine' is a tag"),
        ("script: a\nworkers: !!int two\n", ":2", "'!!int' is a tag"),
        ("script: a\nargs: !!set {a, b}\n", ":2", "'!!set' is a tag"),
        ('script: "\\ud800"\n', ":1", "half a character"),
        ('script: "\\U00110000"\n', "", "an escape names no character"),
        ("script: a\nname: \x07\n", ":2:7", "U+0007"),
        ("[a, b]: c\n", ":1", "is not a key"),
        ("~: c\n", ":1", "is not a key"),
        ("script: &a [*a]\n", "", "nested too deeply"),
        ("[" * 2_000, "", "nested too deeply"),
        ("", "", "is empty"),
        ("# only a comment\n", "", "is empty"),
        ("---\n", "", "is empty"),
        ("- a\n", "", "holds a list"),
        ("train.py\n", "", "holds a single value"),
        ("workers: 2\n", "", "does not say what to run"),
        ("script: a.py\ncommand: b\n", "", "says script and command"),
        ("x" * (LARGEST + 1), "", "larger than 256 KiB"),
    ],
)
def test_a_file_that_is_no_job(text: str, where: str, words: str) -> None:
    error = refusal(text)
    assert f"job.yaml{where}" in error.message
    assert words in str(error)


def test_aliases_that_explode() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "stands for more than" in refusal("\n".join(rows)).message


class TestTheFileItself:
    def refused(self, path: Path) -> InvalidJob:
        with pytest.raises(InvalidJob) as caught:
            read_job_file(path)
        assert str(path) in caught.value.message
        assert caught.value.hint
        return caught.value

    def test_missing(self) -> None:
        assert "relative to the working directory" in self.refused(Path("no/such.yaml")).hint
        read("script: a.py\n", "jobs/train.yaml")
        assert self.refused(Path("jobs/train.yml")).hint == "did you mean 'jobs/train.yaml'?"

    def test_a_folder(self) -> None:
        assert "is a folder" in self.refused(Path()).message

    def test_a_link_in_a_circle(self, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").symlink_to("job.yaml")
        assert "cannot be read" in self.refused(Path("job.yaml")).message

    @pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
    def test_without_permission(self, tmp_path: Path) -> None:
        read("script: a.py\n")
        (tmp_path / "job.yaml").chmod(0)
        assert "cannot be read" in self.refused(Path("job.yaml")).message

    def test_a_name_that_cannot_be(self) -> None:
        with pytest.raises(InvalidJob, match="cannot be read"):
            read_job_file(Path("a\0b"))

    def test_not_utf8(self, tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_bytes(b"script: a.py\nname: caf\xe9\n")
        assert "job.yaml:2' is not UTF-8" in self.refused(Path("job.yaml")).message


@settings(deadline=None)
@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | st.from_regex(rb"[\[\]{}\-:,&*!|>'\"%@ #\nab~\\u]{0,40}")
)
def test_whatever_a_file_holds_there_is_one_clear_line_or_a_job(
    tmp_path_factory: pytest.TempPathFactory, raw: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_bytes(raw)
    refused: list[InvalidJob] = []
    try:
        said = read_job_file(path)
        assert said.script or said.module or said.command is not None
    except InvalidJob as error:
        refused.append(error)
    assert all(error.hint and "\n" not in str(error) for error in refused)


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=5))
def test_any_word_survives_json(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "words.json"
    path.write_text(json.dumps({"module": "m", "args": words}))
    assert list(read_job_file(path).args or ()) == words
