-- Runs as the migrating role, before each version: refuses what cannot work, and sees to the roles. They are the cluster's, not the
-- database's: those that are there stay as they are, and none is ever dropped.
DO $$
DECLARE
	v_me text := quote_ident(current_user);
	v_set text := CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END;
	v_command text;
	v_needed text[] := '{}';
BEGIN
	IF current_setting('server_version_num')::int < 130000 THEN
		RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'tenure needs PostgreSQL 13 or later; this server is ' || current_setting('server_version'),
			HINT = 'Nothing was changed.';
	END IF;
	IF pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on' THEN
		RAISE EXCEPTION USING ERRCODE = '25006', MESSAGE = CASE WHEN pg_is_in_recovery() THEN 'this server is a standby' ELSE 'this transaction is read-only' END,
			HINT = 'Nothing was changed. Connect to the primary, with default_transaction_read_only off.';
	END IF;
	IF current_setting('server_encoding') <> 'UTF8' THEN
		RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'tenure needs a database with encoding UTF8; this one has ' || current_setting('server_encoding'),
			HINT = 'Nothing was changed.';
	END IF;
	FOR i IN 1..6 LOOP
		v_command := CASE i
			WHEN 1 THEN CASE WHEN NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = 'tenure_owner') THEN 'CREATE ROLE tenure_owner NOLOGIN' END
			WHEN 2 THEN CASE WHEN NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = 'tenure_user') THEN 'CREATE ROLE tenure_user NOLOGIN' END
			WHEN 3 THEN CASE WHEN NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = 'tenure_operator') THEN 'CREATE ROLE tenure_operator NOLOGIN' END
			WHEN 4 THEN CASE WHEN NOT EXISTS (SELECT 1 FROM pg_roles r, pg_roles o WHERE r.rolname = 'tenure_user' AND o.rolname = 'tenure_operator'
				AND pg_has_role(o.oid, r.oid, 'MEMBER')) THEN 'GRANT tenure_user TO tenure_operator' END
			-- The schema becomes tenure_owner's, which takes being able to act as it.
			WHEN 5 THEN CASE WHEN NOT EXISTS (SELECT 1 FROM pg_roles r WHERE r.rolname = 'tenure_owner' AND pg_has_role(current_user, r.oid, v_set))
				THEN 'GRANT tenure_owner TO ' || v_me END
			WHEN 6 THEN CASE WHEN NOT EXISTS (SELECT 1 FROM pg_namespace n WHERE n.nspname = 'tenure') AND NOT has_database_privilege(current_database(), 'CREATE')
				THEN 'GRANT CREATE ON DATABASE ' || quote_ident(current_database()) || ' TO ' || v_me END
			END;
		CONTINUE WHEN v_command IS NULL;
		BEGIN
			IF i = 6 THEN
				RAISE insufficient_privilege; -- a GRANT by who may not grant it is but a warning
			END IF;
			EXECUTE v_command;
		EXCEPTION
			WHEN duplicate_object OR unique_violation THEN NULL; -- another database of the cluster was quicker
			WHEN insufficient_privilege OR undefined_object THEN v_needed := v_needed || v_command;
		END;
	END LOOP;
	IF cardinality(v_needed) > 0 THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'role ' || v_me || ' may not install tenure here',
			HINT = 'Nothing was changed. An administrator must run once: ' || array_to_string(v_needed, '; ') || ';';
	END IF;
END $$;
