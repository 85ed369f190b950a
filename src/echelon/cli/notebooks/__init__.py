"""`echelon notebook` and what Jupyter asks for with `%%echelon`."""
