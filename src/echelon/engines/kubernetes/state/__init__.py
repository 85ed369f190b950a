"""What pods, Jobs and the leader's log say of a run: events, outcome. Pure."""
