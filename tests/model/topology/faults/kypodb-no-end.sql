COPY public.network (name, connectable_id, cidr4) FROM stdin;
net1	1	10.0.1.0/24
net2	2	10.0.2.0/24
\.
INSERT INTO link (measurable_id, src_connectable_id, dst_connectable_id) VALUES (10, 1, 2), (11, 2, 1);
INSERT INTO link (measurable_id, src_connectable_id, dst_connectable_id) VALUES (12, 1, 3);
INSERT INTO node (name, measurable_id) VALUES ('host1', 7);
INSERT INTO node_interface (connectable_id, measurable_id) VALUES (3, 7);
INSERT INTO property (name, unit, value, measurable_id) VALUES ('Bandwidth', 'MB/s', '100', 12)
