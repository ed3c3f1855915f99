-- The rules of holds. Lock order: the actor (an advisory lock), then item rows by name, then the hold's row. Who changes a hold has locked all its items, reads the clock in a later
-- statement, and updates the item rows, also where nothing in them changes: so nobody decides by what was so before a wait, and an old snapshot fails with 40001 instead of selling twice.

CREATE FUNCTION tenure.hold_state_text(p_state smallint) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT (ARRAY['held', 'confirmed', 'released', 'expired', 'late'])[p_state] $$;

CREATE FUNCTION tenure.hold_actor_key(p_actor text) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT hashtextextended(p_actor, 7524252311046644851) $$;

CREATE FUNCTION tenure.hold_not_found(p_what text, p_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail('TN035', format('no %s %s is known', p_what, to_json(p_name)), jsonb_build_object('what', p_what, 'name', p_name), 'Nothing was changed.');
END $$;

CREATE FUNCTION tenure.hold_over(p_id uuid, p_state smallint, p_what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail('TN034', format('hold %s is %s: %s is refused', p_id, tenure.hold_state_text(p_state), p_what),
		jsonb_build_object('id', p_id, 'state', tenure.hold_state_text(p_state), 'what', p_what), 'Nothing was changed.');
END $$;

CREATE FUNCTION tenure.hold_mismatch(p_id uuid, p_what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail('TN032', format('hold %s is known with another %s', p_id, p_what), jsonb_build_object('id', p_id, 'what', p_what), 'Nothing was changed.');
END $$;

-- Raises what was found against placing.
CREATE FUNCTION tenure.hold_refuse(p_actor text, p_refusal tenure.hold_refusal) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_refusal.why = 'item' THEN
		PERFORM tenure.hold_not_found('item', p_refusal.item);
	ELSIF p_refusal.why = 'taken' THEN
		PERFORM tenure.fail('TN030', format('%s of item %s wanted, %s free', p_refusal.wanted, to_json(p_refusal.item), p_refusal.free), jsonb_build_object('item', p_refusal.item, 'wanted', p_refusal.wanted,
			'free', p_refusal.free, 'next_us', (extract(epoch FROM p_refusal.next) * 1000000)::bigint), 'Nothing was changed.');
	END IF;
	PERFORM tenure.fail('TN031', format('actor %s has %s live %s, and may have %s', to_json(p_actor), p_refusal.free, p_refusal.why, p_refusal.wanted),
		jsonb_build_object('actor', p_actor, 'what', p_refusal.why, 'most', p_refusal.wanted, 'live', p_refusal.free), 'Nothing was changed.');
END $$;

-- How a hold stands at an instant: one whose time has passed, or whose line somebody has freed because it had, is expired.
CREATE FUNCTION tenure.hold_state(h tenure.hold, p_now timestamptz) RETURNS smallint LANGUAGE plpgsql STABLE AS $$
BEGIN
	RETURN CASE WHEN h.state = 1 AND (h.until <= p_now OR EXISTS (SELECT 1 FROM tenure.hold_line l WHERE l.item = ANY (h.items) AND l.hold = h.id AND NOT l.live)) THEN 4 ELSE h.state END;
END $$;

CREATE FUNCTION tenure.hold_tell(h tenure.hold, p_now timestamptz, p_outcome text) RETURNS tenure.hold_record LANGUAGE plpgsql STABLE AS $$
DECLARE
	v_state smallint := tenure.hold_state(h, p_now);
	r tenure.hold_record;
BEGIN
	r := (p_outcome, h.id, h.actor, h.items, h.quantities, h.ttl, tenure.hold_state_text(v_state), CASE WHEN v_state = 1 THEN h.until - p_now END, h.reference,
		p_now - h.placed, CASE WHEN v_state <> 1 THEN greatest(p_now - h.until, interval '0') END);
	RETURN r;
END $$;

-- Locks the items of an actor's hold, and then it. Items of a hold never change; an id that was forgotten and placed anew meanwhile is another hold.
CREATE FUNCTION tenure.hold_lock(p_id uuid, p_actor text) RETURNS tenure.hold LANGUAGE plpgsql AS $$
DECLARE
	v_items text[];
	v_actor text;
	h tenure.hold;
BEGIN
	PERFORM tenure.check_id('id', p_id), tenure.op_check_text('actor', p_actor, 1, 256), tenure.durable();
	SELECT o.items, o.actor INTO v_items, v_actor FROM tenure.hold o WHERE o.id = p_id;
	IF NOT FOUND THEN
		PERFORM tenure.hold_not_found('hold', p_id::text);
	ELSIF v_actor <> p_actor THEN
		PERFORM tenure.fail('TN033', format('hold %s is another actor''s', p_id), jsonb_build_object('id', p_id), 'Nothing was changed.');
	END IF;
	PERFORM 1 FROM tenure.item i WHERE i.name = ANY (v_items) ORDER BY i.name FOR NO KEY UPDATE;
	SELECT * INTO h FROM tenure.hold o WHERE o.id = p_id AND o.actor = p_actor AND o.items = v_items FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		PERFORM tenure.hold_not_found('hold', p_id::text);
	END IF;
	RETURN h;
END $$;

-- Frees what has expired of items that the caller has locked, at most 1,000 lines of each. True: there may be more.
CREATE FUNCTION tenure.hold_free(p_items text[], p_now timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	v_most bigint;
BEGIN
	WITH gone AS (
		UPDATE tenure.hold_line l SET live = false
		FROM unnest(p_items) u (name), LATERAL (SELECT n.ctid AS c FROM tenure.hold_line n WHERE n.item = u.name AND n.live AND n.until <= p_now ORDER BY n.until LIMIT 1000) x
		WHERE l.ctid = x.c RETURNING l.item, l.quantity), -- nobody else moves a line of an item that is locked
	freed AS (
		UPDATE tenure.item i SET held = i.held - g.quantity FROM (SELECT n.item, sum(n.quantity)::bigint AS quantity, count(*) AS lines FROM gone n GROUP BY n.item) g
		WHERE i.name = g.item RETURNING g.lines)
	SELECT max(f.lines) INTO v_most FROM freed f;
	RETURN coalesce(v_most >= 1000, false);
END $$;

-- Ends a hold that is not sold. The caller has locked it. until is not changed where its time ended it. live::int is for the planner: a line is found by its whole key, not among all live ones of its item.
CREATE FUNCTION tenure.hold_end(h tenure.hold, p_state smallint, p_until timestamptz, p_reference text) RETURNS tenure.hold LANGUAGE plpgsql AS $$
BEGIN
	WITH gone AS (UPDATE tenure.hold_line l SET live = false WHERE l.item = ANY (h.items) AND l.hold = h.id AND l.live::int = 1 RETURNING l.item, l.quantity)
	UPDATE tenure.item i SET held = i.held - coalesce((SELECT g.quantity FROM gone g WHERE g.item = i.name), 0) WHERE i.name = ANY (h.items);
	UPDATE tenure.hold o SET state = p_state, until = p_until, reference = p_reference WHERE o.id = h.id RETURNING * INTO h;
	RETURN h;
END $$;

-- What stands against placing lines that are summed, in the order of the names. The first of them is told: an item, a limit, what is taken.
CREATE FUNCTION tenure.hold_judge(p_actor text, p_items text[], p_quantities bigint[], p_units bigint, p_max_holds bigint, p_max_units bigint, p_now timestamptz)
RETURNS tenure.hold_refusal LANGUAGE plpgsql STABLE AS $$
DECLARE
	r tenure.hold_refusal;
	v_holds bigint;
	v_units bigint;
BEGIN
	SELECT 'item', u.item, NULL, NULL, NULL INTO r FROM unnest(p_items) WITH ORDINALITY u (item, o)
	WHERE NOT EXISTS (SELECT 1 FROM tenure.item i WHERE i.name = u.item) ORDER BY u.o LIMIT 1;
	IF FOUND THEN
		RETURN r;
	END IF;
	IF p_max_holds > 0 OR p_max_units > 0 THEN
		SELECT count(*), coalesce(sum(o.units), 0) INTO v_holds, v_units FROM tenure.hold o WHERE o.actor = p_actor AND o.state = 1 AND o.until > p_now
			AND NOT EXISTS (SELECT 1 FROM tenure.hold_line l WHERE l.item = ANY (o.items) AND l.hold = o.id AND NOT l.live);
		IF p_max_holds > 0 AND v_holds >= p_max_holds THEN
			RETURN ROW('holds', NULL, p_max_holds, v_holds, NULL)::tenure.hold_refusal;
		ELSIF p_max_units > 0 AND v_units + p_units > p_max_units THEN
			RETURN ROW('units', NULL, p_max_units, v_units, NULL)::tenure.hold_refusal;
		END IF;
	END IF;
	SELECT 'taken', u.item, u.quantity, f.free, n.until - p_now INTO r FROM unnest(p_items, p_quantities) WITH ORDINALITY u (item, quantity, o)
	JOIN tenure.item i ON i.name = u.item
	CROSS JOIN LATERAL (SELECT i.quantity - i.sold - i.held + coalesce((SELECT sum(l.quantity) FROM tenure.hold_line l WHERE l.item = i.name AND l.live AND l.until <= p_now), 0)::bigint AS free) f
	LEFT JOIN LATERAL (SELECT l.until FROM tenure.hold_line l WHERE l.item = i.name AND l.live AND l.until > p_now ORDER BY l.until LIMIT 1) n ON true
	WHERE i.quantity - i.sold - i.held < u.quantity AND f.free < u.quantity ORDER BY u.o LIMIT 1;
	RETURN r;
END $$;

-- Answers a request whose id is known.
CREATE FUNCTION tenure.hold_again(p_id uuid, p_actor text, p_items text[], p_quantities bigint[], p_ttl interval) RETURNS tenure.hold_record LANGUAGE plpgsql AS $$
DECLARE
	h tenure.hold;
	v_now timestamptz := clock_timestamp();
	v_state smallint;
BEGIN
	SELECT * INTO h FROM tenure.hold o WHERE o.id = p_id;
	IF NOT FOUND THEN
		PERFORM tenure.fail('TN006', format('hold %s was forgotten at this moment', p_id), NULL, 'Nothing was changed. Ask again.');
	ELSIF h.actor <> p_actor THEN
		PERFORM tenure.hold_mismatch(p_id, 'actor');
	ELSIF h.items <> p_items OR h.quantities <> p_quantities THEN
		PERFORM tenure.hold_mismatch(p_id, 'lines');
	ELSIF h.ttl <> p_ttl THEN
		PERFORM tenure.hold_mismatch(p_id, 'ttl');
	END IF;
	v_state := tenure.hold_state(h, v_now);
	IF v_state NOT IN (1, 2) THEN
		PERFORM tenure.hold_over(p_id, v_state, 'placing it again');
	END IF;
	PERFORM tenure.op_known_before();
	RETURN tenure.hold_tell(h, v_now, 'known');
END $$;
