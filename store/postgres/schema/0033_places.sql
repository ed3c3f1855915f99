-- Batches of releases find their rows by place. An index look-up clears its page of dead versions, so that a cycle did that twice; now a look-up by
-- place does not, and the next acquire, which goes by name, clears what both have left. A place is a hint and proves nothing: a row counts if its
-- name, acquisition and session are the ones asked for, and what is not found by place is looked for by name.

DROP FUNCTION tenure.acquire_many(uuid, uuid, uuid[], text[], interval[]), tenure.release_many(uuid, uuid, uuid[], text[]);

-- Many requests of one session, one name each: strangers to each other. p_max_holds is NULL where none has a MaxHold. Plans are kept by a
-- connection, also those made when the tables were empty: so they are told to use the indexes. The result is one row of
-- arrays: which it granted (os), and which it refused as held; whoever is in neither asks singly. It waits for no lease row. A batch in which every name is taken writes nothing.
-- places is where the granted rows are now: a hint for release_many. unbroken is the mark of the server's life in which this commits, and with it whatever was committed before.
CREATE FUNCTION tenure.acquire_many(p_session uuid, p_closed_below uuid, p_ids uuid[], p_names text[], p_max_holds interval[],
	OUT os int[], OUT tokens bigint[], OUT hold_lefts interval[], OUT remaining interval,
	OUT held_os int[], OUT held_tokens bigint[], OUT held_lefts interval[], OUT held_owners text[], OUT unbroken uuid, OUT places tid[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_missing text[] := '{}';
	v_rows tid[];
	v_os int[];
	v_ids uuid[];
	v_below uuid;
	v_bury boolean;
	v_old text[];
	v_closed boolean;
	v_over uuid[] := '{}';
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') IN ('off', 'local') THEN
		PERFORM tenure.read_committed('acquire'), tenure.durable();
	END IF;
	IF NOT EXISTS (SELECT 1 FROM tenure.authority a WHERE a.started = pg_postmaster_start_time()
		AND a.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint AND NOT a.ahead) THEN
		RETURN;
	END IF;
	SELECT array_agg(k.ctid), array_agg(k.o), array_agg(k.id), bool_or(k.bury) INTO v_rows, v_os, v_ids, v_bury FROM (
		SELECT l.ctid, u.o, u.id, l.token > 0 AND (l.session <> p_session OR l.acquisition >= p_closed_below) IS NOT FALSE AS bury
		FROM unnest(p_ids, p_names) WITH ORDINALITY u (id, name, o) JOIN tenure.lease l ON l.name = u.name
		WHERE l.over <> 0 AND l.acquisition IS DISTINCT FROM u.id ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED) k;
	IF coalesce(cardinality(v_rows), 0) < cardinality(p_names) THEN
		v_missing := ARRAY(SELECT u.name FROM unnest(p_names) u (name) LEFT JOIN tenure.lease l ON l.name = u.name WHERE l.name IS NULL ORDER BY u.name COLLATE "C");
		IF v_rows IS NULL AND v_missing = '{}' THEN
			SELECT array_agg(h.o), array_agg(h.token), array_agg(h.remaining), array_agg(h.what) INTO held_os, held_tokens, held_lefts, held_owners
			FROM tenure.held_among(p_session, p_closed_below, p_ids, p_names) h;
			RETURN;
		END IF;
	END IF;
	PERFORM 1 FROM tenure.session s WHERE s.id = p_session AND s.ended = 0 FOR KEY SHARE;
	IF NOT FOUND THEN
		RETURN;
	ELSIF v_bury THEN
		v_old := ARRAY(SELECT l.name FROM tenure.lease l WHERE l.ctid = ANY (v_rows));
		PERFORM tenure.lock_others(p_session, v_old);
	END IF;
	IF v_missing <> '{}' THEN -- may wait for another insert of the same name; as in take, after other sessions and before the records
		PERFORM tenure.make_names(v_missing);
	END IF;
	IF v_bury THEN
		PERFORM tenure.bury(p_session, p_closed_below, v_old);
	END IF;
	IF v_missing <> '{}' THEN
		SELECT v_rows || array_agg(k.ctid), v_os || array_agg(k.o::int), v_ids || array_agg(k.id) INTO v_rows, v_os, v_ids FROM (
			SELECT l.ctid, u.o, u.id FROM unnest(p_ids, p_names) WITH ORDINALITY u (id, name, o) JOIN tenure.lease l ON l.name = u.name
			WHERE l.token = 0 AND l.name = ANY (v_missing) ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED) k;
	END IF;
	-- Nothing waits from here on. The session lives, and has closed no more than this.
	SELECT s.expires_at - clock_timestamp(), greatest(s.closed_below, p_closed_below), EXISTS (SELECT 1 FROM tenure.ended e WHERE e.session = p_session AND e.acquisition >= p_closed_below),
		(SELECT u.id FROM tenure.unbroken u WHERE u.one)
	INTO remaining, v_below, v_closed, unbroken FROM tenure.session s WHERE s.id = p_session AND s.ended = 0 AND s.expires_at > clock_timestamp();
	IF NOT FOUND THEN
		RETURN;
	END IF;
	IF v_closed THEN -- the records first, then the bound: a renewal beside this raises it, and drops the records below it
		v_over := ARRAY(SELECT e.acquisition FROM tenure.ended e WHERE e.session = p_session AND e.acquisition = ANY (v_ids));
		v_below := (SELECT greatest(s.closed_below, p_closed_below) FROM tenure.session s WHERE s.id = p_session);
	END IF;
	WITH g AS (
		UPDATE tenure.lease l SET prev = l.token, token = nextval('tenure.token'), session = p_session, acquisition = k.id, names = 1,
			bound = CASE WHEN l.session = p_session THEN greatest(l.bound, p_closed_below) ELSE p_closed_below END,
			max_hold = p_max_holds[k.o], hold_until = clock_timestamp() + p_max_holds[k.o], over = 0
		FROM unnest(v_rows, v_os, v_ids) k (c, o, id)
		WHERE l.ctid = k.c AND k.id >= v_below AND (l.session IS DISTINCT FROM p_session OR k.id >= l.bound)
			AND k.id <> ALL (v_over)
		RETURNING k.o, l.token, l.ctid AS place, l.hold_until - clock_timestamp() AS hold_left)
	SELECT array_agg(g.o), array_agg(g.token), array_agg(g.place), array_agg(g.hold_left) FILTER (WHERE p_max_holds IS NOT NULL) INTO os, tokens, places, hold_lefts FROM g;
	IF coalesce(cardinality(v_rows), 0) < cardinality(p_names) THEN
		SELECT array_agg(h.o), array_agg(h.token), array_agg(h.remaining), array_agg(h.what) INTO held_os, held_tokens, held_lefts, held_owners
		FROM tenure.held_among(p_session, p_closed_below, p_ids, p_names) h;
	END IF;
END $$;

-- Releases of one session, one name each, by the places that acquire_many told; NULL where that is not known. Returns the ordinals of those that
-- it released, or NULL; whoever is missing asks singly. Skips what is locked. Of a table of few pages the planner would read the index instead, which it
-- takes for cheaper than a page for each place: so pages are said to cost nothing.
CREATE FUNCTION tenure.release_many(p_session uuid, p_closed_below uuid, p_ids uuid[], p_names text[], p_places tid[] DEFAULT NULL)
RETURNS int[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET random_page_cost = 0 AS $$
DECLARE
	v_rows tid[];
	v_os int[];
	v_now timestamptz;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM tenure.read_committed('release');
	END IF;
	SELECT array_agg(k.ctid), array_agg(k.o) INTO v_rows, v_os FROM (
		SELECT l.ctid, u.o FROM unnest(p_ids, p_names, p_places) WITH ORDINALITY u (id, name, place, o) JOIN tenure.lease l ON l.ctid = u.place AND l.name = u.name
		WHERE l.acquisition = u.id AND l.session = p_session AND l.names = 1 AND l.over = 0
		ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED) k;
	IF coalesce(cardinality(v_rows), 0) < cardinality(p_ids) THEN
		SELECT array_agg(k.ctid), array_agg(k.o) INTO v_rows, v_os FROM (
			SELECT l.ctid, u.o FROM unnest(p_ids, p_names) WITH ORDINALITY u (id, name, o) JOIN tenure.lease l ON l.name = u.name
			WHERE l.acquisition = u.id AND l.session = p_session AND l.names = 1 AND l.over = 0
			ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED) k;
	END IF;
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

REVOKE ALL ON FUNCTION tenure.acquire_many(uuid, uuid, uuid[], text[], interval[]), tenure.release_many(uuid, uuid, uuid[], text[], tid[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenure.acquire_many(uuid, uuid, uuid[], text[], interval[]), tenure.release_many(uuid, uuid, uuid[], text[], tid[]) TO tenure_user;
