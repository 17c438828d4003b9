"""What every controller is made of, after the pattern of client-go and controller-runtime.

informer ──► cache ──► queue ──► controller ──► reconcile;  manager runs them, election says which process may write

Nothing here knows what is reconciled.
"""
