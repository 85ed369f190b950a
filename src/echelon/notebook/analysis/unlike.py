"""What the text shows that steps do unlike a plain run of all cells, told with its cell before anything runs.
Pure.

Steps hand on variables and the state of their process (`beside/state.py`). What is left: steps of which
neither comes before the other, and what no other process can get."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence

from echelon.notebook.analysis.magics import OWN
from echelon.notebook.analysis.parameters import Code
from echelon.notebook.analysis.steps import Gathered, StepCells
from echelon.notebook.analysis.tables import find_copies

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
    """Values that the prelude makes of the time, or of what one process has, and that several steps use."""
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


def _tree(code: Code) -> ast.Module:
    return ast.parse(code.text)
