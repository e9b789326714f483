"""Programs of two processes (gloo, on this machine), eagerly and compiled."""
