"""Classes, closures and decorated functions are what they were, whatever was done to them after typing."""


def test_classes_of_every_kind(send):
    program = """
        import abc, enum, typing
        from dataclasses import dataclass, field

        @dataclass
        class Config:
            lr: float = 0.1
            names: list[str] = field(default_factory=list)

        @dataclass(frozen=True, slots=True)
        class Point:
            x: int
            def twice(self):
                return double(self.x)

        class Color(enum.Enum):
            RED = 1

        class Pair(typing.NamedTuple):
            a: int

        class Trouble(Exception):
            pass

        class Base(abc.ABC):
            @property
            def size(self):
                return self._size()
            @abc.abstractmethod
            def _size(self): ...

        class Derived(Base):
            class Inner:
                value = 5
            def _size(self):
                return type(super()).__name__ + str(self.Inner.value)
            @staticmethod
            def run(color):
                print(Config(), Point(2).twice(), color, Pair(1), Derived().size, colors, instance, point)
                try:
                    raise Trouble("x")
                except Trouble as error:
                    print(repr(error))

        def double(x):
            return 2 * x

        colors = {Color.RED: "red"}
        instance = Config(lr=0.5)
        point = Point(7)
    """
    sent = send(program, "Derived.run, (Color.RED,)")
    assert sent.out == (
        "Config(lr=0.1, names=[]) 4 Color.RED Pair(a=1) super5 {<Color.RED: 1>: 'red'} "
        "Config(lr=0.5, names=[]) Point(x=7)\nTrouble('x')\n"
    )
    assert sent.made["python"] is None
    assert sent.made["name"] == "run"


def test_changes_made_after_typing_travel(send):
    sent = send("""
        import types
        RATE = 0.1

        class Settings:
            rate = 0.1
            depth = RATE * 10
            names = ["a"]
            kept = 3

        def train(
            rate=RATE, names=[], *, table={"é": RATE}, settings=Settings, missing=types.SimpleNamespace(a=1)
        ):
            print(rate, names, table, settings is Settings, missing, train.calls)
            print(Settings.rate, Settings.depth, Settings.names, Settings.kept, Settings.added, RATE)

        train.calls = 2
        train.__defaults__[1].append("grown")
        RATE = 0.9
        Settings.rate = 0.5
        Settings.names.append("b")
        Settings.added = types.SimpleNamespace(b=2)
    """)
    assert sent.out == (
        "0.1 ['grown'] {'é': 0.1} True namespace(a=1) 2\n"
        "0.5 1.0 ['a', 'b'] 3 namespace(b=2) 0.9\n"
    )  # fmt: skip


def test_decorators_are_kept_and_not_applied_twice(send):
    sent = send("""
        import functools

        calls = []

        def without_wraps(function):
            def wrapper(*args):
                calls.append(function.__name__)
                return function(*args)
            return wrapper

        def with_wraps(label):
            def decorate(function):
                @functools.wraps(function)
                def wrapper(*args):
                    calls.append(label)
                    return function(*args)
                return wrapper
            return decorate

        @functools.lru_cache(maxsize=None)
        def fibonacci(n):
            return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

        @with_wraps("wrapped")
        def helper(n):
            return fibonacci(n)

        @without_wraps
        @with_wraps("outer")
        def train():
            print(helper(10), calls, fibonacci.cache_info().maxsize)
    """)
    assert sent.out == "55 ['train', 'outer', 'wrapped'] None\n"
    assert sent.made["python"] is None


def test_closures_carry_their_variables(send):
    program = """
        import json
        scale = 100

        def prepare(k, *rest):
            import math
            data = {"k": [k]}
            note = '''
        as typed'''
            def step(i):
                return i * k * scale
            def factorial(n):
                return 1 if n == 0 else n * factorial(n - 1)
            if k:
                def deeper():
                    return factorial(4)
            def scale_():
                return note
            def train(n, *, base=k):
                '''A text
            with lines
        of its own.'''
                print([step(i) for i in range(n)], deeper(), data, math.floor(1.5), rest, scale_(), base)
                print(repr(train.__doc__))
            return train

        train = prepare(2, "x")
        other = prepare(3)

        def both():
            train(1)
            other(1)
    """
    sent = send(program, "prepare(5, None), (2,)")
    first, second, doc, _ = sent.out.split("\n")
    assert first == "[0, 500] 24 {'k': [5]} 1 (None,) "
    assert second == "as typed 5"
    assert doc == repr("A text\n    with lines\nof its own.")
    assert sent.made["python"] is None


def test_closures_under_a_global_name(send):
    sent = send("""
        def make(k):
            def run(n):
                return n * k
            return run

        double, triple = make(2), make(3)
        same = double

        def train():
            print(double(5), triple(5), same is double)
    """)
    assert sent.out == "10 15 True\n"


def test_a_variable_that_functions_assign_together(send):
    program = """
        def make():
            count = 0
            def up():
                nonlocal count
                count += 1
            def get():
                return count
            def both():
                up(); up()
                print(get(), count)
            return up, get, both

        up, get, both = make()

        def train():
            up()
            print(get())

        def alone():
            print(get())
    """
    assert send(program, "both").out == "2 2\n"
    assert send(program, "alone").out == "0\n"
    assert send(program, "train").message == "cannot send 'train': 'get' and 'up' share the variable 'count'"


def test_order_of_definitions_follows_what_is_used_at_once(send):
    sent = send("""
        from dataclasses import dataclass

        registry = {}

        def train():
            print(sorted(registry), Small().describe(), default)

        def register(cls):
            registry[cls.__name__] = cls
            note(cls)
            return cls

        seen = []

        def note(cls):
            seen.append(Later if len(seen) > 5 else cls)

        @dataclass
        class Options:
            a: int = 1

        default = Options(a=3)

        class Parent:
            def describe(self, options=default):
                return make(options)

        @register
        class Small(Parent):
            pass

        def make(options, cls=Small):
            return cls.__name__, options

        class Later(Small):
            pass
        registry.clear(); seen.clear()
    """)
    assert sent.out == "['Small'] ('Small', Options(a=3)) Options(a=3)\n"


def test_definitions_inside_blocks_and_aliases(send):
    sent = send("""
        try:
            import not_there
        except ImportError:
            def helper():
                return '''
              kept'''
        if True:
            class Thing:
                name = "thing"
        alias, Renamed = helper, Thing

        def train():
            print(repr(alias()), Renamed.name, alias is helper)
    """)
    assert sent.out == "'\\n      kept' thing True\n"


def test_classes_made_with_type(send):
    program = """
        import types

        class Base:
            def go(self):
                return 9

        class Net:
            "typed, and made again"

        Net = type("Net", (Base,), {})
        Other = type("Made", (), {"go": lambda self: print("went", Net().go(), type(self).__name__)})
        thing = Other()
        thing.stop = types.MethodType(lambda self: print("stopped", Net.__mro__[1].__name__), thing)
    """
    assert send(program, "thing.go").out == "went 9 Made\n"
    assert send(program, "thing.stop").out == "stopped Base\n"
