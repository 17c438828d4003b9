"""Metrics: `exposition` writes them, the other modules read the numbers of the processes' parts."""
