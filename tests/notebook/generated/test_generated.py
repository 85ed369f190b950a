"""Notebooks give what plain execution gives, or there is a word: none is silently different."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.notebook.generated.comparing import Comparer, comparer
from tests.notebook.generated.generating import alone, notebook
from tests.notebook.generated.idioms import IDIOMS, TORCH
from tests.properties import examples

# What cannot be handed on is said; every other idiom is the same as in plain execution.
SAID = {
    "cached": "a cache of its own",
    "cache_information": "a cache of its own",
    "context_variable": "ContextVar, cannot be handed on",
    "error_kept": "the traceback of an error",
    "registered": "a registration stays",
    "ipython_asked": "a step has no IPython",
}


@pytest.fixture(scope="module")
def both() -> Iterator[Comparer]:
    with comparer() as servers:
        yield servers


@pytest.mark.parametrize("name", sorted(IDIOMS))
def test_an_idiom_cut_into_steps(both: Comparer, tmp_path: Path, name: str) -> None:
    text = IDIOMS[name]
    for in_prelude in (False, True) if text.startswith("|") else (False,):
        outcome = both.compare(tmp_path / str(in_prelude), alone(text, in_prelude=in_prelude))
        assert outcome.plain
        if name in SAID:
            assert SAID[name] in " ".join(outcome.words)
        else:
            assert outcome.piped == outcome.plain, outcome.words
            assert not outcome.words


@pytest.mark.parametrize("seed", range(examples(200)))
def test_a_random_notebook_is_the_same(both: Comparer, tmp_path: Path, seed: int) -> None:
    handed_on = {name: text for name, text in IDIOMS.items() if name not in SAID}
    outcome = both.compare(tmp_path, notebook(seed, handed_on))
    assert outcome.piped == outcome.plain, outcome.words
    assert not outcome.words


@pytest.mark.parametrize("seed", range(examples(200) // 5))
def test_a_random_notebook_is_the_same_or_there_is_a_word(both: Comparer, tmp_path: Path, seed: int) -> None:
    outcome = both.compare(tmp_path, notebook(1000 + seed, IDIOMS))
    assert not outcome.silently_different, f"plain:\n{outcome.plain}\npipeline:\n{outcome.piped}"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TORCH))
def test_an_idiom_of_torch(both: Comparer, tmp_path: Path, name: str) -> None:
    outcome = both.compare(tmp_path, alone(TORCH[name]))
    assert outcome.plain
    assert not outcome.silently_different, f"plain:\n{outcome.plain}\npipeline:\n{outcome.piped}"
