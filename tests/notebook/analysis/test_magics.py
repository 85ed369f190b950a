"""Magics and commands as plain Python on the same lines, or refused with their cell."""

from __future__ import annotations

import ast

import pytest

from echelon.notebook.analysis.cells import InvalidNotebook
from echelon.notebook.analysis.magics import plain_code

TIMED = "_echelon_timed()"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("x = 1\n%matplotlib inline\ny = 2", "x = 1\npass\ny = 2"),
        ("!pip install -q torch", "_echelon_shell('pip install -q torch')"),
        ("%pip install torch", "_echelon_shell('pip install torch')"),
        ("files = !ls {folder}", "files = _echelon_lines('ls {folder}', {'folder': folder})"),
        (
            "if x:\n    !ls ${HOME} {x}\n    y = 1",
            "if x:\n    _echelon_shell('ls ${HOME} {x}', {'x': x})\n    y = 1",
        ),
        ("%time z = f(1)", "z = f(1)"),
        ("%time !ls", "_echelon_shell('ls')"),
        ("x = %time f(1)", "x = f(1)"),
        ("%timeit -n 10 -r3 f(1)", "(f(1), None)[1]"),
        ("x = 1\n%timeit x = f(2); g(x)", "x = 1\n(f(2), None)[1]; (g(x), None)[1]"),
        ("%timeit a[0] = 1", "a[0] = 1"),
        (
            '%%timeit -n1 y = 2\nx = """a\nb"""\n!ls',
            f'def {TIMED}:\n y = 2\n x = """a\nb"""\n _echelon_shell(\'ls\')\n return\n{TIMED}',
        ),
        ("%env A=b c", "_echelon_env('A', 'b c')"),
        ("%env A={b}", "_echelon_env('A', '{b}', {'b': b})"),
        ("a = %env A", "a = _echelon_env('A')"),
        ("%%bash -s one 'two three'\necho", "_echelon_script(['bash', '-s', 'one', 'two three'], 'echo')"),
        (
            "%%bash -s {x} --out y --err z\necho",
            "y, z = _echelon_script(_echelon_words('bash -s {x}', {'x': x}), 'echo', ('out', 'err'))",
        ),
        ("%%bash --no-raise-error\nfalse", "_echelon_script(['bash'], 'false', raises=False)"),
        (
            "%%writefile {name}\nx",
            "_echelon_write_file(_echelon_filled('{name}', {'name': name}), 'x\\n', False)",
        ),
        ('get_ipython().system("ls")', "(_echelon_shell('ls'))"),
        ('x = get_ipython().getoutput("ls")\ny = 1', "x = (_echelon_lines('ls'))\ny = 1"),
        ('get_ipython().run_line_magic(\n"matplotlib", "inline")\nx = 1', "(None\n)\nx = 1"),
        ("df.head?\n?len\nx = 1", "pass\npass\nx = 1"),
        ("%%time\nx = 1\n!ls", "pass\nx = 1\n_echelon_shell('ls')"),
        ("%%capture\nx = 1", "pass\nx = 1"),
        ("%%bash\necho a", "_echelon_script(['bash'], 'echo a')"),
        ("%%writefile -a m.py\nx = 1", "_echelon_write_file('m.py', 'x = 1\\n', True)"),
        ("%%html\n<b>", "pass"),
        ("!echo a \\\n  b\nx = 1", "_echelon_shell('echo a  b')\n\nx = 1"),
        ('text = """\n!not a command\n%not a magic\n"""', 'text = """\n!not a command\n%not a magic\n"""'),
        ('text = """\n!no\n"""\n!ls', 'text = """\n!no\n"""\n_echelon_shell(\'ls\')'),
        ("a = 5\nb = (a\n%2)", "a = 5\nb = (a\n%2)"),
        ("await f()", "await f()"),
    ],
)
def test_magics_become_python(text: str, plain: str) -> None:
    assert plain_code(text, "cell 1") == plain
    ast.parse(plain)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x = 1\n%run other.py", "cell 4, line 2: the magic %run"),
        ("%%cython\nx", "cell 4, line 1: the magic %%cython"),
        ("%%capture out\nx", "%%capture"),
        ("%%bash --bg\nx", "--bg is not known here"),
        ("%time 1 +", "this is not Python"),
        ("get_ipython().run_line_magic(name, 'x')", "cell 4, line 1: get_ipython().run_line_magic(...)"),
        ("x = 1\ny = (", "cell 4, line 2: this is not Python"),
    ],
)
def test_what_is_not_known_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(InvalidNotebook) as refused:
        plain_code(text, "cell 4")
    assert says in refused.value.message
    assert refused.value.hint
