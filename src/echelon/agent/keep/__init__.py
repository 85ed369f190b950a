"""The keeper of a run: it takes the workers' results when the run ends, so that their pods can go."""
