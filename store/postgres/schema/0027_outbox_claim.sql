-- Claiming. Lock order: a claim's row, then queue rows (skipped where locked), ordered keys (tried), message rows by position. Nothing here waits but for a verdict on an expired claim that is being recorded at this moment.

-- One of 512 locks, so that a claim of many keys does not use up the server's room for locks. Two keys with one lock are in each other's way for as long as a claim is being made: the second is left in the queue.
CREATE FUNCTION tenure.outbox_lane_of(p_topic text, p_key text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 8031162945071839232 + (hashtextextended(p_topic || E'\n' || p_key, 8031162945071838577) & 511) $$;

-- Errors that are kept: the newest 8, each of at most 1,024 bytes.
CREATE FUNCTION tenure.outbox_note(p_errors tenure.outbox_failure[], p_attempt int, p_relay text, p_problem text, p_now timestamptz) RETURNS tenure.outbox_failure[] LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	v_bytes bytea;
	v_end int := 1021;
	v_problem text := coalesce(p_problem, '');
BEGIN
	IF octet_length(v_problem) > 1024 THEN
		v_bytes := convert_to(v_problem, 'UTF8');
		WHILE get_byte(v_bytes, v_end) & 192 = 128 LOOP
			v_end := v_end - 1;
		END LOOP;
		v_problem := convert_from(substring(v_bytes FROM 1 FOR v_end), 'UTF8') || U&'\2026';
	END IF;
	p_errors := coalesce(p_errors, '{}') || ROW(p_attempt, coalesce(p_relay, ''), v_problem, p_now)::tenure.outbox_failure;
	RETURN p_errors[greatest(1, cardinality(p_errors) - 7):];
END $$;

-- Puts into the queue what claims have left that have expired, and what was put off and is due.
CREATE FUNCTION tenure.outbox_notice(p_now timestamptz) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	c record;
	v_moved int;
BEGIN
	FOR i IN 1..100 LOOP
		SELECT o.claim, o.positions, o.topics, o.keys INTO c FROM tenure.outbox_claim o WHERE o.until <= p_now ORDER BY o.until LIMIT 1 FOR UPDATE SKIP LOCKED;
		EXIT WHEN NOT FOUND;
		INSERT INTO tenure.outbox_queue (topic, turn, position)
		SELECT m.topic, nextval('tenure.outbox_turn'), m.position FROM tenure.outbox_message m
		WHERE m.position = ANY (c.positions) AND m.claim = c.claim AND NOT m.settled AND m.state = 1 AND NOT m.ordered;
		WITH gone AS (DELETE FROM tenure.outbox_lane l USING unnest(c.topics, c.keys) u (topic, key) WHERE l.topic = u.topic AND l.key = u.key AND l.claim = c.claim RETURNING l.topic, l.key)
		INSERT INTO tenure.outbox_queue (topic, turn, key) SELECT g.topic, nextval('tenure.outbox_turn'), g.key FROM gone g;
		DELETE FROM tenure.outbox_claim o WHERE o.claim = c.claim;
	END LOOP;
	FOR i IN 1..20 LOOP
		WITH found AS MATERIALIZED (SELECT o.ctid AS c FROM tenure.outbox_later o WHERE o.due <= p_now ORDER BY o.due LIMIT 1000 FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM tenure.outbox_later o WHERE o.ctid = ANY (ARRAY(SELECT f.c FROM found f)) RETURNING o.topic, o.position, o.key),
		freed AS (DELETE FROM tenure.outbox_lane l USING gone g WHERE g.key IS NOT NULL AND l.topic = g.topic AND l.key = g.key AND l.claim IS NULL),
		put AS (INSERT INTO tenure.outbox_queue (topic, turn, position, key) SELECT g.topic, nextval('tenure.outbox_turn'), g.position, g.key FROM gone g RETURNING 1)
		SELECT count(*) INTO v_moved FROM put;
		EXIT WHEN v_moved < 1000;
	END LOOP;
END $$;

-- The topics that may be claimed from: of those given, or of all.
CREATE FUNCTION tenure.outbox_open_topics(p_topics text[]) RETURNS text[] LANGUAGE plpgsql STABLE AS $$
DECLARE
	v_topics text[] := nullif(p_topics, '{}');
BEGIN
	IF v_topics IS NULL THEN
		v_topics := ARRAY(SELECT DISTINCT t.topic FROM tenure.outbox_topic t);
	END IF;
	IF NOT EXISTS (SELECT 1 FROM tenure.outbox_pause p) THEN
		RETURN ARRAY(SELECT DISTINCT u.topic COLLATE "C" FROM unnest(v_topics) u (topic));
	END IF;
	RETURN ARRAY(SELECT DISTINCT u.topic COLLATE "C" FROM unnest(v_topics) u (topic) WHERE NOT EXISTS (SELECT 1 FROM tenure.outbox_pause p WHERE p.topic IN ('', u.topic)));
END $$;

CREATE FUNCTION tenure.outbox_check_claim(p_claim uuid, p_relay text, p_topics text[], p_limit int, p_bytes int, p_ttl interval, p_attempts int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_topic text;
BEGIN
	PERFORM tenure.check_id('claim', p_claim), tenure.op_check_text('relay', p_relay, 0, 256), tenure.op_check_delay('ttl', p_ttl, '100 milliseconds', '1 hour');
	IF cardinality(p_topics) > 64 THEN
		PERFORM tenure.op_invalid('topics', cardinality(p_topics) || '; at most 64');
	ELSIF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 1000');
	ELSIF p_bytes IS NULL OR p_bytes NOT BETWEEN 1 AND 16777216 THEN
		PERFORM tenure.op_invalid('bytes', 'want 1 to 16777216');
	ELSIF p_attempts IS NULL OR p_attempts NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('attempts', 'want 1 to 1000');
	END IF;
	FOREACH v_topic IN ARRAY coalesce(p_topics, '{}') LOOP
		PERFORM tenure.op_check_text('topic', v_topic, 1, 256);
	END LOOP;
	PERFORM tenure.read_committed('outbox_claim'), tenure.durable();
END $$;

-- What may be done with a pending message, of which only a verdict puts it off, whatever a clock that has stepped back says: 1 nothing (it is under a claim, or not pending), 2 not due, 3 to the dead letters, 4 handed out alone, 5 handed out.
CREATE FUNCTION tenure.outbox_fit(m tenure.outbox_message, p_attempts int, p_now timestamptz) RETURNS int LANGUAGE sql IMMUTABLE AS $$
	SELECT CASE WHEN m.state IS DISTINCT FROM 1 OR m.claim IS NOT NULL AND NOT m.settled AND m.until > p_now THEN 1 WHEN m.due > p_now AND m.claim IS NOT NULL THEN 2 WHEN m.attempts >= p_attempts THEN 3
		WHEN m.lost + (m.claim IS NOT NULL AND NOT m.settled)::int >= 2 THEN 4 ELSE 5 END $$;

-- Whether the first pending message of an ordered key is due, by now: what a claim that began earlier does not take yet must not be left to nobody.
CREATE FUNCTION tenure.outbox_lane_due(p_topic text, p_key text) RETURNS boolean LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
	RETURN coalesce((SELECT m.claim IS NULL OR m.due <= clock_timestamp() FROM tenure.outbox_message m WHERE m.position = (SELECT l.position FROM tenure.outbox_line l WHERE l.topic = p_topic AND l.key = p_key ORDER BY l.position LIMIT 1)), false);
END $$;

-- The first messages of an ordered key that this transaction may claim, at most p_limit that are handed out. alone: the first of them, if it is to be handed out alone. put_off: the first is not due. kept: leave the key in the queue.
CREATE FUNCTION tenure.outbox_lane_look(p_topic text, p_key text, p_limit int, p_attempts int, p_now timestamptz,
	OUT positions bigint[], OUT sizes bigint[], OUT dead bigint[], OUT alone bigint, OUT put_off timestamptz, OUT kept boolean)
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	m record;
	v_claim uuid;
BEGIN
	positions := '{}'; sizes := '{}'; dead := '{}'; kept := false;
	IF NOT pg_try_advisory_xact_lock(tenure.outbox_lane_of(p_topic, p_key)) THEN
		kept := true; -- somebody else is at it now
		RETURN;
	END IF;
	SELECT l.claim INTO v_claim FROM tenure.outbox_lane l WHERE l.topic = p_topic AND l.key = p_key; -- asked later than the lock
	IF FOUND AND (v_claim IS NOT NULL OR NOT tenure.outbox_lane_due(p_topic, p_key)) THEN
		RETURN; -- who frees it puts it into the queue
	ELSIF FOUND THEN -- put off, and since then something was made pending that comes first
		DELETE FROM tenure.outbox_lane l WHERE l.ctid = (SELECT o.ctid FROM tenure.outbox_lane o WHERE o.topic = p_topic AND o.key = p_key AND o.claim IS NULL FOR UPDATE SKIP LOCKED);
		IF NOT FOUND THEN
			kept := true; -- somebody frees it now
			RETURN;
		END IF;
	END IF;
	FOR m IN SELECT o.position, octet_length(o.payload) AS size, o.due, o.until, tenure.outbox_fit(o, p_attempts, p_now) AS fit
		FROM tenure.outbox_line l JOIN tenure.outbox_message o ON o.position = l.position WHERE l.topic = p_topic AND l.key = p_key ORDER BY l.position LIMIT p_limit + 100
	LOOP
		IF m.fit = 5 AND cardinality(positions) < p_limit THEN
			positions := positions || m.position; sizes := sizes || m.size::bigint;
		ELSIF m.fit = 3 AND cardinality(positions) < p_limit THEN
			dead := dead || m.position;
		ELSE
			IF cardinality(positions) = 0 AND m.fit = 4 THEN
				alone := m.position;
			ELSIF cardinality(positions) = 0 THEN
				put_off := CASE WHEN m.fit = 1 THEN m.until ELSE m.due END;
			END IF;
			EXIT;
		END IF;
	END LOOP;
	kept := cardinality(positions) = 0 AND put_off IS NULL AND (cardinality(dead) > 0 OR alone IS NOT NULL);
END $$;
