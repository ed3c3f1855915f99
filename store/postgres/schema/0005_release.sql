-- Releasing. The known case is one update, and may be asynchronous; an id that no row knows is closed in a transaction of its own.

-- Releases of one session, one name each. Returns the ordinals of those that it released, or NULL; whoever is missing asks singly. Skips what is locked.
CREATE FUNCTION tenure.release_many(p_session uuid, p_closed_below uuid, p_ids uuid[], p_names text[])
RETURNS int[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_rows tid[];
	v_os int[];
	v_now timestamptz;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM tenure.read_committed('release');
	END IF;
	SELECT array_agg(k.ctid), array_agg(k.o) INTO v_rows, v_os FROM (
		SELECT l.ctid, u.o FROM unnest(p_ids, p_names) WITH ORDINALITY u (id, name, o) JOIN tenure.lease l ON l.name = u.name
		WHERE l.acquisition = u.id AND l.session = p_session AND l.names = 1 AND l.over = 0
		ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED) k;
	-- Nothing waits: what is read of the session in one statement holds in the next.
	SELECT clock_timestamp() INTO v_now FROM tenure.session s WHERE s.id = p_session AND s.ended = 0 AND s.expires_at > clock_timestamp();
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	WITH d AS (
		UPDATE tenure.lease l SET over = 1, over_at = v_now, bound = greatest(l.bound, p_closed_below)
		FROM unnest(v_rows, v_os) k (c, o) WHERE l.ctid = k.c AND (l.hold_until IS NULL OR l.hold_until > v_now)
		RETURNING k.o)
	SELECT array_agg(d.o) INTO v_os FROM d;
	RETURN v_os;
END $$;

-- The row is locked in a sub-select, which waits for nothing; where it has changed since the statement began, the update finds nothing. Its
-- search path is not pinned, as in acquire_one.
CREATE FUNCTION tenure.release_one(p_session uuid, p_closed_below uuid, p_id uuid, p_name text)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
BEGIN
	IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed' THEN
		PERFORM tenure.begin_release();
	END IF;
	UPDATE tenure.lease l SET over = 1, over_at = pg_catalog.clock_timestamp(), bound = greatest(l.bound, p_closed_below)
	FROM tenure.session s
	WHERE l.ctid OPERATOR(pg_catalog.=) (SELECT x.ctid FROM tenure.lease x WHERE x.name OPERATOR(pg_catalog.=) p_name AND x.acquisition OPERATOR(pg_catalog.=) p_id
			AND x.session OPERATOR(pg_catalog.=) p_session AND x.names OPERATOR(pg_catalog.=) 1 AND x.over OPERATOR(pg_catalog.=) 0 FOR NO KEY UPDATE SKIP LOCKED)
		AND s.id OPERATOR(pg_catalog.=) p_session AND s.ended OPERATOR(pg_catalog.=) 0 AND s.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp()
		AND (l.hold_until IS NULL OR l.hold_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp());
	RETURN FOUND;
END $$;

CREATE FUNCTION tenure.begin_release() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM tenure.read_committed('release');
END $$;

-- Any release whose acquisition has a row. Code 0 released; 1 it was over by the holder's own doing; 3 over otherwise; 4 other names or session;
-- 6 begin again; 8 a row is locked; 9 no row: ask release_absent, in a transaction of its own.
CREATE FUNCTION tenure.release_rows(p_session uuid, p_id uuid, p_names text[], p_wait_ms int, OUT code smallint, OUT how smallint, OUT what text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_names text[] := ARRAY(SELECT u.name FROM unnest(p_names) u (name) ORDER BY u.name COLLATE "C");
	s tenure.session;
	l tenure.lease;
	v_count int;
BEGIN
	PERFORM tenure.read_committed('release'), tenure.durable();
	SELECT * INTO s FROM tenure.session WHERE id = p_session;
	IF s.ended = 0 AND s.expires_at <= clock_timestamp() THEN
		PERFORM tenure.settle_session(p_session);
		code := 6; -- no lease row is waited for under this lock
		RETURN;
	END IF;
	IF NOT EXISTS (SELECT 1 FROM tenure.lease x WHERE x.name = ANY (v_names) AND x.acquisition = p_id AND x.token > 0) THEN
		code := 9;
		RETURN;
	ELSIF tenure.lock_names(v_names, p_wait_ms) < 0 THEN
		code := 8;
		RETURN;
	END IF;
	SELECT * INTO l FROM tenure.lease x WHERE x.name = ANY (v_names) AND x.acquisition = p_id AND x.token > 0 ORDER BY x.name LIMIT 1;
	IF NOT FOUND THEN
		code := 9;
		RETURN;
	ELSIF l.session <> p_session THEN
		code := 4; what := 'session';
		RETURN;
	END IF;
	SELECT * INTO s FROM tenure.session WHERE id = p_session;
	how := tenure.over_by(l.over, l.hold_until, CASE WHEN s.since < l.token THEN s.ended END, s.expires_at, clock_timestamp());
	IF how = 3 AND l.over = 0 AND s.ended = 0 AND s.expires_at <= clock_timestamp() THEN
		code := 6;
		RETURN;
	ELSIF how <> 0 THEN
		SELECT r.code, r.how, r.what INTO code, how, what FROM tenure.release_over(p_session, p_id, v_names, how) r;
		RETURN;
	END IF;
	SELECT count(*) INTO v_count FROM tenure.lease x WHERE x.name = ANY (v_names) AND x.acquisition = p_id AND x.over = 0;
	IF v_count <> cardinality(v_names) OR l.names <> v_count THEN
		code := 4; what := 'names';
		RETURN;
	END IF;
	UPDATE tenure.lease x SET over = 1, over_at = clock_timestamp() WHERE x.name = ANY (v_names) AND x.acquisition = p_id AND x.session = p_session AND x.over = 0;
	code := 0;
END $$;

-- Answers a release that came too late: success if the holder itself had ended it. The caller holds the rows that there are.
CREATE FUNCTION tenure.release_over(p_session uuid, p_id uuid, p_names text[], p_how smallint, OUT code smallint, OUT how smallint, OUT what text)
LANGUAGE plpgsql AS $$
BEGIN
	SELECT e.how, e.reason INTO how, what FROM tenure.ended e WHERE e.session = p_session AND e.acquisition = p_id;
	how := coalesce(how, p_how);
	code := CASE WHEN how IN (1, 2, 6) THEN 1 ELSE 3 END;
	IF how = 5 THEN
		UPDATE tenure.ended SET told = true WHERE session = p_session AND acquisition = p_id AND NOT told;
	ELSIF how = 3 THEN
		-- MaxHold passed: told now, so it is written.
		UPDATE tenure.lease l SET over = 3, over_at = l.hold_until WHERE l.name = ANY (p_names) AND l.acquisition = p_id AND l.session = p_session
			AND l.over = 0 AND l.hold_until <= clock_timestamp();
	END IF;
END $$;

-- Closes an id that no row of these names knows. The session's row is locked FOR UPDATE, so that no acquire is under way, and the rows
-- are looked at again: a row that is there now is released by release_rows, in another transaction (code 6: begin again), because here a lease row may not be waited for.
CREATE FUNCTION tenure.release_absent(p_session uuid, p_closed_below uuid, p_id uuid, p_names text[], OUT code smallint, OUT how smallint, OUT what text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	s tenure.session;
BEGIN
	PERFORM tenure.read_committed('release'), tenure.durable();
	IF tenure.lock_session(p_session) < 0 THEN
		code := 6;
		RETURN;
	END IF;
	how := tenure.settle_session(p_session);
	SELECT * INTO s FROM tenure.session WHERE id = p_session;
	IF EXISTS (SELECT 1 FROM tenure.lease l WHERE l.name = ANY (p_names) AND l.acquisition = p_id AND l.token > 0) THEN
		code := 6;
		RETURN;
	END IF;
	IF EXISTS (SELECT 1 FROM tenure.ended e WHERE e.session = p_session AND e.acquisition = p_id) THEN
		SELECT r.code, r.how, r.what INTO code, how, what FROM tenure.release_over(p_session, p_id, p_names, 6::smallint) r;
		RETURN;
	END IF;
	code := 1;
	IF how <> 0 OR p_id < s.closed_below THEN
		how := 6; -- nothing is granted under it any more: that bound, and that end, are on disk
	ELSIF p_id < p_closed_below THEN
		UPDATE tenure.session SET closed_below = p_closed_below WHERE id = p_session AND closed_below < p_closed_below;
		how := 1;
	ELSE
		INSERT INTO tenure.ended (session, acquisition, how) VALUES (p_session, p_id, 1);
		how := 1;
	END IF;
END $$;
