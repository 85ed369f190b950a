"""The same from a real Jupyter kernel."""

import textwrap
from pathlib import Path

import pytest
from tests.notebooks import run_cells

FILES = Path(__file__).parent


@pytest.fixture
def notebook(tmp_path, elsewhere, finish):
    """Execute cells in a kernel, the last of which sends a function; then run the script."""

    def notebook(*cells: str):
        folder = tmp_path / "sent"
        folder.mkdir()
        start = f"""
            import os, sys
            os.environ["SEND_TO"] = {str(folder)!r}
            sys.path.append({str(FILES)!r})
            import sending
        """
        sources = [textwrap.dedent(cell).strip("\n") for cell in (start, *cells)]
        run_cells(sources, elsewhere)
        return finish(folder)

    return notebook


# The kernel's own libraries warn about what is none of our business.
in_a_kernel = pytest.mark.filterwarnings("default")


@pytest.mark.slow
@in_a_kernel
def test_from_a_notebook(notebook):
    sent = notebook(
        """
        import enum, typing
        from dataclasses import dataclass
        import numpy as np
        """,
        """
        @dataclass
        class Config:
            lr: float = 0.1
        class Color(enum.Enum):
            RED = 1
        class Failed(Exception): "nothing in it"
        def helper(x):
            return "first version"
        """,
        """
        @dataclass
        class Config:
            lr: float = 0.1
            size: int = 3
        config = Config(size=4)
        """,
        """
        def helper(x):
            return [v * 2 for v in x if v]
        weights = np.arange(4.0)
        """,
        """
        %config InlineBackend.figure_format = "svg"
        await __import__("asyncio").sleep(0)
        async def train(epochs, color=Color.RED):
            print(helper(range(epochs)), config, color, weights.sum(), issubclass(Failed, Exception))
        sending.send(train, kwargs={"epochs": 3})
        """,
    )
    assert sent.out == "[2, 4] Config(lr=0.1, size=4) Color.RED 6.0 True\n"
    assert sent.made["python"] is None
    assert "first version" not in sent.text


@pytest.mark.slow
@in_a_kernel
def test_a_torch_model_from_a_notebook(notebook):
    sent = notebook(
        """
        import torch
        from torch import nn
        import torch.nn.functional as F
        """,
        """
        class Net(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.layer = nn.Linear(2, width)
            @torch.no_grad()
            def forward(self, x):
                return F.relu(self.layer(x))
        """,
        """
        torch.manual_seed(0)
        net = Net(3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        total = float(sum(p.sum() for p in net.parameters()))
        def train():
            same = [a is b for a, b in zip(net.parameters(), optimizer.param_groups[0]["params"])]
            difference = float(sum(p.sum() for p in net.parameters())) - total
            print(net(torch.ones(2)).shape, same, abs(difference) < 1e-6)
        sending.send(train)
        """,
    )
    assert sent.out == "torch.Size([3]) [True, True] True\n"
    assert sent.made["python"] is None


@pytest.mark.slow
@in_a_kernel
@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("def train():\n    !ls\nsending.send(train)", "get_ipython"),
        ("def train():\n    display(1)\nsending.send(train)", "display"),
        ("sending.send(lambda: get_ipython())", "get_ipython"),
    ],
)
def test_what_exists_in_notebooks_only_is_refused(notebook, cell, name):
    sent = notebook(cell)
    assert f"it uses {name!r}, which " in sent.message


@pytest.mark.slow
@in_a_kernel
def test_what_a_notebook_puts_around_a_builtin_stays_there(notebook):
    """Its `open` is not Python's own, and would travel as bytecode."""
    sent = notebook(
        """
        def train():
            with open("made", "w") as file:
                print(file.write("text"))
        sending.send(train)
        """
    )
    assert sent.out == "4\n"
    assert sent.made["python"] is None
