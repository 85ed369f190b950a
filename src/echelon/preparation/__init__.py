"""From what a user said to a job with nothing left open, and the code that travels with it.

`sources` merges settings, `prepare` settles what is open: the framework (`programs`), the pods (`pods`), the
code (`shipping`)."""
