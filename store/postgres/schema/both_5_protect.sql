-- Tables that no role can write without a claim. Their triggers are statement-level with transition tables: one look for each statement, whatever
-- its form (COPY, ON CONFLICT, MERGE, a cascade). All that is known of a protected table stands in the catalogue: its triggers, whose first
-- argument is the name expression and whose second is the table's own name, and a function of its owner beside it.

-- What the guard function of a table does. The expression is evaluated as whoever writes; it was deparsed under this search path. A column may be called as a variable is.
CREATE FUNCTION tenure.guard_body(p_name text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN format($body$
#variable_conflict use_column
DECLARE
	v_names text[];
BEGIN
	IF TG_OP = 'INSERT' THEN
		v_names := ARRAY(SELECT DISTINCT (%1$s)::text COLLATE "C" FROM tenure_new);
	ELSIF TG_OP = 'UPDATE' THEN
		v_names := ARRAY(SELECT (%1$s)::text COLLATE "C" FROM tenure_old UNION SELECT (%1$s)::text COLLATE "C" FROM tenure_new);
	ELSIF TG_OP = 'DELETE' THEN
		v_names := ARRAY(SELECT DISTINCT (%1$s)::text COLLATE "C" FROM tenure_old);
	ELSE
		v_names := ARRAY[TG_ARGV[1]];
	END IF;
	IF v_names <> '{}' THEN
		PERFORM tenure.guard(TG_RELID, v_names);
	END IF;
	RETURN NULL;
END $body$, p_name);
END $$;

-- A table that may be protected by the caller, or an error.
CREATE FUNCTION tenure.check_table(p_table regclass) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	c record;
	v_problem text;
BEGIN
	SELECT t.relkind, t.relpersistence, t.relispartition, t.relowner, n.nspname, t.relname INTO c FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace WHERE t.oid = p_table;
	v_problem := CASE
		WHEN c.relkind IS NULL THEN 'there is no such table'
		WHEN c.relkind NOT IN ('r', 'p') THEN 'only tables can be protected: for a view or a foreign table protect what is behind it'
		WHEN c.relpersistence = 't' THEN 'a temporary table is its session''s alone'
		WHEN c.nspname IN ('pg_catalog', 'information_schema', 'tenure') OR c.nspname LIKE 'pg\_toast%' THEN 'a table of the system or of Tenure cannot be protected'
		WHEN c.relispartition THEN format('it is a partition: protect %s, and all its partitions are', (SELECT r.relid FROM pg_partition_ancestors(p_table) r (relid) ORDER BY r.relid = pg_partition_root(p_table) DESC LIMIT 1)) END;
	IF v_problem IS NOT NULL THEN
		PERFORM tenure.fail('TN004', format('invalid table: %s: %s', coalesce(format('%I.%I', c.nspname, c.relname), p_table::text), v_problem), '{"field": "table"}', 'Nothing was changed.');
	ELSIF NOT pg_has_role(current_user, c.relowner, 'USAGE') THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('only its owner can protect table %I.%I', c.nspname, c.relname),
			HINT = format('Nothing was changed. Run this as %I or as a superuser.', pg_get_userbyid(c.relowner));
	END IF;
END $$;

-- What it takes beside the table itself, told before anything is tried.
CREATE FUNCTION tenure.check_rights(p_table regclass) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_schema name := (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_table);
	v_other regclass := (SELECT f FROM tenure.family(p_table) f JOIN pg_class c ON c.oid = f WHERE NOT pg_has_role(current_user, c.relowner, 'USAGE') ORDER BY f::text LIMIT 1);
	v_needed text := CASE
		WHEN v_other IS NOT NULL THEN format('Table %s below it is somebody else''s: run this as a superuser, or change its owner.', v_other)
		WHEN NOT has_schema_privilege(v_schema, 'CREATE') THEN format('The function of the guard is made in the schema of the table: let an administrator run GRANT CREATE ON SCHEMA %I TO %I.', v_schema, current_user)
		WHEN NOT has_table_privilege(p_table, 'UPDATE, DELETE, TRUNCATE') THEN format('The table is locked meanwhile, which takes a right to write it: GRANT UPDATE ON %s TO %I.', p_table, current_user)
		WHEN NOT has_database_privilege(current_database(), 'TEMPORARY') THEN format('The name expression is tried on a temporary table: let an administrator run GRANT TEMPORARY ON DATABASE %I TO %I.', current_database(), current_user) END;
BEGIN
	IF v_needed IS NOT NULL THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('role %I may not protect table %s', current_user, p_table), HINT = 'Nothing was changed. ' || v_needed;
	END IF;
END $$;

-- The name expression as the catalogue would keep it, if it is one expression over the columns of the table, immutable, and of one value.
CREATE FUNCTION tenure.check_expression(p_table regclass, p_name text) RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
	c refcursor;
	v_index regclass;
	v_text text;
	v_generated name;
BEGIN
	IF p_name IS NULL OR p_name ~ '^\s*$' OR octet_length(p_name) > 4096 THEN
		PERFORM tenure.fail('TN004', 'invalid name expression: want 1 to 4096 bytes', '{"field": "name expression"}', 'Nothing was changed.');
	END IF;
	BEGIN
		OPEN c FOR EXECUTE format(E'SELECT (%s\n)::text FROM %s WHERE false', p_name, p_table); -- a cursor takes one statement, and runs none here
		CLOSE c;
		EXECUTE format('CREATE TEMPORARY TABLE tenure_shape (LIKE %s)', p_table);
		EXECUTE format(E'CREATE INDEX tenure_shape_name ON pg_temp.tenure_shape (((%s\n)::text))', p_name);
		v_index := 'pg_temp.tenure_shape_name';
		v_text := pg_get_indexdef(v_index, 1, false);
		v_text := CASE WHEN v_text LIKE '((%))' THEN substr(v_text, 2, length(v_text) - 2) ELSE v_text END;
		-- Of a partitioned table the new rows are seen as they were before they came to their partition, which generates; what is virtual is never in them.
		v_generated := (SELECT a.attname FROM pg_depend d JOIN pg_attribute s ON s.attrelid = d.refobjid AND s.attnum = d.refobjsubid
			JOIN pg_attribute a ON a.attrelid = p_table AND a.attname = s.attname JOIN pg_class t ON t.oid = p_table
			WHERE d.classid = 'pg_class'::regclass AND d.objid = v_index AND d.refclassid = 'pg_class'::regclass AND d.refobjid = 'pg_temp.tenure_shape'::regclass
				AND (a.attgenerated = 'v' OR a.attgenerated = 's' AND t.relkind = 'p') ORDER BY a.attnum LIMIT 1);
		DROP TABLE pg_temp.tenure_shape;
	EXCEPTION WHEN syntax_error_or_access_rule_violation OR data_exception OR feature_not_supported OR invalid_cursor_definition THEN
		PERFORM tenure.fail('TN004', format('invalid name expression: %s: %s', quote_literal(left(p_name, 200)), CASE WHEN SQLSTATE = '42P17' THEN 'it is not immutable: the same row must always have the same name' ELSE SQLERRM END),
			jsonb_build_object('field', 'name expression'), 'Nothing was changed. Want one immutable expression over the columns of the table, such as ''orders/'' || order_id. Functions outside pg_catalog are written with their schema.');
	END;
	IF v_generated IS NOT NULL THEN
		PERFORM tenure.fail('TN004', format('invalid name expression: %s: column %I is generated, and not known in time', quote_literal(left(p_name, 200)), v_generated),
			jsonb_build_object('field', 'name expression'), 'Nothing was changed. Write what the column is generated from in its place.');
	END IF;
	RETURN v_text;
END $$;

-- The arguments of a trigger, as the catalogue keeps them: each ends with a zero byte.
CREATE FUNCTION tenure.guard_args(p_args bytea) RETURNS text[] LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_all text[] := '{}';
	v_at int;
BEGIN
	LOOP
		v_at := position('\x00'::bytea IN p_args);
		IF v_at = 0 THEN
			RETURN v_all;
		END IF;
		v_all := v_all || convert_from(substring(p_args FROM 1 FOR v_at - 1), getdatabaseencoding());
		p_args := substring(p_args FROM v_at + 1);
	END LOOP;
END $$;

-- The table, its partitions and the tables that inherit from it.
CREATE FUNCTION tenure.family(p_table regclass) RETURNS SETOF regclass LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN QUERY WITH RECURSIVE f AS (SELECT p_table::oid AS oid UNION SELECT i.inhrelid FROM f JOIN pg_inherits i ON i.inhparent = f.oid)
		SELECT f.oid::regclass FROM f JOIN pg_class c ON c.oid = f.oid WHERE c.relkind IN ('r', 'p') ORDER BY f.oid <> p_table, f.oid;
END $$;

-- The triggers of one table, as statements.
CREATE FUNCTION tenure.guard_triggers(p_table regclass, p_function text, p_name text, p_own text) RETURNS SETOF text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	t text[];
BEGIN
	FOREACH t SLICE 1 IN ARRAY ARRAY[['insert', 'AFTER INSERT', 'REFERENCING NEW TABLE AS tenure_new'], ['update', 'AFTER UPDATE', 'REFERENCING OLD TABLE AS tenure_old NEW TABLE AS tenure_new'],
		['delete', 'AFTER DELETE', 'REFERENCING OLD TABLE AS tenure_old'], ['truncate', 'BEFORE TRUNCATE', '']] LOOP
		RETURN NEXT format('DROP TRIGGER IF EXISTS tenure_guard_%s ON %s', t[1], p_table);
		RETURN NEXT format('CREATE TRIGGER tenure_guard_%s %s ON %s %s FOR EACH STATEMENT EXECUTE FUNCTION %s(%L, %L)', t[1], t[2], p_table, t[3], p_function, p_name, p_own);
	END LOOP;
END $$;

-- Lets them fire for the replica role. It comes when each table of the family has its triggers: ALTER TABLE fires the event trigger, which makes those that are missing.
CREATE FUNCTION tenure.guard_always(p_table regclass) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN format('ALTER TABLE %s ENABLE ALWAYS TRIGGER tenure_guard_insert, ENABLE ALWAYS TRIGGER tenure_guard_update, ENABLE ALWAYS TRIGGER tenure_guard_delete, ENABLE ALWAYS TRIGGER tenure_guard_truncate', p_table);
END $$;

-- The function that guards a table, by its name. One that other tables use keeps its body: a database that was restored has functions called after the oids of
-- another one, and a partition that was detached keeps its guard. One that is not the caller's to replace, as of a former owner, is left to itself.
CREATE FUNCTION tenure.guard_function(p_table regclass) RETURNS text LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (SELECT format('%I.%I', n.nspname, x.name) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		CROSS JOIN LATERAL (SELECT i, 'tenure_guard_' || c.oid || CASE WHEN i > 0 THEN '_' || i ELSE '' END AS name FROM generate_series(0, 99) i) x
		WHERE c.oid = p_table AND NOT EXISTS (SELECT 1 FROM pg_proc p WHERE p.proname = x.name AND p.pronamespace = n.oid AND (NOT pg_has_role(current_user, p.proowner, 'USAGE')
			OR EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgfoid = p.oid AND t.tgrelid NOT IN (SELECT f FROM tenure.family(p_table) f))))
		ORDER BY x.i LIMIT 1);
END $$;

-- What protect would run, in order. Nothing is changed. always: the triggers also fire in sessions with session_replication_role = replica; what a logical subscription applies fires none.
CREATE FUNCTION tenure.protect_script(p_table regclass, p_name text, p_always boolean DEFAULT false) RETURNS SETOF text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_name text;
	v_function text;
	v_own text;
	v_owner name;
	v_one regclass;
BEGIN
	PERFORM tenure.check_table(p_table), tenure.check_rights(p_table);
	v_function := tenure.guard_function(p_table);
	SELECT n.nspname || '.' || c.relname, pg_get_userbyid(c.relowner) INTO v_own, v_owner FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_table;
	v_name := tenure.check_expression(p_table, p_name);
	RETURN NEXT format('CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS %L', v_function, tenure.guard_body(v_name));
	RETURN NEXT format('COMMENT ON FUNCTION %s() IS %L', v_function, 'guards ' || v_own || ' for Tenure; see tenure.protections()');
	-- Whoever made a function of this name before, and whoever calls, it is the table owner's from now on.
	IF v_owner = current_user OR (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user)
		OR has_schema_privilege(v_owner, (SELECT c.relnamespace FROM pg_class c WHERE c.oid = p_table), 'CREATE') THEN
		RETURN NEXT format('ALTER FUNCTION %s() OWNER TO %I', v_function, v_owner);
	END IF;
	FOR v_one IN SELECT f FROM tenure.family(p_table) f LOOP
		RETURN QUERY SELECT * FROM tenure.guard_triggers(v_one, v_function, v_name, v_own);
	END LOOP;
	IF p_always THEN
		RETURN QUERY SELECT tenure.guard_always(f) FROM tenure.family(p_table) f;
	END IF;
END $$;

-- Protects a table of the caller's, its partitions and the tables that inherit from it, in the caller's transaction, or changes its protection; returns what it ran.
-- name is an immutable expression over the columns of the table: the name of the lease that a row is written under. TRUNCATE is written under the table's own name, schema.table.
CREATE FUNCTION tenure.protect(p_table regclass, p_name text, p_always boolean DEFAULT false) RETURNS SETOF text LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
	v_script text[];
	v_one text;
BEGIN
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN -- an old snapshot does not see who belongs to the table
		PERFORM tenure.fail('TN007', 'protect runs at READ COMMITTED alone', jsonb_build_object('isolation', current_setting('transaction_isolation')),
			'Nothing was changed. Call it outside the transaction, or begin that at READ COMMITTED.');
	END IF;
	PERFORM tenure.check_table(p_table), tenure.check_rights(p_table);
	EXECUTE format('LOCK TABLE %s', p_table); -- before the family is looked at: somebody may be adding to it
	v_script := ARRAY(SELECT s FROM tenure.protect_script(p_table, p_name, p_always) s);
	FOREACH v_one IN ARRAY v_script LOOP
		EXECUTE v_one;
		RETURN NEXT v_one;
	END LOOP;
	IF NOT EXISTS (SELECT 1 FROM pg_event_trigger e WHERE e.evtname = 'tenure_protect') AND (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
		v_one := $x$CREATE EVENT TRIGGER tenure_protect ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE', 'CREATE SCHEMA', 'CREATE TRIGGER') EXECUTE FUNCTION tenure.protect_new()$x$;
		BEGIN
			EXECUTE v_one;
			ALTER EVENT TRIGGER tenure_protect ENABLE ALWAYS;
			RETURN NEXT v_one;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; -- who protects another table was quicker
		END;
	END IF;
END $$;

-- Takes the protection away; false if there was none.
CREATE FUNCTION tenure.unprotect(p_table regclass) RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_one record;
	v_functions oid[];
	v_oid oid;
BEGIN
	PERFORM tenure.check_table(p_table);
	v_functions := ARRAY(SELECT DISTINCT t.tgfoid FROM tenure.family(p_table) f JOIN pg_trigger t ON t.tgrelid = f WHERE t.tgname LIKE 'tenure\_guard\_%');
	IF v_functions = '{}' THEN
		RETURN false;
	END IF;
	FOR v_one IN SELECT t.tgname, t.tgrelid::regclass AS rel FROM tenure.family(p_table) f JOIN pg_trigger t ON t.tgrelid = f WHERE t.tgname LIKE 'tenure\_guard\_%' LOOP
		EXECUTE format('DROP TRIGGER %I ON %s', v_one.tgname, v_one.rel);
	END LOOP;
	FOREACH v_oid IN ARRAY v_functions LOOP
		IF NOT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgfoid = v_oid) AND EXISTS (SELECT 1 FROM pg_proc p WHERE p.oid = v_oid AND pg_has_role(current_user, p.proowner, 'USAGE')) THEN
			EXECUTE format('DROP FUNCTION %s', v_oid::regprocedure);
		END IF;
	END LOOP;
	RETURN true;
END $$;

-- Each protected table, and what is not in force. An owner or superuser can switch a trigger off, and DDL is his responsibility: this shows it afterwards.
CREATE FUNCTION tenure.protections(OUT relation regclass, OUT name text, OUT truncate_name text, OUT always boolean, OUT tables int, OUT new_partitions boolean, OUT problems text[])
RETURNS SETOF record LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	r record;
BEGIN
	-- Tables with a guard whose parents have none: the roots. What most of the four triggers say is taken for what was meant: anybody may call triggers of his own so.
	FOR r IN SELECT t.tgrelid, mode() WITHIN GROUP (ORDER BY t.tgfoid) AS f, bool_and(t.tgenabled = 'A') AS always, mode() WITHIN GROUP (ORDER BY t.tgargs) AS args
		FROM pg_trigger t WHERE t.tgname IN ('tenure_guard_delete', 'tenure_guard_insert', 'tenure_guard_truncate', 'tenure_guard_update')
			AND NOT EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_trigger p ON p.tgrelid = i.inhparent AND p.tgfoid = t.tgfoid WHERE i.inhrelid = t.tgrelid)
		GROUP BY t.tgrelid ORDER BY t.tgrelid::regclass::text LOOP
		relation := r.tgrelid;
		name := coalesce((tenure.guard_args(r.args))[1], '');
		truncate_name := coalesce((tenure.guard_args(r.args))[2], '');
		always := r.always;
		tables := (SELECT count(*) FROM tenure.family(r.tgrelid));
		new_partitions := EXISTS (SELECT 1 FROM pg_event_trigger e WHERE e.evtname = 'tenure_protect' AND e.evtenabled IN ('O', 'A'));
		problems := ARRAY(SELECT format('%s: trigger tenure_guard_%s is %s', f, k, CASE t.tgenabled WHEN 'D' THEN 'disabled' WHEN 'R' THEN 'for replicas alone' ELSE 'missing' END)
			FROM tenure.family(r.tgrelid) f CROSS JOIN unnest(ARRAY['delete', 'insert', 'truncate', 'update']) k
				LEFT JOIN pg_trigger t ON t.tgrelid = f AND t.tgname = 'tenure_guard_' || k AND t.tgfoid = r.f AND t.tgargs = r.args AND t.tgqual IS NULL
					AND t.tgtype = CASE k WHEN 'insert' THEN 4 WHEN 'delete' THEN 8 WHEN 'update' THEN 16 ELSE 34 END -- of statements: after them, and before TRUNCATE
			WHERE t.oid IS NULL OR t.tgenabled NOT IN ('O', 'A') ORDER BY f::text, k)
			|| ARRAY(SELECT format('%s: a foreign table has no guard', c.oid::regclass) FROM tenure.family(r.tgrelid) f JOIN pg_inherits i ON i.inhparent = f JOIN pg_class c ON c.oid = i.inhrelid
				WHERE c.relkind = 'f' ORDER BY c.oid::regclass::text)
			|| ARRAY(SELECT format('function %s was changed', p.oid::regprocedure) FROM pg_proc p WHERE p.oid = r.f
				AND (p.prosrc <> tenure.guard_body(name) OR p.prosecdef OR p.proconfig IS DISTINCT FROM ARRAY['search_path=pg_catalog, pg_temp']));
		RETURN NEXT;
	END LOOP;
END $$;

-- A partition that is made or attached is protected with its parent. It runs as whoever made it; if he may not, nothing was made.
CREATE FUNCTION tenure.protect_new() RETURNS event_trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET client_min_messages = warning AS $$
DECLARE
	r record;
	v_one text;
	v_always regclass[] := '{}';
BEGIN
	-- CREATE OR REPLACE TRIGGER takes no more than the right TRIGGER on the table.
	IF EXISTS (SELECT 1 FROM pg_event_trigger_ddl_commands() d JOIN pg_trigger t ON t.oid = d.objid JOIN pg_class c ON c.oid = t.tgrelid
		WHERE d.classid = 'pg_trigger'::regclass AND t.tgname LIKE 'tenure\_guard\_%' AND NOT pg_has_role(current_user, c.relowner, 'USAGE')) THEN
		RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'only the owner of a table makes or replaces its triggers tenure_guard_...', HINT = 'Nothing was changed. They guard the table for Tenure; call yours otherwise.';
	END IF;
	-- Names are looked up in the catalogue as it is, rows as they were when this transaction began.
	IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') AND EXISTS (SELECT 1 FROM pg_event_trigger_ddl_commands() d
		CROSS JOIN LATERAL (SELECT d.objid AS oid UNION SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = d.objid UNION SELECT a.relid FROM pg_partition_ancestors(d.objid) a) a
		JOIN pg_class c ON c.oid = a.oid JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL to_regprocedure(format('%I.tenure_guard_%s()', n.nspname, a.oid)) f
		WHERE d.classid = 'pg_class'::regclass AND d.object_type = 'table' AND f IS NOT NULL AND NOT EXISTS (SELECT 1 FROM pg_proc p WHERE p.oid = f)) THEN
		RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the parent of this table was protected after this transaction began', HINT = 'Nothing was changed. Roll back and begin again.';
	END IF;
	FOR r IN SELECT DISTINCT f AS rel, p.tgfoid::regproc::text AS function, p.args, p.tgenabled FROM pg_event_trigger_ddl_commands() d
		JOIN LATERAL (SELECT i.inhparent AS oid FROM pg_inherits i WHERE i.inhrelid = d.objid UNION SELECT d.objid) a ON true
		JOIN LATERAL (SELECT t.tgfoid, t.tgenabled, tenure.guard_args(t.tgargs) AS args FROM pg_trigger t WHERE t.tgrelid = a.oid AND t.tgname = 'tenure_guard_insert') p ON true
		CROSS JOIN LATERAL tenure.family(d.objid) f
		WHERE d.classid = 'pg_class'::regclass AND d.object_type = 'table'
			AND (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = f AND t.tgfoid = p.tgfoid AND t.tgname LIKE 'tenure\_guard\_%') < 4 LOOP
		FOR v_one IN SELECT s FROM tenure.guard_triggers(r.rel, r.function, r.args[1], r.args[2]) s LOOP
			EXECUTE v_one;
		END LOOP;
		v_always := CASE WHEN r.tgenabled = 'A' THEN v_always || r.rel ELSE v_always END;
	END LOOP;
	FOREACH v_one IN ARRAY v_always LOOP
		EXECUTE tenure.guard_always(v_one);
	END LOOP;
END $$;
