-- The rules of operations. Lock order: the key of order (an advisory lock), then the operation's row, then the row that is next in its order. Who changes an
-- operation locks first and reads the clock in a later statement.

CREATE FUNCTION tenure.op_state(p_state smallint) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT (ARRAY['pending', 'attempting', 'uncertain', 'succeeded', 'failed', 'cancelled'])[p_state] $$;

CREATE FUNCTION tenure.op_known(p_known smallint) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT (ARRAY['not sent', 'refused', 'open', 'no answer', 'effective'])[p_known] $$;

-- What comes next. Inlined where it is called.
CREATE FUNCTION tenure.op_step(p_state smallint, p_wished boolean, p_again boolean, p_asks boolean, p_undoes boolean, p_undone boolean) RETURNS smallint LANGUAGE sql IMMUTABLE AS $$
	SELECT (CASE p_state WHEN 1 THEN 2 WHEN 2 THEN 3
		WHEN 3 THEN CASE WHEN p_again IS TRUE AND NOT (p_wished AND p_asks) THEN 2 WHEN p_asks THEN 4 ELSE 1 END
		WHEN 4 THEN CASE WHEN p_wished AND p_undoes AND NOT p_undone THEN 5 ELSE 1 END
		ELSE 1 END)::smallint
$$;

-- How many attempts count: those that may have been sent, or all of them where there have been as many as there may be of any sort. Inlined.
CREATE FUNCTION tenure.op_tries(p_attempts int, p_unsent int) RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN p_attempts >= 1000 THEN 1000 ELSE p_attempts - p_unsent END $$;

-- Whether an attempt may begin under what a worker knows of the kind. A window of more than 366 days has no end. Inlined.
CREATE FUNCTION tenure.op_may_begin(p_state smallint, p_attempts int, p_first timestamptz, p_not_after timestamptz, p_now timestamptz, p_most int, p_window interval, p_timeout interval)
RETURNS boolean LANGUAGE sql STABLE AS $$
	SELECT p_attempts < p_most AND (p_not_after IS NULL OR p_not_after > p_now)
		AND (p_state = 1 OR p_window > interval '366 days' OR p_window > interval '0' AND p_now <= p_first + p_window - p_timeout)
$$;

CREATE FUNCTION tenure.op_order(p_ord text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended(p_ord, 7308606741855891826) $$;

CREATE FUNCTION tenure.op_invalid(p_field text, p_problem text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail('TN004', 'invalid ' || p_field || ': ' || p_problem, jsonb_build_object('field', p_field), 'Nothing was changed.');
END $$;

CREATE FUNCTION tenure.op_check_text(p_field text, p_text text, p_least int, p_most int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_text IS NULL OR octet_length(p_text) NOT BETWEEN p_least AND p_most OR p_text ~ U&'[\0001-\001F\007F-\009F]' THEN
		PERFORM tenure.op_invalid(p_field, 'want ' || p_least || ' to ' || p_most || ' bytes without control characters');
	END IF;
END $$;

CREATE FUNCTION tenure.op_check_delay(p_field text, p_delay interval, p_least interval, p_most interval) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_delay IS NULL OR p_delay NOT BETWEEN p_least AND p_most THEN
		PERFORM tenure.op_invalid(p_field, 'want ' || p_least || ' to ' || p_most);
	END IF;
END $$;

CREATE FUNCTION tenure.op_check_answer(p_result bytea, p_reason text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF octet_length(p_result) > 1048576 THEN
		PERFORM tenure.op_invalid('result', octet_length(p_result) || ' bytes; at most 1048576');
	ELSIF octet_length(p_reason) > 2048 THEN
		PERFORM tenure.op_invalid('reason', octet_length(p_reason) || ' bytes; at most 2048');
	END IF;
END $$;

CREATE FUNCTION tenure.op_not_found(p_id text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail('TN024', format('operation %s is not known: it was never submitted, or it was forgotten long after its decision', to_json(p_id)),
		jsonb_build_object('id', p_id), 'Nothing was changed.');
END $$;

-- Refuses what needs an operation in another state: TN021 where it is decided, TN022 where it is not.
CREATE FUNCTION tenure.op_refuse(p_id text, p_state smallint, p_what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail(CASE WHEN p_state >= 4 THEN 'TN021' ELSE 'TN022' END, format('operation %s is %s: %s is refused', to_json(p_id), tenure.op_state(p_state), p_what),
		jsonb_build_object('id', p_id, 'state', tenure.op_state(p_state), 'what', p_what), 'Nothing was changed.');
END $$;

-- At most 2048 bytes of a text, cut between characters.
CREATE FUNCTION tenure.op_cut(p_text text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	v_bytes bytea := convert_to(p_text, 'UTF8');
	v_end int := 2045;
BEGIN
	IF octet_length(v_bytes) <= 2048 THEN
		RETURN p_text;
	END IF;
	WHILE get_byte(v_bytes, v_end) & 192 = 128 LOOP
		v_end := v_end - 1;
	END LOOP;
	RETURN convert_from(substring(v_bytes FROM 1 FOR v_end), 'UTF8') || '...';
END $$;

-- Before what was recorded earlier is told again: with synchronous standbys the answer waits for a durable write of its own, as the wait for that record may have been cancelled.
CREATE FUNCTION tenure.op_known_before() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('synchronous_standby_names') <> '' THEN
		PERFORM pg_logical_emit_message(true, 'tenure', 'told');
	END IF;
END $$;

-- Locks an operation and reads what the rules need. Its order never changes while it is undecided.
CREATE FUNCTION tenure.op_lock(p_id text) RETURNS tenure.op_head LANGUAGE plpgsql AS $$
DECLARE
	h tenure.op_head;
	v_ord text;
BEGIN
	PERFORM tenure.durable();
	SELECT o.ord INTO v_ord FROM tenure.operation o WHERE o.id = p_id AND o.ord IS NOT NULL AND o.state < 4;
	IF v_ord IS NOT NULL THEN -- what is next in the order is found in a later snapshot than the lock
		PERFORM tenure.read_committed('a change of an operation with an order'), pg_advisory_xact_lock(tenure.op_order(v_ord));
	END IF;
	SELECT o.id, o.kind, o.state, o.state, o.number, o.known, o.attempts, o.unsure, o.wished, o.asks, o.undoes, o.undone_by IS NOT NULL, o.kept, o.ord, o.due, o.again_until, o.not_after
	INTO h FROM tenure.operation o WHERE o.id = p_id FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		PERFORM tenure.op_not_found(p_id);
	ELSIF h.state < 4 AND h.ord IS DISTINCT FROM v_ord THEN -- it was committed between the two looks: its order is not locked, and whoever is next in it would not be found
		PERFORM tenure.fail('TN006', format('operation %s came while it was looked for', to_json(p_id)), NULL, 'Nothing was changed. Ask again.');
	END IF;
	RETURN h;
END $$;

-- Stores what the rules have made of an operation. What its decision lets go on is unblocked.
CREATE FUNCTION tenure.op_save(h tenure.op_head, p_now timestamptz) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE tenure.operation o SET state = h.state, unsure = h.unsure, wished = h.wished, asks = h.asks, due = h.due, again_until = h.again_until, blocked = o.blocked AND h.state < 4,
		step = tenure.op_step(h.state, h.wished, h.due <= h.again_until, h.asks, h.undoes, h.undone), decided = CASE WHEN h.state >= 4 THEN coalesce(o.decided, p_now) END
	WHERE o.id = h.id;
	IF h.ord IS NOT NULL AND h.state >= 4 AND h.was < 4 THEN
		PERFORM tenure.op_unblock(h.ord);
	END IF;
END $$;

-- Whoever is first in the order now may go on. The caller holds the order's lock, and has decided one of its operations.
CREATE FUNCTION tenure.op_unblock(p_ord text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE tenure.operation o SET blocked = false WHERE o.blocked
		AND o.id = (SELECT n.id FROM tenure.operation n WHERE n.ord = p_ord AND n.state < 4 ORDER BY n.submission LIMIT 1);
END $$;

-- Records what was said against a decision, once.
CREATE FUNCTION tenure.op_contradict(p_id text, p_attempt bigint, p_result bytea, p_reason text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_known int;
BEGIN
	IF EXISTS (SELECT 1 FROM tenure.conflict c WHERE c.id = p_id AND c.attempt = p_attempt AND coalesce(c.answer, '') = coalesce(p_result, '')) THEN
		RETURN;
	END IF;
	v_known := (SELECT count(*) FROM tenure.conflict c WHERE c.id = p_id);
	IF v_known < 16 THEN
		INSERT INTO tenure.conflict (id, o, attempt, why, answer) VALUES (p_id, v_known + 1, p_attempt, tenure.op_cut(p_reason), p_result);
	END IF;
	UPDATE tenure.operation o SET conflicts = o.conflicts + 1 WHERE o.id = p_id;
END $$;

-- Whether a result is the one that was decided by; one that is empty contradicts nothing.
CREATE FUNCTION tenure.op_same(p_id text, p_result bytea) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN coalesce(octet_length(p_result), 0) = 0 OR EXISTS (SELECT 1 FROM tenure.operation o WHERE o.id = p_id AND (coalesce(octet_length(o.result), 0) = 0 OR o.result = p_result));
END $$;

-- Applies what was learned of one attempt. The caller holds the row, and stores h. stale: it is not the current one's, and does not decide, or the operation was decided otherwise.
CREATE FUNCTION tenure.op_report(INOUT h tenure.op_head, p_number bigint, p_known smallint, p_result bytea, p_reason text, p_final boolean, p_now timestamptz, OUT stale boolean)
LANGUAGE plpgsql AS $$
DECLARE
	v_current boolean := coalesce(p_number = h.number, false);
	v_was smallint := h.known;
BEGIN
	stale := false;
	IF NOT v_current THEN
		SELECT a.known INTO v_was FROM tenure.attempt a WHERE a.id = h.id AND a.number = p_number;
		IF NOT FOUND THEN
			PERFORM tenure.op_invalid('attempt', 'number ' || p_number || ' was never recorded');
		END IF;
	END IF;
	IF v_was = 3 OR v_was = 4 AND p_known <> 4 OR p_known = 5 AND v_was <> 5 THEN -- it says more than was known
		IF v_current THEN
			h.known := p_known;
			UPDATE tenure.operation o SET known = p_known, why = p_reason, answer = p_result, ended = CASE WHEN v_was = 3 THEN p_now ELSE o.ended END WHERE o.id = h.id;
		ELSE
			UPDATE tenure.attempt a SET known = p_known, why = p_reason, answer = p_result WHERE a.id = h.id AND a.number = p_number;
			h.unsure := EXISTS (SELECT 1 FROM tenure.attempt a WHERE a.id = h.id AND a.known > 2);
		END IF;
		IF p_known = 1 THEN
			UPDATE tenure.operation o SET unsent = o.unsent + 1 WHERE o.id = h.id;
		END IF;
	END IF;
	IF h.state >= 4 THEN
		IF p_known = 5 AND NOT (h.state = 4 AND tenure.op_same(h.id, p_result)) THEN
			PERFORM tenure.op_contradict(h.id, p_number, p_result, format('effective after the operation was %s: %s', tenure.op_state(h.state), p_reason));
			stale := true;
		END IF;
		RETURN;
	END IF;
	h.state := CASE WHEN p_known = 5 THEN 4 WHEN h.known = 3 THEN 2 WHEN h.unsure OR h.known > 2 THEN 3 WHEN p_final AND v_current THEN 5 WHEN h.wished THEN 6 ELSE 1 END;
	IF h.state = 4 THEN
		UPDATE tenure.operation o SET result = p_result, own = v_current, answer = CASE WHEN NOT v_current THEN o.answer END WHERE o.id = h.id;
	ELSIF h.state = 5 THEN
		UPDATE tenure.operation o SET reason = o.why WHERE o.id = h.id;
	ELSIF h.state = 6 THEN
		UPDATE tenure.operation o SET reason = 'cancelled when it was known that no attempt had an effect' WHERE o.id = h.id;
	END IF;
	stale := NOT v_current AND h.state <> 4;
END $$;

-- Applies a finding, 1 found, 2 closed, 3 past the instant, 4 not observed. stale: against a decision.
CREATE FUNCTION tenure.op_find(INOUT h tenure.op_head, p_finding int, p_result bytea, p_reason text, OUT stale boolean) LANGUAGE plpgsql AS $$
BEGIN
	stale := false;
	IF p_finding = 4 THEN
		RETURN;
	ELSIF h.state < 4 THEN
		h.state := CASE WHEN p_finding = 1 THEN 4 ELSE 5 END;
		UPDATE tenure.operation o SET result = CASE WHEN p_finding = 1 THEN p_result END, reason = CASE WHEN p_finding <> 1 THEN p_reason END WHERE o.id = h.id;
	ELSIF (CASE WHEN p_finding = 1 THEN h.state <> 4 OR NOT tenure.op_same(h.id, p_result) ELSE h.state = 4 END) THEN
		PERFORM tenure.op_contradict(h.id, 0, p_result, format('found otherwise after the operation was %s: %s', tenure.op_state(h.state), p_reason));
		stale := true;
	END IF;
END $$;

-- Tells an operation. All of it is read in one statement, so that it is of one moment.
CREATE FUNCTION tenure.op_tell(p_id text, p_bodies boolean, p_now timestamptz, p_outcome text) RETURNS tenure.op_record LANGUAGE plpgsql STABLE AS $$
DECLARE
	r tenure.op_record;
BEGIN
	SELECT p_outcome, o.id, o.kind, o.fingerprint, tenure.op_state(o.state), (ARRAY['idle', 'work', 'watch', 'ask', 'undo'])[o.step],
		CASE WHEN o.step > 1 THEN greatest(o.due - p_now, interval '0') END, o.priority::int, o.ord, o.blocked, p_now - o.created, p_now - o.decided,
		(ARRAY['whole', 'without bodies', 'verdict only'])[o.kept], o.inquiries, o.conflicts, o.wished, o.compensates, o.undone_by, o.not_after, o.reason,
		CASE WHEN p_bodies THEN o.request END, CASE WHEN p_bodies THEN o.result END,
		a.numbers, a.knowns, a.workers, a.began, a.ended, a.reasons, a.results, c.attempts, c.reasons, c.results
	INTO r FROM tenure.operation o
	LEFT JOIN LATERAL (SELECT array_agg(t.number ORDER BY t.number) AS numbers, array_agg(tenure.op_known(t.known) ORDER BY t.number) AS knowns, array_agg(t.worker ORDER BY t.number) AS workers,
		array_agg(p_now - t.began ORDER BY t.number) AS began, array_agg(CASE WHEN t.known <> 3 THEN p_now - t.ended END ORDER BY t.number) AS ended,
		array_agg(coalesce(t.why, '') ORDER BY t.number) AS reasons, CASE WHEN p_bodies THEN array_agg(t.answer ORDER BY t.number) END AS results
		FROM tenure.attempts t WHERE t.id = o.id) a ON true
	LEFT JOIN LATERAL (SELECT array_agg(t.attempt ORDER BY t.o) AS attempts, array_agg(t.why ORDER BY t.o) AS reasons, CASE WHEN p_bodies THEN array_agg(t.answer ORDER BY t.o) END AS results
		FROM tenure.conflict t WHERE t.id = o.id) c ON o.conflicts > 0
	WHERE o.id = p_id;
	RETURN r;
END $$;
