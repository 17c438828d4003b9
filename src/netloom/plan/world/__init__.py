"""The objects that plans are made from, for both fabrics.

`inputs` is the part of each object that a plan reads; `world` answers what a plan asks of other objects, and `tracking`
notes who asked, so that a change replans only what it concerns. `selector_matches` and `selector_index` find the
attachments that a selector selects, and the selectors that select an attachment.
"""
