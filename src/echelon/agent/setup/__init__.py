"""What happens before the first start: code unpacked, packages installed."""
