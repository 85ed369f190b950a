"""What must be there before a run is submitted, and what a namespace allows."""
