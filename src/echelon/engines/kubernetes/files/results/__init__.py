"""The results of a run: where they are, how they come home, and whether the run may be forgotten.

`collecting` brings them home, `fetching` copies them to any other folder, `gather` verifies each worker's
part."""
