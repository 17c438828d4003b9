"""`netloom sandbox`: cyber-range topology files, and the Sandboxes that they become.

`files` reads topology files, `group` lists the commands; each other module has the commands of one subject.
"""
