-- The authority comes to be with the schema. The incarnation that installs it may grant at once, from token 1.
INSERT INTO tenure.authority (id, origin, timeline, started) VALUES (gen_random_uuid(), clock_timestamp(), tenure.timeline(), pg_postmaster_start_time());
