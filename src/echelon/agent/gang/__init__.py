"""The gang: agents of one run that start and end together. Agent 0 leads, the others join it."""
