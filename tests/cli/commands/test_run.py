"""`echelon run`: what the ranks are started with, what is shown of them, and the exit code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import PATIENCE

from echelon.agent.ranks.launching.roll import PLACEHOLDER
from echelon.agent.task import START_RANK

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]
SHOW = """
    import json, os, sys
    env = {key: value for key, value in os.environ.items() if key.startswith(("ECHELON_", "OMP_", "MY_"))}
    rank = {"argv": sys.argv, "name": __name__, "env": env, "cwd": os.getcwd(), "exe": sys.executable}
    print(json.dumps(rank))
"""


def shown(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    """What each rank printed of itself, by rank."""
    assert done.returncode == 0, done.stderr
    lines = [
        line.partition("] ")[2] if line.startswith("[") else line for line in sorted(done.stdout.splitlines())
    ]
    return [json.loads(line) for line in lines]


def test_a_script_with_arguments_on_two_workers(cli: Call, write: Write) -> None:
    write("train.py", SHOW)
    done = cli(
        "run", "-n", "2", "--name", "fm", "train.py", "--epochs", "3", "-n", "{output}/x", "{run}", "{lr}"
    )
    first, second = shown(done)
    results = f"{Path.cwd()}/runs/fm"
    assert first["argv"] == ["train.py", "--epochs", "3", "-n", f"{results}/x", "fm", "{lr}"]
    assert first["argv"] == second["argv"]
    for number, rank in enumerate((first, second)):
        env = rank["env"]
        assert isinstance(env, dict)
        assert (env["ECHELON_WORKER"], env["ECHELON_WORKERS"]) == (str(number), "2")
        assert (env["ECHELON_RUN"], env["ECHELON_RESTART"], env["ECHELON_OUTPUT"]) == ("fm", "0", results)
        assert int(env["OMP_NUM_THREADS"]) >= 1
        assert rank["cwd"] == str(Path.cwd())
    assert "echelon: run fm: 2 workers, plain" in done.stderr
    assert "echelon: succeeded in" in done.stderr
    assert done.stderr.rstrip().endswith("results in runs/fm")


@pytest.mark.parametrize(
    "flags", [["-m", "pkg.train"], ["-mpkg.train"], ["--module=pkg.train"], ["--module", "pkg.train"]]
)
def test_everything_after_the_module_is_its_own(cli: Call, write: Write, flags: list[str]) -> None:
    write("pkg/__init__.py", "")
    write("pkg/train.py", SHOW)
    done = cli("run", "-n", "1", "--procs", "2", *flags, "--lr", "1e-3", "--name", "x", "--", "-d")
    for rank in shown(done):
        assert rank["argv"] == [f"{Path.cwd()}/pkg/train.py", "--lr", "1e-3", "--name", "x", "--", "-d"]
        assert rank["name"] == "__main__"


def test_any_program(cli: Call, write: Write) -> None:
    program = write("program", "#!/bin/sh\necho $ECHELON_WORKER of $ECHELON_WORKERS: $@\n")
    program.chmod(0o755)
    done = cli("run", "-n", "3", "--", "./program", "--with", "args", "--", "-x")
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [f"[{n}] {n} of 3: --with args -- -x" for n in range(3)]


def test_a_single_rank_is_shown_as_it_wrote(cli: Call, write: Write) -> None:
    write(
        "both.py",
        "import sys; print('to stdout'); print('to stderr', file=sys.stderr); sys.stdout.write('no newline')",
    )
    done = cli("run", "both.py")
    assert done.stdout == "to stdout\nno newline"
    assert "\nto stderr\n" in done.stderr


def test_streams_stay_apart_with_several_ranks(cli: Call, write: Write) -> None:
    write("both.py", "import sys; print('out'); print('err', file=sys.stderr); sys.stdout.write('last')")
    done = cli("run", "-n", "2", "both.py")
    assert sorted(done.stdout.splitlines()) == ["[0] last", "[0] out", "[1] last", "[1] out"]
    assert sorted(line for line in done.stderr.splitlines() if line[0] == "[") == ["[0] err", "[1] err"]


def test_bytes_that_are_no_text_and_letters_that_the_terminal_lacks(
    cli: Call, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("odd.py", r"import os; os.write(1, b'\xff\xfe \xe6\x97\xa5\n')")
    assert cli("run", "odd.py").stdout == "\\xff\\xfe \u65e5\n"
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = cli("run", "--env", "PYTHONIOENCODING=utf-8", "odd.py")
    assert done.stdout == "\\xff\\xfe \\u65e5\n"
    assert done.returncode == 0


def test_variables(cli: Call, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_OWN", "inherited")
    monkeypatch.setenv("MY_OTHER", "inherited")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    write("show.py", SHOW)
    flags = ["--env", "MY_OWN=a=b c", "--env", "MY_EMPTY=", "--env", "MY_BRACES={run} {rank}"]
    env = shown(cli("run", "--name", "fm", *flags, "show.py"))[0]["env"]
    assert isinstance(env, dict)
    own = {key: value for key, value in env.items() if key.startswith("MY_")}
    assert own == {"MY_OWN": "a=b c", "MY_OTHER": "inherited", "MY_EMPTY": "", "MY_BRACES": "fm {rank}"}
    assert env["OMP_NUM_THREADS"] == "7"


def test_which_python(cli: Call, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write("show.py", SHOW)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "one", "two"], check=True)
    assert (
        shown(cli("run", "--python", "./one/bin/python", "show.py"))[0]["exe"]
        == f"{Path.cwd()}/one/bin/python"
    )
    monkeypatch.setenv("VIRTUAL_ENV", str(Path("two").absolute()))
    assert shown(cli("run", "show.py"))[0]["exe"] == f"{Path.cwd()}/two/bin/python"
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setenv("PATH", f"{Path('one/bin').absolute()}:{os.environ['PATH']}")
    assert str(shown(cli("run", "show.py"))[0]["exe"]).startswith(f"{Path.cwd()}/one/bin/python")


def test_detached(cli: Call, stay: str) -> None:
    done = cli("run", "-d", "--name", "fm", stay)
    assert (done.stdout, done.stderr, done.returncode) == ("fm\n", "", 0)
    assert cli("ps").stdout.split("\n")[1].split()[:1] == ["fm"]
    Path("go").touch()
    assert cli("wait", "fm").returncode == 0
    assert json.loads(cli("run", "-d", "-o", "json", "--name", "two", stay).stdout) == {
        "name": "two",
        "uri": "local://two",
    }


def test_a_fresh_name_comes_from_the_script(cli: Call, write: Write) -> None:
    write("My Train_v2.py", "print('hi')")
    names = [cli("run", "-d", "My Train_v2.py").stdout.strip() for _ in range(2)]
    assert all(name.startswith("my-train-v2-") for name in names)
    assert names[0] != names[1]


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("exit 7", 7, "rank 0 exited with code 7"),
        ("kill -9 $$", 137, "rank 0 was killed by SIGKILL"),
        ("kill -SEGV $$", 139, "rank 0 was killed by SIGSEGV"),
    ],
)
def test_the_exit_code_is_the_ranks(cli: Call, program: str, code: int, said: str) -> None:
    done = cli("run", "--", "sh", "-c", program)
    assert done.returncode == code
    assert said in done.stderr
    assert "echelon: failed after" in done.stderr


def test_the_exit_code_is_that_of_the_first_to_fail(cli: Call, write: Write) -> None:
    write(
        "fail.py",
        """
        import os, pathlib, sys, time
        rank = int(os.environ["ECHELON_WORKER"])
        if rank == 1:
            while not pathlib.Path("waiting").exists():
                time.sleep(0.01)
            print("about to fail", flush=True)
            sys.exit(5)
        pathlib.Path("waiting").touch()
        try:
            time.sleep(600)
        finally:
            sys.exit(9)
        """,
    )
    done = cli("run", "-n", "2", "--name", "fm", "fail.py")
    assert done.returncode == 5
    assert "first to fail: rank 1 (worker 1)" in done.stderr
    assert "`echelon resume fm` starts it again" in done.stderr
    assert "    about to fail" in done.stderr
    assert cli("wait", "fm").returncode == 5
    cause = json.loads(cli("status", "fm", "-o", "json").stdout)["root_cause"]
    assert (cause["rank"], cause["exit_code"], cause["signal"]) == (1, 5, None)
    assert cause["tail"] == ["about to fail"]


def test_a_program_that_is_not_there(cli: Call) -> None:
    done = cli("run", "--", "no-such-program")
    assert done.returncode == 127
    assert "cannot start no-such-program: No such file or directory" in done.stderr
    assert "  hint: no-such-program is not on the PATH" in done.stderr


def test_a_time_limit(cli: Call, stay: str) -> None:
    done = cli("run", "--timeout", "0.5s", "--name", "fm", stay)
    assert done.returncode == 118
    assert "timed-out after" in done.stderr
    assert "the time limit of 0.5 s has passed" in done.stderr
    assert json.loads(cli("status", "fm", "-o", "json").stdout)["state"] == "timed-out"


def test_results_elsewhere_and_resumed(cli: Call, write: Write) -> None:
    write(
        "save.py",
        """
        import os, pathlib
        file = pathlib.Path(os.environ["ECHELON_OUTPUT"]) / "count"
        file.write_text(str(int(file.read_text()) + 1 if file.exists() else 1))
        """,
    )
    assert cli("run", "--results", "out/a", "save.py").returncode == 0
    refused = cli("run", "--results", "out/a", "save.py")
    assert refused.returncode == 115
    assert "--reuse-results" in refused.stderr
    assert cli("run", "--results", "out/a", "--reuse-results", "save.py").returncode == 0
    assert Path("out/a/count").read_text() == "2"
    assert not Path("runs").exists()


def test_a_snapshot_runs_what_was_there_when_it_was_asked_for(cli: Call, write: Write) -> None:
    write("pyproject.toml", "[project]\nname = 'x'\n")
    write("lib/part.py", "WORD = 'before'")
    write(
        "train.py",
        """
        import os, pathlib, sys, time
        sys.path.insert(0, "lib")
        print("ready", flush=True)
        out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
        while not (out / "go").exists():
            time.sleep(0.02)
        import part
        print(part.WORD, os.path.realpath(os.getcwd()) != str(out.parent.parent))
        """,
    )
    assert cli("run", "-d", "--snapshot", "--name", "fm", "train.py").returncode == 0
    write("lib/part.py", "WORD = 'after'")
    write("runs/fm/go", "")
    assert cli("wait", "fm").returncode == 0
    assert cli("logs", "fm").stdout == "ready\nbefore True\n"


@pytest.mark.parametrize("format_", ["json", "yaml"])
def test_data_on_stdout_words_on_stderr(cli: Call, hello: str, format_: str) -> None:
    import yaml

    done = cli("run", "-o", format_, "-n", "2", hello)
    status = yaml.safe_load(done.stdout)
    assert (status["state"], status["exit_code"], len(status["workers"])) == ("succeeded", 0, 2)
    assert "[0] hello from 0" in done.stderr


def test_a_dry_run_does_nothing(cli: Call, hello: str, home: Path) -> None:
    done = cli(
        "run", "--dry-run", "-n", "2", "--procs", "2", "--env", "A=1", "--name", "fm", hello, "--lr", "1"
    )
    assert done.returncode == 0
    assert f"{Path(sys.executable).parent}" in done.stdout
    assert "hello.py --lr 1\n    A=1\n" in done.stdout
    assert "2 x worker, 2 processes each" in done.stdout
    assert "worker 1 (worker 1): ranks 2-3 on" in done.stdout
    assert "results in runs/fm" in done.stdout
    assert not (home / "runs").exists()
    assert not Path("runs").exists()
    would = json.loads(cli("run", "--dry-run", "-o", "json", "--name", "fm", hello).stdout)
    assert would["job"]["name"] == "fm"
    assert would["plan"]["launches"]


@pytest.mark.parametrize("framework", ["torch", "torchrun", "tensorflow", "horovod", "mpi", "plain"])
def test_a_dry_run_has_values_or_words(cli: Call, hello: str, framework: str) -> None:
    words = ("--procs", "2", "--framework", framework, "--name", "fm", hello, "--to", "{output}/{run}", "{x}")
    done = cli("run", "--dry-run", "-n", "2", *words)
    assert done.returncode == 0, done.stderr
    assert f"--to {Path.cwd()}/runs/fm/fm '{{x}}'" in done.stdout
    assert not PLACEHOLDER.search(done.stdout.replace(START_RANK, "{rank}")), done.stdout


def test_a_dry_run_has_the_values_that_ranks_find(cli: Call, write: Write) -> None:
    write("tell.py", "import os\nfor each in sorted(os.environ.items()): print('%s=%s' % each)\n")
    words = ("-n", "2", "--framework", "torch", "--name", "fm", "tell.py")
    shown = [line.strip() for line in cli("run", "--dry-run", *words).stdout.splitlines()]
    assert cli("run", *words).returncode == 0
    told = cli("logs", "fm").stdout.splitlines()
    fixed = [line for line in shown if re.match(r"[A-Z_]+=[^<(]+$", line)]
    assert {"GROUP_RANK=0", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "WORLD_SIZE=2"} <= set(fixed)
    assert [f"[{rank}] {line}" for rank in (0, 1) for line in fixed if f"[{rank}] {line}" not in told] == []
    assert {"RANK=<0 to 1>", "LOCAL_RANK=<0 to 1>", "MASTER_PORT=<a free port>"} <= set(shown)


def test_a_flag_after_the_script_is_the_scripts(cli: Call, hello: str, write: Write) -> None:
    said = "-n is after the script, which gets it; flags of echelon go before the script"
    assert said in cli("run", "--dry-run", hello, "-n", "2").stderr
    assert said not in cli("run", "--dry-run", hello, "--number", "2").stderr
    own = write("own.py", "import argparse\nargparse.ArgumentParser().add_argument('-n')\n")
    assert said not in cli("run", "--dry-run", str(own), "-n", "2").stderr


def test_stdin_reaches_a_single_rank(cli: Call) -> None:
    text = "".join(f"line {number}\n" for number in range(20000))
    done = cli("run", "--", "cat", input=text)
    assert done.stdout == text


def test_several_ranks_get_no_stdin(cli: Call) -> None:
    done = cli("run", "-n", "2", "--", "cat", input="lost\n")
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.slow
def test_a_reader_that_goes_away(home: Path, cli: Call, write: Write) -> None:
    """`| head`: no complaint, and the run goes on."""
    write("count.py", "import pathlib\nfor n in range(100000): print(n)\npathlib.Path('done').touch()")
    echelon = f"{sys.executable} -m echelon.cli.main"
    script = f"{echelon} run --name fm count.py | head -2; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert done.stdout == "0\n1\n141\n"
    assert "run fm goes on" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Broken" not in done.stderr
    assert cli("wait", "fm").returncode == 0
    assert Path("done").exists()
    for words in ("logs fm", "logs fm -o json", "ps -a", "status fm -o yaml"):
        script = f"{echelon} {words} | head -c 5 >/dev/null; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, check=True, timeout=PATIENCE
        )
        assert done.stdout in ("141\n", "0\n")
        assert done.stderr == ""


def test_a_rank_that_ended_early_is_named_with_the_place_where_the_others_wait(
    cli: Call, write: Callable[..., Path]
) -> None:
    write(
        "early.py",
        """
        import os, pathlib, sys, time
        out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
        if os.environ["ECHELON_RANK"] == "1":
            while not (out / "up-0").exists() or not (out / "up-2").exists():
                time.sleep(0.01)
            sys.exit(0)
        def wait_for_peers():
            (out / ("up-" + os.environ["ECHELON_RANK"])).touch()
            time.sleep(600)
        wait_for_peers()
        """,
    )
    done = cli("run", "-n", "3", "--timeout", "10s", "--name", "fm", "early.py")
    assert done.returncode == 118
    assert "rank 1 had exited 0 after " in done.stderr
    assert "; ranks 0, 2 were still running; rank 0 was in wait_for_peers (early.py:10)" in done.stderr
    assert "rank 2 was in wait_for_peers (early.py:10)" in done.stderr
    log = Path("runs/fm/logs/rank-0.log").read_text()
    assert "(most recent call first):" in log
    assert "in wait_for_peers" in log


def test_a_missing_module_names_the_python_that_lacks_it(cli: Call, write: Write) -> None:
    write("needs.py", "import torch_of_another_environment\n")
    done = cli("run", "-n", "2", "--python", sys.executable, "needs.py")
    assert done.returncode == 1
    hint = f"  hint: torch_of_another_environment is not in the environment of {sys.executable}; --python"
    assert hint in done.stderr


def test_a_module_that_only_echelons_own_python_has_names_that_python(
    cli: Call, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where echelon is called by its path, and no environment is active."""
    bare = next(
        (path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if _lacks(path, "msgspec")), None
    )
    if bare is None:
        pytest.skip("needs a Python without msgspec")
    write("needs.py", "import msgspec.json\n")
    done = cli("run", "-n", "2", "--python", bare, "needs.py")
    assert f"in the environment of {bare}; that of echelon has it: --python {sys.executable}" in done.stderr


def _lacks(python: str, module: str) -> bool:
    asked = [python, "-c", f"import {module}"]
    return Path(python).exists() and subprocess.run(asked, capture_output=True, check=False).returncode == 1


def test_a_breakpoint_in_several_ranks_says_what_to_do(cli: Call, write: Write) -> None:
    write("debug.py", "breakpoint()\nprint('on')\n")
    done = cli("run", "-n", "2", "debug.py")
    assert done.returncode == 1
    assert "  hint: breakpoint() needs somebody who types: use it in a run of one rank (-n 1)" in done.stderr
