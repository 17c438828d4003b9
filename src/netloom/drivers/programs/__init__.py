"""Programs that attachments want run on the node.

`programs` starts and limits them; `runner` is the process beside each.
"""
