"""Metrics of a run, forwarded to an experiment tracker by the command that follows the run.

The run's own output keeps every metric, so nothing else has to: the command waits for a tracker that is away,
and reads no further meanwhile; what was not sent by the end is read again and sent later. The tracker itself
says how much it has, so that any command can continue where another one has ended. `sink` is what a tracker
must do; `mlflow` and `tensorboard` do it."""
