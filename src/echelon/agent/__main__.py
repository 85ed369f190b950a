"""The agent's command: `TASK [--worker N] ...` lives as one worker of a run; worker 0 leads.

It is started by the supervisor on this machine, and as the container's command in a pod, there from a zip
file. Descriptors may be handed to it: `--listen-fd` is the socket on which the gang meets, `--control-fd`
carries orders of the supervisor, and its closing means that the supervisor is gone, `--terminal-fd` leads to
the terminal of a user who sits before a single rank. In a pod its number and the failures before it come from
the environment. `keeper TASK` lives as the run's keeper, in a pod of its own. More commands are run beside an
agent, on its machine: `control SOCKET ORDER [JSON]` gives it an order, `files ...` sends and receives files,
`samples FILE [follow]` prints what the workers use, `shell TASK RANK [COMMAND...]` becomes a command with a
rank's environment, `carry FOLDER SECRET WORKER` carries
checkpoints, `unpack FILE DIGEST TARGET` unpacks code for the agent itself; and what a launcher calls:
`ssh FOLDER SECRET ...` is its remote shell, `rank FOLDER SECRET COMMAND...` starts a rank, `horovodrun FOLDER
...` tells the real one the workers."""

from __future__ import annotations

import os
import sys

if not __package__:  # started as a file, outside any environment: find ourselves
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    __package__ = "echelon.agent"


_BESIDE = {
    "carry": "echelon.agent.keep.carrier",
    "control": "echelon.agent.control",
    "files": "echelon.agent.files.command",
    "horovodrun": "echelon.agent.remote.horovodrun_program",
    "rank": "echelon.agent.remote.rank_program",
    "samples": "echelon.agent.output.samples",
    "shell": "echelon.agent.ranks.shell",
    "ssh": "echelon.agent.remote.shell_program",
    "unpack": "echelon.agent.setup.unpack",
}
"""Commands that are run beside an agent, and the modules whose `main` they are."""


def main() -> int:
    """Run the command that the command line names, and return the exit code."""
    arguments = sys.argv[1:]
    try:
        module = _BESIDE.get(arguments[0] if arguments else "")
        if module is not None:
            from importlib import import_module

            code: int = import_module(module).main(arguments[1:])
            return code
        if not arguments:
            usage = (
                "TASK [--worker N] | keeper TASK | control SOCKET ORDER [JSON] | files ... | shell TASK RANK"
            )
            return _complain("usage: %s ..." % usage, 2)
        if arguments[0] == "keeper" and len(arguments) == 2:
            return _keep(arguments[1])
        options = dict(zip(arguments[1::2], arguments[2::2]))
        if os.getpid() == 1:  # of a container
            from echelon.agent import watch

            return watch.watch_over(lambda beats: live(arguments[0], options, beats), arguments[0])
        return live(arguments[0], options)
    finally:
        from echelon.agent import streams

        streams.flush()


def live(path: str, options: dict[str, str], beats: int | None = None) -> int:
    """Live as the worker that the options name, and return the exit code."""
    import gc
    import signal

    gc.disable()  # what is imported stays: to look for garbage in it only keeps the ranks waiting

    # SIGTERM before there is an agent to handle it: the first process of a pod has no default handler.
    early: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: early.append(number))
    from echelon.agent.agent import Agent
    from echelon.agent.task import RUN_OVER, TaskRefused, read_task

    try:
        task = read_task(path)
        worker = _worker(options)
        if worker >= len(task.places):
            return _complain("the run has no worker %d" % worker, RUN_OVER)
    except TaskRefused as error:
        return _complain("the task %s cannot be used: %s" % (path, error), RUN_OVER)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The next agent could not use it either.
        return _complain("the task %s cannot be used: %r" % (path, error), RUN_OVER)
    listen_fd, control_fd, terminal_fd = (
        int(options[name]) if name in options else None
        for name in ("--listen-fd", "--control-fd", "--terminal-fd")
    )
    failures = _count(options.get("--failures", os.environ.get("ECHELON_FAILURES", "")))
    spared = _count(options.get("--spared", os.environ.get("ECHELON_EVICTIONS", "")))
    try:
        agent = Agent(
            task,
            worker,
            listen_fd=listen_fd,
            control_fd=control_fd,
            terminal_fd=terminal_fd,
            failures=failures + spared,
            spared=spared,
            beats=beats,
        )
        for number in early:
            os.kill(os.getpid(), number)
        gc.enable()
        return agent.run()
    except Exception as error:  # of any kind: Kubernetes keeps the termination message when logs are gone
        from echelon.agent.output import termination

        termination.write(task.termination, {"reason": "the agent failed: %r" % error})
        raise


def _keep(path: str) -> int:
    from echelon.agent.keep.keeper import Keeper
    from echelon.agent.output import termination
    from echelon.agent.task import RUN_OVER, TaskRefused, read_task

    try:
        task = read_task(path)
    except TaskRefused as error:
        return _complain("the task %s cannot be used: %s" % (path, error), RUN_OVER)
    try:
        return Keeper(task).run()
    except Exception as error:  # of any kind: Kubernetes keeps the termination message when logs are gone
        termination.write(task.termination, {"reason": "the keeper failed: %r" % error})
        raise


def _worker(options: dict[str, str]) -> int:
    if "--worker" in options:
        return int(options["--worker"])
    names = ("ECHELON_FIRST_WORKER", "JOB_COMPLETION_INDEX")
    return sum(_count(os.environ.get(name, "")) for name in names)


def _count(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _complain(arguments: str, code: int) -> int:
    print(arguments, file=sys.stderr)
    return code


if __name__ == "__main__":
    # Without the interpreter's farewell, during which a SIGTERM would make of our exit code a death by
    # signal.
    os._exit(main())
