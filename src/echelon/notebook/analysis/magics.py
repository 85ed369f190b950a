"""Magics and `!` commands of a cell as plain Python with the same line numbers, or refused by name.

A text that is Python is left alone. Otherwise the line at which the parser stops is looked at: so a `%` or
`!` inside a text in quotes is never taken for a magic. What replaces a line calls functions that the step's
process provides (`beside/shell.py`); their names begin with `_echelon_`."""

from __future__ import annotations

import ast
import builtins
import io
import re
import shlex
import tokenize
import warnings

from echelon.notebook.analysis.cells import CellLine, InvalidNotebook

OWN = "_echelon_"
# They change how a notebook looks, or what its kernel does: nothing that a step needs.
_WITHOUT_EFFECT = frozenset((
    "autoreload", "autosave", "colors", "config", "doctest_mode", "history", "load_ext", "matplotlib",
    "notebook", "pdb", "pdoc", "pinfo", "pinfo2", "pprint", "precision", "psource", "pylab", "reload_ext",
    "tensorboard", "who", "whos", "xmode",
))  # fmt: skip
_SHOWN_ONLY = frozenset(("html", "HTML", "javascript", "js", "latex", "markdown", "svg"))
_SHELLS = {"bash": "bash", "sh": "sh", "script": ""}
_TIMED = ("time", "timeit", "prun", "memit")
_TIMING = re.compile(r"(?:-[nrpsltTD]\s*[\w.]+|-[ocqtv]+)(?:\s+|$)")  # their own flags
_TEXTS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_IPYTHON = "get_ipython"
_LINE = re.compile(r"(?P<indent>\s*)(?:(?P<target>[\w., ]+?)\s*=\s*)?(?P<sign>[%!])(?P<rest>.*)", re.DOTALL)
_HELP = re.compile(r"\s*(\?{1,2}[\w.]+|[\w.*]+\?{1,2})\s*$")
_FIELD = re.compile(r"(?<![$\w{]){([^{}]+)}")
_OUTSIDE_QUOTES = r"(?=(?:[^']*'[^']*')*[^']*$)"  # IPython leaves $x to the shell between single quotes
_DOLLAR = re.compile(rf"(?<![$\\])\$([^\W\d]\w*)(?![\w.]){_OUTSIDE_QUOTES}")


def plain_code(text: str, where: str | CellLine) -> str:
    """The same cell in plain Python; raises InvalidNotebook for a magic that is not known, or for text that
    is not Python."""
    if text.lstrip().startswith("%%"):
        return _cell_magic(text, where)
    lines = text.split("\n")
    for _ in range(len(lines) + 1):
        problem = _problem("\n".join(lines))
        if problem is None:
            return _without_ipython("\n".join(lines), where)
        at = min(problem.lineno or 1, len(lines)) - 1
        # A block that holds nothing but a magic is refused one line further down.
        magic = next((line for line in (at, at - 1) if line >= 0 and _is_magic(lines[line])), None)
        if magic is None:
            raise InvalidNotebook(
                _on_line(where, at + 1),
                f"this is not Python: {problem.msg}",
                hint=f"the line is {lines[at].strip()[:60]!r}",
            )
        _replace(lines, magic, where)
    raise InvalidNotebook(where, "its magics cannot be read", hint="write it in plain Python")


def _problem(text: str) -> SyntaxError | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text)
        except SyntaxError as error:
            return error
        except ValueError as error:  # a NUL byte
            return SyntaxError(str(error))
    return None


def _is_magic(line: str) -> bool:
    return _LINE.fullmatch(line) is not None or _HELP.fullmatch(line) is not None


def _replace(lines: list[str], at: int, where: str | CellLine) -> None:
    """Replace a magic and the lines that it is continued on."""
    blank = 0
    while lines[at].endswith("\\") and at + 1 < len(lines):
        following = lines.pop(at + 1)
        lines[at] = f"{lines[at][:-1]} {following.strip()}"
        blank += 1
    lines[at + 1 : at + 1] = [""] * blank  # the lines below keep their numbers
    found = _LINE.fullmatch(lines[at])
    if found is None:  # help
        lines[at] = f"{_indent(lines[at])}pass"
        return
    new = _line_magic(found, _on_line(where, at + 1))
    lines[at] = f"{found['indent']}{new}"


def _line_magic(found: re.Match[str], where: str | CellLine) -> str:
    target, rest = (found["target"] or "").strip(), found["rest"]
    given = f"{target} = " if target else ""
    if found["sign"] == "!":
        command = rest.removeprefix("!").strip()
        return f"{given}{OWN}lines({_shell(command)})" if target else f"{OWN}shell({_shell(command)})"
    name, _, words = rest.partition(" ")
    words = words.strip()
    match name:
        case "pip" | "conda":
            return f"{OWN}shell({_shell(f'{name} {words}')})"
        case "sx" | "system":
            return f"{given}{OWN}lines({_shell(words)})"
        case _ if name in _TIMED and (not target or name == "time"):
            code = _timed(given, words if name == "time" else _without_flags(words), where)
            return _in_a_line(code) if name == "timeit" else code
        case "cd":
            return f"{OWN}cd({_shell(words)})"
        case "env" | "set_env" if "=" in words or " " in words:
            key, _, value = words.replace(" ", "=", "=" not in words).partition("=")
            return f"{OWN}env({key.strip()!r}, {_shell(value.strip())})"
        case "env" | "pwd":
            return f"{given}{OWN}{name}({repr(words) if name == 'env' and words else ''})"
    if name in _WITHOUT_EFFECT and not target:
        return "pass"
    raise InvalidNotebook(where, f"the magic %{name} is not known here", hint=_instead(name))


def _timed(given: str, words: str, where: str | CellLine) -> str:
    """The code that a magic measures, which may be a magic itself."""
    found = _LINE.fullmatch(words)
    if not words or _problem(words) is None:
        return f"{given}{words}" if words else "pass"
    if found is not None and not given:
        return _line_magic(found, where)
    raise InvalidNotebook(where, f"this is not Python: {words[:60]!r}", hint="write it on a line of its own")


def _in_a_line(code: str) -> str:
    """What `%timeit` measures: it shows no value, and the names that it sets are its own."""
    if _problem(code) is not None:
        return code
    found = []
    for each in ast.parse(code).body:
        targets = each.targets if isinstance(each, ast.Assign) else []
        if isinstance(each, ast.Expr) or (targets and all(isinstance(one, ast.Name) for one in targets)):
            found.append(f"({ast.unparse(each.value)}, None)[1]")  # type: ignore[attr-defined]
        else:
            found.append(ast.unparse(each))
    return code if any("\n" in each for each in found) else "; ".join(found)


def _in_a_function(setup: str, body: str) -> str:
    """What `%%timeit` measures, in the place of its cell: the names that it sets are its own."""
    inside: set[int] = set()  # lines that continue a text in quotes
    for token in tokenize.generate_tokens(io.StringIO(body).readline):
        if token.type in _TEXTS:
            inside.update(range(token.start[0] + 1, token.end[0] + 1))
    lines = [
        line if number in inside or not line.strip() else f" {line}"
        for number, line in enumerate(body.rstrip().split("\n"), 1)
    ]
    first = [f" {setup}"] if setup else []
    return "\n".join([f"def {OWN}timed():", *first, *lines, " return", f"{OWN}timed()"])


def _without_flags(words: str) -> str:
    while (found := _TIMING.match(words)) is not None:
        words = words[found.end() :]
    return words


def _cell_magic(text: str, where: str | CellLine) -> str:
    lines = text.split("\n")
    first = next(at for at, line in enumerate(lines) if line.strip())
    name, _, words = lines[first].strip().removeprefix("%%").partition(" ")
    words, body, above = words.strip(), "\n".join(lines[first + 1 :]), "\n" * first
    if name in ("writefile", "file"):
        flag, _, path = words.rpartition(" ")
        given = f"{OWN}filled({_shell(path)})" if _fields(path) else repr(path)
        return f"{above}{OWN}write_file({given}, {body + chr(10)!r}, {flag.strip() in ('-a', '--append')})"
    if name in _SHELLS:
        return above + _script(f"{_SHELLS[name]} {words}".strip(), body, _on_line(where, first + 1))
    if name in _SHOWN_ONLY:
        return f"{above}pass"
    if name == "timeit" and body.strip():
        return f"{above}{_in_a_function(_without_flags(words), plain_code(body, where))}"
    if name in _TIMED or (name == "capture" and _only_flags(words)):
        return f"{above}pass\n{plain_code(body, where)}"
    raise InvalidNotebook(
        _on_line(where, first + 1), f"the magic %%{name} is not known here", hint=_instead(name)
    )


def _script(line: str, body: str, where: str | CellLine) -> str:
    """A program with the cell as its input; `--out` and `--err` name the variables for what it prints."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InvalidNotebook(where, f"this is not a command: {error}", hint="close its quotes") from None
    program: list[str] = []
    kept: dict[str, str] = {}
    raises = True
    while words:
        flag, equals, value = words.pop(0).partition("=")
        if flag in ("--out", "--err") and (equals or words):
            kept[flag] = value if equals else words.pop(0)
        elif flag == "--no-raise-error":
            raises = False
        elif flag in ("--bg", "--proc"):
            hint = "start it with subprocess.Popen, in the step that uses it"
            raise InvalidNotebook(where, f"{flag} is not known here", hint=hint)
        else:
            program.append(flag + equals + value)
    targets = f"{', '.join(kept.values())} = " if kept else ""
    what = f"{OWN}words({_shell(line_of(program))})" if _fields(line) else repr(program)
    more = f", {tuple(each[2:] for each in kept)!r}" if kept else ""
    return f"{targets}{OWN}script({what}, {body!r}{more}{'' if raises else ', raises=False'})"


def line_of(words: list[str]) -> str:
    """Words as a line that has them again; variables in them are filled in before it is split."""
    return " ".join(word if re.fullmatch(r"[\w{}$./=:,+-]+", word) else f'"{word}"' for word in words)


def _fields(text: str) -> bool:
    return bool(_FIELD.search(text) or _DOLLAR.search(text))


def _on_line(where: str | CellLine, line: int) -> str | CellLine:
    return CellLine(cell=where.cell, line=line) if isinstance(where, CellLine) else f"{where}, line {line}"


def _without_ipython(text: str, where: str | CellLine) -> str:
    """The text with calls such as `get_ipython().system("ls")` replaced: a step has no IPython."""
    if _IPYTHON not in text:
        return text
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Call)
        and getattr(node.func.value.func, "id", "") == _IPYTHON
    ]
    data = text.encode()
    starts = [0]
    for line in data.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        begin = starts[call.lineno - 1] + call.col_offset
        end = starts[(call.end_lineno or call.lineno) - 1] + (call.end_col_offset or 0)
        new = _instead_of(call, _on_line(where, call.lineno)).encode()
        lines = data[begin:end].count(b"\n") - new.count(b"\n")
        data = data[:begin] + b"(" + new + b"\n" * lines + b")" + data[end:]
    return data.decode()


def _instead_of(call: ast.Call, where: str | CellLine) -> str:
    """What a call of IPython does, as an expression."""
    assert isinstance(call.func, ast.Attribute)
    words = [getattr(each, "value", None) for each in call.args]
    method = call.func.attr
    if all(isinstance(each, str) for each in words) and not call.keywords:
        texts = [str(each) for each in words]
        made = {
            ("system", 1): "!{}",
            ("getoutput", 1): "_ = !{}",
            ("magic", 1): "%{}",
            ("run_line_magic", 2): "%{} {}",
            ("run_cell_magic", 3): "%%{} {}\n{}",
        }.get((method, len(texts)))
        if made is not None:
            code = plain_code(made.format(*texts), where).strip().removeprefix("_ = ")
            code = "None" if code == "pass" else code
            if _is_expression(code):
                return code
    raise InvalidNotebook(
        where,
        f"get_ipython().{method}(...) is not known here in this form",
        hint="write the magic or the command itself, on a line of its own",
    )


def _is_expression(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def _only_flags(words: str) -> bool:
    return all(word.startswith("-") for word in words.split())


def _instead(name: str) -> str:
    if name == "run":
        return "import what the script has; a step's names must be seen in the notebook"
    if name == "capture":
        return "without a variable it is known; else use contextlib.redirect_stdout"
    return "write it in plain Python, or tag the cell skip"


def _shell(command: str) -> str:
    """A command as Python. What stands in braces is the notebook's variable, as in IPython; an expression
    there, and `$x`, are the notebook's if it has the names, and otherwise the shell's.
    """
    fields = dict.fromkeys(_FIELD.findall(command))
    names = [each for each in fields if each.isidentifier() and not hasattr(builtins, each)]
    given = [f"{name!r}: {name}" for name in names]
    perhaps = {f"${name}": name for name in _DOLLAR.findall(command)}
    perhaps |= {each: each for each in fields if not each.isidentifier()}
    for key, text in perhaps.items():
        there = _if_there(text)
        if there:
            given.append(f"**({{{key!r}: {text}}} if {there} else {{}})")
    return f"{command!r}, {{{', '.join(given)}}}" if given else repr(command)


def _if_there(text: str) -> str:
    """The condition under which an expression can be computed; empty for text that is not meant as one."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    names = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name)}
    names = {name for name in names if not hasattr(builtins, name)}
    if not isinstance(tree, ast.Name | ast.Attribute | ast.Subscript | ast.Call | ast.BinOp) or not names:
        return ""
    return " and ".join(f"({name!r} in dir() or {name!r} in globals())" for name in sorted(names))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
