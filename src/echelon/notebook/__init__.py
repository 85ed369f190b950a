"""Notebooks as pipelines: tagged cells become steps, and each step is a run of its own.

The packages, as they build on each other::

    beside/         what runs in a step's process: it stands alone, on Python 3.8
    analysis/       what a notebook means: from the file to a Pipeline
    picture/        a pipeline as text, Mermaid and SVG
    kept/           what is kept of a pipeline run: folder, record, volume, cache, executed notebook
    execution/      the steps as runs
    export/         a pipeline for other engines"""
