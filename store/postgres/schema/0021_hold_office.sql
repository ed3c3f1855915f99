-- Holds that match all that is given, in the order of their ids, after one of them. Live ones alone are found among those that have not expired, not among all that there were.
CREATE FUNCTION tenure.hold_list(p_actor text DEFAULT NULL, p_item text DEFAULT NULL, p_states text[] DEFAULT NULL, p_after uuid DEFAULT NULL, p_limit int DEFAULT 100)
RETURNS SETOF tenure.hold_record LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off SET enable_seqscan = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
	v_states text[] := nullif(p_states, '{}');
	v_actor text := nullif(p_actor, '');
	v_item text := nullif(p_item, '');
	v_after uuid := coalesce(p_after, '00000000-0000-0000-0000-000000000000');
	v_holds tenure.hold[];
	h tenure.hold;
BEGIN
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 1000');
	ELSIF NOT coalesce(v_states <@ ARRAY['held', 'confirmed', 'released', 'expired', 'late'], true) THEN
		PERFORM tenure.op_invalid('state', 'want held, confirmed, released, expired or late');
	END IF;
	IF v_states <@ ARRAY['held'] AND v_actor IS NOT NULL THEN
		v_holds := ARRAY(SELECT x.o FROM (SELECT o FROM tenure.hold o WHERE o.actor = v_actor AND o.state = 1 AND o.until > v_now AND o.id > v_after AND (v_item IS NULL OR v_item = ANY (o.items)) ORDER BY o.id OFFSET 0) x
			WHERE tenure.hold_state(x.o, v_now) = 1 LIMIT p_limit);
	ELSIF v_states <@ ARRAY['held'] AND v_item IS NOT NULL THEN
		v_holds := ARRAY(SELECT x.o FROM (SELECT o FROM tenure.hold_line l JOIN tenure.hold o ON o.id = l.hold WHERE l.item = v_item AND l.live AND l.until > v_now AND l.hold > v_after ORDER BY l.hold OFFSET 0) x
			WHERE tenure.hold_state(x.o, v_now) = 1 LIMIT p_limit);
	ELSIF v_states <@ ARRAY['held'] THEN
		v_holds := ARRAY(SELECT x.o FROM (SELECT o FROM tenure.hold o WHERE o.state = 1 AND o.until > v_now AND o.id > v_after ORDER BY o.id OFFSET 0) x
			WHERE tenure.hold_state(x.o, v_now) = 1 LIMIT p_limit);
	ELSIF v_item IS NOT NULL THEN
		v_holds := ARRAY(SELECT o FROM tenure.hold_line l JOIN tenure.hold o ON o.id = l.hold
			WHERE l.item = v_item AND l.hold > v_after AND (v_actor IS NULL OR o.actor = v_actor)
			AND (v_states IS NULL OR tenure.hold_state_text(tenure.hold_state(o, v_now)) = ANY (v_states)) ORDER BY l.hold LIMIT p_limit);
	ELSIF v_actor IS NOT NULL THEN
		v_holds := ARRAY(SELECT o FROM tenure.hold o WHERE o.actor = v_actor AND o.id > v_after
			AND (v_states IS NULL OR tenure.hold_state_text(tenure.hold_state(o, v_now)) = ANY (v_states)) ORDER BY o.id LIMIT p_limit);
	ELSE
		v_holds := ARRAY(SELECT o FROM tenure.hold o WHERE o.id > v_after
			AND (v_states IS NULL OR tenure.hold_state_text(tenure.hold_state(o, v_now)) = ANY (v_states)) ORDER BY o.id LIMIT p_limit);
	END IF;
	FOREACH h IN ARRAY v_holds LOOP
		RETURN NEXT tenure.hold_tell(h, v_now, 'there');
	END LOOP;
END $$;

-- Forgets holds that have been over for at least p_age, those first that have been for longest, and returns how many. What is sold stays sold. Holds whose items are locked at this moment are left.
CREATE FUNCTION tenure.hold_prune(p_age interval, p_limit int DEFAULT 1000)
RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_before timestamptz;
	v_ids uuid[];
	v_items text[];
	v_locked text[];
	v_done int;
BEGIN
	PERFORM tenure.op_check_delay('age', p_age, '1 hour', '3660 days');
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 10000');
	END IF;
	PERFORM tenure.read_committed('hold_prune'), tenure.durable();
	v_before := clock_timestamp() - p_age;
	v_ids := ARRAY(SELECT o.id FROM tenure.hold o WHERE o.until <= v_before ORDER BY o.until, o.id LIMIT p_limit);
	v_items := ARRAY(SELECT DISTINCT l.item FROM unnest(v_ids) u (id) JOIN tenure.hold o ON o.id = u.id JOIN tenure.hold_line l ON l.item = ANY (o.items) AND l.hold = o.id WHERE o.state = 1 AND l.live::int = 1);
	SELECT array_agg(x.name) INTO v_locked FROM (SELECT i.name FROM tenure.item i WHERE i.name = ANY (v_items) ORDER BY i.name FOR NO KEY UPDATE SKIP LOCKED) x;
	-- What expired and nobody has noticed is freed first.
	WITH gone AS (
		UPDATE tenure.hold_line l SET live = false FROM unnest(v_ids) u (id) JOIN tenure.hold o ON o.id = u.id
		WHERE l.hold = o.id AND l.item = ANY (o.items) AND l.item = ANY (v_locked) AND l.live::int = 1 AND l.until <= v_before RETURNING l.item, l.quantity)
	UPDATE tenure.item i SET held = i.held - g.quantity FROM (SELECT n.item, sum(n.quantity)::bigint AS quantity FROM gone n GROUP BY n.item) g WHERE i.name = g.item;
	SELECT array_agg(x.id) INTO v_ids FROM (
		SELECT o.id FROM unnest(v_ids) u (id) JOIN tenure.hold o ON o.id = u.id
		WHERE o.until <= v_before AND NOT EXISTS (SELECT 1 FROM tenure.hold_line l WHERE l.item = ANY (o.items) AND l.hold = o.id AND l.live::int = 1) FOR UPDATE OF o SKIP LOCKED) x;
	DELETE FROM tenure.hold_line l USING unnest(v_ids) u (id) JOIN tenure.hold o ON o.id = u.id WHERE l.item = ANY (o.items) AND l.hold = o.id;
	DELETE FROM tenure.hold o USING unnest(v_ids) u (id) WHERE o.id = u.id;
	GET DIAGNOSTICS v_done = ROW_COUNT;
	RETURN v_done;
END $$;
