"""What cannot travel is named, with what to do about it."""

import subprocess
import sys

import pytest

from echelon.errors import CannotShip
from echelon.function import script_of


@pytest.mark.parametrize(
    ("value", "what", "advice"),
    [
        ("open('/dev/null')", "is an open file", "open it inside"),
        ("{'log': open('/dev/null')}", "holds an open file", "open it inside"),
        ("__import__('threading').Lock()", "is a lock", "inside the function"),
        ("__import__('queue').Queue()", "holds a lock", "inside the function"),
        ("__import__('socket').socket()", "is a socket", "connect inside"),
        ("(i for i in range(3))", "is a generator", "pass a list"),
        ("__import__('sqlite3').connect(':memory:')", "is a database connection", "connect inside"),
        ("__import__('threading').Thread()", "is a thread", "start it inside"),
        ("memoryview(b'x').cast('B').__iter__()", "cannot be pickled", "inside the function"),
    ],
)
def test_what_is_bound_to_this_process_is_named(send, value, what, advice):
    sent = send(f"thing = {value}\ndef helper():\n    return thing\ndef train():\n    helper()\n")
    assert sent.message.startswith("cannot send 'train': 'helper' uses 'thing', which ")
    assert what in sent.message
    assert advice in sent.refused["hint"]
    sent = send(f"thing = {value}\ndef train(x):\n    pass\n", "train, kwargs={'x': thing}")
    assert sent.message.startswith("cannot send 'train': its argument 'x' ")
    assert what in sent.message


@pytest.mark.parametrize(
    ("program", "call", "message"),
    [
        (
            "def make(log):\n    def train():\n        log\n    return train",
            "make(open('/dev/null'))",
            "'train': 'train' uses 'log', which is an open file",
        ),
        ("log = open('/dev/null')", "lambda: log", "'lambda': it uses 'log', which is an open file"),
        (
            "class T:\n    def fit(self):\n        pass\nt = T()\nt.f = open('/dev/null')",
            "t.fit",
            "'fit': it holds an open file",
        ),
        (
            "def train(x=open('/dev/null')):\n    pass",
            "train",
            "'train': 'train' uses 'x', which is an open file",
        ),
        (
            "def train():\n    print(__file__)",
            "train",
            "'train': it uses '__file__', which would be another file on the workers",
        ),
        (
            "def train():\n    yield 1",
            "train",
            "'train': it is a generator, and calling it would run nothing",
        ),
        ("", "print", "'print': it is not written in Python"),
        ("", "dict", "'dict': it is not written in Python"),
        ("", "3", "'int': it is not a function"),
    ],
)
def test_what_cannot_be_sent_says_why(send, program, call, message):
    sent = send(program, call)
    assert sent.message == f"cannot send {message}"
    assert sent.refused["hint"]


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        ((), {}, "missing a required argument: 'lr'"),
        ((1,), {"lr": 2}, "multiple values for argument 'lr'"),
        ((1,), {"typo": 2}, "got an unexpected keyword argument 'typo'"),
        ((1, 2, 3), {}, "too many positional arguments"),
    ],
)
def test_wrong_arguments_are_found_before_anything_is_sent(args, kwargs, problem):
    def train(lr, epochs=1):
        pass

    with pytest.raises(CannotShip) as caught:
        script_of(train, args, kwargs)
    assert caught.value.message == f"cannot send 'train': {problem}"
    assert caught.value.hint == "its parameters are (lr, epochs=1)"


ON_A_DEVICE = """
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from echelon.errors import CannotShip
from echelon.function import script_of

with FakeTensorMode():  # a tensor that says it is on a GPU, without one
    tensor = torch.ones(1, device="cuda")

def train(*tensors):
    pass

try:
    script_of(train, (torch.ones(1), [tensor]))
except CannotShip as error:
    print(error.message)
    print(error.hint)
"""


@pytest.mark.slow
def test_a_tensor_on_a_device_is_refused(tmp_path):
    """In a process of its own: what torch loads for this does not get along with what other tests load."""
    script = tmp_path / "script.py"
    script.write_text(ON_A_DEVICE)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert "its argument '#2' holds a tensor on cuda:0" in done.stdout, done.stderr
    assert "inside the function" in done.stdout
