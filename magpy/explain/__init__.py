"""explain: what was captured, as text and pictures."""
