"""How often an audit executes operations again by default; a command line reads it quickly."""

AUDITED_STEPS = 3
"""Steps of a training, or calls of a function, that it looks at."""
REPLAYS = 8
"""Executions of each operation."""
SUSPECT_REPLAYS = 200
"""Executions of one that is known to race: two of them miss every second flip."""
