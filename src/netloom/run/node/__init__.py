"""The agent's process: `agent` starts it, `parts` lists what it consists of, `settings` checks its settings."""
