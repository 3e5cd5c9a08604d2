"""Inside a training step: every operation observed, repeated, compared with float64."""
