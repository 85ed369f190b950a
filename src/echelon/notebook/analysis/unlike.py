"""What the text shows that steps do unlike a plain run of all cells: warnings, each with its cell, before
anything runs. Pure.

Steps hand on variables and the state of their process (`beside/state.py`). What is left: steps of which
neither comes before the other, what no other process can get, and tables. Arrays of a pandas table, a table
made of an array, before pandas 3 also columns and slices are one memory where they are made, and copies of
each other in every later step: that matters where a later step changes one of them in place and the other is
read after that."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence

from echelon.notebook.analysis.magics import OWN
from echelon.notebook.analysis.parameters import Code
from echelon.notebook.analysis.steps import Gathered, StepCells

_LIBRARY = ("pd", "pandas")
_MAKERS = ("DataFrame", "Series")
_SAME = ("asarray", "from_numpy", "as_tensor")  # called with an array, they give one in its memory
_RESHAPED = ("reshape", "ravel", "squeeze", "view", "transpose", "swapaxes")
_CHANGING = ("fill", "sort", "partition", "put", "shuffle")
_STATE = {
    r"os\.(chdir|fchdir)|" + OWN + "cd": "the current folder",
    r"os\.environ.*|os\.(putenv|unsetenv)|" + OWN + "env": "the environment",
    r"sys\.path\b.*": "the search path",
    r".*\b(set_printoptions|set_option|seterr|set_default_dtype)|.*\brcParams\b.*|plt\.style\.use": "options",
    r"logging\.(basicConfig|disable)|.*\.(addHandler|setLevel)": "logging",
    r"warnings\.(filterwarnings|simplefilter)": "the warnings that are shown",
}
_STAYS = {
    r"signal\.signal": "a signal's handler",
    r"atexit\.register": "what is done at the end of the process",
    r"(tf|tensorflow)\.random\.set_seed|.*\bset_random_seed": "TensorFlow's seed",
    r"(codecs|csv|mimetypes|copyreg)\.(register\w*|add_type|pickle)|.*\bregister_kl": "a registration",
    r"resource\.setrlimit|threading\.stack_size|faulthandler\.enable": "a setting of the process",
    r"sys\.set(trace|profile)|threading\.set(trace|profile)": "a trace function",
    r"sys\.std(out|err)": "a stream in the place of Python's own",
}
_SEEDS = re.compile(r"seed", re.IGNORECASE)
_DRAWS = re.compile(
    r"random\..*|(np|numpy)\.random\..*|rng\..*|torch\.(rand\w*|normal|multinomial|bernoulli)|"
    r".*\b(shuffle|sample|choice|permutation|fit|train_test_split|random_split|normal_|uniform_|"
    r"Linear|Conv\w+|Embedding|LSTM|GRU|DataLoader|Dropout|Dense)"
)
# What another process makes otherwise: the prelude runs in every step.
_MOMENT = re.compile(
    r"time\.(time|time_ns|monotonic|perf_counter|strftime|ctime|localtime|gmtime)|"
    r"(datetime\.)?(datetime|date)\.(now|utcnow|today)|(pd|pandas)\.Timestamp\.(now|today)|"
    r"(uuid\.)?uuid[14]|os\.(getpid|urandom)|secrets\.token_\w+|tempfile\.(mkdtemp|mkstemp|mktemp)"
)
_PURE = frozenset(dir(builtins)) - {"print", "open", "input", "next", "exec", "eval", "setattr", "iter", "id"}


def find_copies(gathered: Gathered, *, views: bool) -> Iterator[str]:
    """Warnings, each with its cell. With `views`, parts of tables share their memory, too, as they do before
    pandas 3.
    """
    tables = {name for step in gathered.steps for code in step.cells for name in _tables(_tree(code))}
    reader = _Reader(tables, views)
    for number, step in enumerate(gathered.steps):
        for code in step.cells:
            for one, other in dict.fromkeys(reader.pairs(_tree(code))):
                if where := reader.changed_in(gathered.steps[number + 1 :], one, other):
                    told = f"{one!r} may share the memory of {other!r}, and in step {where!r}, which changes"
                    yield f"cell {code.cell}: {told} one of them, it is a copy"


class _Reader:
    def __init__(self, tables: set[str], views: bool) -> None:
        self._tables, self._views = tables, views

    def pairs(self, tree: ast.Module) -> Iterator[tuple[str, str]]:
        """A name that is given a value, and the name whose memory that is."""
        for node in tree.body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for name, value in _matched(target, node.value):
                    yield from ((name, other) for other in self._shared(value) if other != name)

    def _shared(self, value: ast.expr) -> Iterator[str]:
        """The names whose memory a value is."""
        match value:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                for part in parts:
                    yield from self._shared(part)
            case ast.Dict(values=parts):
                for part in parts:
                    yield from self._shared(part)
            case ast.Attribute(attr="values", value=table):
                yield from _root(table)
            case ast.Call(func=ast.Attribute(attr="to_numpy", value=table)):
                yield from _root(table)
            case ast.Call(func=ast.Attribute(attr=called, value=ast.Name(id=library)), args=[first, *_]):
                if library in _LIBRARY and called in _MAKERS:
                    if isinstance(first, ast.Name) and (self._views or _asks_for_none(value)):
                        yield first.id
                elif called in _SAME:
                    yield from self._shared(first)
                    yield from (name for name in _root(first) if name in self._tables)
            case ast.Call(func=ast.Attribute(attr=called, value=of)) if called in _RESHAPED:
                yield from self._shared(of)
            case ast.Attribute(attr="T", value=of) | ast.Subscript(value=of):
                yield from self._shared(of)
        if self._views and _is_part(value):
            yield from (name for name in _root(value) if name in self._tables)

    def changed_in(self, steps: Sequence[StepCells], one: str, other: str) -> str:
        """The step that changes one of two names in place before the other is read; "" if there is none."""
        changes: dict[str, str] = {}
        for step in steps:
            for statement in (each for code in step.cells for each in _tree(code).body):
                changes.update(dict.fromkeys(self._changed(statement) & {one, other}, step.name))
                named = [each for each in ast.walk(statement) if isinstance(each, ast.Name)]
                read = {each.id for each in named if isinstance(each.ctx, ast.Load)}
                for changed, left in ((one, other), (other, one)):
                    if changed in changes and left in read:
                        return changes[changed]
                bound = {each.id for each in named if not isinstance(each.ctx, ast.Load)}
                if {one, other} & (bound - self._changed(statement)):
                    return ""  # it is another value from here on
        return ""

    def _changed(self, statement: ast.stmt) -> set[str]:
        """Names of what a statement changes in place."""
        found: set[str] = set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
                if not _is_column(node) or (self._views and isinstance(statement, ast.AugAssign)):
                    found.update(_root(node))
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                found |= {node.target.id} - self._tables
            elif isinstance(node, ast.Call) and _method_of(node) in _CHANGING:
                of = node.args[:1] if _method_of(node) == "shuffle" else [node.func]
                found.update(name for each in of for name in _root(each))
        return found


def _matched(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        for part, its in zip(target.elts, value.elts, strict=False):
            yield from _matched(part, its)


def _tables(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and getattr(called.value, "id", "") in _LIBRARY:
                yield from (each.id for each in node.targets if isinstance(each, ast.Name))


def _method_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _root(value: ast.expr) -> list[str]:
    """The name that a chain of attributes and subscripts begins with."""
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return [value.id] if isinstance(value, ast.Name) else []


def _asks_for_none(call: ast.Call) -> bool:
    return any(each.arg == "copy" and ast.unparse(each.value) == "False" for each in call.keywords)


def _is_part(value: ast.expr) -> bool:
    """Whether it is a column or a slice of something: a mask and a list of columns make copies."""
    if isinstance(value, ast.Subscript):
        index = value.slice.elts[0] if isinstance(value.slice, ast.Tuple) else value.slice
        return _is_column(value) or isinstance(index, ast.Slice)
    return isinstance(value, ast.Attribute) and value.attr == "T"


def _is_column(node: ast.Subscript) -> bool:
    """`table["a"]`; setting it puts another column in its place."""
    text = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
    return text and isinstance(node.value, ast.Name)


def _tree(code: Code) -> ast.Module:
    return ast.parse(code.text)


def find_differences(
    gathered: Gathered, before: Mapping[str, frozenset[str]], *, views: bool = False
) -> list[str]:
    """Warnings, each with its cell; with `views`, pandas is one in which parts of a table are its memory."""
    codes = [*gathered.prelude, *(code for step in gathered.steps for code in step.cells)]
    return [
        *_of_ipython(codes),
        *_of_caches(gathered),
        *_of_moments(gathered),
        *find_copies(gathered, views=views),
        *_of_what_stays(gathered, before),
        *_of_unordered(gathered, before),
    ]


def _of_ipython(codes: Sequence[Code]) -> Iterator[str]:
    for code in codes:
        if any(isinstance(node, ast.Name) and node.id == "get_ipython" for node in ast.walk(_tree(code))):
            yield f"cell {code.cell}: a step has no IPython, so that get_ipython is not defined there"


def _of_caches(gathered: Gathered) -> Iterator[str]:
    """Functions whose cached results matter, and that several steps call: each has a cache of its own."""
    readers: dict[str, set[str]] = {}
    for step in gathered.steps:
        for code in step.cells:
            for node in ast.walk(_tree(code)):
                if isinstance(node, ast.Name):
                    readers.setdefault(node.id, set()).add(step.name)
    codes = [*gathered.prelude, *(code for step in gathered.steps for code in step.cells)]
    asked = {
        getattr(node.value, "id", "")
        for code in codes
        for node in ast.walk(_tree(code))
        if isinstance(node, ast.Attribute) and node.attr in ("cache_info", "cache_clear")
    }
    for code in codes:
        for node in ast.walk(_tree(code)):
            if not isinstance(node, ast.FunctionDef) or not any(map(_is_cache, node.decorator_list)):
                continue
            if len(readers.get(node.name, ())) > 1 and (node.name in asked or _may_be_impure(node)):
                yield (
                    f"cell {code.cell}: each step has a cache of its own for {node.name}, and calls the "
                    "function again for what an earlier step has cached"
                )


def _of_moments(gathered: Gathered) -> Iterator[str]:
    """Values that the prelude makes of the time or of its own process, and that several steps use."""
    used = [_names_read(step.cells) for step in gathered.steps]
    for code in gathered.prelude:
        for node in _tree(code).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            called = [ast.unparse(each.func) for each in ast.walk(node.value) if isinstance(each, ast.Call)]
            of = next(filter(_MOMENT.fullmatch, called), None)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [each.id for part in targets for each in ast.walk(part) if isinstance(each, ast.Name)]
            for name in names if of is not None else ():
                if sum(name in each for each in used) > 1:
                    yield (
                        f"cell {code.cell}: each step makes {name!r} anew, so that {of} gives it another "
                        "value there (made in a step, it is handed on)"
                    )


def _names_read(codes: Sequence[Code]) -> set[str]:
    return {
        node.id
        for code in codes
        for node in ast.walk(_tree(code))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _is_cache(decorator: ast.expr) -> bool:
    name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
    return name.rpartition(".")[2] in ("lru_cache", "cache")


def _may_be_impure(function: ast.FunctionDef) -> bool:
    """Whether a function may do more than compute its result from its arguments."""
    own = {each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
    for node in (part for statement in function.body for part in ast.walk(statement)):
        if isinstance(node, ast.Global | ast.Nonlocal):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            root = name.partition(".")[0]
            if root not in own | {"math", function.name} and name not in _PURE:
                return True
    return False


def _of_what_stays(gathered: Gathered, before: Mapping[str, frozenset[str]]) -> Iterator[str]:
    for step in gathered.steps:
        if not any(step.name in names for names in before.values()):
            continue
        for cell, name in _done(step.cells):
            for pattern, what in _STAYS.items():
                if re.fullmatch(pattern, name):
                    hint = "a cell tagged imports runs in every step"
                    yield f"cell {cell}: {what} stays in step {step.name!r} ({hint})"


def _of_unordered(gathered: Gathered, before: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """Steps that stand earlier in the notebook, change the state of the process, and do not come before."""
    for number, later in enumerate(gathered.steps):
        for step in gathered.steps[:number]:
            if step.name in before[later.name] or later.name in before[step.name]:
                continue
            for what, cell in dict(_changes_of_state(step)).items():
                yield (
                    f"cell {cell}: step {step.name!r} changes {what}, and step {later.name!r} does not see "
                    f"it: neither comes before the other (prev:{step.name} would order them)"
                )
            drawn = _draws(step)
            codes = [*gathered.prelude, *_cells_before(gathered, before[later.name])]
            seeded = any(_SEEDS.search(code.text) for code in codes)
            again = any(_SEEDS.search(code.text) for code in later.cells)
            if drawn and seeded and not again and _draws(later):
                yield (
                    f"cell {drawn}: steps {step.name!r} and {later.name!r} both draw random numbers, and "
                    f"neither comes before the other: {later.name!r} gets others than in a plain run "
                    f"(prev:{step.name} would order them; or seed in each)"
                )


def _cells_before(gathered: Gathered, names: frozenset[str]) -> Iterator[Code]:
    for step in gathered.steps:
        if step.name in names:
            yield from step.cells


def _changes_of_state(step: StepCells) -> Iterator[tuple[str, int]]:
    for cell, name in _done(step.cells):
        for pattern, what in _STATE.items():
            if re.fullmatch(pattern, name) and not name.endswith((".get", ".copy", ".items", ".keys")):
                yield what, cell


def _draws(step: StepCells) -> int:
    """The first cell that draws random numbers, so far as can be seen; 0 if none does."""
    return next((cell for cell, name in _done(step.cells) if _DRAWS.fullmatch(name)), 0)


def _done(codes: Sequence[Code]) -> Iterator[tuple[int, str]]:
    """What cells call and what they set, with dots; `os.environ["X"] = ...` sets `os.environ`."""
    for code in codes:
        for node in ast.walk(_tree(code)):
            if isinstance(node, ast.Call):
                yield code.cell, ast.unparse(node.func)
            elif isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
                target: ast.expr = node
                while isinstance(target, ast.Subscript):
                    target = target.value
                yield code.cell, ast.unparse(target)
