-- Appending. Lock order: ordered keys (advisory, by their numbers), and nothing that a relay locks: an appender that stays open holds up those who append to its ordered keys, and nobody else.

CREATE FUNCTION tenure.outbox_lock_of(p_topic text, p_key text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended(p_topic || E'\n' || p_key, 8031162945071838575) $$;

-- Says something to who waits. Who waits has locked the number, shared; so only then is a notification worth its price at the commit. One expression: nothing can end the call between lock and unlock.
CREATE FUNCTION tenure.outbox_wake() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT (CASE WHEN pg_try_advisory_lock(8031162945071838576) THEN pg_advisory_unlock(8031162945071838576) ELSE false END) THEN
		PERFORM pg_notify('tenure_outbox', '');
	END IF;
END $$;

CREATE FUNCTION tenure.outbox_check(p_topic text, p_payload bytea, p_key text, p_ordered boolean, p_headers jsonb, p_id uuid) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	h record;
	v_count int := 0;
	v_bytes int := 0;
BEGIN
	PERFORM tenure.op_check_text('topic', p_topic, 1, 256), tenure.op_check_text('key', p_key, 0, 512);
	IF p_ordered IS NULL OR p_ordered AND p_key = '' THEN
		PERFORM tenure.op_invalid('key', 'none, and the message is ordered');
	ELSIF p_payload IS NULL OR octet_length(p_payload) > 1048576 THEN
		PERFORM tenure.op_invalid('payload', coalesce(octet_length(p_payload) || ' bytes; at most 1048576', 'NULL'));
	ELSIF p_id = '00000000-0000-0000-0000-000000000000' THEN
		PERFORM tenure.check_id('id', p_id);
	ELSIF p_headers IS NULL THEN
		RETURN;
	ELSIF jsonb_typeof(p_headers) <> 'object' THEN
		PERFORM tenure.op_invalid('headers', 'want an object of texts');
	END IF;
	FOR h IN SELECT e.key, e.value, e.value #>> '{}' AS text FROM jsonb_each(p_headers) e LOOP
		PERFORM tenure.op_check_text('header name', h.key, 1, 256);
		IF jsonb_typeof(h.value) <> 'string' THEN
			PERFORM tenure.op_invalid('header', format('the value of %s is no text', to_json(h.key)));
		END IF;
		v_count := v_count + 1;
		v_bytes := v_bytes + octet_length(h.key) + octet_length(h.text);
	END LOOP;
	IF v_count > 64 OR v_bytes > 16384 THEN
		PERFORM tenure.op_invalid('headers', 'at most 64, of 16384 bytes together');
	END IF;
END $$;

-- What is known under the id must be this message. False: nothing is known any more.
CREATE FUNCTION tenure.outbox_same(p_id uuid, p_topic text, p_key text, p_ordered boolean, p_headers jsonb, p_payload bytea) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	m record;
	v_what text;
BEGIN
	SELECT o.topic, o.key, o.ordered, o.headers, o.payload INTO m FROM tenure.outbox_message o WHERE o.id = p_id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	v_what := CASE WHEN m.topic <> p_topic THEN 'topic' WHEN m.key <> p_key THEN 'key' WHEN m.ordered <> p_ordered THEN 'order'
		WHEN m.headers IS DISTINCT FROM p_headers THEN 'headers' WHEN m.payload <> p_payload THEN 'payload' END;
	IF v_what IS NOT NULL THEN
		PERFORM tenure.fail('TN040', format('message %s is known with another %s', p_id, v_what), jsonb_build_object('id', p_id, 'what', v_what), 'Nothing was changed.');
	END IF;
	PERFORM tenure.op_known_before();
	RETURN true;
END $$;

-- A message is there if and only if the caller's transaction commits. The same id again writes nothing. Returns the id. An ordered message waits for the end of every other transaction that has appended to its topic and key.
CREATE FUNCTION tenure.outbox_append(p_topic text, p_payload bytea, p_key text DEFAULT '', p_ordered boolean DEFAULT false, p_headers jsonb DEFAULT NULL, p_id uuid DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_id uuid := p_id;
	v_headers jsonb := p_headers;
	v_position bigint;
	v_now timestamptz;
	v_known boolean;
BEGIN
	-- As few expressions as there can be: each is made ready again in every transaction.
	IF p_topic IS NULL OR p_topic = '' OR octet_length(p_topic) > 256 OR p_key IS NULL OR octet_length(p_key) > 512 OR p_ordered IS NOT false OR p_headers IS NOT NULL OR p_id IS NULL
		OR p_id = '00000000-0000-0000-0000-000000000000' OR p_payload IS NULL OR octet_length(p_payload) > 1048576 OR p_topic || p_key ~ U&'[\0001-\001F\007F-\009F]'
		OR current_setting('synchronous_commit') IN ('off', 'local') THEN
		PERFORM tenure.outbox_check(p_topic, p_payload, p_key, p_ordered, p_headers, p_id); -- the long way for whatever is not plainly right
		v_id := coalesce(p_id, tenure.new_id());
		v_headers := nullif(p_headers, '{}');
		IF current_setting('synchronous_commit') IN ('off', 'local') THEN
			PERFORM set_config('synchronous_commit', 'on', true);
		END IF;
		IF p_ordered THEN
			PERFORM pg_advisory_xact_lock(tenure.outbox_lock_of(p_topic, p_key));
		END IF;
	END IF;
	FOR i IN 1..20 LOOP
		v_now := CASE WHEN pg_current_xact_id() IS NOT NULL THEN clock_timestamp() END; -- the id of the transaction before the position: who has none has drawn nothing
		INSERT INTO tenure.outbox_message AS o (position, id, topic, key, ordered, appended, due, headers, payload)
		VALUES (nextval('tenure.outbox_turn'), v_id, p_topic, p_key, p_ordered, v_now, v_now, v_headers, p_payload) ON CONFLICT (id) DO NOTHING RETURNING o.position INTO v_position;
		IF v_position IS NOT NULL THEN
			INSERT INTO tenure.outbox_queue (topic, turn, position, key) VALUES (p_topic, v_position, CASE WHEN NOT p_ordered THEN v_position END, CASE WHEN p_ordered THEN p_key END)
			RETURNING EXISTS (SELECT 1 FROM tenure.outbox_topic t WHERE t.topic = p_topic) INTO v_known;
			IF p_ordered THEN
				INSERT INTO tenure.outbox_line (topic, key, position) VALUES (p_topic, p_key, v_position);
			END IF;
			IF NOT v_known THEN
				INSERT INTO tenure.outbox_topic (topic) VALUES (p_topic);
			END IF;
			IF NOT (CASE WHEN pg_try_advisory_lock(8031162945071838576) THEN pg_advisory_unlock(8031162945071838576) ELSE false END) THEN -- as outbox_wake
				PERFORM pg_notify('tenure_outbox', '');
			END IF;
			RETURN v_id;
		ELSIF tenure.outbox_same(v_id, p_topic, p_key, p_ordered, v_headers, p_payload) THEN
			RETURN v_id;
		END IF;
	END LOOP;
	PERFORM tenure.fail('TN006', format('message %s came and went', v_id), NULL, 'Nothing was changed. Ask again.');
END $$;

-- Messages whose arrays have one element each, all or none. NULL arrays: no keys, none ordered, no headers, ids made here. Returns the ids in order.
CREATE FUNCTION tenure.outbox_append_many(p_topics text[], p_payloads bytea[], p_keys text[] DEFAULT NULL, p_ordered boolean[] DEFAULT NULL, p_headers jsonb[] DEFAULT NULL, p_ids uuid[] DEFAULT NULL)
RETURNS uuid[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	n int := coalesce(cardinality(p_topics), 0);
	v_keys text[] := coalesce(p_keys, array_fill(''::text, ARRAY[n]));
	v_ordered boolean[] := coalesce(p_ordered, array_fill(false, ARRAY[n]));
	v_headers jsonb[];
	v_ids uuid[];
	v_new uuid[];
	v_topics text[];
	v_now timestamptz;
BEGIN
	IF n NOT BETWEEN 1 AND 1000 OR cardinality(p_payloads) IS DISTINCT FROM n OR cardinality(v_keys) <> n OR cardinality(v_ordered) <> n OR coalesce(cardinality(p_headers), n) <> n OR coalesce(cardinality(p_ids), n) <> n THEN
		PERFORM tenure.op_invalid('messages', 'want 1 to 1000, and arrays of one length');
	END IF;
	FOR i IN 1..n LOOP
		PERFORM tenure.outbox_check(p_topics[i], p_payloads[i], v_keys[i], v_ordered[i], p_headers[i], p_ids[i]);
	END LOOP;
	SELECT array_agg(coalesce(p_ids[i], tenure.new_id()) ORDER BY i), array_agg(nullif(p_headers[i], '{}') ORDER BY i) INTO v_ids, v_headers FROM generate_series(1, n) i;
	IF (SELECT count(DISTINCT u.id) FROM unnest(v_ids) u (id)) < n THEN
		PERFORM tenure.op_invalid('messages', 'an id twice');
	ELSIF (SELECT sum(octet_length(u.p)) FROM unnest(p_payloads) u (p)) > 16777216 THEN
		PERFORM tenure.op_invalid('messages', 'more than 16777216 bytes of payloads');
	END IF;
	PERFORM tenure.durable();
	PERFORM pg_advisory_xact_lock(x.k) FROM (SELECT DISTINCT tenure.outbox_lock_of(u.topic, u.key) AS k FROM unnest(p_topics, v_keys, v_ordered) u (topic, key, ordered) WHERE u.ordered ORDER BY 1) x;
	PERFORM pg_current_xact_id();
	v_now := clock_timestamp();
	WITH put AS (
		INSERT INTO tenure.outbox_message AS o (position, id, topic, key, ordered, appended, due, headers, payload)
		SELECT nextval('tenure.outbox_turn'), x.* FROM (
			SELECT u.id, u.topic, u.key, u.ordered, v_now, v_now, u.headers, u.payload
			FROM unnest(v_ids, p_topics, v_keys, v_ordered, v_headers, p_payloads) WITH ORDINALITY u (id, topic, key, ordered, headers, payload, i) ORDER BY u.i OFFSET 0) x
		ON CONFLICT (id) DO NOTHING RETURNING o.position, o.id, o.topic, o.key, o.ordered),
	queued AS (
		INSERT INTO tenure.outbox_queue (topic, turn, position, key)
		SELECT p.topic, min(p.position), CASE WHEN NOT p.ordered THEN min(p.position) END, CASE WHEN p.ordered THEN min(p.key) END FROM put p
		GROUP BY p.topic, p.ordered, CASE WHEN p.ordered THEN p.key END, CASE WHEN NOT p.ordered THEN p.position END), -- a key once
	lined AS (INSERT INTO tenure.outbox_line (topic, key, position) SELECT p.topic, p.key, p.position FROM put p WHERE p.ordered)
	SELECT array_agg(p.id), array_agg(DISTINCT p.topic) INTO v_new, v_topics FROM put p;
	IF coalesce(cardinality(v_new), 0) < n THEN
		FOR i IN 1..n LOOP
			IF NOT v_ids[i] = ANY (coalesce(v_new, '{}')) AND NOT tenure.outbox_same(v_ids[i], p_topics[i], v_keys[i], v_ordered[i], v_headers[i], p_payloads[i]) THEN
				PERFORM tenure.fail('TN006', format('message %s came and went', v_ids[i]), NULL, 'Nothing was changed. Ask again.');
			END IF;
		END LOOP;
	END IF;
	IF v_topics IS NOT NULL THEN
		INSERT INTO tenure.outbox_topic (topic) SELECT u.topic FROM unnest(v_topics) u (topic) WHERE NOT EXISTS (SELECT 1 FROM tenure.outbox_topic t WHERE t.topic = u.topic);
		PERFORM tenure.outbox_wake();
	END IF;
	RETURN v_ids;
END $$;
