"""What has no source travels by value, between equal Pythons only."""

import sys

import pytest


def test_lambdas_travel_by_value_with_what_they_use(send):
    program = """
        import math
        RATE = 3
        def helper(x):
            return x * RATE
        square = lambda x: math.floor(helper(x))
        table = {"f": lambda x: x + 1, "g": helper}
        def train():
            print(square(2), table["f"](1), table["g"] is helper)
    """
    sent = send(program)
    assert sent.out == "6 2 True\n"
    assert sent.made["python"] == list(sys.version_info[:2])
    assert "by_value/cloudpickle/cloudpickle.py" in sent.made["files"]
    assert "def helper(x):" in sent.text
    sent = send(program, "lambda n: print(square(n)), (3,)")
    assert sent.out == "9\n"
    assert sent.made["name"] == "lambda"


def test_code_without_a_file_travels_by_value(send):
    sent = send("""
        exec('''
        class Made:
            x = 1
            def get(self):
                return self.x + helper()
        def helper():
            return 1
        def train():
            print(Made().get())
        ''')
    """)
    assert sent.out == "2\n"


def test_a_file_changed_since_it_was_read_is_not_believed(send):
    sent = send("""
        def helper():
            return "old"
        def train():
            print(helper())
        from pathlib import Path
        file = Path(__file__)
        file.write_text(file.read_text().replace('"old"', '"new"'))
    """)
    assert sent.out == "old\n"
    assert sent.made["python"] is not None
    assert '"new"' not in sent.text


def test_a_replaced_method_is_not_lost(send):
    sent = send("""
        class Model:
            def forward(self):
                return "typed"
        def forward(self):
            return "replaced"
        Model.forward = forward
        def train():
            print(Model().forward())
    """)
    assert sent.out == "replaced\n"


def test_bytecode_is_refused_before_it_is_read(send, run_script):
    sent = send("def train(f):\n    print(f(1))\n", "train, (lambda x: x,)")
    assert sent.out == "1\n"
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    script = sent.folder / "script.py"
    script.write_text(sent.text.replace(f"!= {sys.version_info[:2]}", "!= (3, 99)"))
    (sent.folder / "values.pkl").unlink()
    refused = run_script(script)
    line = f"train: 'f' came as bytecode of Python {here}, for want of source; here is Python {here} "
    advice = f"(use {here} on both sides, or write it with def in a file or a notebook cell)\n"
    assert (refused.returncode, refused.stdout, refused.stderr) == (1, "", line + advice)


@pytest.mark.parametrize("minor", ["3.12", "3.13"])
def test_bytecode_of_another_minor_is_refused_before_it_is_read(send, other_python, minor):
    python = other_python(minor)
    sent = send("def train(f):\n    print(f(1))\n", "train, (lambda x: x,)", python=python)
    assert sent.done.returncode == 1
    assert sent.done.stdout == ""
    here = ".".join(map(str, sys.version_info[:2]))
    line = f"train: 'f' came as bytecode of Python {here}, for want of source; here is Python {minor} "
    assert (
        sent.done.stderr
        == f"{line}(use {here} on both sides, or write it with def in a file or a notebook cell)\n"
    )


@pytest.mark.parametrize("minor", ["3.8", "3.12", "3.13"])
def test_source_and_data_work_under_other_minors(send, other_python, minor):
    python = other_python(minor)
    program = """
        import datetime, fractions
        from dataclasses import dataclass
        @dataclass
        class Config:
            when: datetime.date
            share: fractions.Fraction
        config = Config(datetime.date(2020, 1, 2), fractions.Fraction(1, 3))
        modules = [datetime]
        def make(n):
            def inner():
                return config, n, modules[0].__name__
            return inner
        inner = make(2)
        class Trainer:
            def fit(self, method):
                print(inner(), method(2))
            def double(self, x):
                return x * 2
    """
    sent = send(program, "Trainer().fit, (Trainer().double,)", python=python)
    assert sent.out == (
        "(Config(when=datetime.date(2020, 1, 2), share=Fraction(1, 3)), 2, 'datetime') 4\n"
    )  # fmt: skip
