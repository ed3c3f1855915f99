-- For the Go store: holds of strangers in one transaction. Nobody's fate is another's: what cannot be done at once, without a wait for an item, is left over, and asks singly.

-- Places requests without limits; line k is of request p_requests[k], each item once in a request. refused: those of which too little is free, by a look without locks. The rest is
-- placed, or left over. Another transaction that is placing one of the ids is waited for, 300 ms at most (55P03).
CREATE FUNCTION tenure.hold_place_many(p_ids uuid[], p_actors text[], p_ttls interval[], p_requests int[], p_items text[], p_quantities bigint[],
	OUT left_over int[], OUT refused int[], OUT refused_items text[], OUT wanted bigint[], OUT frees bigint[], OUT nexts interval[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_before text := current_setting('lock_timeout');
	v_now timestamptz := clock_timestamp();
	v_locked text[];
	v_fit int[];
	v_done uuid[];
BEGIN
	PERFORM tenure.read_committed('hold_place_many'), tenure.durable(), tenure.hold_check_many(p_ids, p_actors, p_ttls, p_requests, p_items, p_quantities);
	SELECT coalesce(array_agg(x.o), '{}'), coalesce(array_agg(x.item), '{}'), coalesce(array_agg(x.quantity), '{}'), coalesce(array_agg(x.free), '{}'), coalesce(array_agg(n.until - v_now), '{}')
	INTO refused, refused_items, wanted, frees, nexts FROM (
		SELECT u.o, (array_agg(u.item ORDER BY u.item COLLATE "C") FILTER (WHERE f.free < u.quantity))[1] AS item, (array_agg(u.quantity ORDER BY u.item COLLATE "C") FILTER (WHERE f.free < u.quantity))[1] AS quantity,
			(array_agg(f.free ORDER BY u.item COLLATE "C") FILTER (WHERE f.free < u.quantity))[1] AS free
		FROM unnest(p_requests, p_items, p_quantities) u (o, item, quantity) LEFT JOIN tenure.item i ON i.name = u.item
		LEFT JOIN LATERAL (SELECT i.quantity - i.sold - i.held + CASE WHEN i.quantity - i.sold - i.held >= u.quantity THEN 0
			ELSE coalesce((SELECT sum(l.quantity) FROM tenure.hold_line l WHERE l.item = i.name AND l.live AND l.until <= v_now), 0)::bigint END AS free) f ON true
		GROUP BY u.o HAVING bool_and(i.name IS NOT NULL) AND bool_or(f.free < u.quantity)) x
	LEFT JOIN LATERAL (SELECT l.until FROM tenure.hold_line l WHERE l.item = x.item AND l.live AND l.until > v_now ORDER BY l.until LIMIT 1) n ON true
	WHERE NOT EXISTS (SELECT 1 FROM tenure.hold o WHERE o.id = p_ids[x.o]);
	SELECT array_agg(x.name) INTO v_locked FROM (SELECT i.name FROM tenure.item i
		WHERE i.name = ANY (ARRAY(SELECT u.item FROM unnest(p_requests, p_items) u (o, item) WHERE u.o <> ALL (refused))) ORDER BY i.name FOR NO KEY UPDATE SKIP LOCKED) x;
	v_now := clock_timestamp(); -- in a later statement than the locks
	PERFORM tenure.hold_free(v_locked, v_now);
	v_fit := ARRAY(SELECT u.o FROM unnest(p_requests, p_items, p_quantities) u (o, item, quantity) LEFT JOIN tenure.item i ON i.name = u.item
		GROUP BY u.o HAVING bool_and((i.quantity - i.sold - i.held >= u.quantity AND u.item IN (SELECT k.name FROM unnest(v_locked) k (name))) IS TRUE));
	PERFORM set_config('lock_timeout', '300', true);
	-- By id, so that two batches wait for each other in one direction only.
	WITH d AS (
		INSERT INTO tenure.hold AS o (id, actor, units, ttl, placed, until, items, quantities)
		SELECT p_ids[s.o], p_actors[s.o], s.units, p_ttls[s.o], v_now, v_now + p_ttls[s.o], s.items, s.quantities FROM (
			SELECT u.o, sum(u.quantity)::bigint AS units, array_agg(u.item ORDER BY u.item COLLATE "C") AS items, array_agg(u.quantity ORDER BY u.item COLLATE "C") AS quantities
			FROM unnest(p_requests, p_items, p_quantities) u (o, item, quantity) WHERE u.o = ANY (v_fit) GROUP BY u.o) s
		ORDER BY p_ids[s.o]
		ON CONFLICT (id) DO NOTHING RETURNING o.id)
	SELECT array_agg(d.id) INTO v_done FROM d;
	PERFORM set_config('lock_timeout', v_before, true);
	INSERT INTO tenure.hold_line (item, hold, quantity, until)
	SELECT u.item, p_ids[u.o], u.quantity, v_now + p_ttls[u.o] FROM unnest(p_requests, p_items, p_quantities) u (o, item, quantity) WHERE p_ids[u.o] = ANY (v_done);
	UPDATE tenure.item i SET held = i.held + s.quantity FROM (
		SELECT u.item, sum(u.quantity)::bigint AS quantity FROM unnest(p_requests, p_items, p_quantities) u (o, item, quantity) WHERE p_ids[u.o] = ANY (v_done) GROUP BY u.item) s
	WHERE i.name = s.item;
	left_over := ARRAY(SELECT u.o::int FROM unnest(p_ids) WITH ORDINALITY u (id, o) WHERE (u.id = ANY (v_done)) IS NOT TRUE AND u.o <> ALL (refused) ORDER BY u.o);
END $$;

CREATE FUNCTION tenure.hold_check_many(p_ids uuid[], p_actors text[], p_ttls interval[], p_requests int[], p_items text[], p_quantities bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF cardinality(p_ids) IS NULL OR cardinality(p_ids) <> (SELECT count(DISTINCT u.id) FROM unnest(p_ids) u (id))
		OR cardinality(p_requests) <> (SELECT count(DISTINCT (u.o, u.item)) FROM unnest(p_requests, p_items) u (o, item)) THEN
		PERFORM tenure.op_invalid('requests', 'want different ids, and each item once in a request');
	END IF;
	PERFORM tenure.check_id('id', u.id), tenure.op_check_text('actor', u.actor, 1, 256), tenure.op_check_delay('ttl', u.ttl, '1 millisecond', '31 days')
	FROM unnest(p_ids, p_actors, p_ttls) u (id, actor, ttl)
	WHERE (octet_length(u.actor) BETWEEN 1 AND 256 AND u.actor !~ U&'[\0001-\001F\007F-\009F]' AND u.ttl BETWEEN interval '1 millisecond' AND interval '31 days' AND u.id <> '00000000-0000-0000-0000-000000000000') IS NOT TRUE;
	PERFORM tenure.op_invalid('lines', 'want items, and quantities from 1 to 1099511627776') FROM unnest(p_requests, p_items, p_quantities) u (o, item, quantity)
	WHERE (u.o BETWEEN 1 AND cardinality(p_ids) AND octet_length(u.item) BETWEEN 1 AND 256 AND u.quantity BETWEEN 1 AND 1099511627776) IS NOT TRUE;
END $$;

-- Confirms live holds of their actors. A row for each that it has confirmed; o counts from 1.
CREATE FUNCTION tenure.hold_confirm_many(p_ids uuid[], p_actors text[], p_references text[])
RETURNS TABLE (o int, items text[], quantities bigint[], ttl interval, age interval)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
	v_items text[];
	v_locked text[];
	v_now timestamptz;
	v_ids uuid[];
BEGIN
	PERFORM tenure.op_check_text('reference', u.reference, 1, 512) FROM unnest(p_references) u (reference)
	WHERE (octet_length(u.reference) BETWEEN 1 AND 512 AND u.reference !~ U&'[\0001-\001F\007F-\009F]') IS NOT TRUE;
	PERFORM tenure.read_committed('hold_confirm_many'), tenure.durable();
	v_items := ARRAY(SELECT DISTINCT u.item FROM unnest(p_ids) x (id) JOIN tenure.hold h ON h.id = x.id, unnest(h.items) u (item));
	SELECT array_agg(x.name) INTO v_locked FROM (SELECT i.name FROM tenure.item i WHERE i.name = ANY (v_items) ORDER BY i.name FOR NO KEY UPDATE SKIP LOCKED) x;
	v_now := clock_timestamp(); -- in a later statement than the locks
	-- By the ids alone first: a plan that was made when there were few holds must not look among all that are live.
	SELECT array_agg(x.id) INTO v_ids FROM (SELECT h.id FROM tenure.hold h WHERE h.id = ANY (p_ids) ORDER BY h.id FOR NO KEY UPDATE SKIP LOCKED) x;
	WITH h AS MATERIALIZED (SELECT o.id, o.actor, o.state, o.until, o.items FROM tenure.hold o WHERE o.id = ANY (v_ids))
	SELECT array_agg(h.id) INTO v_ids FROM h JOIN unnest(p_ids, p_actors) u (id, actor) ON u.id = h.id AND u.actor = h.actor
	WHERE h.state = 1 AND h.until > v_now AND h.items <@ v_locked AND NOT EXISTS (SELECT 1 FROM tenure.hold_line l WHERE l.item = ANY (h.items) AND l.hold = h.id AND NOT l.live);
	UPDATE tenure.item i SET sold = i.sold + s.quantity, held = i.held - s.quantity FROM (
		SELECT u.item, sum(u.quantity)::bigint AS quantity FROM unnest(v_ids) x (id) JOIN tenure.hold h ON h.id = x.id, unnest(h.items, h.quantities) u (item, quantity) GROUP BY u.item) s
	WHERE i.name = s.item;
	WITH s AS MATERIALIZED ( -- so that a line is found by its whole key
		SELECT h.id, i.name, i.quantity = 1 AS sole FROM unnest(v_ids) x (id) JOIN tenure.hold h ON h.id = x.id, unnest(h.items) u (item) JOIN tenure.item i ON i.name = u.item)
	UPDATE tenure.hold_line l SET live = false, sole = s.sole FROM s WHERE l.item = s.name AND l.hold = s.id;
	RETURN QUERY UPDATE tenure.hold h SET state = 2, until = v_now, reference = u.reference
		FROM unnest(p_ids, p_actors, p_references) WITH ORDINALITY u (id, actor, reference, o) WHERE h.id = u.id AND h.actor = u.actor AND h.id = ANY (v_ids)
		RETURNING u.o::int, h.items, h.quantities, h.ttl, v_now - h.placed;
END $$;
