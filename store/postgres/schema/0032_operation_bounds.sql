-- Replies of operations bounded in bytes, and texts that are checked alike whatever a session's standard_conforming_strings is.

-- What no text may hold, as a pattern. Inlined where it is called.
CREATE FUNCTION tenure.op_controls() RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT '[' || chr(1) || '-' || chr(31) || chr(127) || '-' || chr(159) || ']' $$;

CREATE OR REPLACE FUNCTION tenure.op_check_text(p_field text, p_text text, p_least int, p_most int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_text IS NULL OR octet_length(p_text) NOT BETWEEN p_least AND p_most OR p_text ~ tenure.op_controls() THEN
		PERFORM tenure.op_invalid(p_field, 'want ' || p_least || ' to ' || p_most || ' bytes without control characters');
	END IF;
END $$;

CREATE OR REPLACE FUNCTION tenure.op_submit_many(p_ids text[], p_kinds text[], p_requests bytea[], p_prints bytea[], p_priorities int[], p_run_ins interval[])
RETURNS int[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_before text := current_setting('lock_timeout');
	v_now timestamptz := clock_timestamp();
	v_done text[];
	v_left int[] := '{}';
BEGIN
	PERFORM tenure.read_committed('submit'), tenure.durable();
	PERFORM tenure.op_check_submission(u.id, u.kind, u.request, u.run_in, u.priority, NULL, NULL, u.print)
	FROM unnest(p_ids, p_kinds, p_requests, p_prints, p_priorities, p_run_ins) u (id, kind, request, print, priority, run_in)
	WHERE (octet_length(u.id) BETWEEN 1 AND 256 AND octet_length(u.kind) BETWEEN 1 AND 128 AND u.id !~ tenure.op_controls() AND u.kind !~ tenure.op_controls()
		AND octet_length(coalesce(u.request, '')) <= 1048576 AND octet_length(u.print) = 32 AND u.priority BETWEEN 0 AND 3 AND u.run_in BETWEEN interval '0' AND interval '366 days') IS NOT TRUE;
	PERFORM set_config('lock_timeout', '300', true);
	-- By id, so that two batches wait for each other in one direction only.
	WITH d AS (
		INSERT INTO tenure.operation AS o (id, kind, fingerprint, request, priority, submission, created, due)
		SELECT u.id, u.kind, u.print, u.request, u.priority, nextval('tenure.submission'), v_now, v_now + u.run_in
		FROM (SELECT * FROM unnest(p_ids, p_kinds, p_requests, p_prints, p_priorities, p_run_ins) WITH ORDINALITY x (id, kind, request, print, priority, run_in, o) ORDER BY x.id COLLATE "C", x.o) u
		ON CONFLICT (id) DO NOTHING RETURNING o.id)
	SELECT array_agg(d.id) INTO v_done FROM d;
	PERFORM set_config('lock_timeout', v_before, true);
	IF coalesce(cardinality(v_done), 0) < cardinality(p_ids) THEN
		v_left := ARRAY(SELECT t.o FROM (SELECT u.o::int, u.id, row_number() OVER (PARTITION BY u.id ORDER BY u.o) AS time FROM unnest(p_ids) WITH ORDINALITY u (id, o)) t
			WHERE t.time > 1 OR t.id NOT IN (SELECT x.id FROM unnest(v_done) x (id)) ORDER BY t.o); -- of an id that stands there twice the first was recorded
	END IF;
	RETURN v_left;
END $$;

-- How many of them, from the first, go into one reply: it ends with the one that reaches 32 MiB. The first always goes.
CREATE FUNCTION tenure.op_fit(p_sizes int[]) RETURNS int LANGUAGE sql IMMUTABLE AS $$
	SELECT count(*)::int FROM (SELECT sum(u.size) OVER (ORDER BY u.o) - u.size AS before FROM unnest(p_sizes) WITH ORDINALITY u (size, o)) x WHERE x.before < 33554432
$$;

CREATE OR REPLACE FUNCTION tenure.op_claim_many(p_worker text, p_ttl interval, p_limit int, p_kinds text[], p_limits int[], p_timeouts interval[], p_windows interval[], p_not_afters interval[],
	p_most int[], p_asks boolean[], p_undoes boolean[], p_id text DEFAULT NULL, p_froms timestamptz[] DEFAULT NULL)
RETURNS SETOF tenure.op_job LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_limits int[] := p_limits;
	v_froms timestamptz[] := p_froms;
	v_rows tid[];
	v_dues timestamptz[];
	v_ks int[];
	v_sizes int[];
	v_fit int;
	v_more boolean;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' OR current_setting('synchronous_commit') IN ('off', 'local') THEN
		PERFORM tenure.read_committed('claim'), tenure.durable();
	END IF;
	IF (p_limit BETWEEN 1 AND 1000 AND p_ttl BETWEEN interval '1 millisecond' AND interval '1 hour' AND octet_length(p_worker) <= 256) IS NOT TRUE THEN
		PERFORM tenure.op_invalid('claim', 'want a limit of 1 to 1000, a ttl of 1 ms to 1 hour, and a worker of at most 256 bytes');
	END IF;
	IF (SELECT count(DISTINCT u.kind) BETWEEN 1 AND 64 AND count(DISTINCT u.kind) = count(*) AND count(*) = cardinality(p_kinds) AND count(*) = count(u.l + u.most + u.asks::int + u.undoes::int)
			AND min(u.l) >= 1 AND max(u.l) <= 1000 AND min(u.most) >= 1 AND max(u.most) <= 1000 AND min(least(u.timeout - interval '1 millisecond', u.win, u.after)) >= interval '0'
			AND max(greatest(u.timeout, u.after)) <= interval '366 days' AND count(*) = count(u.timeout + u.after) AND count(*) = count(u.win)
		FROM unnest(p_kinds, p_limits, p_timeouts, p_windows, p_not_afters, p_most, p_asks, p_undoes) u (kind, l, timeout, win, after, most, asks, undoes)) IS NOT TRUE THEN
		PERFORM tenure.op_invalid('kinds', 'want 1 to 64 different ones, and for each of them a limit and a number of attempts of 1 to 1000, a timeout of 1 ms to 366 days, a window, a not after of at most 366 days, and whether it can be asked, and undone');
	END IF;
	PERFORM tenure.enter_incarnation_if_new(); -- before any other lock
	IF p_id <> '' THEN
		SELECT array_agg(x.c), array_agg(x.k), bool_or(x.attempts > 0) INTO v_rows, v_ks, v_more FROM (
			SELECT o.ctid AS c, array_position(p_kinds, o.kind) AS k, o.attempts FROM tenure.operation o
			WHERE o.id = p_id AND o.kind = ANY (p_kinds) AND o.step = 2 AND NOT o.blocked AND o.due <= v_now FOR NO KEY UPDATE SKIP LOCKED) x;
		RETURN QUERY SELECT * FROM tenure.op_begin(v_rows, v_ks, NULL, v_more, p_worker, p_ttl, p_timeouts, p_windows, p_not_afters, p_most, p_asks, p_undoes);
		RETURN;
	END IF;
	LOOP
		IF cardinality(p_kinds) > 1 THEN -- a look without locks says how many of each kind there will be, so that few rows are locked in vain
			v_limits := tenure.op_shares(p_kinds, p_limits, p_limit, v_now, v_froms);
		END IF;
		-- One statement locks. That it is still work, and due, is looked at again under the lock.
		SELECT array_agg(x.c ORDER BY x.priority DESC, x.due, x.submission), array_agg(x.k ORDER BY x.priority DESC, x.due, x.submission),
			array_agg(x.due ORDER BY x.priority DESC, x.due, x.submission), array_agg(x.size ORDER BY x.priority DESC, x.due, x.submission), bool_or(x.attempts > 0)
		INTO v_rows, v_ks, v_dues, v_sizes, v_more FROM (
			SELECT w.c, k.k::int AS k, w.attempts, w.priority, w.due, w.submission, w.size FROM unnest(p_kinds, v_limits) WITH ORDINALITY k (kind, most, k) CROSS JOIN LATERAL (
				SELECT q.* FROM generate_series(3, 0, -1) p (priority) CROSS JOIN LATERAL (
					SELECT o.ctid AS c, o.attempts, o.priority, o.due, o.submission, coalesce(octet_length(o.request), 0) AS size FROM tenure.operation o
					WHERE o.kind = k.kind AND o.priority = p.priority AND o.step = 2 AND NOT o.blocked AND o.due <= v_now
						AND o.due >= coalesce(v_froms[4 * k.k - 3 + p.priority], '-infinity')
					ORDER BY o.due, o.submission LIMIT least(k.most, p_limit) FOR NO KEY UPDATE SKIP LOCKED) q
				LIMIT least(k.most, p_limit)) w
			ORDER BY w.priority DESC, w.due, w.submission LIMIT p_limit) x;
		EXIT WHEN v_froms IS NULL OR cardinality(v_rows) >= least(p_limit, (SELECT sum(u.l) FROM unnest(p_limits) u (l)));
		v_froms := NULL; -- there is room for what has become work late
	END LOOP;
	v_fit := tenure.op_fit(v_sizes);
	IF v_fit < cardinality(v_rows) THEN -- the others stay as they are
		v_rows := v_rows[:v_fit];
		v_ks := v_ks[:v_fit];
		v_dues := v_dues[:v_fit];
	END IF;
	RETURN QUERY SELECT * FROM tenure.op_begin(v_rows, v_ks, v_dues, v_more, p_worker, p_ttl, p_timeouts, p_windows, p_not_afters, p_most, p_asks, p_undoes);
END $$;

CREATE OR REPLACE FUNCTION tenure.op_due(p_kinds text[], p_limit int DEFAULT 100, p_hold interval DEFAULT '1 minute') RETURNS SETOF tenure.op_record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_rows tid[];
	v_ids text[];
	v_sizes int[];
	v_fit int;
BEGIN
	PERFORM tenure.read_committed('due'), tenure.durable(), tenure.op_check_kinds(p_kinds, p_limit), tenure.op_check_delay('hold', p_hold, '1 microsecond', '366 days');
	SELECT array_agg(x.c ORDER BY x.due, x.submission), array_agg(x.id ORDER BY x.due, x.submission), array_agg(x.size ORDER BY x.due, x.submission)
	INTO v_rows, v_ids, v_sizes FROM (
		SELECT q.* FROM unnest(p_kinds) k (kind) CROSS JOIN LATERAL (
			SELECT o.ctid AS c, o.id, o.due, o.submission, coalesce(octet_length(o.request), 0) + coalesce(octet_length(o.result), 0) + coalesce(octet_length(o.answer), 0) AS size FROM tenure.operation o WHERE o.kind = k.kind AND o.step > 3 AND o.due <= v_now
			ORDER BY o.due, o.submission LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) q
		ORDER BY q.due, q.submission LIMIT p_limit) x;
	IF v_rows IS NULL THEN
		RETURN;
	END IF;
	v_fit := tenure.op_fit(v_sizes);
	v_rows := v_rows[:v_fit];
	v_ids := v_ids[:v_fit];
	v_now := clock_timestamp();
	UPDATE tenure.operation o SET inquiries = o.inquiries + CASE WHEN o.step = 4 THEN 1 ELSE 0 END, due = v_now + p_hold,
		step = tenure.op_step(o.state, o.wished, v_now + p_hold <= o.again_until, o.asks, o.undoes, o.undone_by IS NOT NULL)
	FROM unnest(v_rows) u (c) WHERE o.ctid = u.c;
	RETURN QUERY SELECT t.* FROM unnest(v_ids) WITH ORDINALITY u (id, o) CROSS JOIN LATERAL tenure.op_tell(u.id, true, v_now, 'taken') t ORDER BY u.o;
END $$;

-- Its patterns hold backslashes.
ALTER FUNCTION tenure.op_list SET standard_conforming_strings = on;

REVOKE ALL ON FUNCTION tenure.op_controls(), tenure.op_fit(int[]) FROM PUBLIC;
