"""Where the flags of `run` end and the words of what it runs begin."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from echelon.cli.commands.run import run as run_command

FLAGS = st.sampled_from(
    [
        ("-n", "2"), ("-n2",), ("--workers=2",), ("-d",), ("-dn", "2"), ("-dn3",), ("--env", "A=--"),
        ("--env=-m=-m",), ("--name", "-m"), ("--no-wait",), ("-ojson",), ("-do", "yaml"), ("-f", "job.yaml"),
        ("--set", "env.m=-m"),
    ]
)  # fmt: skip
WORDS = st.lists(
    st.sampled_from(["--", "-", "-n", "--workers", "-m", "x", "--lr=1", "", "-d", "--help"]), max_size=5
)


def flatten(flags: list[tuple[str, ...]]) -> list[str]:
    return [word for flag in flags for word in flag]


def parse(words: list[str]) -> tuple[dict[str, Any], bool]:
    context = run_command.make_context("run", list(words))
    return context.params, context.meta["command"]


MODULES = st.sampled_from([("-m", "pkg"), ("-mpkg",), ("--module", "pkg"), ("--module=pkg",), ("-dm", "pkg")])


@given(st.lists(FLAGS), MODULES, WORDS)
def test_all_that_follows_a_module_is_its_own(
    flags: list[tuple[str, ...]], module: tuple[str, ...], rest: list[str]
) -> None:
    params, is_command = parse([*flatten(flags), *module, *rest])
    assert (params["module"], params["words"], is_command) == ("pkg", tuple(rest), False)


@given(st.lists(FLAGS), WORDS)
def test_all_that_follows_a_script_is_its_own(flags: list[tuple[str, ...]], rest: list[str]) -> None:
    params, is_command = parse([*flatten(flags), "train.py", *rest])
    assert params["words"] == ("train.py", *rest)
    assert not is_command
    assert params["module"] is None


@given(st.lists(FLAGS), WORDS)
def test_all_that_follows_the_dashes_is_a_command(flags: list[tuple[str, ...]], rest: list[str]) -> None:
    params, is_command = parse([*flatten(flags), "--", *rest])
    assert params["words"] == tuple(rest)
    assert is_command


@given(st.lists(FLAGS))
def test_flags_alone(flags: list[tuple[str, ...]]) -> None:
    params, is_command = parse(flatten(flags))
    assert (params["words"], is_command, params["module"]) == ((), False, None)
