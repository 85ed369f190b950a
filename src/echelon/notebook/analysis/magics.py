"""Magics and `!` commands of a cell as plain Python with the same line numbers, or refused by name.

A text that is Python is left alone. Otherwise the line at which the parser stops is looked at: so a `%` or
`!` inside a text in quotes is never taken for a magic. What replaces a line calls functions that the step's
process provides (`beside/shell.py`); their names begin with `_echelon_`."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
import warnings

from echelon.notebook.analysis.cells import InvalidNotebook, Place

OWN = "_echelon_"
# They change how a notebook looks, or what its kernel does: nothing that a step needs.
_WITHOUT_EFFECT = frozenset((
    "autoreload", "autosave", "colors", "config", "doctest_mode", "history", "load_ext", "matplotlib",
    "notebook", "pdb", "pdoc", "pinfo", "pinfo2", "pprint", "precision", "psource", "pylab", "reload_ext",
    "tensorboard", "who", "whos", "xmode",
))  # fmt: skip
_SHOWN_ONLY = frozenset(("html", "HTML", "javascript", "js", "latex", "markdown", "svg"))
_SHELLS = {"bash": "bash", "sh": "sh", "script": ""}
_LINE = re.compile(r"(?P<indent>\s*)(?:(?P<target>[\w., ]+?)\s*=\s*)?(?P<sign>[%!])(?P<rest>.*)", re.DOTALL)
_HELP = re.compile(r"\s*(\?{1,2}[\w.]+|[\w.*]+\?{1,2})\s*$")
_FIELD = re.compile(r"(?<![$\w{]){([^{}]+)}")
_OUTSIDE_QUOTES = r"(?=(?:[^']*'[^']*')*[^']*$)"  # IPython leaves $x to the shell between single quotes
_DOLLAR = re.compile(rf"(?<![$\\])\$([^\W\d]\w*)(?![\w.]){_OUTSIDE_QUOTES}")


def plain_code(text: str, where: str | Place) -> str:
    """The same cell in plain Python; raises InvalidNotebook for a magic that is not known, or for text that
    is no Python."""
    if text.lstrip().startswith("%%"):
        return _cell_magic(text, where)
    lines = text.split("\n")
    for _ in range(len(lines) + 1):
        problem = _problem("\n".join(lines))
        if problem is None:
            return "\n".join(lines)
        at = min(problem.lineno or 1, len(lines)) - 1
        # A block that holds nothing but a magic is refused one line further down.
        magic = next((line for line in (at, at - 1) if line >= 0 and _is_magic(lines[line])), None)
        if magic is None:
            raise InvalidNotebook(
                _on_line(where, at + 1),
                f"this is no Python: {problem.msg}",
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


def _replace(lines: list[str], at: int, where: str | Place) -> None:
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


def _line_magic(found: re.Match[str], where: str | Place) -> str:
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
        case "time" | "timeit" | "prun" | "memit" if not target:
            return words if words and _problem(words) is None else "pass"
        case "cd":
            return f"{OWN}cd({_shell(words)})"
        case "env" | "set_env" if "=" in words or name == "set_env":
            key, _, value = words.replace(" ", "=", "=" not in words).partition("=")
            return f"{OWN}env({key.strip()!r}, {value.strip()!r})"
        case "env" | "pwd":
            return f"{given}{OWN}{name}()" if name == "pwd" else "pass"
    if name in _WITHOUT_EFFECT and not target:
        return "pass"
    raise InvalidNotebook(where, f"the magic %{name} is not known here", hint=_instead(name))


def _cell_magic(text: str, where: str | Place) -> str:
    lines = text.split("\n")
    first = next(at for at, line in enumerate(lines) if line.strip())
    name, _, words = lines[first].strip().removeprefix("%%").partition(" ")
    words, body, above = words.strip(), "\n".join(lines[first + 1 :]), "\n" * first
    if name in ("writefile", "file"):
        flag, _, path = words.rpartition(" ")
        return f"{above}{OWN}write_file({path!r}, {body + chr(10)!r}, {flag.strip() in ('-a', '--append')})"
    if name in _SHELLS:
        program = _SHELLS[name] or words
        return f"{above}{OWN}script({shlex.split(program)!r}, {body!r})"
    if name in _SHOWN_ONLY:
        return f"{above}pass"
    if name in ("time", "timeit", "prun", "memit") or (name == "capture" and _only_flags(words)):
        return f"{above}pass\n{plain_code(body, where)}"
    raise InvalidNotebook(
        _on_line(where, first + 1), f"the magic %%{name} is not known here", hint=_instead(name)
    )


def _on_line(where: str | Place, line: int) -> str | Place:
    return Place(cell=where.cell, line=line) if isinstance(where, Place) else f"{where}, line {line}"


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
