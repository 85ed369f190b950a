"""Where the ranks of a gang that hangs are: stacks, and torch's flight recorder."""
