"""A function and a cell from a real Jupyter kernel, trained on the workers of a real cluster."""

from __future__ import annotations

import textwrap

import pytest
from tests.conftest import PATIENCE
from tests.faults.kubernetes.terminal import Terminal
from tests.notebooks import run_cells

# The kernel's own libraries warn about what is none of our business.
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.filterwarnings("default")]

CELLS = (
    """
    import os
    from dataclasses import dataclass
    import echelon
    %load_ext echelon

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
        return {"rank": int(rank), "sizes": (config.size, 0.5)}
    """,
    """
    %%echelon --on k8s -n 2 --image {image} --name one-cell --out in_a_cell
    train(3)
    """,
    """
    print(in_a_cell.results()[1])
    in_a_cell.remove()
    run = echelon.run(train, kwargs={{"epochs": 2}}, on="k8s", workers=2, image={image!r}, name="cells")
    print(run.wait({patience}).state)
    print(run.result(), run.results()[1])
    print(sorted(line.text for line in run.logs()))
    print((run.get("model")).read_text())
    print(echelon.attach(str(run)).status().state, [each.name for each in echelon.runs(on="k8s")])
    run.remove()
    """,
)


@pytest.mark.core
def test_a_function_from_a_notebook(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(terminal.kubeconfig))
    sources = [textwrap.dedent(cell).strip() for cell in CELLS]
    sources[-2:] = [source.format(image=terminal.image, patience=PATIENCE) for source in sources[-2:]]
    book = run_cells(sources, terminal.folder)

    def printed_by(cell: int) -> list[str]:
        texts = [output["text"] for output in book.cells[cell].outputs if output.get("name") == "stdout"]
        return "".join(texts).splitlines()

    live = [f"[{rank}] rank {rank} of 2 trains Config(size=4) for 3" for rank in range(2)]
    assert sorted(printed_by(-2)) == live
    result, *printed = printed_by(-1)
    assert result == "{'rank': 1, 'sizes': (4, 0.5)}"
    said = [f"rank {rank} of 2 trains Config(size=4) for 2" for rank in range(2)]
    assert sorted(printed[:2]) == [f"[{rank}] {line}" for rank, line in enumerate(said)]  # as they came
    returned = [{"rank": rank, "sizes": (4, 0.5)} for rank in range(2)]
    assert printed[2:] == [
        "succeeded",
        f"{returned[0]} {returned[1]}",
        str(said),
        "weights of 0",
        "succeeded ['cells']",
    ]
    terminal.wait_for_nothing("cells")
