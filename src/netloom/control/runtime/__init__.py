"""The parts of every controller, after the pattern of client-go and controller-runtime.

    informer ──► cache ──► queue ──► controller ──► reconcile

`manager` runs them, `election` decides which process may write, `events` records Events, `gc` collects garbage.

Nothing here depends on what is reconciled.
"""
