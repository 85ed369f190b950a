"""What lies in a file travels by its name, with its project."""

import os
import shutil
import textwrap
from pathlib import Path

import pytest

from echelon.function import FunctionScript, script_of

FILES = Path(__file__).parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a package under src/ and a folder of scripts."""
    root = tmp_path / "my project's"
    package = root / "src" / "pkg"
    package.mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "scripts").mkdir()
    (root / "scripts" / "beside.py").write_text("value = 'beside'\n")
    (package / "__init__.py").touch()
    (package / "jobs.py").write_text(
        textwrap.dedent("""
        import functools
        from pkg import deep
        from pkg.deep import decorate

        lock = __import__("threading").Lock()

        @decorate
        def train(n, *, config=None):
            import beside
            print("train", n, config, deep.__name__, beside.value, __name__)

        class Trainer:
            @staticmethod
            def fit(n):
                print("fit", n)
            @classmethod
            def of(cls, n):
                print(cls.__name__, n)

        def make(k):
            def inner():
                print("inner", k)
            return inner
        """)
    )
    (package / "deep.py").write_text(
        textwrap.dedent("""
        def decorate(function):
            def wrapper(*args, **kwargs):
                print("decorated")
                return function(*args, **kwargs)
            wrapper.__module__ = function.__module__
            return wrapper
        """)
    )
    return root


@pytest.fixture
def from_project(project, tmp_path, run_script, finish):
    """Run a program of the project that sends `call`; then run the script in an empty folder."""

    def from_project(call: str, program: str = "", **how):
        folder = tmp_path / "sent"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        file = project / "scripts" / "start.py"
        head = f"from pkg import jobs\nimport sending\n{textwrap.dedent(program)}\n"
        file.write_text(f"{head}sending.send({call})\n")
        path = os.pathsep.join([str(FILES), str(project / "src")])
        done = run_script(file, project, SEND_TO=str(folder), PYTHONPATH=path)
        assert done.returncode == 0, done.stderr
        file.unlink()
        return finish(folder, **how)

    return from_project


def test_a_function_in_a_file_travels_by_name(project, from_project):
    sent = from_project("jobs.train, (1,), {'config': {'a': 1}}")
    assert sent.out == "decorated\ntrain 1 {'a': 1} pkg.deep beside pkg.jobs\n"
    assert sent.made["project"] == str(project)
    assert sent.made["python"] is None
    assert "from pkg.jobs import train\n" in sent.text


def test_the_project_is_found_where_the_environment_says(project, tmp_path, from_project, run_script):
    script = from_project("jobs.Trainer.fit, (1,)", run=False).folder / "script.py"
    moved = tmp_path / "unpacked"
    project.rename(moved)
    lost = run_script(script)
    assert lost.returncode == 1
    assert (
        lost.stderr == f"fit: its project folder is not here: {project} (ECHELON_PROJECT says where it is)\n"
    )
    found = run_script(script, ECHELON_PROJECT=str(moved))
    assert (found.stdout, found.returncode) == ("fit 1\n", 0)


def test_names_inside_classes_and_closures_of_files(from_project):
    assert from_project("jobs.Trainer.of, (2,)").out == "Trainer 2\n"
    assert from_project("jobs.make(3)").out == "inner 3\n"
    refused = from_project("jobs.make(jobs.lock)")
    assert refused.message == "cannot send 'inner': it uses 'k', which is a lock"


def test_by_name_with_an_argument_typed_in_the_main_script(from_project):
    program = """
        from dataclasses import dataclass
        @dataclass
        class train:
            lr: float
    """
    sent = from_project("jobs.train, (1,), {'config': train(0.5)}", program)
    assert sent.out == "decorated\ntrain 1 train(lr=0.5) pkg.deep beside pkg.jobs\n"


def test_folders_outside_the_project_are_reported(tmp_path, from_project):
    library = tmp_path / "library"
    library.mkdir()
    (library / "outside.py").write_text("class Thing:\n    x = 1\n")
    program = f"import sys; sys.path.append({str(library)!r}); import outside"
    assert from_project("jobs.Trainer.fit, (outside.Thing.x,)", program).made["elsewhere"] == []
    sent = from_project("jobs.Trainer.fit, (outside.Thing,)", program)
    assert sent.made["elsewhere"] == [str(library)]
    assert sent.out == "fit <class 'outside.Thing'>\n"


def test_a_module_that_no_import_finds_travels_as_source(tmp_path, run_script, finish):
    (tmp_path / "sent").mkdir()
    (tmp_path / "odd-name.py").write_text(
        "K = 3\nclass Box:\n    k = K\ndef train(f):\n    print(Box().k, f(2))\n"
    )
    starter = tmp_path / "start.py"
    starter.write_text(
        textwrap.dedent("""
        import importlib.util, sys, sending
        spec = importlib.util.spec_from_file_location("odd", "odd-name.py")
        sys.modules["odd"] = odd = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(odd)
        exec("def no_source(x):\\n    return Box().k + x", vars(odd))
        sending.send(odd.train, (odd.no_source,))
        """)
    )
    done = run_script(starter, tmp_path, SEND_TO=str(tmp_path / "sent"), PYTHONPATH=str(FILES))
    assert done.returncode == 0, done.stderr
    (tmp_path / "odd-name.py").unlink()
    assert finish(tmp_path / "sent").out == "3 5\n"


def test_installed_functions_need_no_project():
    made = script_of(textwrap.dedent, ("x",))
    assert isinstance(made, FunctionScript)
    assert made.project is None
    assert "from textwrap import dedent\n" in made.text
