"""The results of a run: where they are, and how they come home or to any other folder."""
