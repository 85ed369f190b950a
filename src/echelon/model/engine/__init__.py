"""What an engine has and reports: nodes, their users, volumes, samples, findings of a check-up, traits."""
