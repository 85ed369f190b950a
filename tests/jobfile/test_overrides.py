"""`--set KEY=VALUE`, and the keywords of the Python call: the same checks without a file."""

from __future__ import annotations

import contextlib
from collections import UserDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from echelon.errors import InvalidJob
from echelon.jobfile import read_overrides, settings_from
from echelon.model.settings import RoleSettings, Settings, merge


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([], Settings()),
        (["workers=8"], Settings(workers="8")),
        (["workers=8", "workers=4"], Settings(workers="4")),
        (["gpu-type=A100", "dry_run=true"], Settings(gpu_type="A100", dry_run=True)),
        (["env.LR=1e-3", "env.A=b=c", 'env.E=""'], Settings(env={"LR": "1e-3", "A": "b=c", "E": ""})),
        (["env.X=a: b *c #d"], Settings(env={"X": "a: b *c #d"})),
        (["env={A: 1, B: on}"], Settings(env={"A": "1", "B": "on"})),
        (["args=[--epochs,3,--lr, 1e-3]"], Settings(args=("--epochs", "3", "--lr", "1e-3"))),
        (["args=[]"], Settings(args=())),
        (["args=[x]", "module=m"], Settings(args=("x",), module="m")),
        (["name='7'"], Settings(name="7")),
        (["timeout=90m", "memory=1.50Gi"], Settings(timeout="90m", memory="1.50Gi")),
        (["resource.nvidia.com/mig-1g.5gb=1"], Settings(resource={"nvidia.com/mig-1g.5gb": 1})),
        (["roles.ps=2"], Settings(roles={"ps": 2})),
        (["roles.ps.command=serve --x"], Settings(roles={"ps": RoleSettings(command="serve --x")})),
        (
            ["roles.ps.template={spec: {priority: 10}}"],
            Settings(roles={"ps": RoleSettings(template={"spec": {"priority": 10}})}),
        ),
        (["role.ps=2", "roles.ps.gpus=1"], Settings(roles={"ps": RoleSettings(workers=2, gpus=1)})),
        (
            ["roles.ps={workers: 2, memory: 1Gi}"],
            Settings(roles={"ps": RoleSettings(workers=2, memory="1Gi")}),
        ),
    ],
)
def test_overrides(pairs: list[str], said: Settings) -> None:
    assert read_overrides(pairs) == said


def test_an_override_of_one_thing_about_a_role_keeps_the_rest() -> None:
    file = settings_from({"roles": {"ps": {"workers": 3, "memory": "8Gi"}, "chief": 1}}, source="x")
    assert merge(read_overrides(["roles.ps.gpus=1"]), file).roles == {
        "ps": RoleSettings(workers=3, memory="8Gi", gpus=1),
        "chief": 1,
    }


def test_paths_are_relative_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = read_overrides(["script=a/train.py", "results=out"])
    assert (said.script, said.results) == ("a/train.py", str(tmp_path / "out"))


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("workers", "'workers' is not KEY=VALUE (for example --set workers=8)"),
        ("=8", "is not KEY=VALUE"),
        ("wrokers=8", "'wrokers' is not a setting (did you mean 'workers'?)"),
        ("procs=many", "procs: 'many' is text, not a whole number"),
        ("procs=", "procs: None is not a value"),
        ("procs.x=1", "procs: {'x': 1} is a mapping, not a whole number"),
        ("timeout=null", "timeout: None is not a value (leave it out"),
        ("env.X=", 'quote it to mean text, as in ""'),
        ("env.X=[a]", "env.X: ['a'] is a list, not text"),
        ("env=A", "env: 'A' is text, not a mapping"),
        ("args=--epochs 3", "write a list: [--epochs, 3]"),
        ("args=[--epochs", "'[--epochs' is not YAML"),
        ("args='a", "is not YAML"),
        ("roles.ps.wokers=1", "roles.ps: 'wokers' is not a setting (did you mean 'workers'?)"),
        ("framework=tensorflw", "did you mean 'tensorflow'?"),
        ("on.x=1", "is not one of local, k8s"),
        ("a\0=1", "is not a setting"),
        ("script=a\0/b", "cannot be a path"),
    ],
)
def test_a_wrong_override(pair: str, words: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        read_overrides([pair])
    assert caught.value.message.startswith("--set")
    assert words in str(caught.value)
    assert caught.value.hint


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).map(str.strip))
def test_text_without_brackets_or_quotes_is_taken_as_it_stands(text: str) -> None:
    assume(text and text[0] not in "[{\"'" and text not in ("~", "null", "Null", "NULL"))
    assert read_overrides([f"env.X={text}"]).env == {"X": text}


@settings(deadline=None)
@given(st.text())
def test_any_override_is_understood_or_refused(text: str) -> None:
    for pair in (text, f"args={text}", f"roles.{text}=1", f"script={text}"):
        with contextlib.suppress(InvalidJob):
            read_overrides([pair])


class TestKeywords:
    def of(self, **keywords: object) -> Settings:
        return settings_from(keywords, source="echelon.run()")

    def test_values_of_python(self) -> None:
        said = self.of(
            script=Path("train.py"),
            args=["--lr", 1e-3, Path("data"), 2],
            workers=np.int64(2),
            gpus=1.0,
            env=UserDict(A="b"),
            roles={"ps": RoleSettings(gpus=1), "evaluator": {"workers": 1}},
            secret=("TOKEN",),
            timeout=1.5,
            name=None,
        )
        assert said == Settings(
            script="train.py",
            args=("--lr", 1e-3, "data", 2),
            workers=2,
            gpus=1,
            env={"A": "b"},
            roles={"ps": RoleSettings(gpus=1), "evaluator": RoleSettings(workers=1)},
            secret=("TOKEN",),
            timeout=1.5,
        )
        assert type(said.workers) is int
        assert type(said.gpus) is int

    @pytest.mark.parametrize(
        ("keywords", "words"),
        [
            ({"wrokers": 2}, "'wrokers' is not a setting (did you mean 'workers'?)"),
            ({"wrokers": None}, "did you mean 'workers'?"),
            ({"procs": "2"}, "procs: '2' is text, not a whole number"),
            ({"procs": True}, "True is a boolean"),
            ({"procs": np.zeros(2)}, "of type ndarray, not a whole number"),
            ({"args": "--lr 1"}, "write a list: [--lr, 1]"),
            ({"args": ["--flag", True]}, "args[1]: True is a boolean, not text or a number (give text)"),
            ({"args": [None]}, "args[0]: None is not a value"),
            ({"args": {"a"}}, "is of type set, not a list"),
            ({"args": [b"a"]}, "args[0]: b'a' is bytes"),
            ({"env": {1: "a"}}, "env: 1 is not a name (write '1')"),
            ({"script": 3}, "script: 3 is a whole number, not text"),
            ({"script": ""}, "script: '' is empty"),
            ({"reuse_results": 1}, "reuse_results: 1 is a whole number, not a boolean"),
            ({"on": "kubernetes"}, "is not one of local, k8s"),
        ],
    )
    def test_a_wrong_one(self, keywords: dict[str, object], words: str) -> None:
        with pytest.raises(InvalidJob) as caught:
            self.of(**keywords)
        assert caught.value.message.startswith("echelon.run(): ")
        assert words in str(caught.value)
        assert caught.value.hint
