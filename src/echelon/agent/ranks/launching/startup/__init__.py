"""What a rank's Python imports first: this folder comes first on PYTHONPATH, and has a `sitecustomize`."""
