-- Workers: claims, renewals and completions. Nothing here waits for a row that somebody has locked, but op_complete and a renewal that says how long.

-- Begins an attempt of each operation that it returns. For each kind: how many at most, the timeout of an attempt, the window in which an unknown outcome may be followed by another
-- attempt (0: none; more than 366 days: without an end), after how long the provider itself refuses the effect (0: never), how many attempts, whether it can be asked, and whether undone.
-- p_id: only that one. p_froms: for each kind, and each priority from 0, since when to look, so that the index entries of what was claimed since the last vacuum are not walked over again;
-- if that does not fill the claim, all is looked at. Whoever passes it looks at all once a second (NULL), for what has become work late: unblocked, or committed long after it was submitted.
CREATE FUNCTION tenure.op_claim_many(p_worker text, p_ttl interval, p_limit int, p_kinds text[], p_limits int[], p_timeouts interval[], p_windows interval[], p_not_afters interval[],
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
			array_agg(x.due ORDER BY x.priority DESC, x.due, x.submission), bool_or(x.attempts > 0) INTO v_rows, v_ks, v_dues, v_more FROM (
			SELECT w.c, k.k::int AS k, w.attempts, w.priority, w.due, w.submission FROM unnest(p_kinds, v_limits) WITH ORDINALITY k (kind, most, k) CROSS JOIN LATERAL (
				SELECT q.* FROM generate_series(3, 0, -1) p (priority) CROSS JOIN LATERAL (
					SELECT o.ctid AS c, o.attempts, o.priority, o.due, o.submission FROM tenure.operation o
					WHERE o.kind = k.kind AND o.priority = p.priority AND o.step = 2 AND NOT o.blocked AND o.due <= v_now
						AND o.due >= coalesce(v_froms[4 * k.k - 3 + p.priority], '-infinity')
					ORDER BY o.due, o.submission LIMIT least(k.most, p_limit) FOR NO KEY UPDATE SKIP LOCKED) q
				LIMIT least(k.most, p_limit)) w
			ORDER BY w.priority DESC, w.due, w.submission LIMIT p_limit) x;
		EXIT WHEN v_froms IS NULL OR cardinality(v_rows) >= least(p_limit, (SELECT sum(u.l) FROM unnest(p_limits) u (l)));
		v_froms := NULL; -- there is room for what has become work late
	END LOOP;
	RETURN QUERY SELECT * FROM tenure.op_begin(v_rows, v_ks, v_dues, v_more, p_worker, p_ttl, p_timeouts, p_windows, p_not_afters, p_most, p_asks, p_undoes);
END $$;

-- Begins attempts of operations that the caller has locked, and found due. p_ks: of which kind each is; p_more: some have had attempts.
CREATE FUNCTION tenure.op_begin(p_rows tid[], p_ks int[], p_dues timestamptz[], p_more boolean, p_worker text, p_ttl interval, p_timeouts interval[], p_windows interval[], p_not_afters interval[],
	p_most int[], p_asks boolean[], p_undoes boolean[])
RETURNS SETOF tenure.op_job LANGUAGE plpgsql AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_begun int;
BEGIN
	IF p_rows IS NULL THEN
		RETURN;
	END IF;
	IF p_more THEN
		INSERT INTO tenure.attempt (id, number, began, ended, known, worker, why, answer)
		SELECT o.id, o.number, o.began, o.ended, o.known, o.worker, o.why, o.answer FROM unnest(p_rows, p_ks) u (c, k), tenure.operation o WHERE o.ctid = u.c AND o.attempts > 0
			AND tenure.op_may_begin(o.state, tenure.op_tries(o.attempts, o.unsent), coalesce(o.first, o.began), o.not_after, v_now, p_most[u.k], p_windows[u.k], p_timeouts[u.k]);
	END IF;
	-- The numbers are drawn in a later statement than the lock, in the order of the claim. Nothing in it can wait.
	RETURN QUERY UPDATE tenure.operation o SET prev = o.number, number = nextval('tenure.token'), state = 2, step = 3, known = 3, attempts = o.attempts + 1, worker = p_worker,
		unsure = o.unsure OR coalesce(o.known, 1) > 2, first = CASE WHEN o.attempts > 0 THEN coalesce(o.first, o.began) END, began = v_now, ended = NULL, why = NULL, answer = NULL,
		until = v_now + p_timeouts[u.k], due = v_now + least(p_ttl, p_timeouts[u.k]), asks = p_asks[u.k], undoes = p_undoes[u.k],
		not_after = CASE WHEN o.attempts > 0 THEN o.not_after WHEN p_not_afters[u.k] > interval '0' THEN v_now + p_not_afters[u.k] END,
		again_until = CASE WHEN tenure.op_tries(o.attempts + 1, o.unsent) >= p_most[u.k] OR p_windows[u.k] <= interval '0' THEN NULL WHEN p_windows[u.k] > interval '366 days' THEN 'infinity'
			WHEN o.attempts > 0 THEN coalesce(o.first, o.began) + p_windows[u.k] - p_timeouts[u.k] ELSE v_now + p_windows[u.k] - p_timeouts[u.k] END
	FROM unnest(p_rows, p_ks, p_dues) u (c, k, due) WHERE o.ctid = u.c
		AND tenure.op_may_begin(o.state, tenure.op_tries(o.attempts, o.unsent), coalesce(o.first, o.began), o.not_after, v_now, p_most[u.k], p_windows[u.k], p_timeouts[u.k])
	RETURNING o.id, o.number, o.kind, o.attempts, o.request, o.unsure, o.priority::int, o.ord, o.due - v_now, o.until - v_now, o.not_after, u.due;
	GET DIAGNOSTICS v_begun = ROW_COUNT;
	IF v_begun < cardinality(p_rows) THEN
		PERFORM tenure.op_let_be(p_rows, p_ks, p_asks, v_now);
	END IF;
END $$;

-- How many operations of each kind a claim will find, as things stand.
CREATE FUNCTION tenure.op_shares(p_kinds text[], p_limits int[], p_limit int, p_now timestamptz, p_froms timestamptz[]) RETURNS int[] LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN ARRAY(SELECT count(f.k)::int FROM generate_subscripts(p_kinds, 1) g (k) LEFT JOIN (
		SELECT k.k, w.priority FROM unnest(p_kinds, p_limits) WITH ORDINALITY k (kind, most, k) CROSS JOIN LATERAL (
			SELECT q.* FROM generate_series(3, 0, -1) p (priority) CROSS JOIN LATERAL (
				SELECT o.priority, o.due, o.submission FROM tenure.operation o
				WHERE o.kind = k.kind AND o.priority = p.priority AND o.step = 2 AND NOT o.blocked AND o.due <= p_now
					AND o.due >= coalesce(p_froms[4 * k.k - 3 + p.priority], '-infinity')
				ORDER BY o.due, o.submission LIMIT least(k.most, p_limit)) q
			LIMIT least(k.most, p_limit)) w
		ORDER BY w.priority DESC, w.due, w.submission LIMIT p_limit) f ON f.k = g.k GROUP BY g.k ORDER BY g.k);
END $$;

-- What was due for another attempt, and can have none any more. Those that none can have had an effect of have failed; one whose order is being changed at this moment is put off
-- a little, so that it does not stand before strangers while a transaction keeps that order. The caller holds the rows. The others are no work any more.
CREATE FUNCTION tenure.op_let_be(p_rows tid[], p_ks int[], p_asks boolean[], p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_ords text[];
BEGIN
	WITH d AS (
		UPDATE tenure.operation o SET state = 5, step = 1, decided = p_now, reason = CASE WHEN o.not_after <= p_now THEN 'the instant after which the provider refuses it has passed' ELSE 'no attempt is left' END
		FROM unnest(p_rows) u (c) WHERE o.ctid = u.c AND o.state = 1 AND (o.ord IS NULL OR pg_try_advisory_xact_lock(tenure.op_order(o.ord)))
		RETURNING o.ord)
	SELECT array_agg(DISTINCT d.ord) FILTER (WHERE d.ord IS NOT NULL) INTO v_ords FROM d;
	PERFORM tenure.op_unblock(u.ord) FROM unnest(v_ords) u (ord);
	UPDATE tenure.operation o SET due = p_now + interval '100 milliseconds' FROM unnest(p_rows) u (c) WHERE o.ctid = u.c AND o.state = 1;
	UPDATE tenure.operation o SET again_until = NULL, asks = p_asks[u.k], step = tenure.op_step(3::smallint, o.wished, false, p_asks[u.k], false, false)
	FROM unnest(p_rows, p_ks) u (c, k) WHERE o.ctid = u.c AND o.state = 3;
END $$;

-- Lets claims expire p_ttl from now, but none later than its attempt's timeout. lost: which were not renewed, from 1, because the attempt is not the open current one or
-- its timeout has passed. locked: those whose row somebody holds: they are waited for if p_wait_ms is more than 0, all of them for that long at most (55P03).
CREATE FUNCTION tenure.op_renew(p_ids text[], p_numbers bigint[], p_ttl interval, p_wait_ms int DEFAULT 0, OUT lost int[], OUT locked int[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_before text := current_setting('lock_timeout');
	v_rows tid[];
	v_os int[];
	v_done int[];
	v_now timestamptz;
BEGIN
	PERFORM tenure.read_committed('renew'), tenure.durable(), tenure.op_check_delay('ttl', p_ttl, '1 millisecond', '1 hour');
	IF p_wait_ms > 0 THEN
		PERFORM set_config('lock_timeout', p_wait_ms::text, true);
		SELECT array_agg(k.c), array_agg(k.o) INTO v_rows, v_os FROM (SELECT o.ctid AS c, u.o::int FROM unnest(p_ids, p_numbers) WITH ORDINALITY u (id, number, o) JOIN tenure.operation o ON o.id = u.id
			WHERE o.number = u.number AND o.known = 3 AND o.state = 2 ORDER BY o.id FOR NO KEY UPDATE OF o) k;
		PERFORM set_config('lock_timeout', v_before, true);
	ELSE
		SELECT array_agg(k.c), array_agg(k.o) INTO v_rows, v_os FROM (SELECT o.ctid AS c, u.o::int FROM unnest(p_ids, p_numbers) WITH ORDINALITY u (id, number, o) JOIN tenure.operation o ON o.id = u.id
			WHERE o.number = u.number AND o.known = 3 AND o.state = 2 ORDER BY o.id FOR NO KEY UPDATE OF o SKIP LOCKED) k;
	END IF;
	v_now := clock_timestamp(); -- in a later statement than the lock
	WITH d AS (
		UPDATE tenure.operation o SET due = least(v_now + p_ttl, o.until) FROM unnest(v_rows, v_os) u (c, o) WHERE o.ctid = u.c AND o.until > v_now RETURNING u.o)
	SELECT coalesce(array_agg(d.o), '{}') INTO v_done FROM d;
	lost := '{}';
	locked := '{}';
	IF cardinality(v_done) < cardinality(p_ids) THEN
		SELECT coalesce(array_agg(u.o ORDER BY u.o) FILTER (WHERE x.id IS NULL), '{}'), coalesce(array_agg(u.o ORDER BY u.o) FILTER (WHERE x.id IS NOT NULL), '{}') INTO lost, locked
		FROM unnest(p_ids, p_numbers) WITH ORDINALITY u (id, number, o)
		LEFT JOIN tenure.operation x ON x.id = u.id AND x.number = u.number AND x.known = 3 AND x.state = 2 AND x.until > v_now
		WHERE u.o NOT IN (SELECT d.o FROM unnest(v_done) d (o));
	END IF;
END $$;

-- Completes what is the open current attempt of its operation, and is not locked, in one statement: strangers to each other. done: which, from 1. unblocked: others of an order may go on.
-- Nothing here depends on the clock.
CREATE FUNCTION tenure.op_complete_open(p_ids text[], p_numbers bigint[], p_knowns smallint[], p_results bytea[], p_reasons text[], p_finals boolean[], p_retry_ins interval[],
	OUT done int[], OUT unblocked boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_ordered boolean := current_setting('transaction_isolation') = 'read committed';
	v_ords text[];
BEGIN
	WITH k AS MATERIALIZED (
		SELECT o.ctid AS c, u.o::int, u.known, u.result, u.reason, u.retry_in, CASE WHEN u.known = 5 THEN 4 WHEN o.unsure OR u.known > 2 THEN 3 WHEN u.final THEN 5 WHEN o.wished THEN 6 ELSE 1 END::smallint AS state
		FROM unnest(p_ids, p_numbers, p_knowns, p_results, p_reasons, p_finals, p_retry_ins) WITH ORDINALITY u (id, number, known, result, reason, final, retry_in, o)
		JOIN tenure.operation o ON o.id = u.id
		WHERE o.number = u.number AND o.known = 3 AND o.state = 2 AND (o.ord IS NULL OR v_ordered AND pg_try_advisory_xact_lock(tenure.op_order(o.ord)))
		ORDER BY o.id FOR NO KEY UPDATE OF o SKIP LOCKED),
	d AS (
		UPDATE tenure.operation o SET known = k.known, unsent = o.unsent + CASE WHEN k.known = 1 THEN 1 ELSE 0 END, why = nullif(k.reason, ''), ended = v_now, state = k.state,
			answer = CASE WHEN k.known <> 5 THEN k.result END, result = CASE WHEN k.known = 5 THEN k.result END, own = k.known = 5,
			reason = CASE k.state WHEN 5 THEN k.reason WHEN 6 THEN 'cancelled when it was known that no attempt had an effect' END,
			decided = CASE WHEN k.state > 3 THEN v_now END, due = CASE WHEN k.state > 3 THEN v_now ELSE v_now + k.retry_in END,
			step = tenure.op_step(k.state, o.wished, v_now + k.retry_in <= o.again_until, o.asks, o.undoes, o.undone_by IS NOT NULL)
		FROM k WHERE o.ctid = k.c RETURNING k.o, CASE WHEN k.state > 3 THEN o.ord END AS ord)
	SELECT coalesce(array_agg(d.o), '{}'), array_agg(d.ord) FILTER (WHERE d.ord IS NOT NULL) INTO done, v_ords FROM d;
	unblocked := v_ords IS NOT NULL;
	IF unblocked THEN
		PERFORM tenure.op_unblock(u.ord) FROM (SELECT DISTINCT x.ord FROM unnest(v_ords) x (ord)) u;
	END IF;
END $$;

-- op_complete for many attempts, which are of different operations. left_over: which it has not recorded, from 1: they ask singly, and are told why not. unblocked: others of an order may go on.
CREATE FUNCTION tenure.op_complete_many(p_ids text[], p_numbers bigint[], p_knowns smallint[], p_results bytea[], p_reasons text[], p_finals boolean[], p_retry_ins interval[],
	OUT left_over int[], OUT unblocked boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_done int[];
BEGIN
	PERFORM tenure.read_committed('complete'), tenure.durable();
	PERFORM tenure.op_check_completion(u.known, u.result, u.reason, u.retry_in) FROM unnest(p_knowns, p_results, p_reasons, p_retry_ins) u (known, result, reason, retry_in)
	WHERE (u.known IN (1, 2, 4, 5) AND octet_length(coalesce(u.result, '')) <= 1048576 AND octet_length(u.reason) <= 2048 AND u.retry_in BETWEEN interval '0' AND interval '366 days') IS NOT TRUE;
	SELECT c.done, c.unblocked INTO v_done, unblocked FROM tenure.op_complete_open(p_ids, p_numbers, p_knowns, p_results, p_reasons, p_finals, p_retry_ins) c;
	left_over := '{}';
	IF cardinality(v_done) < cardinality(p_ids) THEN
		left_over := ARRAY(SELECT g.o FROM generate_subscripts(p_ids, 1) g (o) WHERE g.o NOT IN (SELECT d.o FROM unnest(v_done) d (o)) ORDER BY g.o);
	END IF;
END $$;

CREATE FUNCTION tenure.op_check_completion(p_known smallint, p_result bytea, p_reason text, p_retry_in interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_known IS NULL OR p_known NOT IN (1, 2, 4, 5) THEN
		PERFORM tenure.op_invalid('answer', 'want not sent, refused, no answer or effective');
	END IF;
	PERFORM tenure.op_check_answer(p_result, coalesce(p_reason, '')), tenure.op_check_delay('retry in', p_retry_in, '0', '366 days');
END $$;

-- A worker's own report of its attempt, in the transaction of what it changes beside: it raises unless it has moved the operation. TN023: it is not the open current attempt any more;
-- roll back what this attempt has changed.
CREATE FUNCTION tenure.op_complete(p_id text, p_number bigint, p_known text, p_result bytea DEFAULT NULL, p_reason text DEFAULT '', p_final boolean DEFAULT false, p_retry_in interval DEFAULT '0')
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	h tenure.op_head;
	v_known smallint := array_position(ARRAY['not sent', 'refused', NULL, 'no answer', 'effective'], p_known);
	v_now timestamptz;
	v record;
BEGIN
	PERFORM tenure.op_check_completion(v_known, p_result, p_reason, p_retry_in), tenure.durable();
	IF cardinality((tenure.op_complete_open(ARRAY[p_id], ARRAY[p_number], ARRAY[v_known], ARRAY[p_result], ARRAY[coalesce(p_reason, '')], ARRAY[coalesce(p_final, false)], ARRAY[p_retry_in])).done) = 1 THEN
		RETURN;
	END IF;
	h := tenure.op_lock(p_id);
	v_now := clock_timestamp();
	IF p_number IS DISTINCT FROM h.number OR h.known <> 3 OR h.state >= 4 THEN
		IF p_number IS DISTINCT FROM h.number AND NOT EXISTS (SELECT 1 FROM tenure.attempt a WHERE a.id = p_id AND a.number = p_number) THEN
			PERFORM tenure.op_invalid('attempt', 'number ' || coalesce(p_number::text, 'none') || ' was never recorded');
		END IF;
		PERFORM tenure.fail('TN023', format('attempt %s of operation %s is not the open current one (%s), and the operation is %s', p_number, to_json(p_id), h.number, tenure.op_state(h.state)),
			jsonb_build_object('id', p_id, 'attempt', p_number::text, 'newer', h.number::text, 'state', tenure.op_state(h.state)), 'Roll back what this attempt has changed.');
	END IF;
	v := tenure.op_report(h, p_number, v_known, p_result, coalesce(p_reason, ''), p_final, v_now);
	h := v.h;
	h.due := CASE WHEN h.state > 3 THEN v_now ELSE v_now + p_retry_in END;
	PERFORM tenure.op_save(h, v_now);
END $$;

-- op_claim_many for one policy: see there. For psql and other languages.
CREATE FUNCTION tenure.op_claim(p_kinds text[], p_worker text DEFAULT '', p_limit int DEFAULT 1, p_ttl interval DEFAULT '15 seconds', p_timeout interval DEFAULT '5 minutes', p_window interval DEFAULT '0',
	p_not_after interval DEFAULT '0', p_attempts int DEFAULT 10, p_asks boolean DEFAULT false, p_undoes boolean DEFAULT false, p_id text DEFAULT NULL)
RETURNS SETOF tenure.op_job LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	n int := coalesce(cardinality(p_kinds), 0);
BEGIN
	PERFORM tenure.op_check_kinds(p_kinds, p_limit), tenure.op_check_text('worker', p_worker, 0, 256), tenure.op_check_delay('ttl', p_ttl, '1 millisecond', '1 hour'),
		tenure.op_check_delay('timeout', p_timeout, '1 millisecond', '366 days'), tenure.op_check_delay('window', p_window, '0', '300 years'), tenure.op_check_delay('not after', p_not_after, '0', '366 days');
	IF p_attempts IS NULL OR p_attempts NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('attempts', 'want 1 to 1000');
	END IF;
	RETURN QUERY SELECT * FROM tenure.op_claim_many(p_worker, p_ttl, p_limit, p_kinds, array_fill(p_limit, ARRAY[n]), array_fill(p_timeout, ARRAY[n]), array_fill(p_window, ARRAY[n]),
		array_fill(p_not_after, ARRAY[n]), array_fill(p_attempts, ARRAY[n]), array_fill(p_asks, ARRAY[n]), array_fill(p_undoes, ARRAY[n]), p_id);
END $$;

CREATE FUNCTION tenure.op_check_kinds(p_kinds text[], p_limit int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_kinds IS NULL OR cardinality(p_kinds) NOT BETWEEN 1 AND 64 OR array_ndims(p_kinds) <> 1 OR cardinality(p_kinds) <> (SELECT count(DISTINCT u.k) FROM unnest(p_kinds) u (k)) THEN
		PERFORM tenure.op_invalid('kinds', 'want 1 to 64 different ones');
	ELSIF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 1000');
	END IF;
	PERFORM tenure.op_check_text('kind', u.k, 1, 128) FROM unnest(p_kinds) u (k);
END $$;
