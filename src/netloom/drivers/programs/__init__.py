"""Programs that attachments run on the node.

`programs` starts and limits them; `runner` is the process beside each.
"""
