"""What magpy does, in a few minutes: `make demo`."""
