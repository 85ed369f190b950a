"""What people write in notebooks, in parts that may stand in one step or in several. `N` is a number of its
own for each use, so that an idiom can be there twice; `note` keeps what is seen.

A `|` before a part means that it may also stand in a cell that every step runs (`imports`, `functions`).
Parts are separated by a line of dashes."""

from __future__ import annotations

IDIOMS: dict[str, str] = {}


def _idioms(**texts: str) -> None:
    IDIOMS.update({name: text.strip("\n") for name, text in texts.items()})


# Classes
_idioms(
    method_replaced="""
|class AN:
    def f(self): return 1
---
aN = AN()
note(aN.f())
---
AN.f = lambda self: 2
note(aN.f())
---
note(aN.f(), AN().f())
""",
    method_replaced_seen_by_the_class_alone="""
|class AN:
    def f(self): return 1
    def g(self): return self.f()
---
def newN(self): return 5
AN.f = newN
---
note(AN().f(), AN().g())
""",
    method_replaced_seen_by_an_object_alone="""
|class AN:
    def f(self): return 1
---
aN = AN()
---
AN.f = lambda self: 3
---
note(aN.f())
""",
    method_added_by_setattr="""
|class AN:
    pass
aN = AN()
---
setattr(AN, "f", lambda self: 7)
---
note(aN.f())
""",
    property_and_static_method_replaced="""
|class AN:
    @property
    def x(self): return 1
    @staticmethod
    def s(): return 1
---
AN.x = property(lambda self: 2)
AN.s = staticmethod(lambda: 3)
---
note(AN().x, AN.s())
""",
    method_deleted="""
|class AN:
    def f(self): return 1
class BN(AN):
    def f(self): return 2
---
bN = BN()
---
del BN.f
---
note(bN.f(), BN().f())
""",
    method_of_a_base_replaced="""
|class AN:
    def f(self): return 1
---
class BN(AN):
    pass
bN = BN()
---
AN.f = lambda self: 4
---
note(bN.f())
""",
    counted_objects="""
|class AN:
    made = 0
    def __init__(self):
        type(self).made += 1
---
oneN = AN()
---
twoN = AN()
---
note(AN.made, oneN.made)
""",
    class_method_that_changes="""
|class AN:
    seen = []
    @classmethod
    def see(cls, x):
        cls.seen.append(x)
        cls.last = x
---
AN.see(1)
---
AN.see(2)
---
note(AN.seen, AN.last)
""",
    registered_subclasses="""
|class BaseN:
    kinds = {}
    def __init_subclass__(cls, **more):
        super().__init_subclass__(**more)
        BaseN.kinds[cls.__name__] = BaseN.kinds.get(cls.__name__, 0) + 1
---
class OneN(BaseN): pass
---
class TwoN(OneN): pass
oneN = OneN()
---
note(sorted(BaseN.kinds.items()), isinstance(oneN, BaseN), isinstance(TwoN(), OneN))
""",
    registered_subclasses_in_a_list="""
|registryN = []
class BaseN:
    def __init_subclass__(cls):
        registryN.append(cls.__name__)
---
class OneN(BaseN): pass
---
oneN = OneN()
---
note(registryN, type(oneN) is OneN)
""",
    metaclass_registry="""
|class MetaN(type):
    made = []
    def __new__(mcs, name, bases, names):
        cls = super().__new__(mcs, name, bases, names)
        MetaN.made.append(name)
        return cls
---
class AN(metaclass=MetaN):
    x = 1
---
class BN(AN): pass
aN = AN()
---
note(MetaN.made, aN.x, type(AN) is MetaN, isinstance(BN(), AN))
""",
    decorator_registry="""
|tableN = {}
def registerN(f):
    tableN[f.__name__] = f
    return f
---
@registerN
def oneN(): return 1
---
@registerN
def twoN(): return 2
---
note(sorted(tableN), [tableN[name]() for name in sorted(tableN)], tableN.get("oneN") is oneN)
""",
    slots="""
|class PN:
    __slots__ = ("x", "y")
    def __init__(self, x): self.x = x
---
pN = PN(1)
---
try:
    pN.other = 2
    note("set")
except AttributeError:
    note("no such slot")
note(pN.x, hasattr(pN, "y"), hasattr(pN, "__dict__"))
""",
    abstract_class="""
|import abc
class AN(abc.ABC):
    @abc.abstractmethod
    def f(self): ...
---
class BN(AN):
    def f(self): return 1
---
AN.register(int)
---
note(BN().f(), isinstance(3, AN), isinstance("", AN))
""",
    data_class="""
|import dataclasses
@dataclasses.dataclass
class DN:
    x: int = 0
    held: list = dataclasses.field(default_factory=list)
---
dN = DN(3)
eN = dataclasses.replace(dN)
---
dN.held.append(1)
---
note(dN, eN, dN.held is eN.held, dataclasses.asdict(dN))
""",
    enumeration="""
|import enum
class EN(enum.Enum):
    A = 1
    B = 2
---
xN = EN.A
---
note(xN is EN.A, xN.name, EN(2) is EN.B, list(EN))
""",
    named_tuple="""
|from collections import namedtuple
PN = namedtuple("PN", "x y")
---
pN = PN(1, 2)
---
note(pN, pN._replace(x=3), type(pN) is PN)
""",
    changed_class_of_a_library="""
import fractions as fN
---
fN.Fraction.doubledN = lambda self: self * 2
---
from fractions import Fraction as FN
note(FN(1, 2).doubledN())
""",
    descriptor="""
|class SetN:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, obj, kind=None): return getattr(obj, self.name, None)
    def __set__(self, obj, value): setattr(obj, self.name, value * 2)
class AN:
    x = SetN()
---
aN = AN()
aN.x = 1
---
aN.x += 1
---
note(aN.x, vars(aN))
""",
)

# Functions
_idioms(
    closure_that_counts="""
|def counterN(n):
    def count():
        nonlocal n
        n += 1
        return n
    return count, lambda: n
---
countN, seenN = counterN(1)
---
countN()
---
note(countN(), seenN())
""",
    default_that_grows="""
|def gN(x, had=[]):
    had.append(x)
    return list(had)
---
note(gN(1))
---
note(gN(2))
---
note(gN(3))
""",
    attribute_of_a_function="""
|def hN():
    hN.calls += 1
    return hN.calls
hN.calls = 0
---
hN()
---
hN()
---
note(hN())
""",
    a_global_that_a_function_counts="""
|totalN = 0
def addN(k):
    global totalN
    totalN += k
---
addN(1)
---
addN(2)
---
note(totalN)
""",
    a_function_defined_anew="""
|def fN(): return 1
def gN(): return fN()
---
note(gN())
---
def fN(): return 2
---
note(gN(), fN())
""",
    dispatch="""
|import functools
@functools.singledispatch
def showN(x): return "any"
---
@showN.register(int)
def _(x): return "int"
---
@showN.register
def _(x: str): return "str"
note(showN(1), showN("a"))
---
note(showN(1), showN("a"), showN(1.5), sorted(each.__name__ for each in showN.registry))
""",
    cached="""
|import functools
callsN = []
@functools.lru_cache(maxsize=None)
def squareN(x):
    callsN.append(x)
    return x * x
---
squareN(2)
---
squareN(2)
---
note(squareN(2), callsN)
""",
    cache_information="""
|import functools
@functools.lru_cache
def doubleN(x): return x * 2
---
doubleN(1)
---
doubleN(1)
---
note(doubleN(1), doubleN.cache_info().hits)
""",
    partial="""
|import functools
def fN(a, b=1): return (a, b)
---
pN = functools.partial(fN, [])
---
pN.args[0].append(1)
---
note(pN(), pN(b=3))
""",
    generator_function="""
|def rowsN(k):
    for each in range(k): yield each
---
listN = list(rowsN(3))
---
note(listN, sum(rowsN(4)))
""",
    generator_object="""
itN = iter([1, 2, 3])
next(itN)
---
next(itN)
---
note(list(itN))
""",
    bound_method="""
|class AN:
    def __init__(self): self.n = 0
    def inc(self): self.n += 1
---
aN = AN()
incN = aN.inc
---
incN()
---
note(aN.n, incN.__self__ is aN)
""",
    decorated="""
|import functools
def twiceN(f):
    @functools.wraps(f)
    def inner(*a):
        inner.calls = getattr(inner, "calls", 0) + 1
        return f(f(*a))
    return inner
@twiceN
def incN(x): return x + 1
---
note(incN(1))
---
note(incN(2))
---
note(incN(3), incN.calls, incN.__name__)
""",
    error_kept="""
try:
    try:
        {}["aN"]
    except KeyError as inner:
        raise ValueError("bN") from inner
except ValueError as error:
    errN = error
---
note(repr(errN), repr(errN.__cause__))
---
import traceback
note(errN.__traceback__ is not None, len(traceback.extract_tb(errN.__traceback__)) > 0)
""",
)

# Aliases, mutation, scopes
_idioms(
    alias="""
aN = [1]
bN = aN
---
aN.append(2)
---
note(bN, aN is bN)
---
bN.append(3)
---
note(aN, aN is bN)
""",
    alias_inside="""
aN = {"x": [1]}
bN = aN["x"]
---
bN.append(2)
---
aN["y"] = bN
---
note(aN, aN["y"] is aN["x"] is bN)
""",
    changed_by_a_function="""
|def changeN(x): x.append(len(x))
---
aN = []
---
changeN(aN)
---
changeN(aN)
note(aN)
---
note(aN)
""",
    deleted="""
xN = 1
yN = xN
---
del xN
---
note("xN" in globals(), yN)
try:
    xN
    note("there")
except NameError:
    note("gone")
""",
    deleted_of_the_prelude="""
|zN = (1, 2)
---
note(zN)
---
del zN
---
try:
    note(zN)
except NameError:
    note("gone")
""",
    deleted_and_bound_again="""
xN = [1]
---
del xN
---
xN = [2]
---
note(xN)
""",
    method_of_a_list="""
from functools import partial
seenN = []
addN = seenN.append
add_oneN = partial(seenN.append, 1)
---
addN(2)
---
add_oneN()
note(seenN)
""",
    loop_variable="""
for iN in range(3):
    lastN = iN
---
note(iN, lastN)
---
iN += 1
---
note(iN)
""",
    comprehension_scope="""
xN = 5
---
yN = [xN for xN in range(3)]
---
note(xN, yN)
""",
    bound_in_a_branch="""
if len("ab") > 1:
    xN = 1
else:
    zN = 2
---
try:
    wN = zN
except NameError:
    wN = 0
---
note(xN, wN)
""",
    unpacked="""
aN, *bN = range(4)
---
aN, bN = bN, aN
---
note(aN, bN)
""",
    walrus="""
if (nN := 10) > 3:
    pass
---
note([nN := nN + 1 for _ in range(2)], nN)
---
note(nN)
""",
    exported_function_scope="""
kN = 1
def readN(): return kN
---
kN = 2
---
note(readN())
---
kN = 3
note(readN())
""",
    a_builtin_s_name="""
listN = list
---
sumN = sum([1, 2])
---
note(listN((1, 2)), sumN)
""",
    sets_and_frozen="""
sN = {3, 1}
tN = (sN, frozenset([1]))
---
sN.add(2)
---
note(sorted(tN[0]), tN[0] is sN)
""",
    ordered_and_counted="""
import collections
cN = collections.Counter("aab")
dN = collections.defaultdict(list)
qN = collections.deque([1, 2], maxlen=2)
---
cN["b"] += 1
dN["x"].append(cN)
qN.append(3)
---
note(sorted(cN.items()), dN["x"][0] is cN, list(qN), qN.maxlen, dN["none"])
""",
    a_list_that_holds_itself="""
aN = [1]
aN.append(aN)
---
aN.append(2)
---
note(len(aN), aN[1] is aN)
""",
)

# Process state
_idioms(
    seed="""
|import random
random.seed(N)
---
note(random.random())
---
note(random.random())
---
note(random.random(), random.randint(0, 9))
""",
    seed_of_numpy="""
|import numpy as np
np.random.seed(N)
---
note(np.random.rand(2).tolist())
---
note(np.random.rand(2).tolist())
---
note(np.random.randint(0, 99))
""",
    generator_of_numpy="""
import numpy as np
rngN = np.random.default_rng(N)
---
note(rngN.integers(0, 99))
---
note(rngN.integers(0, 99))
""",
    generator_in_the_prelude="""
|import random
genN = random.Random(N)
---
note(genN.random())
---
note(genN.random())
""",
    environment="""
import os
os.environ["KEY_N"] = "one"
---
note(os.environ.get("KEY_N"))
---
import os
os.environ["KEY_N"] += "two"
os.environ.setdefault("OTHER_N", "x")
---
note(os.environ.get("KEY_N"), os.environ.pop("OTHER_N", None))
---
note(os.environ.get("OTHER_N"))
""",
    environment_of_a_command="""
import os
os.environ["SHELL_N"] = "seen"
---
outN = !echo $SHELL_N
note(list(outN))
""",
    current_folder="""
import os
os.makedirs("inN", exist_ok=True)
os.chdir("inN")
---
note(os.path.basename(os.getcwd()))
---
with open("fileN", "w") as file:
    file.write("x")
os.chdir("..")
---
note(os.path.exists("fileN"), os.path.exists("inN/fileN"))
""",
    search_path="""
import os, sys
os.makedirs("libN", exist_ok=True)
with open("libN/modN.py", "w") as file:
    file.write("value = 3")
sys.path.insert(0, os.path.abspath("libN"))
---
import modN
note(modN.value)
---
modN.value = 4
---
import modN as again
note(again.value)
""",
    module_written_and_changed="""
with open("setN.py", "w") as file:
    file.write("rate = 1\\nheld = []\\ndef get(): return rate\\n")
---
import setN
setN.rate = 5
setN.held.append(2)
---
import setN
note(setN.rate, setN.held, setN.get())
""",
    print_options="""
import numpy as np
np.set_printoptions(precision=3, suppress=True)
---
note(str(np.array([1.23456])))
---
np.set_printoptions(precision=2)
---
note(str(np.array([1.23456])))
""",
    logging_levels="""
import logging
logging.getLogger("ownN").setLevel(logging.DEBUG)
---
note(logging.getLogger("ownN").isEnabledFor(logging.DEBUG))
---
logging.disable(logging.INFO)
---
note(logging.getLogger("ownN").isEnabledFor(logging.INFO), logging.root.manager.disable)
logging.disable(logging.NOTSET)
""",
    logging_to_a_file="""
import logging, os
logN = logging.getLogger("fileN")
handlerN = logging.FileHandler(os.path.abspath("logN.txt"))
handlerN.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
logN.addHandler(handlerN)
logN.setLevel("INFO")
---
logN.info("one")
---
logN.warning("two")
note(open(handlerN.baseFilename).read(), len(logN.handlers))
""",
    logging_configured="""
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="N %(message)s")
---
logging.info("seen")
note(logging.root.level, len(logging.root.handlers), logging.root.handlers[0].formatter._fmt)
---
logging.basicConfig(level=logging.ERROR)
note(logging.root.level)
""",
    warnings_filtered="""
import warnings
warnings.filterwarnings("error", message="badN")
---
import warnings
try:
    warnings.warn("badN")
    note("passed")
except UserWarning as error:
    note("raised", str(error))
""",
    recursion_limit="""
import sys
sys.setrecursionlimit(3000 + N)
---
note(sys.getrecursionlimit())
""",
    decimal_precision="""
import decimal
decimal.getcontext().prec = 5 + N
---
note(decimal.Decimal(1) / 3)
""",
    attribute_of_a_library="""
import json
json.markN = [1]
---
json.markN.append(2)
---
import json
note(json.markN)
""",
    numpy_errors="""
import numpy as np
np.seterr(divide="raise")
---
try:
    note(np.array([1.0]) / 0)
except FloatingPointError:
    note("raised")
""",
    locale="""
import locale
locale.setlocale(locale.LC_ALL, "C")
---
note(locale.setlocale(locale.LC_NUMERIC))
""",
    context_variable="""
import contextvars
varN = contextvars.ContextVar("varN", default=0)
varN.set(3)
---
note(varN.get())
""",
    settings_of_the_process="""
import gc, os, socket, sys
gc.set_threshold(100 + N, 5, 5)
gc.disable()
os.umask(0o077)
socket.setdefaulttimeout(10 + N)
sys.setswitchinterval(0.25)
---
note(gc.get_threshold(), gc.isenabled(), socket.getdefaulttimeout(), sys.getswitchinterval())
open("privateN", "w").close()
note(oct(os.stat("privateN").st_mode))
""",
    time_zone="""
import os, time
os.environ["TZ"] = "Asia/Tokyo"
time.tzset()
---
note(time.localtime(0).tm_hour)
""",
    start_method="""
import multiprocessing
multiprocessing.set_start_method("spawn", force=True)
---
note(multiprocessing.get_start_method())
""",
    registered="""
import csv
csv.register_dialect("semicolonN", delimiter=";")
---
note("semicolonN" in csv.list_dialects())
""",
    a_file_in_the_working_folder="""
with open("dataN.txt", "w") as file:
    file.write("abc")
---
note(open("dataN.txt").read())
""",
)

# Modules
_idioms(
    submodule="""
import xml.etree.ElementTree
---
treeN = xml.etree.ElementTree.fromstring("<a><b/></a>")
note(len(treeN))
---
note(xml.etree.ElementTree.tostring(treeN))
""",
    submodule_used_later_only="""
import concurrent.futures
import email.mime.text
---
with concurrent.futures.ThreadPoolExecutor(1) as poolN:
    note(list(poolN.map(abs, [-1])))
---
note(email.mime.text.MIMEText("x").get_content_type())
""",
    submodule_brought_by_another_import="""
|import logging
---
from logging import handlers as hN
---
note(logging.handlers.SYSLOG_UDP_PORT)
""",
    module_under_another_name="""
import os.path as pN
import math as mN
---
note(pN.join("a", "b"), mN.floor(1.5))
""",
    name_of_a_module="""
from math import floor as floorN, pi as piN
---
note(floorN(piN))
""",
    module_made="""
import types
modN = types.ModuleType("modN")
modN.x = [1]
---
modN.x.append(2)
---
note(modN.x, modN.__name__)
""",
    star="""
from math import *
---
note(floor(2.5), ceil(0.5))
""",
)

# Arrays
_idioms(
    view="""
import numpy as np
aN = np.zeros(4)
bN = aN[1:3]
---
bN[0] = 5
---
note(aN.tolist(), bN.tolist())
---
aN += 1
---
note(aN.tolist(), bN.tolist(), np.shares_memory(aN, bN))
""",
    view_inside="""
import numpy as np
dN = {"all": np.arange(6).reshape(2, 3)}
dN["row"] = dN["all"][1]
---
dN["row"][:] = 0
---
note(dN["all"].tolist(), dN["row"].tolist())
""",
    transposed="""
import numpy as np
aN = np.arange(6).reshape(2, 3)
tN = aN.T
---
tN[0, 1] = 9
---
note(aN.tolist(), tN.tolist(), tN.flags.f_contiguous)
""",
    small_part_of_a_large_array="""
import numpy as np
bigN = np.arange(1000.0)
partN = bigN[::100]
---
partN[1] = -1
---
note(partN.tolist())
""",
    read_only="""
import numpy as np
aN = np.arange(3)
aN.flags.writeable = False
---
try:
    aN[0] = 9
    note("written")
except ValueError:
    note("read-only")
note(aN.tolist())
""",
    object_array="""
import numpy as np
lN = [1]
aN = np.array([lN, None], dtype=object)
---
lN.append(2)
---
note(aN.tolist(), aN[0] is lN)
""",
    structured="""
import numpy as np
aN = np.zeros(2, dtype=[("x", "i4"), ("y", "f8")])
xN = aN["x"]
---
xN[1] = 7
---
note(aN.tolist())
""",
    scalar="""
import numpy as np
sN = np.float32(1.5)
---
note(type(sN).__name__, sN + 1)
""",
    masked="""
import numpy as np
mN = np.ma.array([1, 2], mask=[False, True])
---
mN[0] = 5
---
note(mN.tolist())
""",
)

# Magics
_idioms(
    command="""
kN = 3
---
outN = !echo {kN} $kN
note(list(outN))
---
note(outN[0])
""",
    time_of_a_command="""
%time !echo seen > timedN.txt
---
note(open("timedN.txt").read())
""",
    time_of_a_statement="""
%time xN = sum([1, 2])
---
note(xN)
""",
    bash_with_an_argument="""
%%bash -s one two
echo $1 $2 > argsN.txt
---
note(open("argsN.txt").read())
""",
    bash_into_a_variable="""
%%bash --out outN
echo hello
---
note(outN)
""",
    bash_into_two_variables="""
%%bash --out oN --err eN
echo hello
echo bad >&2
---
note(oN, eN)
""",
    script_with_flags="""
%%script bash --out outN
echo from bash
---
note(outN)
""",
    written_file_with_a_name="""
nameN = "writtenN.txt"
---
%%writefile {nameN}
text {nameN}
---
note(open("writtenN.txt").read())
""",
    written_file_by_dollar="""
pathN = "dollarN.txt"
---
%%writefile -a $pathN
x
---
note(open("dollarN.txt").read())
""",
    environment_read="""
%env VAR_N=three
---
vN = %env VAR_N
note(vN)
---
import os
note(os.environ["VAR_N"])
""",
    folder_by_magic="""
import os
os.makedirs("magicN", exist_ok=True)
---
%cd magicN
---
note(os.path.basename(os.getcwd()))
%cd ..
---
hereN = %pwd
note(os.path.basename(hereN) != "magicN")
""",
    ipython="""
get_ipython().run_line_magic("env", "IPY_N=1")
get_ipython().system("echo x > ipyN.txt")
---
import os
note(os.environ.get("IPY_N"), os.path.exists("ipyN.txt"))
---
linesN = get_ipython().getoutput("echo y")
note(list(linesN))
""",
    ipython_asked="""
try:
    kindN = type(get_ipython()).__name__ != ""
except NameError:
    kindN = False
---
note(kindN)
""",
    captured="""
%%capture
xN = 1
print("hidden")
---
note(xN)
""",
    shell_list="""
filesN = !printf 'a\\nb\\n'
---
note(list(filesN), len(filesN))
""",
)

TORCH: dict[str, str] = {
    "gradient": """
import torch
wN = torch.ones(2, requires_grad=True)
(wN * 3).sum().backward()
---
note(wN.grad.tolist())
---
(wN * 2).sum().backward()
---
note(wN.grad.tolist(), wN.is_leaf)
""",
    "gradient_of_a_model": """
import torch
torch.manual_seed(N)
netN = torch.nn.Linear(2, 1)
optN = torch.optim.SGD(netN.parameters(), lr=0.1, momentum=0.9)
---
netN(torch.ones(1, 2)).sum().backward()
---
optN.step()
---
note([p.tolist() for p in netN.parameters()], [p.grad.tolist() for p in netN.parameters()])
""",
    "torch_seed": """
|import torch
torch.manual_seed(N)
---
note(torch.rand(2).tolist())
---
note(torch.rand(2).tolist())
""",
    "torch_view": """
import torch
aN = torch.zeros(4)
bN = aN.view(2, 2)[1]
---
bN.fill_(1)
---
note(aN.tolist(), bN.tolist())
""",
    "torch_of_numpy": """
import numpy as np, torch
aN = np.zeros(3)
tN = torch.from_numpy(aN)
---
tN[0] = 1
---
aN[1] = 2
---
note(aN.tolist(), tN.tolist())
""",
    "state_dict": """
import torch
torch.manual_seed(N)
netN = torch.nn.Linear(2, 1)
bestN = netN.state_dict()
---
with torch.no_grad():
    netN.weight.fill_(3)
---
note(bestN["weight"].tolist(), netN.weight.tolist())
""",
    "graph_behind_a_tensor": """
import torch
wN = torch.ones(2, requires_grad=True)
lossN = (wN * 3).sum()
---
note(lossN.item())
---
try:
    lossN.backward()
except RuntimeError:
    pass
note(wN.grad is None or wN.grad.tolist())
""",
    "torch_defaults": """
import torch
torch.set_default_dtype(torch.float64)
torch.set_printoptions(precision=2)
torch.set_float32_matmul_precision("medium")
torch.set_num_threads(1)
torch.backends.cudnn.benchmark = True
---
note(torch.ones(1).dtype, str(torch.tensor(1.23456)), torch.backends.cudnn.benchmark)
note(torch.get_float32_matmul_precision(), torch.get_num_threads())
torch.set_default_device("meta")
---
note(torch.ones(1).device)
""",
}
TORCH = {name: text.strip("\n") for name, text in TORCH.items()}
