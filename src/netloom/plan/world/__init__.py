"""The objects that plans are made from, for both fabrics.

`inputs` is the part of each object that a plan reads; `world` answers the queries of plans about other objects, and
`tracking` records which plan made which query, so that a change replans only what it concerns. `selector_matches` and
`selector_index` find the attachments that a selector selects, and the selectors that select an attachment.
"""
