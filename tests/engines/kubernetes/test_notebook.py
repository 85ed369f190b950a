"""A function from a real Jupyter kernel, trained on the workers of a real cluster."""

from __future__ import annotations

import textwrap

import pytest
from tests.faults.kubernetes.terminal import Terminal

# The kernel's own libraries warn about what is none of our business.
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.filterwarnings("default")]

CELLS = (
    """
    import os
    from dataclasses import dataclass
    import echelon

    @dataclass
    class Config:
        size: int = 3
    """,
    """
    config = Config(size=4)

    def train(epochs):
        rank = os.environ["ECHELON_RANK"]
        print("rank", rank, "of", os.environ["ECHELON_RANKS"], "trains", config, "for", epochs)
        with open(os.path.join(os.environ["ECHELON_OUTPUT"], "model"), "w") as file:
            file.write("weights of " + rank)
    """,
    """
    run = echelon.run(train, kwargs={{"epochs": 2}}, on="k8s", workers=2, image={image!r}, name="cells")
    print(run.wait(120).state)
    print(sorted(line.text for line in run.logs()))
    print((run.get("model")).read_text())
    print(echelon.attach(str(run)).status().state, [each.name for each in echelon.runs(on="k8s")])
    run.remove()
    """,
)


@pytest.mark.core
def test_a_function_from_a_notebook(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("KUBECONFIG", str(terminal.kubeconfig))
    sources = [textwrap.dedent(cell).strip() for cell in CELLS]
    sources[-1] = sources[-1].format(image=terminal.image)
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    where = {"metadata": {"path": str(terminal.folder)}}
    nbclient.NotebookClient(book, timeout=180, kernel_name="python3", resources=where).execute()
    printed = "".join(
        output["text"] for output in book.cells[-1].outputs if output.get("name") == "stdout"
    ).splitlines()
    said = [f"rank {rank} of 2 trains Config(size=4) for 2" for rank in range(2)]
    assert printed == ["succeeded", str(said), "weights of 0", "succeeded ['cells']"]
    terminal.wait_for_nothing("cells")
