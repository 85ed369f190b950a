"""What is seen of a run, at a Python prompt, in a notebook and in a terminal. It only reads.

`standing` is its status, `lines` its output, `observing` its events and metrics as one stream, `sampling` its
newest samples. `reasons` says in sentences what is going on with it (pure), `failure` why it did not succeed,
`returned` what its function returned. `live` and `panel` are for notebooks. `parts` is all of that for a run
that is made of runs."""
