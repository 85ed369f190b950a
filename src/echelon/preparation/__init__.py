"""From what a user said to a job with nothing left open, and the code that travels with it."""
