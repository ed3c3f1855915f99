-- The roles are the cluster's, not the database's; one that is there stays as it is.
DO $$
DECLARE v_role text;
BEGIN
	FOREACH v_role IN ARRAY ARRAY['tenure_owner', 'tenure_operator', 'tenure_user'] LOOP
		BEGIN
			IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = v_role) THEN
				EXECUTE format('CREATE ROLE %I NOLOGIN', v_role);
			END IF;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- another database of the cluster was quicker
		END;
	END LOOP;
	BEGIN
		IF NOT pg_has_role('tenure_operator', 'tenure_user', 'MEMBER') THEN
			GRANT tenure_user TO tenure_operator;
		END IF;
	EXCEPTION WHEN unique_violation THEN NULL;
	END;
	IF current_setting('server_encoding') <> 'UTF8' THEN
		RAISE EXCEPTION 'tenure needs a database with encoding UTF8; this one has %', current_setting('server_encoding');
	END IF;
END $$;
