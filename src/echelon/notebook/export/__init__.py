"""A pipeline for other engines: what `echelon notebook compile` writes.

The modules::

    script.py    one plain Python script
    pods.py      what pods of an exported pipeline run: a ConfigMap with the step runner and the steps
    tekton.py    a PipelineRun of Tekton, and what it needs beside it
    files.py     all of it as files"""
