"""From pods, Jobs and the leader's log to a run's events and outcome. Pure."""
