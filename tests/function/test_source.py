"""What is typed in a main script travels as source, with the values it uses."""


def test_source_with_its_values_helpers_and_imports(send):
    program = """
        import concurrent.futures
        import json as helper
        import math
        from collections import OrderedDict as Ordered
        from random import choice

        RATE = 0.25
        CONFIG = {"layers": [1, 2], "name": "été"}
        counter = 0
        unused = open("/dev/null")

        def count():
            global counter
            counter += 1

        def ping(n):
            return n if n == 0 else pong(n - 1)

        def pong(n):
            count()
            return ping(n)

        def train(epochs, *, rate=RATE, kind: "Nowhere" = Ordered):
            x = [math.floor(RATE * i * 10) for i in range(epochs)]
            ping(3)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                y = pool.submit(lambda: choice(["one"])).result()
            print(x, y, counter, rate, helper.dumps(CONFIG, ensure_ascii=False), kind(a=1)["a"])

        print("this line must run once, here")
    """
    sent = send(program, "train, kwargs={'epochs': 3}")
    assert sent.out == '[0, 2, 5] one 3 0.25 {"layers": [1, 2], "name": "été"} 1\n'
    assert sent.made == {
        "name": "train",
        "project": None,
        "elsewhere": [],
        "python": None,
        "files": ["write-value.py"],
    }
    assert "this line" not in sent.text
    assert "unused" not in sent.text
    assert "import json as helper" in sent.text
    assert "echelon" not in "\n".join(line for line in sent.text.splitlines() if "import" in line)


def test_text_arrives_exactly_as_typed(send):
    program = r'''
def train():
    text = """
 $HOME `id` \d \\ "quoted" %s {braces}
zero indent	tab
    """
    # comment: 日本語 🎉
    raw = r"\n\t"; more = "it's" '\x0c' "\u00e9" 'é'
    print(ascii(text), raw, ascii(more))
'''
    sent = send(program)
    assert program.strip("\n") in sent.text
    assert sent.out == (
        r"""'\n $HOME `id` \\d \\ "quoted" %s {braces}\nzero indent\ttab\n    ' """
        r'''\n\t "it's\x0c\xe9\xe9"'''
        "\n"
    )


def test_traceback_shows_the_users_own_lines(send):
    sent = send("""
        def inner(values):
            return values["missing key"]  # the culprit

        def train():
            inner({})
    """)
    assert sent.done.returncode == 1
    assert 'return values["missing key"]  # the culprit' in sent.done.stderr
    assert sent.done.stderr.splitlines()[-1] == "KeyError: 'missing key'"
    assert "in inner" in sent.done.stderr


def test_what_values_share_stays_shared(send):
    program = """
        import types
        config = {"n": [1]}
        inner = config["n"]
        holder = types.SimpleNamespace(config=config)
        rows = [[0]] * 2
        alone = [1, 2]

        def train(given):
            inner.append(2)
            rows[0].append(1)
            print(config, holder.config is config, rows, alone, given is holder)
    """
    sent = send(program, "train, (holder,)")
    assert sent.out == "{'n': [1, 2]} True [[0, 1], [0, 1]] [1, 2] True\n"
    assert "alone = [1, 2]\n" in sent.text


def test_annotations_need_nothing_on_the_worker(send):
    program = """
        from dataclasses import dataclass
        from fractions import Fraction
        from typing import TYPE_CHECKING, TypeVar, get_type_hints
        if TYPE_CHECKING:
            from nowhere import Model
        handle = open("/dev/null")
        class Tracker:
            def log(self):
                handle.write("x")
        class Inner:
            pass
        T = TypeVar("T")
        @dataclass
        class Config:
            inner: Inner
            also: "Inner | None"
            share: Fraction = None
        def helper(model: "Model", x: T, tracker: Tracker = None) -> T:
            return x
        def train(config: Config, n: int | None = None) -> None:
            of_train, of_config = get_type_hints(train), get_type_hints(Config)
            print(helper(None, 3), of_train["config"].__name__, of_config["inner"].__name__)
    """
    sent = send(program, "train, (Config(None, None),)")
    assert sent.out == "3 Config Inner\n"
    assert sent.made["python"] is None
    assert "Tracker:" not in sent.text
    assert "T = " not in sent.text


def test_annotations_stay_what_they_are_where_they_can(send):
    sent = send("""
        from fractions import Fraction
        def train(x: Fraction = None, y: list[int] | None = None):
            print(train.__annotations__)
    """)
    assert sent.out == "{'x': <class 'fractions.Fraction'>, 'y': list[int] | None}\n"


def test_future_annotations_are_taken_over(send):
    sent = send("""
        from __future__ import annotations
        def train(x: Unknown = 1):
            print(train.__annotations__)
    """)
    assert sent.out == "{'x': 'Unknown'}\n"


def test_a_name_that_is_only_local_is_left_alone(send):
    sent = send("""
        handle = open("/dev/null")
        class Box:
            handle = 1
            def show(self):
                handle = self.handle
                return [handle for handle in range(2)], handle
        def train():
            handle = 2
            print(Box().show(), handle, (lambda handle: handle)(3))
    """)
    assert sent.out == "([0, 1], 1) 2 3\n"


def test_coroutines_partials_and_methods(send):
    program = """
        import functools

        class Trainer:
            def __init__(self, lr):
                self.lr = lr
            def fit(self, epochs, *, note=""):
                print(type(self).__name__, self.lr, epochs, note)
            @classmethod
            def of(cls, lr):
                cls(lr).fit(0)

        class Fast(Trainer):
            def __call__(self, n):
                print("called", n)

        async def train(n):
            import asyncio
            await asyncio.sleep(0)
            print("awaited", n)

        bound = functools.partial(functools.partial(Trainer(0.5).fit, note="n"), 3)
    """
    assert send(program, "train, (1,)").out == "awaited 1\n"
    assert send(program, "bound").out == "Trainer 0.5 3 n\n"
    assert send(program, "bound, kwargs={'note': 'later'}").out == "Trainer 0.5 3 later\n"
    assert send(program, "Trainer.of, (1,)").out == "Trainer 1 0 \n"
    assert send(program, "Fast.of, (1,)").out == "Fast 1 0 \n"
    assert send(program, "Fast(0), (4,)").out == "called 4\n"


def test_arguments_of_every_kind(send):
    program = """
        import datetime
        def train(first, /, day, *rest, **words):
            print(first, day, rest, words)
    """
    words = "{'a-b': 1, 'class': None, 'ok': 'é$HOME`'}"
    sent = send(program, f"train, (float('inf'), datetime.date(2020, 1, 2), {{1, 2}}), {words}")
    assert sent.out == "inf 2020-01-02 ({1, 2},) {'a-b': 1, 'class': None, 'ok': 'é$HOME`'}\n"


def test_functions_and_classes_as_arguments_stand_by_name(send):
    program = """
        class Loss:
            @staticmethod
            def square(x):
                return x * x
        def double(x):
            return 2 * x
        def outer():
            def map(functions, kind):
                print([f(3) for f in functions], kind.__name__, kind.square(4))
            return map
    """
    sent = send(program, "outer(), ([double, Loss.square],), {'kind': Loss}")
    assert sent.out == "[6, 9] Loss 16\n"
    assert "kind=Loss" in sent.text
    assert sent.made["python"] is None


def test_modules_that_are_files_bring_their_folder(send, tmp_path):
    (tmp_path / "typed").mkdir()
    (tmp_path / "typed" / "pyproject.toml").touch()
    (tmp_path / "typed" / "local_one.py").write_text("import local_two\nclass Thing:\n    x = local_two.x\n")
    (tmp_path / "typed" / "local_two.py").write_text("x = 4\n")
    sent = send("""
        import local_one
        thing = local_one.Thing()
        def train():
            from local_two import x
            print(thing.x, x)
    """)
    assert sent.out == "4 4\n"
    assert sent.made["project"] == str(tmp_path / "typed")


def test_a_relative_import_inside_is_refused(send):
    sent = send("def train():\n    from .x import y\n")
    assert sent.message == "cannot send 'train': 'train' imports from '.x', which is relative"


def test_the_scripts_own_name_hides_no_library(send, run_script):
    sent = send("import json\ndef train():\n    print(json.dumps({}))\n", run=False)
    shadow = sent.folder / "json.py"
    (sent.folder / "script.py").rename(shadow)
    assert run_script(shadow).stdout == "{}\n"


def test_spawned_processes_find_the_definitions_again(send):
    sent = send("""
        import multiprocessing
        import types
        offset = types.SimpleNamespace(n=10)
        def work(x):
            return x + offset.n
        def train():
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1, 2]))
    """)
    assert sent.out == "[11, 12]\n"
