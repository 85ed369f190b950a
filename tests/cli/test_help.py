"""What the command line says of itself: help, examples, completion, wrong usage; and what it costs to ask."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from tests.parents import end, parent

from echelon.cli.commands.run import run as run_command
from echelon.cli.main import COMMANDS
from echelon.cli.main import cli as group
from echelon.cli.options import GROUPS
from echelon.errors import InvalidJob
from echelon.jobfile import settings_from
from echelon.jobfile.json_schema import schema
from echelon.model.former import HIDDEN
from echelon.model.program import Step
from echelon.model.settings import Settings

Call = Callable[..., subprocess.CompletedProcess[str]]

# What the flags of `run` were settled to be, for all later work.
SETTLED = {
    "--workers", "-n", "--procs", "--gpus", "--gpu-type", "--cpus", "--memory", "--resource", "--role",
    "--framework", "--name", "--env", "--secret", "--python", "--restarts", "--timeout", "--results",
    "--reuse-results", "--detach", "-d", "--no-wait", "--dry-run", "--format", "-o", "--on", "--context",
    "--namespace", "--snapshot", "-m", "-f", "--set",
}  # fmt: skip
EVERYWHERE = {"-o", "--format", "--on", "--context", "--namespace"}


def command(name: str) -> click.Command:
    found = group.get_command(click.Context(group), name)
    assert found is not None
    return found


def parts_of(name: str) -> list[click.Command]:
    """The command, or all that a group of them has."""
    found = command(name)
    return list(found.commands.values()) if isinstance(found, click.Group) else [found]


def flags_of(name: str) -> set[str]:
    return set.union(
        *(
            {flag for param in part.params for flag in param.opts if isinstance(param, click.Option)}
            for part in parts_of(name)
        )
    )


def test_help_lists_every_command_and_examples(cli: Call) -> None:
    shown = cli("--help")
    assert shown.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} +\S", shown.stdout, re.MULTILINE)
    assert "echelon run -n 2 train.py" in shown.stdout
    assert shown.stdout == cli("-h").stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(name: str) -> None:
    text = command(name).get_help(click.Context(command(name), info_name=name))
    examples = text.partition("Examples:")[2]
    assert re.search(rf"^ +echelon {name}\b", examples, re.MULTILINE)
    assert command(name).short_help == COMMANDS[name][1]  # said twice, so that help need not import commands


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_use_flags_that_exist(name: str) -> None:
    text = command(name).get_help(click.Context(command(name), info_name=name)).partition("Examples:")[2]
    text += getattr(command(name), "more_examples", "")
    for line in text.splitlines():
        words = line.split()
        if words[:2] == ["echelon", name]:
            own = words[
                : next((at for at, word in enumerate(words) if word in ("--", "-m") or ".py" in word), None)
            ]
            used = {word.partition("=")[0] for word in own if word.startswith("-")}
            assert used <= flags_of(name)


def shown_flags(text: str) -> set[str]:
    return set(re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE))


@pytest.mark.parametrize("words", [("run",), ("notebook", "run")])
def test_help_of_a_long_command_shows_the_first_options_and_help_all_every_one(
    cli: Call, words: tuple[str, ...]
) -> None:
    short, every = cli(*words, "--help"), cli(*words, "--help-all")
    assert (short.returncode, every.returncode) == (0, 0)
    parts = {part.name: part for part in parts_of(words[0])}
    options = [each for each in parts["run"].params if isinstance(each, click.Option) and not each.hidden]
    declared = {max(each.opts, key=len) for each in options} | {"--help", "--help-all"}
    assert shown_flags(every.stdout) == declared
    assert 15 <= len(shown_flags(short.stdout)) <= 27
    assert shown_flags(short.stdout) < declared
    assert {"--help", "--help-all", "--on", "--image", "--restarts"} <= shown_flags(short.stdout)
    for heading in ("What to run:", "Where and when:", "Results and output:", "Failures:", "On Kubernetes:"):
        assert f"\n{heading}\n" in short.stdout
    assert "Examples:" in short.stdout
    assert short.stdout == cli(*words, "-h").stdout


def test_more_examples_of_run_are_in_help_all(cli: Call) -> None:
    assert "More examples:" not in cli("run", "--help").stdout
    assert "echelon run --as pytorchjob" in cli("run", "--help-all").stdout.partition("More examples:")[2]


def test_a_word_after_help_shows_the_options_that_match(cli: Call) -> None:
    keep = cli("run", "--help", "KEEP")
    assert keep.returncode == 0
    assert {"--keep", "--checkpoints"} <= shown_flags(
        keep.stdout
    )  # the one by its name, the other by its text
    assert "--workers" not in keep.stdout
    assert "Examples:" not in keep.stdout
    assert shown_flags(cli("run", "-n", "2", "--help=memory").stdout) >= {"--memory", "--shm"}
    assert "--volume-mode" in cli("notebook", "run", "--help", "volume").stdout
    none = cli("run", "--help", "train.py")  # a script is no word of the help
    assert none.returncode == 0
    assert "No option matches 'train.py'." in none.stdout
    assert "--workers" in none.stdout


def test_groups_of_run_name_options_that_exist() -> None:
    names = [name for group in GROUPS for name in (*group.first, *group.more)]
    assert len(names) == len(set(names))
    assert set(names) <= {param.name for param in run_command.params}


def test_version(cli: Call) -> None:
    import echelon

    assert cli("--version").stdout == f"echelon, version {echelon.__version__}\n"


def test_flags_of_run_are_the_settled_ones() -> None:
    assert flags_of("run") >= SETTLED


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "completion"])
def test_every_command_can_be_told_where_and_how_to_print(name: str) -> None:
    assert flags_of(name) >= EVERYWHERE


def test_flags_job_file_keys_and_keywords_are_the_same_set() -> None:
    not_settings = {
        "words",
        "overrides",
        "files",
        "raw",
        "show_rank",
        "maps",
        "as_",
    }  # what to run, two flags that read settings elsewhere, how to print, what another's file means here
    not_flags = {"script", "command", "args"}  # these are the words after the flags
    not_flags |= {"sweep"}  # its keys are options of `echelon sweep`
    not_flags |= {"template"}  # as long as a pod: for files and the Python call
    names = {each.name for each in fields(Settings)}
    names -= set(HIDDEN)
    flags = {param.name for param in run_command.params if not getattr(param, "hidden", False)} - not_settings
    assert flags | not_flags == names

    for param in run_command.params:
        if param.name in not_settings or getattr(param, "hidden", False):
            continue
        for flag in (flag for flag in param.opts if flag.startswith("--")):
            key = flag.removeprefix("--")
            assert {key, key.replace("-", "_")} <= set(schema()["properties"])  # a flag's name is a key
            settings_from({key.replace("-", "_"): None}, source="a test")  # and a keyword
    with pytest.raises(InvalidJob, match="is not a setting"):
        settings_from({"file": None}, source="a test")


@pytest.mark.parametrize("words", [[], ["run"]])
def test_help_imports_only_what_it_needs(words: list[str]) -> None:
    code = (
        f"import sys; from echelon.cli.main import call; code = call({[*words, '--help']});"
        "dear = {'msgspec', 'yaml', 'rich', 'torch', 'tensorflow', 'cloudpickle', 'pathspec', 'asyncio'};"
        "print(sorted(dear & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"
    assert "Usage:" in done.stdout


def test_importing_echelon_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import echelon; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['echelon']\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_shells_script(call: Call, shell: str) -> None:
    done = call("completion", shell)
    assert done.returncode == 0
    assert "_ECHELON_COMPLETE" in done.stdout
    assert f"{shell}_complete" in done.stdout


def test_the_shell_is_answered_quickly_and_quietly(call: Call, hello: str) -> None:
    assert call("run", "-d", "--name", "fm", hello).returncode == 0
    question = {"_ECHELON_COMPLETE": "bash_complete", "COMP_WORDS": "echelon status ", "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "echelon.cli.main"],
        env={**os.environ, **question}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("plain,fm\n", "")


def test_commands_flags_runs_and_files_complete(
    call: Call, hello: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def complete(*words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", " ".join(("echelon", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        lines = BashComplete(group, {}, "echelon", "_ECHELON_COMPLETE").complete().splitlines()
        assert capfd.readouterr().err == ""
        return [line for line in lines if line]

    for name in ("fm", "fast"):
        assert call("run", "-d", "--name", name, hello).returncode == 0
    assert complete("st") == ["plain,status", "plain,stop"]
    assert complete("run", "--frame") == ["plain,--framework"]
    assert complete("run", "--help-") == ["plain,--help-all"]
    assert complete("run", "--help", "che") == ["plain,checkpoints"]
    assert "plain,tensorflow" in complete("run", "--framework", "")
    for command_name in ("status", "logs", "wait", "stop", "rm", "get"):
        assert complete(command_name, "") == ["plain,fast", "plain,fm"]
    run = parent(Step(name="load"), Step(name="log_in"), name="fan-1")
    for command_name in (
        "status",
        "logs",
        "wait",
        "stop",
        "rm",
        "get",
        "events",
        "metrics",
        "compare",
        "resume",
        "exec",
    ):
        assert complete(command_name, "f") == ["plain,fan-1", "plain,fast", "plain,fm"]
        assert complete(command_name, "fan-1") == ["plain,fan-1/load", "plain,fan-1/log_in", "plain,fan-1"]
        assert complete(command_name, "fan-1/loa") == ["plain,fan-1/load"]
    end(run)
    run.remove()
    assert complete("rm", "fast", "fm") == ["plain,fm"]
    assert complete("run", "he") == ["file,he"]
    assert complete("run", "--results", "ru") == ["dir,ru"]
    assert complete("run", "-f", "jo") == ["file,jo"]
    monkeypatch.setenv("ECHELON_HOME", hello)  # not a folder: nothing to offer, nothing to complain about
    assert complete("status", "") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["statsu"], "Did you mean 'status'?"),
        (["train.py"], "echelon run train.py"),
        (["list"], "That is: echelon ps"),
        (["start", "train.py"], "That is: echelon run"),
        (["apply", "-f", "job.yaml"], "That is: echelon run -f FILE"),
        (["down", "fm"], "That is: echelon stop"),
        (["run", "--gpus", "A100:1", "train.py"], "its own flag: --gpus 1 --gpu-type A100"),
        (["run", "--gpus=H100-80GB:8", "train.py"], "its own flag: --gpus 8 --gpu-type H100-80GB"),
        (["run", "--gpus", "many", "train.py"], "'many' is not a valid integer"),
        (["run", "--nnodes", "2", "train.py"], "No such option '--nnodes'. Did you mean '-n'?"),
        (["run", "--nproc_per_node=2", "train.py"], "Did you mean '--procs'?"),
        (["run", "-np", "2", "train.py"], "No such option '-np'. Did you mean '-n'?"),
        (["run", "--epochs", "3", "train.py"], "it goes after the script"),
        (["rm", "fm", "--finished"], "not both"),
        (["run"], "Nothing to run"),
        (["run", "--procs", "two", "train.py"], "'two' is not a valid integer"),
        (["run", "--worker", "2", "train.py"], "--workers"),
        (["run", "--framework", "caffe", "train.py"], "'caffe' is not one of"),
        (["run", "--on", "mars", "train.py"], "'mars' is not one of"),
        (["run", "-m"], "requires an argument"),
        (["get"], "Missing argument 'RUN'"),
        (["logs", "fm", "--rank", "-1"], "--rank"),
        (["rm"], "Name runs, or say --finished"),
        (["ps", "-o", "xml"], "'xml' is not one of"),
    ],
)
def test_wrong_usage_is_exit_code_2(call: Call, home: Path, words: list[str], said: str) -> None:
    done = call(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not home.exists()


def test_the_package_is_the_command_too() -> None:
    command = [sys.executable, "-m", "echelon", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.startswith("echelon")
