-- For operators.

CREATE FUNCTION tenure.outbox_state(p_state text) RETURNS smallint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	v_state int := array_position(ARRAY['pending', 'delivered', 'dead'], p_state);
BEGIN
	IF v_state IS NULL THEN
		PERFORM tenure.op_invalid('state', 'want pending, delivered or dead');
	END IF;
	RETURN v_state;
END $$;

CREATE FUNCTION tenure.outbox_tell(m tenure.outbox_message, p_bodies boolean, p_now timestamptz) RETURNS tenure.outbox_info LANGUAGE plpgsql STABLE AS $$
DECLARE
	r tenure.outbox_info;
BEGIN
	r := (m.id, m.topic, m.key, m.ordered, CASE WHEN p_bodies THEN m.headers END, CASE WHEN p_bodies THEN m.payload END, octet_length(m.payload), m.position, (ARRAY['pending', 'delivered', 'dead'])[m.state], m.attempts, m.relay,
		CASE WHEN m.state = 1 AND m.claim IS NOT NULL AND NOT m.settled AND m.until > p_now THEN m.until - p_now END, CASE WHEN m.state = 1 THEN CASE WHEN m.claim IS NULL THEN interval '0' ELSE greatest(m.due - p_now, '0') END END, greatest(p_now - m.appended, '0'), CASE WHEN m.state <> 1 THEN greatest(p_now - m.ended, '0') END,
		(SELECT jsonb_agg(jsonb_build_object('attempt', e.attempt, 'relay', e.relay, 'problem', e.problem, 'age_us', (extract(epoch FROM p_now - e.at) * 1000000)::bigint) ORDER BY e.o)
			FROM unnest(m.errors) WITH ORDINALITY e (attempt, relay, problem, at, o)));
	RETURN r;
END $$;

-- Positions of everything that may be pending: the queue, what was put off, what is claimed, and what waits under an ordered key.
CREATE FUNCTION tenure.outbox_pending(p_topic text) RETURNS SETOF bigint LANGUAGE sql STABLE AS $$
	SELECT q.position FROM tenure.outbox_queue q WHERE q.position IS NOT NULL AND (p_topic IS NULL OR q.topic = p_topic)
	UNION SELECT o.position FROM tenure.outbox_later o WHERE o.position IS NOT NULL AND (p_topic IS NULL OR o.topic = p_topic)
	UNION SELECT l.position FROM tenure.outbox_line l WHERE p_topic IS NULL OR l.topic = p_topic
	UNION SELECT unnest(c.positions) FROM tenure.outbox_claim c $$;

-- Messages that match all that is given, in the order of their positions, after one of them. Pending and dead ones alone are found among themselves, not among all that there were.
CREATE FUNCTION tenure.outbox_list(p_topic text DEFAULT NULL, p_key text DEFAULT NULL, p_states text[] DEFAULT NULL, p_after bigint DEFAULT 0, p_limit int DEFAULT 100, p_bodies boolean DEFAULT false)
RETURNS SETOF tenure.outbox_info LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_topic text := nullif(p_topic, '');
	v_key text := nullif(p_key, '');
	v_states smallint[];
BEGIN
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 1000');
	ELSIF p_after IS NULL OR p_after < 0 THEN
		PERFORM tenure.op_invalid('after', 'negative');
	END IF;
	PERFORM tenure.op_check_text('topic', coalesce(p_topic, ''), 0, 256), tenure.op_check_text('key', coalesce(p_key, ''), 0, 512);
	SELECT array_agg(tenure.outbox_state(u.s)) INTO v_states FROM unnest(nullif(p_states, '{}')) u (s);
	IF NOT 2 = ANY (coalesce(v_states, '{2}')) THEN
		RETURN QUERY SELECT (tenure.outbox_tell(m, p_bodies, v_now)).* FROM tenure.outbox_message m WHERE m.position = ANY (ARRAY(
			SELECT m.position FROM (
				SELECT x.p FROM tenure.outbox_pending(v_topic) x (p) WHERE 1 = ANY (v_states) AND x.p > p_after
				UNION SELECT d.position FROM tenure.outbox_dead d WHERE 3 = ANY (v_states) AND d.position > p_after AND (v_topic IS NULL OR d.topic = v_topic)) x (p)
			JOIN tenure.outbox_message m ON m.position = x.p WHERE m.state = ANY (v_states) AND (v_topic IS NULL OR m.topic = v_topic) AND (v_key IS NULL OR m.key = v_key) ORDER BY m.position LIMIT p_limit))
		ORDER BY m.position;
		RETURN;
	END IF;
	RETURN QUERY SELECT (tenure.outbox_tell(m, p_bodies, v_now)).* FROM (
		SELECT o.* FROM tenure.outbox_message o WHERE o.position > p_after AND (v_topic IS NULL OR o.topic = v_topic) AND (v_key IS NULL OR o.key = v_key) AND (v_states IS NULL OR o.state = ANY (v_states))
		ORDER BY o.position LIMIT p_limit) m ORDER BY m.position;
END $$;

-- A message with its payload.
CREATE FUNCTION tenure.outbox_get(p_id uuid) RETURNS tenure.outbox_info LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	m tenure.outbox_message;
BEGIN
	SELECT * INTO m FROM tenure.outbox_message o WHERE o.id = p_id;
	IF NOT FOUND THEN
		PERFORM tenure.fail('TN041', format('no message %s is known', p_id), jsonb_build_object('id', p_id), 'Nothing was changed.');
	END IF;
	RETURN tenure.outbox_tell(m, true, clock_timestamp());
END $$;

-- What is pending and dead, by topic, and what is paused; at most 1,000 topics, after one of them. It counts what is pending.
CREATE FUNCTION tenure.outbox_topics(p_after text DEFAULT '')
RETURNS TABLE (topic text, pending bigint, dead bigint, oldest interval, paused boolean, reason text) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $$
#variable_conflict use_column
BEGIN
	PERFORM tenure.op_check_text('topic', p_after, 0, 256);
	RETURN QUERY SELECT t.topic, coalesce(sum(t.pending), 0)::bigint, coalesce(sum(t.dead), 0)::bigint, clock_timestamp() - min(t.oldest), bool_or(t.paused), max(t.reason) FROM (
		SELECT m.topic, count(*) AS pending, 0::bigint AS dead, min(m.appended) AS oldest, false AS paused, NULL::text AS reason
			FROM tenure.outbox_pending(NULL) x (p) JOIN tenure.outbox_message m ON m.position = x.p WHERE m.state = 1 GROUP BY m.topic
		UNION ALL SELECT d.topic, 0, count(*), NULL, false, NULL FROM tenure.outbox_dead d GROUP BY d.topic
		UNION ALL SELECT p.topic, 0, 0, NULL, true, p.reason FROM tenure.outbox_pause p) t
	WHERE p_after = '' OR t.topic > p_after COLLATE "C" GROUP BY t.topic ORDER BY t.topic LIMIT 1000;
END $$;

-- Stops that messages of a topic, or with '' of every topic, are claimed, or lets them again.
CREATE FUNCTION tenure.outbox_pause(p_topic text, p_paused boolean DEFAULT true, p_reason text DEFAULT '') RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM tenure.op_check_text('topic', p_topic, 0, 256), tenure.op_check_text('reason', p_reason, 0, 512), tenure.durable();
	IF p_paused THEN
		INSERT INTO tenure.outbox_pause AS p (topic, reason) VALUES (p_topic, p_reason) ON CONFLICT (topic) DO UPDATE SET reason = excluded.reason;
	ELSE
		DELETE FROM tenure.outbox_pause p WHERE p.topic = p_topic;
		PERFORM tenure.outbox_wake();
	END IF;
END $$;

-- Makes messages pending that are in a state, the lowest positions first, and returns how many.
CREATE FUNCTION tenure.outbox_move(p_state smallint, p_ids uuid[], p_topic text, p_key text, p_from bigint, p_to bigint, p_within interval, p_limit int) RETURNS int
LANGUAGE plpgsql SET jit = off AS $$
DECLARE
	v_ids uuid[] := nullif(p_ids, '{}');
	v_topic text := nullif(p_topic, '');
	v_key text := nullif(p_key, '');
	v_from bigint := coalesce(p_from, 0);
	v_to bigint := coalesce(nullif(p_to, 0), 9223372036854775807);
	v_within interval := nullif(p_within, '0');
	v_now timestamptz;
	v_found bigint[];
BEGIN
	PERFORM tenure.op_check_text('topic', coalesce(p_topic, ''), 0, 256), tenure.op_check_text('key', coalesce(p_key, ''), 0, 512);
	IF cardinality(v_ids) > 1000 THEN
		PERFORM tenure.op_invalid('ids', 'at most 1000');
	ELSIF v_from < 0 OR v_to < v_from THEN
		PERFORM tenure.op_invalid('range', format('%s to %s', p_from, p_to));
	ELSIF v_within < interval '0' THEN
		PERFORM tenure.op_invalid('within', 'negative');
	ELSIF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 10000');
	END IF;
	PERFORM tenure.read_committed('this'), tenure.durable();
	v_now := clock_timestamp();
	IF v_ids IS NOT NULL THEN
		v_found := ARRAY(SELECT m.position FROM tenure.outbox_message m WHERE m.id = ANY (v_ids) ORDER BY m.position);
	ELSIF p_state = 3 THEN
		v_found := ARRAY(SELECT m.position FROM tenure.outbox_dead d JOIN tenure.outbox_message m ON m.position = d.position
			WHERE (v_topic IS NULL OR d.topic = v_topic) AND (v_key IS NULL OR m.key = v_key) AND d.position BETWEEN v_from AND v_to AND m.state = 3 AND (v_within IS NULL OR v_now - m.ended <= v_within)
			ORDER BY d.position LIMIT p_limit);
	ELSE
		v_found := ARRAY(SELECT m.position FROM tenure.outbox_message m WHERE m.position BETWEEN v_from AND v_to AND m.state = p_state
			AND (v_topic IS NULL OR m.topic = v_topic) AND (v_key IS NULL OR m.key = v_key) AND (v_within IS NULL OR v_now - m.ended <= v_within) ORDER BY m.position LIMIT p_limit);
	END IF;
	v_found := ARRAY(SELECT m.position FROM tenure.outbox_message m WHERE m.position = ANY (v_found) AND m.state = p_state AND m.position BETWEEN v_from AND v_to
		AND (v_topic IS NULL OR m.topic = v_topic) AND (v_key IS NULL OR m.key = v_key) AND (v_within IS NULL OR v_now - m.ended <= v_within) ORDER BY m.position LIMIT p_limit FOR NO KEY UPDATE);
	WITH moved AS (
		UPDATE tenure.outbox_message m SET state = 1, attempts = 0, lost = 0, claim = NULL, until = NULL, settled = false, due = v_now, ended = NULL
		WHERE m.position = ANY (v_found) AND m.state = p_state RETURNING m.position, m.topic, m.key, m.ordered),
	letters AS (DELETE FROM tenure.outbox_dead d USING moved m WHERE d.position = m.position),
	lines AS (INSERT INTO tenure.outbox_line (topic, key, position) SELECT m.topic, m.key, m.position FROM moved m WHERE m.ordered),
	queued AS (
		INSERT INTO tenure.outbox_queue (topic, turn, position, key) SELECT x.topic, nextval('tenure.outbox_turn'), x.position, x.key FROM (
			SELECT m.topic, m.position, NULL AS key FROM moved m WHERE NOT m.ordered UNION ALL SELECT DISTINCT m.topic, NULL::bigint, m.key FROM moved m WHERE m.ordered) x)
	SELECT coalesce(array_agg(m.position), '{}') INTO v_found FROM moved m;
	IF cardinality(v_found) > 0 THEN
		PERFORM tenure.outbox_wake();
	END IF;
	RETURN cardinality(v_found);
END $$;

-- Makes dead messages that match all that is given pending, with no attempts, and returns how many.
CREATE FUNCTION tenure.outbox_retry(p_ids uuid[] DEFAULT NULL, p_topic text DEFAULT NULL, p_key text DEFAULT NULL, p_from bigint DEFAULT 0, p_to bigint DEFAULT 0, p_within interval DEFAULT NULL, p_limit int DEFAULT 1000)
RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN tenure.outbox_move(3::smallint, p_ids, p_topic, p_key, p_from, p_to, p_within, p_limit);
END $$;

-- Makes delivered messages that match all that is given pending, as new, with their ids, and returns how many.
CREATE FUNCTION tenure.outbox_replay(p_ids uuid[] DEFAULT NULL, p_topic text DEFAULT NULL, p_key text DEFAULT NULL, p_from bigint DEFAULT 0, p_to bigint DEFAULT 0, p_within interval DEFAULT NULL, p_limit int DEFAULT 1000)
RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN tenure.outbox_move(2::smallint, p_ids, p_topic, p_key, p_from, p_to, p_within, p_limit);
END $$;

-- Forgets messages that were delivered at least p_delivered ago, or given up at least p_dead ago (NULL or 0: keeps these), those first that ended first, and returns how many.
CREATE FUNCTION tenure.outbox_prune(p_delivered interval, p_dead interval DEFAULT NULL, p_limit int DEFAULT 1000)
RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_dead interval := nullif(p_dead, '0');
	v_now timestamptz;
	v_before timestamptz;
	v_gone bigint[];
	v_done int := 0;
	e record;
BEGIN
	PERFORM tenure.op_check_delay('age', p_delivered, '1 minute', '36600 days');
	IF v_dead IS NOT NULL THEN
		PERFORM tenure.op_check_delay('age', v_dead, '1 minute', '36600 days');
	END IF;
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 10000');
	END IF;
	PERFORM tenure.read_committed('outbox_prune'), tenure.durable();
	v_now := clock_timestamp();
	FOR v_state IN 2..3 LOOP
		v_before := v_now - CASE v_state WHEN 2 THEN p_delivered ELSE v_dead END;
		WHILE v_before IS NOT NULL AND v_done < p_limit LOOP
			SELECT o.ctid AS c, o.positions INTO e FROM tenure.outbox_ended o WHERE o.state = v_state AND o.ended <= v_before ORDER BY o.ended LIMIT 1 FOR UPDATE SKIP LOCKED;
			EXIT WHEN NOT FOUND;
			WITH gone AS (
				DELETE FROM tenure.outbox_message m WHERE m.position = ANY (e.positions[1:p_limit - v_done]) AND m.state = v_state AND m.ended <= v_before RETURNING m.position),
			letters AS (DELETE FROM tenure.outbox_dead d USING gone g WHERE d.position = g.position)
			SELECT coalesce(array_agg(g.position), '{}') INTO v_gone FROM gone g;
			IF cardinality(e.positions) <= p_limit - v_done THEN
				DELETE FROM tenure.outbox_ended o WHERE o.ctid = e.c;
			ELSE
				UPDATE tenure.outbox_ended o SET positions = e.positions[p_limit - v_done + 1:] WHERE o.ctid = e.c;
			END IF;
			v_done := v_done + cardinality(v_gone);
		END LOOP;
	END LOOP;
	RETURN v_done;
END $$;

-- Whether there is something to claim that a claim which had seen the turns up to p_after has not left.
CREATE FUNCTION tenure.outbox_ready(p_after bigint) RETURNS boolean LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
BEGIN
	RETURN EXISTS (SELECT 1 FROM unnest(tenure.outbox_open_topics(NULL)) t (topic), LATERAL (SELECT 1 FROM tenure.outbox_queue q WHERE q.topic = t.topic AND q.turn > p_after LIMIT 1) x)
		OR EXISTS (SELECT 1 FROM tenure.outbox_later o WHERE o.due <= v_now) OR EXISTS (SELECT 1 FROM tenure.outbox_claim o WHERE o.until <= v_now);
END $$;
