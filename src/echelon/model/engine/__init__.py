"""What an engine has and tells: nodes, who uses them, volumes, findings of a check-up, and its traits."""
