"""`echelon exec` in a worker of a real run: pipes, exit codes, and a shell on a terminal."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import termios
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl
from tests.cli.terminal import ECHELON, Terminal
from tests.conftest import PATIENCE, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

STAY = """
import http.server, threading, time
class Large(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * 3_000_000 + self.path.encode())
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Large)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("there", flush=True)
time.sleep(3600)
"""
INTERRUPTED = """
import sys, time
try:
    print("begun", flush=True)
    time.sleep(1000)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""


@pytest.fixture
def run(
    home: Path, namespace: Kubectl, image: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """A run of two workers that goes on; the options by which commands find it."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    Path("stay.py").write_text(STAY)
    where = ["--on", "k8s", "--namespace", namespace.namespace]
    words = ["run", *where, "--name", "fm", "-n", "2", "--framework", "plain", "--image", image("python")]
    submitted = echelon(*words, "-d", "--linger", "1m", "stay.py")
    assert submitted.returncode == 0, submitted.stderr
    wait_until(lambda: echelon("logs", *where, "fm").stdout.count(b"there") == 2, "two workers")
    yield where
    echelon("stop", "--now", *where, "fm")


def echelon(*words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*ECHELON, *words], input=stdin, capture_output=True, timeout=PATIENCE, check=False)


@pytest.mark.core
def test_a_command_its_streams_and_its_exit_code(run: list[str]) -> None:
    done = echelon("exec", *run, "fm", "--", "sh", "-c", "pwd; ls; echo oh >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"/echelon/space/code\nstay.py\n", b"oh\n")
    content = os.urandom(3_000_000)
    done = echelon("exec", *run, "fm", "--worker", "1", "--", "cat", stdin=content)
    assert (done.returncode, done.stdout == content) == (0, True)
    names = {echelon("exec", *run, "fm", "--worker", number, "--", "hostname").stdout for number in "01"}
    assert names == {b"fm-0\n", b"fm-1\n"}
    for choice, ranks in (((), b"0 0 2\n"), (("--worker", "1"), b"1 1 2\n"), (("--rank", "1"), b"1 1 2\n")):
        words = ["sh", "-c", "echo $ECHELON_RANK $ECHELON_WORKER $ECHELON_RANKS"]
        assert echelon("exec", *run, "fm", *choice, "--", *words).stdout == ranks
    done = echelon("exec", *run, "fm", "--", "no-such-command")
    assert (done.returncode, done.stderr) == (127, b"no-such-command: No such file or directory\n")
    done = echelon("exec", *run, "fm", "--worker", "2")
    assert (done.returncode, b"they are numbered 0 to 1" in done.stderr) == (110, True)
    done = echelon("exec", *run, "fn")
    assert (done.returncode, b"did you mean 'fm'?" in done.stderr) == (111, True)
    check_forwarding(run)


def check_forwarding(run: list[str]) -> None:
    """A port of a worker, on a port here; what does not listen is told, and ends nothing."""
    command = [*ECHELON, "forward", *run, "fm", ":8000", ":9", "--worker", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stderr is not None
            told = [forwarding.stderr.readline() for _ in range(2)]
            open_, closed = (int(line.split("localhost:")[1].split()[0]) for line in told)
            assert "is port 8000 of worker 1 of fm" in told[0]
            with pytest.raises(ConnectionError):
                urllib.request.urlopen(f"http://127.0.0.1:{closed}/", timeout=PATIENCE)
            assert "port 9: it does not answer" in forwarding.stderr.readline()
            for path in ("/a", "/b"):
                with urllib.request.urlopen(f"http://127.0.0.1:{open_}{path}", timeout=PATIENCE) as answer:
                    assert answer.read() == b"x" * 3_000_000 + path.encode()
            forwarding.send_signal(signal.SIGINT)
            assert forwarding.wait(PATIENCE) == 130
        finally:
            forwarding.kill()


def test_a_shell_on_a_terminal(run: list[str]) -> None:
    """Keys go through as they are pressed; the window's size is the terminal's, also when it changes."""
    terminal = Terminal("exec", *run, "fm", columns=91)
    prompt = r"(?s)%s.*# $"
    terminal.expect(prompt % "")
    terminal.type("stty size\r")
    terminal.expect(prompt % "24 91")
    fcntl.ioctl(terminal._file, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    terminal.type("until stty size | grep '30 120'; do sleep 0.1; done\r")
    terminal.expect(prompt % "(?<!')30 120")  # said, and not typed
    terminal.type("exit 5\r")
    assert terminal.end() == 5
    terminal.close()


def test_ctrl_c_is_the_commands_own(run: list[str]) -> None:
    """Not under an interactive bash, which on any terminal loses a Ctrl-C in a hundred that comes while it
    puts a command into the foreground.
    """
    terminal = Terminal("exec", *run, "fm", "--", "python3", "-c", INTERRUPTED)
    terminal.expect("begun")
    terminal.type("\x03")
    terminal.expect("interrupted")
    assert terminal.end() == 7
    terminal.close()


def test_a_run_that_has_ended(run: list[str]) -> None:
    assert echelon("stop", "--now", *run, "fm").returncode == 0
    wait_until(
        lambda: echelon("exec", *run, "fm", "--", "true").returncode == 119, "the end of the worker's pod"
    )
    done = echelon("exec", *run, "fm", "--", "true")
    assert b"worker 0 of run 'fm' " in done.stderr
