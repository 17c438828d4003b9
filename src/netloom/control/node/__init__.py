"""What an agent does on its node.

`attachments` plugs and unplugs ports (`ports`), `fabric` keeps the flows of the vxlan fabric, `hooks` runs programs,
`mirrors` keeps mirrors, `tunnels` the next hops of tunnels, `node` the Node object. `views` follows what concerns this
node and nothing else.
"""
