"""A folder that is put first on a rank's PYTHONPATH: when it starts, its Python imports `sitecustomize` from
it.
"""
