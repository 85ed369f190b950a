"""What a rank is started with: its command, environment, peers and ports."""
