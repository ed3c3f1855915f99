-- For the Go store: calls of holds that wait no longer than they say for what somebody's open transaction has locked. Whoever calls the functions otherwise sets lock_timeout.

-- Returns p_what, and bounds each wait for a lock until the transaction ends (55P03 then). A lower bound stays. As an argument of a call it is evaluated before that.
CREATE FUNCTION tenure.hold_within(p_what anyelement, p_wait_ms int) RETURNS anyelement LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_have int := (extract(epoch FROM current_setting('lock_timeout')::interval) * 1000)::int;
BEGIN
	IF p_wait_ms > 0 AND (v_have = 0 OR v_have > p_wait_ms) THEN
		PERFORM set_config('lock_timeout', p_wait_ms::text, true);
	END IF;
	RETURN p_what;
END $$;

-- The first item, by name, that somebody else has locked at this moment: of those given, or else of the hold. NULL: none is.
CREATE FUNCTION tenure.hold_busy(p_id uuid, p_items text[] DEFAULT NULL)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_items text[] := coalesce(p_items, (SELECT o.items FROM tenure.hold o WHERE o.id = p_id));
	v_free text[];
BEGIN
	SELECT coalesce(array_agg(x.name), '{}') INTO v_free FROM (SELECT i.name FROM tenure.item i WHERE i.name = ANY (v_items) FOR SHARE SKIP LOCKED) x;
	RETURN (SELECT min(i.name) FROM tenure.item i WHERE i.name = ANY (v_items) AND i.name <> ALL (v_free));
END $$;

REVOKE ALL ON FUNCTION tenure.hold_within(anyelement, int), tenure.hold_busy(uuid, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenure.hold_within(anyelement, int), tenure.hold_busy(uuid, text[]) TO tenure_user;
