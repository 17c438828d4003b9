COPY public.network (name, connectable_id, cidr4) FROM stdin;
net1	1	10.0.1.0/24
net2	2	10.0.2.0/24
