-- For the reconciler: what became of operations that no worker is at work on. For operators: lists, verdicts, forgetting.

-- Ends attempts whose claims have expired, and returns how many. That a claim has expired is a verdict, and is written: what is found is locked, and in a later statement looked at
-- again by the clock. Rows that somebody has locked are left.
CREATE FUNCTION tenure.op_expire(p_limit int DEFAULT 1000) RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_rows tid[];
	v_count int;
BEGIN
	PERFORM tenure.read_committed('expire'), tenure.durable();
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 1000');
	END IF;
	SELECT array_agg(x.c) INTO v_rows FROM (
		SELECT o.ctid AS c FROM tenure.operation o WHERE o.step = 3 AND o.due <= v_now ORDER BY o.due, o.submission LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) x;
	IF v_rows IS NULL THEN
		RETURN 0;
	END IF;
	v_now := clock_timestamp();
	UPDATE tenure.operation o SET known = 4, why = 'its claim expired', answer = NULL, ended = v_now, state = 3, due = v_now,
		step = tenure.op_step(3::smallint, o.wished, v_now <= o.again_until, o.asks, false, false)
	FROM unnest(v_rows) u (c) WHERE o.ctid = u.c AND o.step = 3 AND o.due <= v_now;
	GET DIAGNOSTICS v_count = ROW_COUNT;
	RETURN v_count;
END $$;

-- Operations that are to be asked about, or undone, and are due: each is put off by p_hold. outcome: taken.
CREATE FUNCTION tenure.op_due(p_kinds text[], p_limit int DEFAULT 100, p_hold interval DEFAULT '1 minute') RETURNS SETOF tenure.op_record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_rows tid[];
	v_ids text[];
BEGIN
	PERFORM tenure.read_committed('due'), tenure.durable(), tenure.op_check_kinds(p_kinds, p_limit), tenure.op_check_delay('hold', p_hold, '1 microsecond', '366 days');
	SELECT array_agg(x.c ORDER BY x.due, x.submission), array_agg(x.id ORDER BY x.due, x.submission) INTO v_rows, v_ids FROM (
		SELECT q.* FROM unnest(p_kinds) k (kind) CROSS JOIN LATERAL (
			SELECT o.ctid AS c, o.id, o.due, o.submission FROM tenure.operation o WHERE o.kind = k.kind AND o.step > 3 AND o.due <= v_now
			ORDER BY o.due, o.submission LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED) q
		ORDER BY q.due, q.submission LIMIT p_limit) x;
	IF v_rows IS NULL THEN
		RETURN;
	END IF;
	v_now := clock_timestamp();
	UPDATE tenure.operation o SET inquiries = o.inquiries + CASE WHEN o.step = 4 THEN 1 ELSE 0 END, due = v_now + p_hold,
		step = tenure.op_step(o.state, o.wished, v_now + p_hold <= o.again_until, o.asks, o.undoes, o.undone_by IS NOT NULL)
	FROM unnest(v_rows) u (c) WHERE o.ctid = u.c;
	RETURN QUERY SELECT t.* FROM unnest(v_ids) WITH ORDINALITY u (id, o) CROSS JOIN LATERAL tenure.op_tell(u.id, true, v_now, 'taken') t ORDER BY u.o;
END $$;

-- Applies what an inquiry found: found; closed (it did not happen, and the provider has closed the key in the same step); past (it was not observed, and the instant that every attempt carried has
-- passed at the provider); not observed. p_as_of: the attempt that was current when the provider was asked; if another one has begun since, closed and past decide nothing. outcome: recorded; decided (it was before; a finding that contradicts the decision is kept as a conflict).
CREATE FUNCTION tenure.op_inquired(p_id text, p_finding text, p_result bytea DEFAULT NULL, p_reason text DEFAULT '', p_ask_in interval DEFAULT '0', p_as_of bigint DEFAULT 0) RETURNS tenure.op_record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	h tenure.op_head;
	v_finding int := array_position(ARRAY['found', 'closed', 'past', 'not observed'], p_finding);
	v_now timestamptz;
	v record;
BEGIN
	IF v_finding IS NULL THEN
		PERFORM tenure.op_invalid('finding', 'want found, closed, past or not observed');
	END IF;
	PERFORM tenure.op_check_answer(p_result, p_reason), tenure.op_check_delay('ask in', p_ask_in, '0', '366 days');
	h := tenure.op_lock(p_id);
	v_now := clock_timestamp();
	IF v_finding IN (2, 3) AND p_as_of <> 0 AND p_as_of IS DISTINCT FROM coalesce(h.number, 0) THEN
		v_finding := 4;
	END IF;
	IF v_finding = 3 AND h.not_after IS NULL THEN
		PERFORM tenure.op_invalid('finding', 'no attempt carried an instant after which the provider refuses it');
	ELSIF v_finding = 3 AND v_now < h.not_after THEN
		PERFORM tenure.op_invalid('finding', 'the instant has not passed by the store''s clock');
	END IF;
	v := tenure.op_find(h, v_finding, p_result, coalesce(p_reason, ''));
	h := v.h;
	IF h.state <> h.was THEN
		h.due := v_now;
	ELSIF h.state = 3 AND tenure.op_step(h.state, h.wished, h.due <= h.again_until, h.asks, h.undoes, h.undone) = 4 THEN
		h.due := v_now + p_ask_in;
	END IF;
	PERFORM tenure.op_save(h, v_now);
	RETURN tenure.op_tell(p_id, true, v_now, CASE WHEN v.stale THEN 'decided' ELSE 'recorded' END);
END $$;

-- Notes that an operation whose cancelling was wished for is compensated by another, which must exist and name it. outcome: recorded.
CREATE FUNCTION tenure.op_undone(p_id text, p_compensation text) RETURNS tenure.op_record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
DECLARE
	h tenure.op_head := tenure.op_lock(p_id);
	v_now timestamptz := clock_timestamp();
	v_known text;
	v record;
BEGIN
	SELECT o.id, o.compensates INTO v FROM tenure.operation o WHERE o.id = p_compensation;
	IF NOT FOUND THEN
		PERFORM tenure.op_not_found(p_compensation);
	ELSIF v.compensates IS DISTINCT FROM p_id THEN
		PERFORM tenure.op_invalid('compensation', 'it does not undo this operation');
	ELSIF h.state <> 4 THEN
		PERFORM tenure.op_refuse(p_id, h.state, 'a compensation');
	END IF;
	v_known := (SELECT o.undone_by FROM tenure.operation o WHERE o.id = p_id);
	IF v_known <> p_compensation THEN
		PERFORM tenure.fail('TN020', format('operation %s is undone by another one', to_json(p_id)), jsonb_build_object('id', p_id, 'what', 'compensation'), 'Nothing was changed.');
	END IF;
	UPDATE tenure.operation o SET undone_by = p_compensation WHERE o.id = p_id;
	h.undone := true;
	PERFORM tenure.op_save(h, v_now);
	RETURN tenure.op_tell(p_id, true, v_now, 'recorded');
END $$;

-- An operator's verdict over an operation that is uncertain: succeeded or failed. outcome: recorded.
CREATE FUNCTION tenure.op_resolve(p_id text, p_state text, p_reason text, p_result bytea DEFAULT NULL) RETURNS tenure.op_record
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	h tenure.op_head;
	v_now timestamptz;
BEGIN
	IF p_state IS NULL OR p_state NOT IN ('succeeded', 'failed') THEN
		PERFORM tenure.op_invalid('verdict', 'want succeeded or failed');
	ELSIF coalesce(btrim(p_reason), '') = '' THEN
		PERFORM tenure.op_invalid('reason', 'none');
	END IF;
	PERFORM tenure.op_check_answer(p_result, p_reason);
	h := tenure.op_lock(p_id);
	v_now := clock_timestamp();
	IF h.state <> 3 THEN
		PERFORM tenure.op_refuse(p_id, h.state, CASE WHEN h.state >= 4 THEN 'a verdict' ELSE 'a verdict before the attempt has ended' END);
	END IF;
	h.state := CASE p_state WHEN 'succeeded' THEN 4 ELSE 5 END;
	h.due := v_now;
	UPDATE tenure.operation o SET result = p_result, reason = p_reason WHERE o.id = p_id;
	PERFORM tenure.op_save(h, v_now);
	RETURN tenure.op_tell(p_id, true, v_now, 'recorded');
END $$;

-- Operations in the order of their ids: those that match all that is not NULL, after p_after. outcome: there. The text of the query is made for each call, so that its plan suits what is asked for.
CREATE FUNCTION tenure.op_list(p_states text[], p_kind text DEFAULT NULL, p_prefix text DEFAULT '', p_after text DEFAULT '', p_limit int DEFAULT 100, p_conflicts boolean DEFAULT false,
	p_wished boolean DEFAULT false, p_bodies boolean DEFAULT false)
RETURNS SETOF tenure.op_record LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	v_states int[] := ARRAY(SELECT array_position(ARRAY['pending', 'attempting', 'uncertain', 'succeeded', 'failed', 'cancelled'], u.s) FROM unnest(p_states) u (s));
	v_where text := 'true';
BEGIN
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 1000');
	ELSIF array_position(v_states, NULL) IS NOT NULL THEN
		PERFORM tenure.op_invalid('state', 'want pending, attempting, uncertain, succeeded, failed or cancelled');
	END IF;
	IF coalesce(p_kind, '') <> '' THEN
		v_where := v_where || format(' AND o.kind = %L', p_kind);
	END IF;
	IF coalesce(p_after, '') <> '' THEN
		v_where := v_where || format(' AND o.id > %L', p_after);
	END IF;
	IF coalesce(p_prefix, '') <> '' THEN
		v_where := v_where || format(' AND o.id LIKE %L', replace(replace(replace(p_prefix, '\', '\\'), '%', '\%'), '_', '\_') || '%');
	END IF;
	IF v_states <> '{}' THEN
		v_where := v_where || format(' AND o.state = ANY (%L::smallint[])', v_states);
		IF v_states = '{3}' THEN
			v_where := v_where || ' AND o.state = 3';
		ELSIF NOT v_states && '{4,5,6}' THEN -- each part has its index
			v_where := v_where || ' AND (o.step = 2 AND NOT o.blocked OR o.ord IS NOT NULL AND o.state < 4 OR o.step = 3 OR o.state = 3)';
		END IF;
	END IF;
	IF p_conflicts THEN
		v_where := v_where || ' AND o.conflicts > 0';
	END IF;
	IF p_wished THEN
		v_where := v_where || ' AND o.wished AND o.state < 5 AND (o.undone_by IS NULL OR EXISTS (SELECT FROM tenure.operation u WHERE u.id = o.undone_by AND u.state > 4))';
	END IF;
	RETURN QUERY EXECUTE 'SELECT t.* FROM (SELECT o.id FROM tenure.operation o WHERE ' || v_where || ' ORDER BY o.id LIMIT $1) u CROSS JOIN LATERAL tenure.op_tell(u.id, $2, $3, ''there'') t ORDER BY u.id'
		USING p_limit, coalesce(p_bodies, false), clock_timestamp();
END $$;

-- Counts what is undecided, by kind and state, and what is decided with conflicts (state NULL). oldest: since it was submitted. stuck: uncertain, and nothing will end that but an operator.
CREATE FUNCTION tenure.op_stats() RETURNS TABLE (kind text, state text, count bigint, oldest interval, stuck bigint) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET jit = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
BEGIN
	RETURN QUERY SELECT s.kind, tenure.op_state(s.state), count(*), v_now - min(s.created), count(*) FILTER (WHERE s.step = 1 AND s.state = 3) FROM (
		SELECT o.kind, o.state, o.created, o.step FROM tenure.operation o
		WHERE o.state < 4 AND (o.step = 2 AND NOT o.blocked OR o.ord IS NOT NULL AND o.state < 4 OR o.step = 3 OR o.state = 3)
		UNION ALL
		SELECT o.kind, NULL, o.created, o.step FROM tenure.operation o WHERE o.conflicts > 0 AND o.state >= 4) s
	GROUP BY s.kind, s.state ORDER BY s.kind COLLATE "C", s.state NULLS FIRST;
END $$;

-- Forgets what was decided long ago and needs nothing more: the operation after p_forget (at least a day: an id that comes again afterwards is a new operation), all but id, kind, fingerprint
-- and state after p_records, requests and results after p_bodies. A stage that is NULL is left out; each operation is handled once, by the last stage that it has reached.
CREATE FUNCTION tenure.op_prune(p_bodies interval, p_records interval, p_forget interval, p_limit int DEFAULT 1000, OUT bodies int, OUT records int, OUT forgotten int)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_ids text[];
BEGIN
	PERFORM tenure.read_committed('prune');
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 10000');
	ELSIF p_forget < interval '24 hours' THEN
		PERFORM tenure.op_invalid('forget', 'want at least 24 hours, or an operation that is submitted again would be done again');
	ELSIF p_bodies <= interval '0' OR p_records <= interval '0' OR coalesce(p_bodies, p_records, p_forget) IS NULL THEN
		PERFORM tenure.op_invalid('age', 'want more than 0, and one of them at least');
	ELSIF p_bodies > p_records OR p_records > p_forget OR p_bodies > p_forget THEN
		PERFORM tenure.op_invalid('age', 'bodies are forgotten before records, and records before the operation');
	END IF;
	v_ids := tenure.op_old(v_now - p_forget, 4::smallint, p_limit);
	DELETE FROM tenure.operation o WHERE o.id = ANY (v_ids);
	PERFORM tenure.op_forget_beside(v_ids);
	forgotten := cardinality(v_ids);
	v_ids := tenure.op_old(v_now - p_records, 3::smallint, p_limit - forgotten);
	UPDATE tenure.operation o SET kept = 3, number = NULL, prev = NULL, began = NULL, ended = NULL, until = NULL, first = NULL, again_until = NULL, not_after = NULL, attempts = 0, inquiries = 0,
		priority = 0, known = NULL, unsure = false, wished = false, asks = false, undoes = false, own = false, worker = NULL, ord = NULL, compensates = NULL, undone_by = NULL,
		reason = NULL, why = NULL, request = NULL, result = NULL, answer = NULL
	WHERE o.id = ANY (v_ids);
	PERFORM tenure.op_forget_beside(v_ids);
	records := cardinality(v_ids);
	v_ids := tenure.op_old(v_now - p_bodies, 2::smallint, p_limit - forgotten - records);
	UPDATE tenure.operation o SET kept = 2, request = NULL, result = NULL, answer = NULL WHERE o.id = ANY (v_ids);
	UPDATE tenure.attempt a SET answer = NULL WHERE a.id = ANY (v_ids) AND a.answer IS NOT NULL;
	UPDATE tenure.conflict c SET answer = NULL WHERE c.id = ANY (v_ids) AND c.answer IS NOT NULL;
	bodies := cardinality(v_ids);
END $$;

-- Locks operations that were decided at p_before or earlier, need nothing more, and have not reached the stage. None where p_before is NULL. A compensation stays until what it undoes has noted that: forgotten, it would be
-- submitted and done again.
CREATE FUNCTION tenure.op_old(p_before timestamptz, p_stage smallint, p_limit int) RETURNS text[] LANGUAGE plpgsql AS $$
BEGIN
	IF p_before IS NULL OR p_limit <= 0 THEN
		RETURN '{}';
	END IF;
	RETURN ARRAY(SELECT o.id FROM tenure.operation o WHERE o.state >= 4 AND o.step = 1 AND o.kept < p_stage AND o.decided <= p_before
		AND (o.compensates IS NULL OR NOT EXISTS (SELECT FROM tenure.operation t WHERE t.id = o.compensates AND t.step = 5)) LIMIT p_limit FOR UPDATE SKIP LOCKED);
END $$;

CREATE FUNCTION tenure.op_forget_beside(p_ids text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM tenure.attempt a WHERE a.id = ANY (p_ids);
	DELETE FROM tenure.conflict c WHERE c.id = ANY (p_ids);
END $$;

-- After whatever wrote to the sequence or the rows by hand: no number comes again.
CREATE FUNCTION tenure.op_mend_sequence() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM tenure.mend_sequence();
	PERFORM 1 FROM tenure.authority FOR UPDATE;
	PERFORM setval('tenure.token', greatest((SELECT last_value + 1 FROM tenure.token), (SELECT max(o.number) FROM tenure.operation o)));
END $$;
