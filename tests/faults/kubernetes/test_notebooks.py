"""What goes wrong with a notebook's step in pods is told with the step, and with the cell where there is one;
nothing stays."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import yaml
from testbed.images import SANDBOX
from tests.conftest import wait_until
from tests.faults.kubernetes.terminal import Terminal
from tests.notebook.books import write_book

from echelon.engines.kubernetes.render.manifests import MASK

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
CELLS = [
    ("step:load", "x = 1"),
    ("step:train prev:load", "y = x"),
    ("", "print('at work', flush=True)\nimport time\ntime.sleep(600)"),
]


def test_a_dry_run_shows_every_step_and_makes_nothing(terminal: Terminal) -> None:
    write_book(terminal.folder / "book.ipynb", CELLS)
    words = ("notebook", "run", "book.ipynb", "--dry-run", "--image", terminal.image)
    shown = terminal.call(*words, "--volume", "new:50Mi@shared")
    assert shown.returncode == 0, shown.stderr
    assert "pvc:book-1/book-1, which is made for the run" in shown.stderr
    assert [line for line in shown.stdout.splitlines() if line.startswith("step ")] == [
        "step load",
        "step train",
    ]
    objects = list(yaml.safe_load_all(terminal.call(*words, "-o", "yaml").stdout))
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Job"]
    secrets = [each for each in objects if each["kind"] == "Secret"]
    assert {value for each in secrets for value in each["stringData"].values()} == {MASK}
    assert not terminal.left_of("book-")
    assert not (terminal.folder / "runs").exists()


def test_a_step_whose_pod_is_deleted(terminal: Terminal) -> None:
    write_book(terminal.folder / "book.ipynb", CELLS)
    words = ("--image", terminal.image, "--volume", "new:50Mi@shared")
    command = terminal.start("notebook", "run", "book.ipynb", *words)
    command.wait_for("at work")
    pod = terminal.pods("book-1-train")[-1]["metadata"]["name"]
    terminal.kubectl("delete", "pod", pod, "--grace-period=1", "--wait=false")
    assert command.wait() != 0, command
    assert "step train failed in cell 3: " in command.said, command
    assert "`echelon resume book-1` continues" in command.said
    terminal.check_removal("book-1")


def test_a_volume_that_does_not_bind(terminal: Terminal) -> None:
    """A class that nothing provides volumes of; one that does not exist is refused before anything does."""
    write_book(terminal.folder / "book.ipynb", CELLS)
    name = f"empty-{terminal.kubectl.namespace}"
    words = ("notebook", "run", "book.ipynb", "--image", terminal.image, "--volume", f"new:50Mi@{name}")
    refused = terminal.call(*words)
    assert f"{name!r} is not a storage class here" in refused.stderr
    assert not terminal.left_of("book-")
    terminal.kubectl.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": "kubernetes.io/no-provisioner",
        }
    )
    try:
        command = terminal.start(*words)
        command.wait_for("echelon: step load: ")
        wait_until(lambda: "volume" in command.said, "the reason")
        command.process.send_signal(signal.SIGINT)
        assert command.wait() == 130, command
        terminal.check_removal("book-1")
    finally:
        terminal.kubectl("delete", "storageclass", name)


def test_an_image_without_python(terminal: Terminal, image: Callable[[str], str]) -> None:
    write_book(terminal.folder / "book.ipynb", CELLS)
    words = ("--image", image(SANDBOX), "--volume", "new:50Mi@shared")
    failed = terminal.call("notebook", "run", "book.ipynb", *words)
    assert failed.returncode != 0
    assert "step load failed: " in failed.stderr, failed.stderr
    assert "python" in failed.stderr.lower()
    terminal.check_removal("book-1")
