"""Where the ranks of a stuck gang are."""
