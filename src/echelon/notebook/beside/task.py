"""A step in a pod of another engine, such as Tekton: from the exported pipeline to the step's end.

    python3 program.zip run STEP      a step in this process
    python3 program.zip start STEP    a distributed step: make its workers' Job and follow it to its end
    python3 program.zip work STEP     one worker of that Job

The pipeline lies beside the program. The pipeline run's folder is on a volume; the first step makes it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

from echelon.notebook.beside import jobs, step
from echelon.notebook.beside.parameters import parse_text
from echelon.notebook.beside.sources import Unordered, find_sources
from echelon.notebook.beside.store import PUBLISHED

PIPELINE, MODULES = "pipeline.json", "modules"  # the latter in the program: what the notebook imports
PARAMETER, RESULT, LOCAL = "ECHELON_PARAMETER_", "ECHELON_RESULT_", "ECHELON_LOCAL_PROCESS"
_LONGEST = 1000  # characters of a result: Tekton takes a few thousand bytes of all together


def main(program: str) -> int:
    """Do what the command line says; returns the exit code."""
    action, name = sys.argv[1:3]
    del sys.argv[1:]
    path = Path(program).parent / PIPELINE
    pipeline: Dict[str, Any] = json.loads(path.read_text("utf-8"))
    folder = Path(os.environ["ECHELON_FOLDER"], os.environ["ECHELON_PIPELINE"])
    make_folder(folder)
    output = folder / "steps" / name
    output.mkdir(parents=True, exist_ok=True)
    if action == "work":
        return _work(pipeline, name, folder, program)
    if action == "start":
        for old in (step.DONE, step.FAILURE, step.AT):  # of an earlier start
            if (output / old).exists():
                (output / old).unlink()
        code = jobs.run_workers(pipeline["steps"][name], _passed_on())
    else:
        code = _run(pipeline, name, folder, program)
    if code == 0:
        _write_results(folder, name)
    else:
        _tell_failure(output, name)
    return code


def make_folder(folder: Path) -> None:
    """Make the pipeline run's folder, whichever step comes first; its secret appears whole."""
    for each in ("work", "values", "steps"):
        (folder / each).mkdir(parents=True, exist_ok=True)
    secret = folder / "secret"
    if secret.exists():
        return
    partial = folder / (".secret.%s" % secrets.token_hex(4))
    descriptor = os.open(str(partial), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(32))
    try:
        os.link(str(partial), str(secret))
    except FileExistsError:
        pass
    finally:
        partial.unlink()


def specification(pipeline: Dict[str, Any], name: str, folder: Path) -> Dict[str, Any]:
    """The specification for `step.main`; raises Unordered."""
    told = pipeline["steps"][name]
    before = {each: about["before"] for each, about in pipeline["steps"].items()}
    there = {each: published(folder, each).get("names", {}) for each in told["before"]}
    inputs, _ = find_sources(name, told["wanted"], told["outputs"], before, there)
    prelude: List[Dict[str, Any]] = list(pipeline["prelude"])
    prelude[pipeline["given_after"] : pipeline["given_after"]] = _given(pipeline["parameters"])
    texts = [code for each in told["before"] for code in pipeline["steps"][each]["specification"]["cells"]]
    return dict(
        told["specification"],
        defining=texts,
        run=folder.name,
        step=name,
        folder=str(folder),
        prelude=prelude,
        inputs=inputs,
        outputs=told["outputs"],
        notebook=pipeline["notebook"],
        metrics=pipeline["metrics"],
    )


def published(folder: Path, name: str) -> Dict[str, Any]:
    """What a step has handed on; nothing if it has not run."""
    path = folder / "values" / name / PUBLISHED
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _given(parameters: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The parameters' values as code, of the types that the notebook gives them."""
    codes = []
    for name, about in parameters.items():
        text = os.environ.get(PARAMETER + name)
        if text is not None:
            try:
                value = parse_text(about["kind"], text)
            except ValueError as error:
                sys.exit("echelon: parameter %s: %s" % (name, error))
            codes.append({"cell": about["cell"], "text": "%s = %r" % (name, value)})
    return codes


def _run(pipeline: Dict[str, Any], name: str, folder: Path, program: str) -> int:
    try:
        told = dict(specification(pipeline, name, folder), search=["%s/%s" % (program, MODULES)])
    except Unordered as error:
        sys.stderr.write("echelon: step %s: %s\n" % (name, error))
        return 1
    os.environ["ECHELON_RUN"] = folder.name
    os.environ["ECHELON_OUTPUT"] = str(folder / "steps" / name)
    os.environ.setdefault("ECHELON_WORKERS", "1")
    os.chdir(str(folder / "work"))
    return step.main(told)


def _work(pipeline: Dict[str, Any], name: str, folder: Path, program: str) -> int:
    """One worker; if it has several processes, this one starts and awaits them."""
    # The first process of a container ignores signals without a handler: its pod would end only when killed.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    worker = int(os.environ["JOB_COMPLETION_INDEX"])
    processes = pipeline["steps"][name]["processes"][worker]
    local = os.environ.get(LOCAL)
    if local is None and len(processes) > 1:
        command = [sys.executable, program, "work", name]
        started = [
            subprocess.Popen(command, env=dict(os.environ, **{LOCAL: str(each)}))
            for each in range(len(processes))
        ]
        return jobs.wait_for_all(started)
    job = os.environ["ECHELON_JOB"]
    os.environ.update({key: text.replace("{job}", job) for key, text in processes[int(local or 0)].items()})
    jobs.wait_for_name("%s-0.%s" % (job, job))
    return _run(pipeline, name, folder, program)


def _passed_on() -> Dict[str, str]:
    """The variables that workers get from the pod that starts them."""
    own = ("ECHELON_FOLDER", "ECHELON_PIPELINE")
    return {key: text for key, text in os.environ.items() if key in own or key.startswith(PARAMETER)}


def _write_results(folder: Path, name: str) -> None:
    metrics = published(folder, name).get("metrics", {})
    for key, path in os.environ.items():
        if key.startswith(RESULT):
            value = metrics.get(key[len(RESULT) :], "")
            with open(path, "w", encoding="utf-8") as file:
                file.write(str(value)[:_LONGEST])


def _tell_failure(output: Path, name: str) -> None:
    """Say where a step failed; a process that was killed has left only the cell that it was in."""
    if (output / step.FAILURE).exists():
        found = json.loads((output / step.FAILURE).read_text("utf-8"))
        sys.stderr.write("echelon: step %s failed in cell %s: %s\n" % (name, found["cell"], found["error"]))
    elif (output / step.AT).exists():
        found = json.loads((output / step.AT).read_text("utf-8"))
        sys.stderr.write("echelon: step %s failed; worker 0 was in cell %s\n" % (name, found["cell"]))
