-- Acquiring. Lock order: authority (only when the incarnation differs), lease rows by name, own session (KEY SHARE), other sessions by id, new
-- names, records of what is over.
--
-- An id that was granted is never granted again, so whoever overwrites a row sees to it that its acquisition stays closed: a row says
-- itself what its session has closed (bound); what it does not cover goes into tenure.ended; and when a row leaves a session, that
-- session's own row takes over the bound. Nothing is written to the session for an acquire of its own: under an old snapshot the dead
-- versions of that one row could not be pruned, and each look at it would walk through them.

CREATE TYPE tenure.grant_row AS (o int, code smallint, how smallint, token bigint, remaining interval, hold_left interval, what text);

-- One name that nobody holds: the name is new, or its row says how its last acquisition ended. One statement locks what there is, the next
-- grants. Everything else goes the long way, at once as long as nothing is locked, else in another transaction (6). To pin the search path would
-- cost as much as one of the statements: as in the checks of 0007, every name, type and operator is qualified instead, and what is rare is elsewhere.
CREATE FUNCTION tenure.acquire_one(p_session uuid, p_closed_below uuid, p_id uuid, p_name text, p_max_hold interval,
	OUT o int, OUT code smallint, OUT how smallint, OUT token bigint, OUT remaining interval, OUT hold_left interval, OUT what text)
LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
DECLARE
	c pg_catalog.tid;
	v_bury pg_catalog.bool;
BEGIN
	IF pg_catalog.current_setting('transaction_isolation') OPERATOR(pg_catalog.<>) 'read committed'
		OR pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'off' OR pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'local' THEN
		PERFORM tenure.begin_acquire();
	END IF;
	o := 1;
	code := 6;
	how := 0;
	SELECT l.ctid, l.token OPERATOR(pg_catalog.>) 0 AND (l.session OPERATOR(pg_catalog.<>) p_session OR l.acquisition OPERATOR(pg_catalog.>=) p_closed_below) IS NOT FALSE INTO c, v_bury
	FROM tenure.lease l, tenure.session s, tenure.authority a
	WHERE l.name OPERATOR(pg_catalog.=) p_name AND l.over OPERATOR(pg_catalog.<>) 0 AND (l.acquisition OPERATOR(pg_catalog.=) p_id) IS NOT TRUE
		AND s.id OPERATOR(pg_catalog.=) p_session AND s.ended OPERATOR(pg_catalog.=) 0 AND a.started OPERATOR(pg_catalog.=) pg_catalog.pg_postmaster_start_time()
		AND a.timeline OPERATOR(pg_catalog.=) ('x' OPERATOR(pg_catalog.||) pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint
		AND NOT a.ahead AND a.one
	FOR NO KEY UPDATE OF l SKIP LOCKED FOR KEY SHARE OF s;
	IF c IS NULL AND EXISTS (SELECT 1 FROM tenure.lease l WHERE l.name OPERATOR(pg_catalog.=) p_name) THEN
		SELECT r.o, r.code, r.how, r.token, r.remaining, r.hold_left, r.what INTO o, code, how, token, remaining, hold_left, what
		FROM tenure.acquire_row(p_session, p_closed_below, p_id, p_name, p_max_hold) r;
		RETURN;
	ELSIF c IS NULL THEN
		c := tenure.make_row(p_session, p_name);
		IF c IS NULL THEN
			RETURN;
		END IF;
	ELSIF v_bury THEN
		PERFORM tenure.bury_row(p_session, p_closed_below, p_name);
	END IF;
	-- The token is drawn in a later statement than the lock. Nothing in it can wait.
	UPDATE tenure.lease l SET prev = l.token, token = pg_catalog.nextval('tenure.token'), session = p_session, acquisition = p_id, names = 1,
		bound = CASE WHEN l.session OPERATOR(pg_catalog.=) p_session THEN greatest(l.bound, p_closed_below) ELSE p_closed_below END,
		max_hold = p_max_hold, hold_until = pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) p_max_hold, over = 0
	FROM tenure.session s WHERE l.ctid OPERATOR(pg_catalog.=) c AND s.id OPERATOR(pg_catalog.=) p_session AND s.ended OPERATOR(pg_catalog.=) 0
		AND s.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() AND p_id OPERATOR(pg_catalog.>=) greatest(s.closed_below, p_closed_below)
		AND ((l.session OPERATOR(pg_catalog.=) p_session) IS NOT TRUE OR p_id OPERATOR(pg_catalog.>=) l.bound)
		AND NOT EXISTS (SELECT 1 FROM tenure.ended e WHERE e.session OPERATOR(pg_catalog.=) p_session AND e.acquisition OPERATOR(pg_catalog.=) p_id)
	RETURNING 0::smallint, 0::smallint, l.token, s.expires_at OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp(), l.hold_until OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp()
	INTO code, how, token, remaining, hold_left;
	IF NOT FOUND THEN
		code := 6;
		how := 0;
	END IF;
END $$;

-- The rare parts of acquire_one, which pin their search path. A plan for an array of names is not made anew for each.
CREATE FUNCTION tenure.begin_acquire() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM tenure.read_committed('acquire'), tenure.durable();
END $$;

CREATE FUNCTION tenure.acquire_row(p_session uuid, p_closed_below uuid, p_id uuid, p_name text, p_max_hold interval) RETURNS tenure.grant_row
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	r tenure.grant_row;
BEGIN
	SELECT * INTO r FROM tenure.acquire_rows(p_session, p_closed_below, p_id, ARRAY[p_name], p_max_hold, 0);
	RETURN r;
END $$;

CREATE FUNCTION tenure.bury_row(p_session uuid, p_closed_below uuid, p_name text) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
	PERFORM tenure.bury(p_session, p_closed_below, ARRAY[p_name]);
END $$;

-- The row of a name that had none, locked; NULL if the session may not have it, or somebody else was first.
CREATE FUNCTION tenure.make_row(p_session uuid, p_name text) RETURNS tid LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
BEGIN
	PERFORM 1 FROM tenure.session s, tenure.authority a WHERE s.id = p_session AND s.ended = 0 AND a.started = pg_postmaster_start_time()
		AND a.timeline = ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint AND NOT a.ahead FOR KEY SHARE OF s;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	PERFORM tenure.make_names(ARRAY[p_name]);
	RETURN (SELECT l.ctid FROM tenure.lease l WHERE l.name = p_name AND l.token = 0 FOR NO KEY UPDATE SKIP LOCKED);
END $$;

-- Many requests of one session, one name each: strangers to each other. p_max_holds is NULL where none has a MaxHold. Plans are kept by a
-- connection, also those made when the tables were empty: so they are told to use the indexes. The result is one row of
-- arrays: which it granted (os), and which it refused as held; whoever is in neither asks singly. It waits for no lease row. A batch in which every name is taken writes nothing.
-- unbroken is the mark of the server's life in which this commits, and with it whatever was committed before.
CREATE FUNCTION tenure.acquire_many(p_session uuid, p_closed_below uuid, p_ids uuid[], p_names text[], p_max_holds interval[],
	OUT os int[], OUT tokens bigint[], OUT hold_lefts interval[], OUT remaining interval,
	OUT held_os int[], OUT held_tokens bigint[], OUT held_lefts interval[], OUT held_owners text[], OUT unbroken uuid)
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
		RETURNING k.o, l.token, l.hold_until - clock_timestamp() AS hold_left)
	SELECT array_agg(g.o), array_agg(g.token), array_agg(g.hold_left) FILTER (WHERE p_max_holds IS NOT NULL) INTO os, tokens, hold_lefts FROM g;
	IF coalesce(cardinality(v_rows), 0) < cardinality(p_names) THEN
		SELECT array_agg(h.o), array_agg(h.token), array_agg(h.remaining), array_agg(h.what) INTO held_os, held_tokens, held_lefts, held_owners
		FROM tenure.held_among(p_session, p_closed_below, p_ids, p_names) h;
	END IF;
END $$;

-- Refusals that one read without any lock can decide: the session lives, the id is neither over nor in use, and another acquisition
-- holds the name validly. For one name a request.
CREATE FUNCTION tenure.held_among(p_session uuid, p_closed_below uuid, p_ids uuid[], p_names text[])
RETURNS SETOF tenure.grant_row LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN QUERY
		SELECT u.o::int, 1::smallint, 0::smallint, l.token, least(h.expires_at, l.hold_until) - clock_timestamp(), NULL::interval, h.owner
		FROM unnest(p_ids, p_names) WITH ORDINALITY u (id, name, o)
			JOIN tenure.session s ON s.id = p_session JOIN tenure.lease l ON l.name = u.name JOIN tenure.session h ON h.id = l.session AND h.since < l.token
		WHERE l.over = 0 AND l.acquisition <> u.id AND h.ended = 0 AND h.expires_at > clock_timestamp() AND (l.hold_until IS NULL OR l.hold_until > clock_timestamp())
			AND s.ended = 0 AND s.expires_at > clock_timestamp() AND u.id >= greatest(s.closed_below, p_closed_below)
			AND NOT EXISTS (SELECT 1 FROM tenure.ended e WHERE e.session = p_session AND e.acquisition = u.id);
END $$;

-- All of the names, or none: the whole rule. p_wait_ms is how long each row that somebody has locked is waited for; 0: not at all, the
-- result is 8 then. A result that is not a grant is one row.
CREATE FUNCTION tenure.acquire_rows(p_session uuid, p_closed_below uuid, p_id uuid, p_names text[], p_max_hold interval, p_wait_ms int)
RETURNS SETOF tenure.grant_row LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_names text[] := ARRAY(SELECT u.name FROM unnest(p_names) u (name) ORDER BY u.name COLLATE "C");
	s tenure.session;
	r tenure.grant_row;
	v_now timestamptz;
	v_locked int;
BEGIN
	PERFORM tenure.read_committed('acquire'), tenure.durable();
	IF NOT EXISTS (SELECT 1 FROM tenure.authority a WHERE a.started = pg_postmaster_start_time() AND a.timeline = tenure.timeline()) THEN
		r := (0, 7, 0, NULL, NULL, NULL, NULL);
		RETURN NEXT r;
		RETURN;
	END IF;
	-- One read without a lock refuses what is held. Losers write nothing.
	SELECT * INTO s FROM tenure.session WHERE id = p_session;
	v_now := clock_timestamp();
	IF s.ended = 0 AND v_now < s.expires_at THEN
		r := tenure.judge(s, p_closed_below, p_id, v_names, p_max_hold, v_now);
		IF r.code IN (1, 5) THEN
			RETURN NEXT r;
			RETURN;
		END IF;
	END IF;
	IF s.id IS NULL OR s.ended <> 0 OR v_now >= s.expires_at THEN
		r := (0, 2, tenure.settle_session(p_session), NULL, NULL, NULL, NULL);
		IF r.how = 0 THEN
			r.code := 6; -- it was renewed at this moment
		END IF;
		RETURN NEXT r;
		RETURN;
	END IF;
	v_locked := tenure.lock_names(v_names, p_wait_ms);
	IF v_locked < 0 THEN
		r := (0, 8, 0, NULL, NULL, NULL, NULL);
		RETURN NEXT r;
		RETURN;
	END IF;
	-- After the lease rows: a close, or a release of an unknown id, waits for this lock, and must not wait for what it waits for.
	PERFORM 1 FROM tenure.session WHERE id = p_session FOR KEY SHARE;
	-- Later statements than the last wait for a lease row: what they read is what stands.
	SELECT * INTO s FROM tenure.session WHERE id = p_session;
	v_now := clock_timestamp();
	IF s.id IS NULL OR s.ended <> 0 OR v_now >= s.expires_at THEN
		r := (0, 6, 0, NULL, NULL, NULL, NULL); -- the next attempt finds it over, and writes so
		RETURN NEXT r;
		RETURN;
	END IF;
	r := tenure.judge(s, p_closed_below, p_id, v_names, p_max_hold, v_now);
	IF r.o = -2 THEN -- MaxHold passed, and is told now: that is a verdict, and is written
		UPDATE tenure.lease l SET over = 3, over_at = l.hold_until WHERE l.name = ANY (v_names) AND l.acquisition = p_id AND l.session = p_session
			AND l.over = 0 AND l.hold_until <= v_now;
	END IF;
	IF r.code = 0 AND r.o = -1 THEN
		RETURN QUERY SELECT * FROM tenure.grants(p_session, p_id, p_names);
	ELSIF r.code = 0 THEN
		RETURN QUERY SELECT * FROM tenure.take(p_session, p_closed_below, p_id, p_names, v_names, p_max_hold, v_locked);
	ELSE
		RETURN NEXT r;
	END IF;
END $$;

-- Locks the rows that there are, by name. Returns how many, or -1 if somebody else has one locked for too long.
CREATE FUNCTION tenure.lock_names(p_names text[], p_wait_ms int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	v_count int;
	v_before text := current_setting('lock_timeout');
BEGIN
	IF p_wait_ms <= 0 THEN
		SELECT count(*) INTO v_count FROM (SELECT l.name FROM unnest(p_names) u (name) JOIN tenure.lease l ON l.name = u.name
			ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED) k;
		IF v_count < (SELECT count(*) FROM unnest(p_names) u (name) JOIN tenure.lease l ON l.name = u.name) THEN
			RETURN -1;
		END IF;
		RETURN v_count;
	END IF;
	PERFORM set_config('lock_timeout', p_wait_ms::text, true);
	BEGIN
		SELECT count(*) INTO v_count FROM (SELECT l.name FROM unnest(p_names) u (name) JOIN tenure.lease l ON l.name = u.name
			ORDER BY l.name FOR NO KEY UPDATE OF l) k;
	EXCEPTION WHEN lock_not_available THEN
		v_count := -1;
	END;
	PERFORM set_config('lock_timeout', v_before, true);
	RETURN v_count;
END $$;

-- What the rules say of a request, by what can be read now. Code 0: it may be granted; with o = -1 it has been, and still is.
CREATE FUNCTION tenure.judge(s tenure.session, p_closed_below uuid, p_id uuid, p_names text[], p_max_hold interval, p_now timestamptz)
RETURNS tenure.grant_row LANGUAGE plpgsql AS $$
DECLARE
	r tenure.grant_row;
	v_mine int := 0;
	v_how smallint;
	v record;
	v_held record;
	v_is_held boolean := false;
	v_is_closed boolean := p_id < greatest(s.closed_below, p_closed_below);
BEGIN
	r := (0, 0, 0, NULL, NULL, NULL, NULL);
	FOR v IN SELECT l.*, h.ended AS h_ended, h.expires_at AS h_expires_at, h.owner AS h_owner
		FROM unnest(p_names) WITH ORDINALITY u (name, o) JOIN tenure.lease l ON l.name = u.name LEFT JOIN tenure.session h ON h.id = l.session AND h.since < l.token
		WHERE l.token > 0 AND (l.acquisition = p_id OR l.over = 0 OR l.session = s.id AND p_id < l.bound) ORDER BY u.o LOOP
		v_how := tenure.over_by(v.over, v.hold_until, v.h_ended, v.h_expires_at, p_now);
		IF v.acquisition = p_id THEN
			v_mine := v_mine + 1;
			IF v.session <> s.id THEN
				r.code := 4; r.what := 'session';
				RETURN r;
			ELSIF v_how <> 0 THEN
				RETURN tenure.tell_over(s.id, p_id, v_how, v.over);
			ELSIF v.max_hold IS DISTINCT FROM p_max_hold THEN
				r.code := 4; r.what := 'max hold';
				RETURN r;
			ELSIF v.names <> cardinality(p_names) THEN
				r.code := 4; r.what := 'names';
				RETURN r;
			END IF;
		ELSE
			v_is_closed := v_is_closed OR v.session = s.id AND p_id < v.bound;
			IF v_how = 0 AND NOT v_is_held THEN
				v_held := v;
				v_is_held := true;
			END IF;
		END IF;
	END LOOP;
	IF v_mine > 0 THEN
		IF v_mine = cardinality(p_names) THEN
			r.o := -1;
		ELSE
			r.code := 4; r.what := 'names';
		END IF;
		RETURN r;
	END IF;
	-- In one statement: a renewal beside this raises the bound, and drops the records below it.
	SELECT e.how, v_is_closed OR p_id < x.closed_below INTO v_how, v_is_closed
	FROM tenure.session x LEFT JOIN tenure.ended e ON e.session = x.id AND e.acquisition = p_id WHERE x.id = s.id;
	IF v_how IS NOT NULL THEN
		RETURN tenure.tell_over(s.id, p_id, v_how, 1::smallint);
	ELSIF v_is_closed THEN
		r.code := 3; r.how := 6;
		RETURN r;
	END IF;
	IF (SELECT a.ahead FROM tenure.authority a) THEN
		SELECT a.token, a.name INTO r.token, r.what FROM unnest(p_names) WITH ORDINALITY u (name, o) JOIN tenure.ahead a ON a.name = u.name ORDER BY u.o LIMIT 1;
		IF FOUND THEN
			r.code := 5;
			RETURN r;
		END IF;
	END IF;
	IF v_is_held THEN
		r.code := 1; r.token := v_held.token; r.remaining := least(v_held.h_expires_at, v_held.hold_until) - p_now; r.what := v_held.h_owner;
		r.o := array_position(p_names, v_held.name);
	END IF;
	RETURN r;
END $$;

-- How an acquisition is over, as it is told. That MaxHold has passed is a verdict once it is told: it is written, unless
-- this is only the look before the locks. A record knows more than the row: the reason of a revocation, or that another name was taken over.
CREATE FUNCTION tenure.tell_over(p_session uuid, p_id uuid, p_how smallint, p_over smallint) RETURNS tenure.grant_row LANGUAGE plpgsql AS $$
DECLARE
	r tenure.grant_row;
BEGIN
	r := (0, 3, p_how, NULL, NULL, NULL, NULL);
	SELECT e.how, e.reason INTO r.how, r.what FROM tenure.ended e WHERE e.session = p_session AND e.acquisition = p_id;
	r.how := coalesce(r.how, p_how);
	IF p_over = 0 AND r.how = 3 THEN
		r.o := -2; -- the caller settles it
	END IF;
	RETURN r;
END $$;

-- The grants of an acquisition that is valid, in the order asked for. The caller holds its rows. With synchronous standbys an answer
-- waits for a durable write of its own.
CREATE FUNCTION tenure.grants(p_session uuid, p_id uuid, p_names text[]) RETURNS SETOF tenure.grant_row LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('synchronous_standby_names') <> '' THEN
		UPDATE tenure.lease SET over = 0 WHERE name = p_names[1] AND acquisition = p_id AND session = p_session AND over = 0;
	END IF;
	RETURN QUERY SELECT u.o::int, 0::smallint, 0::smallint, l.token, s.expires_at - clock_timestamp(), l.hold_until - clock_timestamp(), NULL::text
		FROM unnest(p_names) WITH ORDINALITY u (name, o) JOIN tenure.lease l ON l.name = u.name JOIN tenure.session s ON s.id = p_session
		WHERE l.acquisition = p_id ORDER BY u.o;
END $$;

-- Takes every name over from whoever had it last. The caller has locked the rows and found them free, if the expired sessions are.
CREATE FUNCTION tenure.take(p_session uuid, p_closed_below uuid, p_id uuid, p_names text[], p_sorted text[], p_max_hold interval, p_locked int)
RETURNS SETOF tenure.grant_row LANGUAGE plpgsql AS $$
DECLARE
	r tenure.grant_row;
	v_others uuid[];
	v_missing text[];
	v_name text;
	v_until timestamptz;
BEGIN
	-- The other sessions are locked in one statement, by id: those that have expired, and those whose bound a row takes along (see bury). The
	-- verdict is written in this transaction: locked first, the clock read in a later statement.
	v_others := ARRAY(SELECT DISTINCT h.id FROM tenure.lease l JOIN tenure.session h ON h.id = l.session
		WHERE l.name = ANY (p_sorted) AND h.id <> p_session AND h.ended = 0 AND (l.over = 0 AND h.expires_at <= clock_timestamp() OR l.bound > h.closed_below));
	IF v_others <> '{}' THEN
		PERFORM 1 FROM tenure.session h WHERE h.id = ANY (v_others) ORDER BY h.id FOR NO KEY UPDATE;
		UPDATE tenure.session h SET ended = 3, ended_at = h.expires_at WHERE h.id = ANY (v_others) AND h.ended = 0 AND h.expires_at <= clock_timestamp();
	END IF;
	v_missing := ARRAY(SELECT u.name FROM unnest(p_sorted) u (name) LEFT JOIN tenure.lease l ON l.name = u.name WHERE l.name IS NULL ORDER BY u.name COLLATE "C");
	-- After the last wait but for new names: is every row still free, and is this session still live?
	r := (0, 6, 0, NULL, NULL, NULL, NULL);
	IF cardinality(v_missing) + p_locked <> cardinality(p_sorted) -- a row has appeared that is not locked here
		OR EXISTS (SELECT 1 FROM tenure.lease l JOIN tenure.session h ON h.id = l.session AND h.since < l.token
			WHERE l.name = ANY (p_sorted) AND l.over = 0 AND h.ended = 0 AND (l.hold_until IS NULL OR l.hold_until > clock_timestamp()))
		OR NOT EXISTS (SELECT 1 FROM tenure.session s WHERE s.id = p_session AND s.ended = 0 AND s.expires_at > clock_timestamp()) THEN
		RETURN NEXT r;
		RETURN;
	END IF;
	IF v_missing <> '{}' THEN
		r.o := tenure.make_names(v_missing);
		IF r.o < cardinality(v_missing) THEN
			RETURN NEXT r; -- somebody else made it meanwhile: its row is not locked here
			RETURN;
		END IF;
	END IF;
	PERFORM tenure.bury(p_session, p_closed_below, p_sorted);
	v_until := clock_timestamp() + p_max_hold; -- one instant for all names: they end together
	FOREACH v_name IN ARRAY p_sorted LOOP
		UPDATE tenure.lease l SET prev = l.token, token = nextval('tenure.token'), session = p_session, acquisition = p_id, names = cardinality(p_sorted),
			bound = CASE WHEN l.session = p_session THEN greatest(l.bound, p_closed_below) ELSE p_closed_below END,
			max_hold = p_max_hold, hold_until = v_until, over = 0
		FROM tenure.session s WHERE l.name = v_name AND s.id = p_session AND s.ended = 0 AND s.expires_at > clock_timestamp();
		IF NOT FOUND THEN
			PERFORM tenure.fail('TN006', 'the session expired at this moment', NULL, 'Nothing was changed. Ask again.');
		END IF;
	END LOOP;
	RETURN QUERY SELECT * FROM tenure.grants(p_session, p_id, p_names);
END $$;

-- Makes the rows of new names, which are sorted, and returns how many it made. Another insert of the same name is waited for, 300 ms at most
-- (55P03): it may stand in a transaction that somebody left open.
CREATE FUNCTION tenure.make_names(p_names text[]) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	v_before text := current_setting('lock_timeout');
	v_made int;
BEGIN
	PERFORM tenure.check_name(u.name) FROM unnest(p_names) u (name);
	PERFORM set_config('lock_timeout', '300', true);
	INSERT INTO tenure.lease (name) SELECT u.name FROM unnest(p_names) u (name) ON CONFLICT (name) DO NOTHING;
	GET DIAGNOSTICS v_made = ROW_COUNT;
	PERFORM set_config('lock_timeout', v_before, true);
	RETURN v_made;
END $$;

-- Locks, by id, the other sessions whose bound these rows take along when they are overwritten, and returns them.
CREATE FUNCTION tenure.lock_others(p_session uuid, p_names text[]) RETURNS uuid[] LANGUAGE plpgsql AS $$
DECLARE
	v_others uuid[] := ARRAY(SELECT DISTINCT h.id FROM tenure.lease l JOIN tenure.session h ON h.id = l.session AND h.since < l.token
		WHERE l.name = ANY (p_names) AND h.id <> p_session AND h.ended = 0 AND l.bound > h.closed_below);
BEGIN
	IF v_others <> '{}' THEN
		PERFORM 1 FROM tenure.session h WHERE h.id = ANY (v_others) ORDER BY h.id FOR NO KEY UPDATE;
	END IF;
	RETURN v_others;
END $$;

-- Keeps what the rows say of their last acquisitions, as far as somebody may still ask, before they are overwritten by p_session, which closes
-- what lies below p_closed_below. The caller holds the rows; other sessions are locked by id. Inserts are in the order of the key.
CREATE FUNCTION tenure.bury(p_session uuid, p_closed_below uuid, p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_others uuid[] := tenure.lock_others(p_session, p_names);
BEGIN
	IF v_others <> '{}' THEN
		UPDATE tenure.session h SET closed_below = b.bound
		FROM (SELECT DISTINCT ON (l.session) l.session, l.bound FROM tenure.lease l WHERE l.name = ANY (p_names) ORDER BY l.session, l.bound DESC) b
		WHERE h.id = ANY (v_others) AND b.session = h.id AND h.ended = 0 AND h.closed_below < b.bound;
	END IF;
	INSERT INTO tenure.ended (session, acquisition, how, at)
	SELECT DISTINCT ON (l.session, l.acquisition) l.session, l.acquisition,
		CASE WHEN l.over <> 0 THEN l.over WHEN h.ended <> 0 THEN h.ended ELSE 4 END, coalesce(CASE WHEN l.over <> 0 THEN l.over_at ELSE h.ended_at END, l.hold_until)
	FROM tenure.lease l JOIN tenure.session h ON h.id = l.session AND h.since < l.token
	WHERE l.name = ANY (p_names) AND l.token > 0 AND l.over <> 5 AND h.ended <> 2
		AND NOT (l.over = 1 AND (h.ended <> 0 OR l.acquisition < h.closed_below OR h.id = p_session AND l.acquisition < greatest(l.bound, p_closed_below)))
	ORDER BY l.session, l.acquisition
	ON CONFLICT (session, acquisition) DO NOTHING;
END $$;

-- After whatever wrote to the sequence or the rows by hand: no token comes again.
CREATE FUNCTION tenure.mend_sequence() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM 1 FROM tenure.authority FOR UPDATE;
	PERFORM setval('tenure.token', greatest((SELECT last_value + 1 FROM tenure.token), (SELECT max(l.token) FROM tenure.lease l)));
END $$;
