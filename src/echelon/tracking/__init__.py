"""Metrics of a run, forwarded to an experiment tracker by the command that follows the run.

The run's own output keeps every metric, so nothing else has to: a tracker that is away is waited for, the
reader of the output waits meanwhile, and what was not sent by the end is read again and sent later. The
tracker itself says how much it has, so that any command can continue where another one has ended."""
