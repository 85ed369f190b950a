"""`echelon`: the group of commands, each imported only when it is used, and the one place where errors become
exit codes.
"""

from __future__ import annotations

import contextlib
import gc
import io
import sys
from typing import Any

import click

from echelon import __version__

# name -> (module, its line in `--help`). Kept here, so that help need not import every command.
COMMANDS = {
    "run": ("commands.run", "Train a script, a module or a command on many workers."),
    "sweep": ("sweeps", "Run a script with many values of its parameters."),
    "ps": ("commands.runs", "List runs."),
    "status": ("commands.runs", "Show the state of a run, and why it failed."),
    "why": ("commands.why", "Explain what a run is doing: stuck, slow, waiting, or why it ended."),
    "logs": ("commands.logs", "Show what the ranks wrote."),
    "metrics": ("commands.metrics", "Show the metrics of runs: loss, accuracy, ..."),
    "compare": ("commands.compare", "Compare runs: code, arguments, size, metrics."),
    "events": ("commands.events", "Show what happened to a run, for people and for scripts."),
    "wait": ("commands.runs", "Wait for a run to end; exits with its code."),
    "stop": ("commands.runs", "Stop runs."),
    "resume": ("commands.resume", "Restart a run that failed, was stopped or was lost."),
    "rm": ("commands.runs", "Remove runs that have ended; their results stay."),
    "get": ("commands.runs", "Copy results of a run."),
    "exec": ("commands.exec", "Open a shell, or run a command, in a worker."),
    "forward": ("commands.forward", "Forward a local port to a worker."),
    "cp": ("commands.cp", "Copy files to and from a cluster's volumes."),
    "volume": ("commands.volume", "List, create and remove a cluster's volumes."),
    "convert": ("kubeflow", "Print a Kubeflow job as a job file."),
    "notebook": ("notebooks.commands", "Run a notebook's tagged cells as a pipeline."),
    "jupyter": ("notebooks.server", "Run your own Jupyter server in a cluster."),
    "image": ("commands.image", "Build an image of the project, without Docker."),
    "top": ("commands.top", "Show devices and which runs use them, live; or the workers of a run."),
    "queue": ("commands.queue", "Show the queue: positions, reasons, when runs could start."),
    "ui": ("commands.ui", "Show runs in the browser: logs, curves, GPUs."),
    "doctor": ("commands.doctor", "Check what this machine or cluster has, and what is missing."),
    "completion": ("commands.completion", "Print the shell's completion script."),
}
# What other tools (kubectl, docker, sbatch, ...) call what these commands do.
_ELSEWHERE = {
    "apply": "run -f FILE",
    "cancel": "stop",
    "create": "run",
    "delete": "rm",
    "describe": "status",
    "down": "stop",
    "info": "status",
    "kill": "stop",
    "launch": "run",
    "list": "ps",
    "ls": "ps",
    "remove": "rm",
    "start": "run",
    "submit": "run",
}
_POSTPONED = 1000  # times, a millisecond each: an import may wait for that of another thread
_EXAMPLES = """\b
Examples:
  echelon run -n 2 train.py --epochs 3
  echelon run --gpus 4 train.py
  echelon run --on k8s --image my/torch -n 2 --gpus 4 train.py
  echelon notebook run train.ipynb
  echelon logs -f RUN
  echelon status RUN
"""


class LazyGroup(click.Group):
    """A group that lists its commands by name and imports one only to run it."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in COMMANDS:
            return None
        import importlib

        command = getattr(importlib.import_module(f"echelon.cli.{COMMANDS[name][0]}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; suggest one when there is none of that name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib
            from shlex import quote

            if args[0] in _ELSEWHERE:
                ctx.fail(f"No such command {args[0]!r}. That is: echelon {_ELSEWHERE[args[0]]}")
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            if not near and args[0].endswith(".py"):
                ctx.fail(f"No such command {args[0]!r}. To train it: echelon run {quote(args[0])}")
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Leave quietly, as SIGPIPE ends any program, when the reader has gone (`| head`)."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _forget_stdout()
            ctx.exit(128 + 13)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.version_option(__version__, "--version", prog_name="echelon")
def cli() -> None:
    """Train a script or a function on many workers, here or, with --on k8s, in a cluster."""


def main() -> None:
    """Run the command line and exit with the code that `echelon.errors` documents."""
    _open_what_is_closed()
    _interrupt_between_imports()
    _warn_in_a_line()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show is not worth an error
    code = call(sys.argv[1:])
    # At its end Python looks for cycles among all imported objects, a tenth of a short command's time.
    gc.freeze()
    sys.exit(code)


def _warn_in_a_line() -> None:
    """Show a warning of ours as other messages are: without the line of code that gave it."""
    import warnings

    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if category.__module__.startswith("echelon."):
            from echelon.cli.printing.render import notice

            notice(str(message))
        else:
            usual(message, category, *where)

    warnings.showwarning = show  # type: ignore[assignment]


def _interrupt_between_imports() -> None:
    """Have Ctrl-C raise KeyboardInterrupt, but not inside of Python's import machinery: raised in one of its
    callbacks it is lost, and leaves the lock of all imports held, for which every other thread then waits.
    """
    import signal
    from types import FrameType

    postponed = 0

    def interrupt(_number: int, frame: FrameType | None) -> None:
        nonlocal postponed
        inside = frame is not None and frame.f_code.co_filename == "<frozen importlib._bootstrap>"
        if inside and postponed < _POSTPONED:
            postponed += 1
            signal.signal(signal.SIGALRM, again)
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            return
        postponed = 0
        raise KeyboardInterrupt

    def again(_number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)  # by now perhaps another
        if callable(handler):
            handler(signal.SIGINT, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def _open_what_is_closed() -> None:
    """Started with a standard stream closed (`>&-`), the next file opened would take its place."""
    import os

    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            while os.open(os.devnull, os.O_RDWR) < descriptor:
                pass
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, "r" if descriptor == 0 else "w"))  # noqa: SIM115, PTH123


def call(arguments: list[str]) -> int:
    """Run one command and return its exit code; no error of a user's ever shows a traceback."""
    try:
        code = cli.main(arguments, prog_name="echelon", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:  # noqa: BLE001 - what is not ours is raised again
        return _report(error)
    return code if isinstance(code, int) else 0


def _report(error: Exception) -> int:
    from echelon.cli.printing.say import say
    from echelon.errors import EchelonError, OutputFailed, from_os_error, from_output_error

    if isinstance(error, OSError):
        import errno

        # Engines translate their own; where this one names no file, it is about our output, or where we are.
        if error.filename is None and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            error = from_output_error(error)
        else:
            error = from_os_error(error, "the working folder")
    if not isinstance(error, EchelonError):
        raise error
    if isinstance(error, OutputFailed):
        _forget_stdout()
    with contextlib.suppress(OSError):  # standard error is full, too
        for each in (error, *error.others):
            say(f"echelon: {each.message}", err=True)
            if each.hint:
                say(f"  hint: {each.hint}", err=True)
    return error.exit_code


def _forget_stdout() -> None:
    """Keep Python from complaining at exit about output that has no reader."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
