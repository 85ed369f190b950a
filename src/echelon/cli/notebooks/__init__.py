"""`echelon notebook`, `echelon jupyter`, and what Jupyter asks for with `%%echelon`."""
