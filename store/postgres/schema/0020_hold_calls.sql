-- Holds for everybody. What changes nothing is an error: invalid input (TN004), taken (TN030), a limit (TN031), an id or reference in use for something else (TN032), another actor's
-- hold (TN033), one that is over (TN034), an unknown hold or item (TN035). A verdict that is told is a row, so that it is committed with the answer.

-- All lines for the actor until p_ttl from now, or none. Lines of one item are summed. outcome: placed; known (it was before; the record says how it stands). It decides
-- by one look without locks whether it is refused; otherwise it waits for transactions that hold its items, and with a limit for those that are placing for the same actor.
CREATE FUNCTION tenure.hold_place(p_id uuid, p_actor text, p_items text[], p_quantities bigint[], p_ttl interval, p_max_holds bigint DEFAULT 0, p_max_units bigint DEFAULT 0)
RETURNS tenure.hold_record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_ttl interval := make_interval(secs => extract(epoch FROM p_ttl)::double precision);
	v_items text[];
	v_quantities bigint[];
	v_units bigint;
	v_now timestamptz;
	j tenure.hold_refusal;
	h tenure.hold;
BEGIN
	PERFORM tenure.hold_check_lines(p_items, p_quantities), tenure.check_id('id', p_id), tenure.op_check_text('actor', p_actor, 1, 256),
		tenure.op_check_delay('ttl', v_ttl, '1 millisecond', '31 days');
	IF p_max_holds IS NULL OR p_max_holds < 0 OR p_max_units IS NULL OR p_max_units < 0 THEN
		PERFORM tenure.op_invalid('limits', 'want 0 or more');
	END IF;
	SELECT array_agg(s.item ORDER BY s.item COLLATE "C"), array_agg(s.quantity ORDER BY s.item COLLATE "C"), sum(s.quantity) INTO v_items, v_quantities, v_units
	FROM (SELECT u.item, sum(u.quantity)::bigint AS quantity FROM unnest(p_items, p_quantities) u (item, quantity) GROUP BY u.item) s;
	IF 1099511627776 < ANY (v_quantities) THEN
		PERFORM tenure.op_invalid('quantity', 'more than 1099511627776 of one item');
	END IF;
	PERFORM tenure.read_committed('hold_place'), tenure.durable();
	FOR v_locked IN 0..1 LOOP
		IF v_locked = 1 THEN
			IF p_max_holds > 0 OR p_max_units > 0 THEN
				PERFORM pg_advisory_xact_lock(tenure.hold_actor_key(p_actor));
			END IF;
			PERFORM 1 FROM tenure.item i WHERE i.name = ANY (v_items) ORDER BY i.name FOR NO KEY UPDATE;
		END IF;
		v_now := clock_timestamp(); -- in a later statement than the locks
		j := tenure.hold_judge(p_actor, v_items, v_quantities, v_units, p_max_holds, p_max_units, v_now);
		IF EXISTS (SELECT 1 FROM tenure.hold o WHERE o.id = p_id) THEN -- asked later than what is free: what is taken may be by this very hold
			RETURN tenure.hold_again(p_id, p_actor, v_items, v_quantities, v_ttl);
		ELSIF j.why IS NOT NULL THEN
			PERFORM tenure.hold_refuse(p_actor, j);
		END IF;
	END LOOP;
	INSERT INTO tenure.hold AS o (id, actor, units, ttl, placed, until, items, quantities) VALUES (p_id, p_actor, v_units, v_ttl, v_now, v_now + v_ttl, v_items, v_quantities)
	ON CONFLICT (id) DO NOTHING RETURNING * INTO h;
	IF NOT FOUND THEN -- by a transaction that was waited for, with other items
		RETURN tenure.hold_again(p_id, p_actor, v_items, v_quantities, v_ttl);
	END IF;
	LOOP
		EXIT WHEN NOT tenure.hold_free(v_items, v_now);
		EXIT WHEN NOT EXISTS (SELECT 1 FROM unnest(v_items, v_quantities) u (item, quantity) JOIN tenure.item i ON i.name = u.item WHERE i.quantity - i.sold - i.held < u.quantity);
	END LOOP;
	UPDATE tenure.item i SET held = i.held + u.quantity FROM unnest(v_items, v_quantities) u (item, quantity) WHERE i.name = u.item;
	INSERT INTO tenure.hold_line (item, hold, quantity, until) SELECT u.item, p_id, u.quantity, h.until FROM unnest(v_items, v_quantities) u (item, quantity);
	RETURN tenure.hold_tell(h, v_now, 'placed');
END $$;

CREATE FUNCTION tenure.hold_check_lines(p_items text[], p_quantities bigint[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_items IS NULL OR p_quantities IS NULL OR cardinality(p_items) NOT BETWEEN 1 AND 128 OR cardinality(p_quantities) <> cardinality(p_items) OR array_ndims(p_items) <> 1 OR array_ndims(p_quantities) <> 1 THEN
		PERFORM tenure.op_invalid('lines', 'want 1 to 128, each an item and a quantity');
	END IF;
	PERFORM tenure.op_check_text('item', u.item, 1, 256) FROM unnest(p_items) u (item);
	IF EXISTS (SELECT 1 FROM unnest(p_quantities) u (quantity) WHERE (u.quantity BETWEEN 1 AND 1099511627776) IS NOT TRUE) THEN
		PERFORM tenure.op_invalid('quantity', 'want 1 to 1099511627776');
	END IF;
END $$;

-- Lets a live hold expire no earlier than p_ttl from now. outcome: extended; expired, which is not extended any more.
CREATE FUNCTION tenure.hold_extend(p_id uuid, p_actor text, p_ttl interval)
RETURNS tenure.hold_record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	v_ttl interval := make_interval(secs => extract(epoch FROM p_ttl)::double precision);
	h tenure.hold;
	v_now timestamptz;
	v_state smallint;
BEGIN
	PERFORM tenure.op_check_delay('ttl', v_ttl, '1 millisecond', '31 days');
	h := tenure.hold_lock(p_id, p_actor);
	v_now := clock_timestamp(); -- in a later statement than the locks
	v_state := tenure.hold_state(h, v_now);
	IF v_state = 4 THEN
		IF h.state = 1 THEN
			h := tenure.hold_end(h, 4::smallint, h.until, NULL);
		END IF;
		RETURN tenure.hold_tell(h, v_now, 'expired');
	ELSIF v_state <> 1 THEN
		PERFORM tenure.hold_over(p_id, v_state, 'extending it');
	END IF;
	UPDATE tenure.hold o SET until = greatest(o.until, v_now + v_ttl) WHERE o.id = p_id RETURNING * INTO h;
	UPDATE tenure.hold_line l SET until = h.until WHERE l.item = ANY (h.items) AND l.hold = p_id;
	UPDATE tenure.item i SET held = i.held WHERE i.name = ANY (h.items);
	RETURN tenure.hold_tell(h, v_now, 'extended');
END $$;

-- Sells what is held, under a reference of the caller's, once: call it in the transaction of the sale. outcome: confirmed; late: the hold had expired, nothing is sold, and the reference is recorded, so that
-- what was paid can be given back: look at it, and commit; known: it was the one or the other before, under this reference, as state says. With p_grace, a hold that
-- has expired for less than that is confirmed where all of it is still free.
CREATE FUNCTION tenure.hold_confirm(p_id uuid, p_actor text, p_reference text, p_grace interval DEFAULT '0')
RETURNS tenure.hold_record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	h tenure.hold;
	v_now timestamptz;
	v_state smallint;
BEGIN
	PERFORM tenure.op_check_text('reference', p_reference, 1, 512), tenure.op_check_delay('grace', p_grace, '0', '31 days');
	h := tenure.hold_lock(p_id, p_actor);
	v_now := clock_timestamp(); -- in a later statement than the locks
	v_state := tenure.hold_state(h, v_now);
	IF v_state IN (2, 5) THEN
		IF h.reference <> p_reference THEN
			PERFORM tenure.hold_mismatch(p_id, 'reference');
		END IF;
		PERFORM tenure.op_known_before();
		RETURN tenure.hold_tell(h, v_now, 'known');
	ELSIF v_state = 3 THEN
		PERFORM tenure.hold_over(p_id, v_state, 'confirming it');
	ELSIF v_state = 4 THEN
		IF greatest(v_now - h.until, interval '0') >= p_grace OR NOT tenure.hold_regain(h, v_now) THEN
			RETURN tenure.hold_tell(tenure.hold_end(h, 5::smallint, v_now, p_reference), v_now, 'late');
		END IF;
	END IF;
	UPDATE tenure.item i SET sold = i.sold + u.quantity, held = i.held - u.quantity FROM unnest(h.items, h.quantities) u (item, quantity) WHERE i.name = u.item;
	UPDATE tenure.hold_line l SET live = false, sole = (SELECT i.quantity = 1 FROM tenure.item i WHERE i.name = l.item) WHERE l.item = ANY (h.items) AND l.hold = p_id;
	UPDATE tenure.hold o SET state = 2, until = v_now, reference = p_reference WHERE o.id = p_id AND o.actor = p_actor RETURNING * INTO h;
	RETURN tenure.hold_tell(h, v_now, 'confirmed');
END $$;

-- Counts an expired hold as held again if all of it is free. The caller has locked its items.
CREATE FUNCTION tenure.hold_regain(h tenure.hold, p_now timestamptz) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	WHILE tenure.hold_free(h.items, p_now) LOOP END LOOP;
	h := tenure.hold_end(h, 4::smallint, h.until, NULL); -- also where the clock has stood back since a line was freed
	IF EXISTS (SELECT 1 FROM unnest(h.items, h.quantities) u (item, quantity) JOIN tenure.item i ON i.name = u.item WHERE i.quantity - i.sold - i.held < u.quantity) THEN
		RETURN false;
	END IF;
	UPDATE tenure.item i SET held = i.held + u.quantity FROM unnest(h.items, h.quantities) u (item, quantity) WHERE i.name = u.item;
	RETURN true;
END $$;

-- Ends a live hold. outcome: released; expired; known (it was released before).
CREATE FUNCTION tenure.hold_release(p_id uuid, p_actor text)
RETURNS tenure.hold_record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
	h tenure.hold := tenure.hold_lock(p_id, p_actor);
	v_now timestamptz;
	v_state smallint;
BEGIN
	v_now := clock_timestamp(); -- in a later statement than the locks
	v_state := tenure.hold_state(h, v_now);
	IF v_state IN (2, 5) THEN
		PERFORM tenure.hold_over(p_id, v_state, 'releasing it');
	ELSIF v_state = 3 THEN
		PERFORM tenure.op_known_before();
	ELSIF h.state = 1 THEN
		h := tenure.hold_end(h, CASE WHEN v_state = 1 THEN 3 ELSE 4 END::smallint, CASE WHEN v_state = 1 THEN v_now ELSE h.until END, NULL);
	END IF;
	RETURN tenure.hold_tell(h, v_now, CASE v_state WHEN 1 THEN 'released' WHEN 3 THEN 'known' ELSE 'expired' END);
END $$;

-- outcome: there. Reads only.
CREATE FUNCTION tenure.hold_get(p_id uuid)
RETURNS tenure.hold_record LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	h tenure.hold;
BEGIN
	SELECT * INTO h FROM tenure.hold o WHERE o.id = p_id;
	IF NOT FOUND THEN
		PERFORM tenure.hold_not_found('hold', p_id::text);
	END IF;
	RETURN tenure.hold_tell(h, clock_timestamp(), 'there');
END $$;

-- Sets how much there is of each item, all or none. New ones begin with nothing sold. TN030 where more is sold, or held, than there would be: wanted is that much, free the new quantity.
CREATE FUNCTION tenure.item_stock(p_items text[], p_quantities bigint[])
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_now timestamptz;
	j tenure.hold_refusal;
BEGIN
	IF p_items IS NULL OR p_quantities IS NULL OR cardinality(p_items) NOT BETWEEN 1 AND 1000 OR cardinality(p_quantities) <> cardinality(p_items) OR array_ndims(p_items) <> 1 OR array_ndims(p_quantities) <> 1
		OR cardinality(p_items) <> (SELECT count(DISTINCT u.name) FROM unnest(p_items) u (name)) THEN
		PERFORM tenure.op_invalid('items', 'want 1 to 1000 different ones, each with a quantity');
	END IF;
	PERFORM tenure.op_check_text('item', u.item, 1, 256) FROM unnest(p_items) u (item);
	IF EXISTS (SELECT 1 FROM unnest(p_quantities) u (quantity) WHERE (u.quantity BETWEEN 0 AND 1099511627776) IS NOT TRUE) THEN
		PERFORM tenure.op_invalid('quantity', 'want 0 to 1099511627776');
	END IF;
	PERFORM tenure.read_committed('item_stock'), tenure.durable();
	INSERT INTO tenure.item (name, quantity) SELECT u.item, u.quantity FROM unnest(p_items, p_quantities) u (item, quantity) ORDER BY u.item COLLATE "C" ON CONFLICT (name) DO NOTHING;
	PERFORM 1 FROM tenure.item i WHERE i.name = ANY (p_items) ORDER BY i.name FOR NO KEY UPDATE;
	v_now := clock_timestamp(); -- in a later statement than the locks
	WHILE tenure.hold_free(p_items, v_now) LOOP END LOOP;
	SELECT 'taken', i.name, i.sold + i.held, u.quantity, (SELECT min(l.until) FROM tenure.hold_line l WHERE l.item = i.name AND l.live) - v_now INTO j
	FROM unnest(p_items, p_quantities) u (item, quantity) JOIN tenure.item i ON i.name = u.item WHERE i.sold + i.held > u.quantity ORDER BY i.name LIMIT 1;
	IF FOUND THEN
		PERFORM tenure.hold_refuse(NULL, j);
	END IF;
	UPDATE tenure.item i SET quantity = u.quantity FROM unnest(p_items, p_quantities) u (item, quantity) WHERE i.name = u.item;
END $$;

-- What is known of items that start with a prefix and come after another, in byte order. held: by holds that are live.
CREATE FUNCTION tenure.items(p_prefix text DEFAULT '', p_after text DEFAULT '', p_limit int DEFAULT 100)
RETURNS TABLE (name text, quantity bigint, sold bigint, held bigint) LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
BEGIN
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 1000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 1000');
	END IF;
	RETURN QUERY SELECT i.name::text, i.quantity, i.sold, i.held - coalesce((SELECT sum(l.quantity) FROM tenure.hold_line l WHERE l.item = i.name AND l.live AND l.until <= v_now), 0)::bigint
		FROM tenure.item i WHERE i.name > p_after AND i.name >= p_prefix AND i.name <= p_prefix || repeat(U&'\+10FFFF', 64) AND starts_with(i.name, p_prefix)
		ORDER BY i.name LIMIT p_limit;
END $$;
