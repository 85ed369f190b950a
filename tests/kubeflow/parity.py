"""What a script finds under a controller of Kubeflow's and under echelon, compared: the lines of the table in
the documents.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from tests.faults.kubernetes.terminal import Terminal

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-kubeflow.md"
PROBE = "import json, os; print('probe ' + json.dumps(dict(os.environ)), flush=True)"
MPI_PROBE = """
import json, os
found = dict(os.environ)
with open(found["OMPI_MCA_orte_default_hostfile"]) as file:
    found["hostfile"] = file.read()
print("probe " + json.dumps(found), flush=True)
"""


def under_echelon(terminal: Terminal, wanted: dict[str, Any]) -> list[dict[str, str]]:
    """The variables of every rank of a job that prints them."""
    terminal.write("job.yaml", yaml.safe_dump(wanted))
    command = terminal.start("run", "-f", "job.yaml")
    assert command.wait() == 0, command
    return probes("\n".join(sorted(command.lines)))


def under_mpi_operator(terminal: Terminal, wanted: dict[str, Any]) -> list[dict[str, str]]:
    """Those of a Launcher, in the order of the log."""
    name = wanted["metadata"]["name"]
    terminal.kubectl.create(wanted)
    address = f"k8s://{terminal.kubectl.namespace}/mpijob/{name}"
    waited = terminal.call("wait", address)
    assert waited.returncode == 0, waited.stderr
    found = probes(terminal.call("logs", address).stdout)
    assert terminal.call("rm", "--yes", address).returncode == 0
    # A run of the same name needs one of its own.
    terminal.kubectl.wait_for(lambda: not terminal.kubectl.find("service", name), "its Service to be gone")
    return found


def compare_mpi(terminal: Terminal, wanted: dict[str, Any]) -> None:
    """A Launcher's variables as far as mpi-operator sets them, and the hostfile that they name."""
    (there,) = under_mpi_operator(terminal, wanted)
    (here,) = under_echelon(terminal, wanted)
    names = sorted(name for name in there if name.startswith(("OMPI_", "K_MPI_")))
    assert "OMPI_MCA_orte_default_hostfile" in names
    lines = [compared(name, [there[name]], [here.get(name)]) for name in names]
    hosts = [
        [line.split() for line in found["hostfile"].splitlines() if line.strip()] for found in (there, here)
    ]
    for part, of in (
        ("hosts, how many", len),
        ("slots of each", lambda lines: [words[1:] for words in lines]),
        ("names", lambda lines: [words[0] for words in lines]),
    ):
        lines.append(compared(f"hostfile: {part}", *([of(each)] for each in hosts)))
    check_table(lines)


def probes(text: str) -> list[dict[str, str]]:
    """What the probes printed."""
    return [json.loads(line.partition("probe ")[2]) for line in text.splitlines() if "probe {" in line]


def compared(name: str, there: list[Any], here: list[Any]) -> str:
    """One line of the table."""
    if there == here:
        return f"| `{name}` | the same |"
    if all(value is None for value in there):
        return f"| `{name}` | only here |"
    return f"| `{name}` | only there |" if None in here else f"| `{name}` | another value |"


def check_table(lines: list[str]) -> None:
    """The documents have these lines."""
    text = PAGE.read_text()
    missing = "\n".join(line for line in lines if line not in text)
    assert not missing, missing
