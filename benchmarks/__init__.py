"""Speed and coverage measurements; programs of the checkout, run with `python -m benchmarks...`."""
