-- For relays in Go: tenure.outbox_claim as one row, with hints. p_from: for a topic, a turn below which there is nothing. first: for each topic, the lowest turn that was there; seen: as of this snapshot. drawn: no turn above was drawn before.
CREATE FUNCTION tenure.outbox_claim_many(p_claim uuid, p_relay text, p_topics text[], p_limit int, p_bytes int, p_ttl interval, p_attempts int, p_from jsonb,
	OUT positions bigint[], OUT ids uuid[], OUT topics text[], OUT keys text[], OUT ordereds boolean[], OUT headers jsonb[], OUT payloads bytea[], OUT attempts int[], OUT ages interval[],
	OUT remaining interval, OUT dead int, OUT looked text[], OUT firsts bigint[], OUT seen text, OUT drawn bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
	v_now timestamptz;
	v_turn bigint;
	v_asked int;
	v_found int;
	v_rounds int := 0;
	v_count int := 0;
	v_size bigint := 0;
	v_rows int;
	v_lined int := 0; -- of ordered keys
	v_lined_size bigint := 0;
	b record; -- what the queue has
	k record; -- an ordered key of it
	l record; -- what that has
	v_p bigint[] := '{}'; v_b bigint[] := '{}'; v_c tid[] := '{}'; v_t bigint[] := '{}'; -- may be handed out; the turn is that of the message or of its key
	v_alone bigint[] := '{}'; v_alone_c tid[] := '{}'; v_alone_t bigint[] := '{}';
	v_dead bigint[] := '{}'; v_dead_c tid[] := '{}';
	v_gone tid[] := '{}'; -- queue rows that go
	v_key_t text[] := '{}'; v_key_k text[] := '{}'; v_key_c tid[] := '{}'; -- queue rows of keys
	v_take bigint[];
	v_first bigint;
	v_ordered int;
	v_expected int; -- of them ordered
BEGIN
	PERFORM tenure.outbox_check_claim(p_claim, p_relay, p_topics, p_limit, p_bytes, p_ttl, p_attempts);
	dead := 0;
	v_now := clock_timestamp();
	IF EXISTS (SELECT 1 FROM tenure.outbox_claim o WHERE o.until <= v_now) OR EXISTS (SELECT 1 FROM tenure.outbox_later o WHERE o.due <= v_now) THEN
		PERFORM tenure.outbox_notice(v_now);
	END IF;
	SELECT CASE WHEN s.is_called THEN s.last_value ELSE 0 END INTO drawn FROM tenure.outbox_turn s; -- in an earlier statement than the look
	SELECT array_agg(x.topic ORDER BY x.head, x.topic), array_agg(x.head ORDER BY x.head, x.topic), pg_current_snapshot()::text INTO looked, firsts, seen FROM (
		SELECT t.topic, coalesce((SELECT q.turn FROM tenure.outbox_queue q WHERE q.topic = t.topic AND q.turn >= coalesce((p_from ->> t.topic)::bigint, 0) ORDER BY q.turn LIMIT 1), drawn + 1) AS head
		FROM unnest(tenure.outbox_open_topics(p_topics)) t (topic)) x;
	FOR t IN 1..coalesce(cardinality(looked), 0) LOOP
		v_turn := firsts[t] - 1; v_asked := 0; v_rows := -1;
		WHILE v_count < p_limit AND (v_size < p_bytes OR v_count = 0) AND v_rounds < 500 LOOP
			v_rounds := v_rounds + 1;
			v_asked := CASE WHEN v_rows = v_count + cardinality(v_alone) + cardinality(v_dead) THEN least(greatest(v_asked, p_limit - v_count) * 4, 1000) ELSE p_limit - v_count END; -- more where nothing was of use
			v_rows := v_count + cardinality(v_alone) + cardinality(v_dead);
			SELECT count(*) AS found, max(x.turn) AS turn, array_agg(x.p) FILTER (WHERE x.fit = 5) AS p, array_agg(x.size) FILTER (WHERE x.fit = 5) AS b, array_agg(x.c) FILTER (WHERE x.fit = 5) AS c, array_agg(x.turn) FILTER (WHERE x.fit = 5) AS t,
				sum(x.size) FILTER (WHERE x.fit = 5) AS size, array_agg(x.p) FILTER (WHERE x.fit = 4) AS alone, array_agg(x.c) FILTER (WHERE x.fit = 4) AS alone_c, array_agg(x.turn) FILTER (WHERE x.fit = 4) AS alone_t,
				array_agg(x.p) FILTER (WHERE x.fit = 3) AS dead, array_agg(x.c) FILTER (WHERE x.fit = 3) AS dead_c, array_agg(x.p) FILTER (WHERE x.fit = 2) AS late, array_agg(x.due) FILTER (WHERE x.fit = 2) AS dues,
				array_agg(x.c) FILTER (WHERE x.fit IN (1, 2)) AS gone, array_agg(x.key) FILTER (WHERE x.p IS NULL) AS keys, array_agg(x.c) FILTER (WHERE x.p IS NULL) AS key_c, array_agg(x.turn) FILTER (WHERE x.p IS NULL) AS key_t INTO b FROM (
				SELECT q.ctid AS c, q.turn, q.position AS p, q.key, octet_length(m.payload)::bigint AS size, m.due,
					CASE WHEN q.position IS NOT NULL THEN CASE WHEN m.state IS DISTINCT FROM 1 OR m.claim IS NOT NULL AND NOT m.settled AND m.until > v_now THEN 1 WHEN m.due > v_now AND m.claim IS NOT NULL THEN 2 WHEN m.attempts >= p_attempts THEN 3
						WHEN m.lost + (m.claim IS NOT NULL AND NOT m.settled)::int >= 2 THEN 4 ELSE 5 END END AS fit -- as outbox_fit
				FROM tenure.outbox_queue q LEFT JOIN tenure.outbox_message m ON m.position = q.position
				WHERE q.topic = looked[t] AND q.turn > v_turn ORDER BY q.turn LIMIT v_asked FOR UPDATE OF q SKIP LOCKED) x;
			EXIT WHEN b.found = 0;
			v_turn := b.turn;
			v_p := v_p || b.p; v_b := v_b || b.b; v_c := v_c || b.c; v_t := v_t || b.t; v_alone := v_alone || b.alone; v_alone_c := v_alone_c || b.alone_c; v_alone_t := v_alone_t || b.alone_t;
			v_dead := v_dead || b.dead; v_dead_c := v_dead_c || b.dead_c; v_gone := v_gone || b.gone;
			v_count := v_count + coalesce(cardinality(b.p), 0); v_size := v_size + coalesce(b.size, 0);
			IF b.late IS NOT NULL THEN
				INSERT INTO tenure.outbox_later (due, topic, position) SELECT u.due, looked[t], u.p FROM unnest(b.late, b.dues) u (p, due);
			END IF;
			IF b.keys IS NOT NULL THEN
				FOR k IN SELECT u.key, array_agg(u.c) AS cs, min(u.t) AS turn FROM unnest(b.keys, b.key_c, b.key_t) WITH ORDINALITY u (key, c, t, o) GROUP BY u.key ORDER BY min(u.o) LOOP
					IF k.key = ANY (v_key_k) AND EXISTS (SELECT 1 FROM unnest(v_key_t, v_key_k) u (name, lane) WHERE u.name = looked[t] AND u.lane = k.key) THEN
						v_key_t := v_key_t || array_fill(looked[t], ARRAY[cardinality(k.cs)]); v_key_k := v_key_k || array_fill(k.key, ARRAY[cardinality(k.cs)]); v_key_c := v_key_c || k.cs;
						CONTINUE;
					END IF;
					EXIT WHEN v_lined >= p_limit OR v_lined_size >= p_bytes AND v_lined > 0; -- what does not fit beside the unordered ones is cut off below, in turn
					l := tenure.outbox_lane_look(looked[t], k.key, p_limit - v_lined, p_attempts, v_now);
					v_p := v_p || l.positions; v_b := v_b || l.sizes; v_c := v_c || array_fill(NULL::tid, ARRAY[cardinality(l.positions)]); v_t := v_t || array_fill(k.turn, ARRAY[cardinality(l.positions)]);
					v_lined := v_lined + cardinality(l.positions); v_lined_size := v_lined_size + coalesce((SELECT sum(u.s) FROM unnest(l.sizes) u (s)), 0);
					v_dead := v_dead || l.dead; v_dead_c := v_dead_c || array_fill(NULL::tid, ARRAY[cardinality(l.dead)]);
					IF l.alone IS NOT NULL THEN
						v_alone := v_alone || l.alone; v_alone_c := v_alone_c || NULL::tid; v_alone_t := v_alone_t || k.turn;
					END IF;
					IF l.put_off IS NOT NULL THEN
						INSERT INTO tenure.outbox_lane (topic, key) VALUES (looked[t], k.key);
						INSERT INTO tenure.outbox_later (due, topic, key) VALUES (l.put_off, looked[t], k.key);
					END IF;
					IF cardinality(l.positions) > 0 OR l.alone IS NOT NULL THEN
						v_key_t := v_key_t || array_fill(looked[t], ARRAY[cardinality(k.cs)]); v_key_k := v_key_k || array_fill(k.key, ARRAY[cardinality(k.cs)]); v_key_c := v_key_c || k.cs;
					ELSIF NOT l.kept THEN
						v_gone := v_gone || k.cs;
					END IF;
				END LOOP;
				v_count := cardinality(v_p); v_size := (SELECT coalesce(sum(u.s), 0) FROM unnest(v_b) u (s));
			END IF;
			EXIT WHEN b.found < v_asked;
		END LOOP;
	END LOOP;
	-- In turn, not by position: what is returned each time has a later turn each time, and may not be before everybody else for ever.
	SELECT u.p, u.t INTO v_first, v_turn FROM unnest(v_alone, v_alone_t) u (p, t) ORDER BY u.t, u.p LIMIT 1;
	IF v_turn < coalesce((SELECT min(u.t) FROM unnest(v_t) u (t)), v_turn + 1) THEN -- alone
		v_take := ARRAY[v_first];
		v_expected := (SELECT count(*) FROM unnest(v_alone, v_alone_c) u (p, c) WHERE u.p = v_first AND u.c IS NULL);
		v_gone := v_gone || ARRAY(SELECT u.c FROM unnest(v_alone, v_alone_c) u (p, c) WHERE u.p = v_first);
		SELECT coalesce(array_agg(u.p), '{}'), coalesce(array_agg(u.c), '{}') INTO v_dead, v_dead_c FROM unnest(v_dead, v_dead_c) u (p, c) WHERE u.p < v_first;
	ELSE
		SELECT array_agg(x.p), v_gone || array_agg(x.c), count(*) FILTER (WHERE x.c IS NULL) INTO v_take, v_gone, v_expected FROM (
			SELECT u.p, u.c, row_number() OVER w AS n, sum(u.b) OVER w AS size FROM unnest(v_p, v_b, v_c, v_t) u (p, b, c, t) WINDOW w AS (ORDER BY u.t, u.p ROWS UNBOUNDED PRECEDING)) x
		WHERE x.n <= p_limit AND (x.n = 1 OR x.size <= p_bytes);
	END IF;
	IF cardinality(v_dead) > 0 THEN
		dead := tenure.outbox_give_up(v_dead, p_attempts, v_now);
		v_gone := v_gone || v_dead_c;
	END IF;
	IF v_take IS NOT NULL THEN
		WITH handed AS (
			UPDATE tenure.outbox_message m SET claim = p_claim, relay = p_relay, until = v_now + p_ttl, settled = false, attempts = m.attempts + 1,
				lost = m.lost + (m.claim IS NOT NULL AND NOT m.settled)::int,
				errors = CASE WHEN m.claim IS NOT NULL AND NOT m.settled THEN tenure.outbox_note(m.errors, m.attempts, m.relay, 'its claim expired without a verdict', v_now) ELSE m.errors END
			WHERE m.position = ANY (v_take) AND m.state = 1 AND (m.claim IS NULL OR m.due <= v_now AND (m.settled OR m.until <= v_now))
			RETURNING m.position, m.id, m.topic, m.key, m.ordered, m.headers, m.payload, m.attempts, m.appended)
		SELECT array_agg(x.position), array_agg(x.id), array_agg(x.topic), array_agg(x.key), array_agg(x.ordered), array_agg(x.headers), array_agg(x.payload), array_agg(x.attempts), array_agg(greatest(v_now - x.appended, '0')),
			count(*) FILTER (WHERE x.ordered)
		INTO positions, ids, topics, keys, ordereds, headers, payloads, attempts, ages, v_ordered FROM (SELECT * FROM handed h ORDER BY h.position) x;
		IF v_ordered <> v_expected THEN
			PERFORM tenure.fail('TN006', 'a verdict on an expired claim was recorded meanwhile', NULL, 'Nothing was changed. Ask again.'); -- what is behind it may have to wait
		END IF;
		IF v_ordered > 0 THEN
			INSERT INTO tenure.outbox_lane (topic, key, claim, open)
			SELECT u.topic, u.key, p_claim, count(*) FROM unnest(topics, keys, ordereds) u (topic, key, ordered) WHERE u.ordered GROUP BY u.topic, u.key;
			v_gone := v_gone || ARRAY(SELECT w.c FROM unnest(v_key_t, v_key_k, v_key_c) w (topic, key, c)
				WHERE EXISTS (SELECT 1 FROM unnest(topics, keys, ordereds) u (topic, key, ordered) WHERE u.ordered AND u.topic = w.topic AND u.key = w.key));
		END IF;
		IF positions IS NOT NULL THEN
			INSERT INTO tenure.outbox_claim (claim, until, open, positions, topics, keys)
			SELECT p_claim, v_now + p_ttl, cardinality(positions), positions, coalesce(array_agg(x.topic), '{}'), coalesce(array_agg(x.key), '{}')
			FROM (SELECT DISTINCT u.topic, u.key FROM unnest(topics, keys, ordereds) u (topic, key, ordered) WHERE v_ordered > 0 AND u.ordered) x
			ON CONFLICT (claim) DO UPDATE SET until = excluded.until, open = outbox_claim.open + excluded.open, positions = outbox_claim.positions || excluded.positions,
				topics = outbox_claim.topics || excluded.topics, keys = outbox_claim.keys || excluded.keys;
		END IF;
	END IF;
	IF cardinality(v_gone) > 0 THEN
		DELETE FROM tenure.outbox_queue q WHERE q.ctid = ANY (v_gone);
	END IF;
	remaining := v_now + p_ttl - clock_timestamp();
END $$;

-- Moves pending messages whose attempts are used up to the dead letters, and returns how many.
CREATE FUNCTION tenure.outbox_give_up(p_positions bigint[], p_attempts int, p_now timestamptz) RETURNS int LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_positions bigint[];
BEGIN
	WITH moved AS (
		UPDATE tenure.outbox_message m SET state = 3, ended = p_now, claim = NULL, lost = m.lost + (m.claim IS NOT NULL AND NOT m.settled)::int,
			errors = CASE WHEN m.claim IS NOT NULL AND NOT m.settled THEN tenure.outbox_note(m.errors, m.attempts, m.relay, 'its claim expired without a verdict', p_now) ELSE m.errors END
		WHERE m.position = ANY (p_positions) AND tenure.outbox_fit(m, p_attempts, p_now) = 3 RETURNING m.position, m.topic, m.key, m.ordered),
	letters AS (INSERT INTO tenure.outbox_dead (position, topic) SELECT m.position, m.topic FROM moved m),
	lines AS (DELETE FROM tenure.outbox_line l USING moved m WHERE m.ordered AND l.topic = m.topic AND l.key = m.key AND l.position = m.position)
	SELECT array_agg(m.position) INTO v_positions FROM moved m;
	IF v_positions IS NOT NULL THEN
		INSERT INTO tenure.outbox_ended (ended, state, positions) VALUES (p_now, 3, v_positions);
	END IF;
	RETURN coalesce(cardinality(v_positions), 0);
END $$;

-- Claims messages until p_ttl from now; see the page of examples. Say what became of each with tenure.outbox_settle. The batch is in the order of the positions.
CREATE FUNCTION tenure.outbox_claim(p_claim uuid, p_relay text DEFAULT '', p_topics text[] DEFAULT NULL, p_limit int DEFAULT 100, p_bytes int DEFAULT 16777216, p_ttl interval DEFAULT '30 seconds', p_attempts int DEFAULT 20)
RETURNS SETOF tenure.outbox_delivery LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	r record;
BEGIN
	r := tenure.outbox_claim_many(p_claim, p_relay, p_topics, p_limit, p_bytes, p_ttl, p_attempts, NULL);
	RETURN QUERY SELECT u.p, u.id, u.topic, u.key, u.ordered, u.headers, u.payload, u.attempt, u.age
		FROM unnest(r.positions, r.ids, r.topics, r.keys, r.ordereds, r.headers, r.payloads, r.attempts, r.ages) u (p, id, topic, key, ordered, headers, payload, attempt, age);
END $$;

-- What became of messages of a claim. An outcome is published, failed or returned; NULL arrays: all published, no errors, again at once, none given up. Changes those alone whose latest claim it is and that are pending. late: the
-- others. What was recorded under this claim already counts as applied, and is not recorded again.
CREATE FUNCTION tenure.outbox_settle(p_claim uuid, p_positions bigint[], p_outcomes text[] DEFAULT NULL, p_errors text[] DEFAULT NULL, p_retry_in interval[] DEFAULT NULL, p_dead boolean[] DEFAULT NULL, p_relay text DEFAULT '',
	OUT applied int, OUT late bigint[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET enable_bitmapscan = off AS $$
DECLARE
	n int := coalesce(cardinality(p_positions), 0);
	v_now timestamptz;
	v_done bigint[];
	v_topics text[];
	v_keys text[];
	v_ordered boolean[];
	v_states smallint[];
	v_dues timestamptz[];
	v_all bigint[];
BEGIN
	PERFORM tenure.outbox_check_settle(p_claim, p_relay, p_positions, p_outcomes, p_errors, p_retry_in, p_dead);
	PERFORM 1 FROM tenure.outbox_claim o WHERE o.claim = p_claim FOR UPDATE; -- verdicts on one claim, and its expiry, one after the other
	v_now := clock_timestamp();
	IF p_outcomes IS NULL THEN
		WITH done AS (
			UPDATE tenure.outbox_message m SET settled = true, lost = 0, state = 2, ended = v_now
			WHERE m.position = ANY (p_positions) AND m.claim = p_claim AND m.state = 1 AND NOT m.settled RETURNING m.position, m.topic, m.key, m.ordered)
		SELECT array_agg(d.position), array_agg(d.topic) FILTER (WHERE d.ordered), array_agg(d.key) FILTER (WHERE d.ordered), array_agg(d.position) FILTER (WHERE d.ordered) INTO v_done, v_topics, v_keys, v_all FROM done d;
		IF v_all IS NOT NULL THEN
			DELETE FROM tenure.outbox_line l USING unnest(v_topics, v_keys, v_all) u (topic, key, position) WHERE l.topic = u.topic AND l.key = u.key AND l.position = u.position;
		END IF;
		IF v_done IS NOT NULL THEN
			INSERT INTO tenure.outbox_ended (ended, state, positions) VALUES (v_now, 2, v_done);
		END IF;
	ELSE
		SELECT x.done, x.topics, x.keys INTO v_done, v_topics, v_keys FROM tenure.outbox_settle_each(p_claim, p_relay, p_positions, p_outcomes, p_errors, p_retry_in, p_dead, v_now) x;
	END IF;
	IF v_done IS NOT NULL THEN
		PERFORM tenure.outbox_release(p_claim, cardinality(v_done), v_topics, v_keys);
	END IF;
	IF coalesce(cardinality(v_done), 0) < n OR p_outcomes IS NOT NULL THEN
		v_all := ARRAY(SELECT m.position FROM tenure.outbox_message m WHERE m.position = ANY (p_positions) AND m.claim = p_claim AND m.settled);
		late := ARRAY(SELECT u.p FROM unnest(p_positions) u (p) WHERE NOT u.p = ANY (v_all) ORDER BY u.p);
		PERFORM tenure.op_known_before();
	END IF;
	late := coalesce(late, '{}');
	applied := n - cardinality(late);
END $$;

CREATE FUNCTION tenure.outbox_check_settle(p_claim uuid, p_relay text, p_positions bigint[], p_outcomes text[], p_errors text[], p_retry_in interval[], p_dead boolean[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	n int := coalesce(cardinality(p_positions), 0);
BEGIN
	PERFORM tenure.check_id('claim', p_claim), tenure.op_check_text('relay', p_relay, 0, 256);
	IF n NOT BETWEEN 1 AND 1000 OR coalesce(cardinality(p_outcomes), n) <> n OR coalesce(cardinality(p_errors), n) <> n OR coalesce(cardinality(p_retry_in), n) <> n OR coalesce(cardinality(p_dead), n) <> n THEN
		PERFORM tenure.op_invalid('verdicts', 'want 1 to 1000, and arrays of one length');
	ELSIF (SELECT count(DISTINCT u.p) FROM unnest(p_positions) u (p)) < n THEN
		PERFORM tenure.op_invalid('verdicts', 'a position twice, or none');
	ELSIF p_outcomes IS NULL AND (p_errors IS NOT NULL OR p_retry_in IS NOT NULL OR p_dead IS NOT NULL) THEN
		PERFORM tenure.op_invalid('outcome', 'none');
	ELSIF p_outcomes IS NOT NULL THEN
		FOR i IN 1..n LOOP
			IF coalesce(p_outcomes[i], '') NOT IN ('published', 'failed', 'returned') THEN
				PERFORM tenure.op_invalid('outcome', 'want published, failed or returned');
			ELSIF coalesce(p_retry_in[i], interval '0') NOT BETWEEN interval '0' AND interval '31 days' THEN
				PERFORM tenure.op_invalid('retry in', 'want 0 to 31 days');
			ELSIF p_dead[i] AND p_outcomes[i] <> 'failed' THEN
				PERFORM tenure.op_invalid('verdicts', format('position %s is given up and %s', p_positions[i], p_outcomes[i]));
			END IF;
		END LOOP;
	END IF;
	PERFORM tenure.read_committed('outbox_settle'), tenure.durable();
END $$;

-- Verdicts of every kind, and what is behind those that were not published. Returns what was settled, and the key of each ordered one.
CREATE FUNCTION tenure.outbox_settle_each(p_claim uuid, p_relay text, p_positions bigint[], p_outcomes text[], p_errors text[], p_retry_in interval[], p_dead boolean[], p_now timestamptz,
	OUT done bigint[], OUT topics text[], OUT keys text[])
LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
	s record; -- settled
	r record; -- returned with them
	v_back boolean;
BEGIN
	PERFORM 1 FROM tenure.outbox_message m WHERE m.position = ANY (p_positions) AND m.claim = p_claim AND m.state = 1 AND NOT m.settled ORDER BY m.position FOR NO KEY UPDATE;
	WITH put AS (
		UPDATE tenure.outbox_message m SET settled = true, lost = 0,
			state = CASE WHEN v.outcome = 'published' THEN 2 WHEN v.dead THEN 3 ELSE 1 END, ended = CASE WHEN v.outcome = 'published' OR v.dead THEN p_now END,
			due = CASE WHEN v.outcome = 'published' THEN m.due ELSE p_now + v.retry_in END, attempts = m.attempts - (v.outcome = 'returned')::int,
			errors = CASE WHEN v.outcome = 'failed' THEN tenure.outbox_note(m.errors, m.attempts, p_relay, v.problem, p_now) ELSE m.errors END
		FROM (SELECT u.p, u.outcome, u.problem, coalesce(u.retry_in, '0') AS retry_in, coalesce(u.dead, false) AS dead FROM unnest(p_positions, p_outcomes, p_errors, p_retry_in, p_dead) u (p, outcome, problem, retry_in, dead)) v
		WHERE m.position = v.p AND m.claim = p_claim AND m.state = 1 AND NOT m.settled RETURNING m.position, m.topic, m.key, m.ordered, m.state, m.due, v.outcome)
	SELECT array_agg(x.position) AS p, array_agg(x.topic) AS topics, array_agg(x.key) AS keys, array_agg(x.ordered) AS ordereds, array_agg(x.state) AS states, array_agg(x.due) AS dues,
		array_agg(x.outcome <> 'published') AS backs INTO s FROM put x;
	IF s.p IS NULL THEN
		RETURN;
	END IF;
	WITH put AS ( -- those behind
		UPDATE tenure.outbox_message m SET settled = true, lost = 0, due = p_now, attempts = m.attempts - 1
		FROM (SELECT u.topic, u.key, min(u.p) AS p FROM unnest(s.p, s.topics, s.keys, s.ordereds, s.backs) u (p, topic, key, ordered, back) WHERE u.ordered AND u.back GROUP BY u.topic, u.key) f
		JOIN tenure.outbox_line l ON l.topic = f.topic AND l.key = f.key AND l.position > f.p
		WHERE m.position = l.position AND m.position = ANY (coalesce((SELECT c.positions FROM tenure.outbox_claim c WHERE c.claim = p_claim), ARRAY[m.position])) AND m.claim = p_claim AND m.state = 1 AND NOT m.settled
		RETURNING m.position, m.topic, m.key)
	SELECT array_agg(x.position) AS p, array_agg(x.topic) AS topics, array_agg(x.key) AS keys INTO r FROM put x;
	INSERT INTO tenure.outbox_later (due, topic, position) SELECT u.due, u.topic, u.p FROM unnest(s.p, s.topics, s.ordereds, s.states, s.dues) u (p, topic, ordered, state, due) WHERE NOT u.ordered AND u.state = 1 AND u.due > p_now;
	INSERT INTO tenure.outbox_queue (topic, turn, position) SELECT u.topic, nextval('tenure.outbox_turn'), u.p FROM unnest(s.p, s.topics, s.ordereds, s.states, s.dues) u (p, topic, ordered, state, due)
	WHERE NOT u.ordered AND u.state = 1 AND u.due <= p_now;
	v_back := FOUND;
	DELETE FROM tenure.outbox_line l USING unnest(s.p, s.topics, s.keys, s.ordereds, s.states) u (p, topic, key, ordered, state)
	WHERE u.ordered AND u.state <> 1 AND l.topic = u.topic AND l.key = u.key AND l.position = u.p;
	INSERT INTO tenure.outbox_dead (position, topic) SELECT u.p, u.topic FROM unnest(s.p, s.topics, s.states) u (p, topic, state) WHERE u.state = 3;
	INSERT INTO tenure.outbox_ended (ended, state, positions) SELECT p_now, u.state, array_agg(u.p) FROM unnest(s.p, s.states) u (p, state) WHERE u.state <> 1 GROUP BY u.state;
	IF v_back THEN
		PERFORM tenure.outbox_wake();
	END IF;
	done := s.p || r.p;
	topics := ARRAY(SELECT u.topic FROM unnest(s.topics, s.ordereds) WITH ORDINALITY u (topic, ordered, o) WHERE u.ordered ORDER BY u.o) || r.topics;
	keys := ARRAY(SELECT u.key FROM unnest(s.keys, s.ordereds) WITH ORDINALITY u (key, ordered, o) WHERE u.ordered ORDER BY u.o) || r.keys;
END $$;

-- So many verdicts of a claim were recorded, of these ordered keys among them. A key of which none is open goes back to the queue, in a later turn: that it may be empty is seen there.
CREATE FUNCTION tenure.outbox_release(p_claim uuid, p_count int, p_topics text[], p_keys text[]) RETURNS void LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
	IF cardinality(p_keys) > 0 THEN
		UPDATE tenure.outbox_lane l SET open = l.open - u.n FROM (SELECT x.topic, x.key, count(*)::int AS n FROM unnest(p_topics, p_keys) x (topic, key) GROUP BY x.topic, x.key) u
		WHERE l.topic = u.topic AND l.key = u.key AND l.claim = p_claim;
		WITH gone AS (
			DELETE FROM tenure.outbox_lane l USING (SELECT DISTINCT x.topic, x.key FROM unnest(p_topics, p_keys) x (topic, key)) u
			WHERE l.topic = u.topic AND l.key = u.key AND l.claim = p_claim AND l.open <= 0 RETURNING l.topic, l.key)
		INSERT INTO tenure.outbox_queue (topic, turn, key) SELECT g.topic, nextval('tenure.outbox_turn'), g.key FROM gone g;
		IF FOUND THEN
			PERFORM tenure.outbox_wake();
		END IF;
	END IF;
	DELETE FROM tenure.outbox_claim o WHERE o.claim = p_claim AND o.open <= p_count;
	IF NOT FOUND THEN
		UPDATE tenure.outbox_claim o SET open = o.open - p_count WHERE o.claim = p_claim;
	END IF;
END $$;
