-- Checks for a caller's own transaction. A refusal raises: TN010 stale, TN011 foreign, TN012 from the future; the caller rolls back.
--
-- verify, verify_bounded, enter and admit stand in fenced transactions, and to pin their search path costs as much as one of their statements. So
-- whatever the caller's is, every name, type and operator in them is qualified. What is rare is in functions that pin it. A connection keeps its
-- plans, also those made while the tables were small, when a scan would have been the cheapest.

-- Strict: the claim is the latest acquisition of its name and valid by the authority's clock, and no successor is recognised before the
-- transaction ends. It stands in the same subtransaction as the write, or in one around it. Above READ COMMITTED it must be the
-- first statement; 40001 means roll back and begin again.
CREATE FUNCTION tenure.verify(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
DECLARE
	v_session pg_catalog.uuid;
	v_hold_until pg_catalog.timestamptz;
BEGIN
	SELECT l.session, l.hold_until INTO v_session, v_hold_until FROM tenure.lease l
	WHERE l.name OPERATOR(pg_catalog.=) p_name AND l.token OPERATOR(pg_catalog.=) p_token AND l.acquisition OPERATOR(pg_catalog.=) p_acquisition
		AND l.over OPERATOR(pg_catalog.=) 0 FOR SHARE;
	-- A later statement than the lock: its snapshot, at READ COMMITTED, and its clock. An idle holder is ended with its lease; a lower bound stays.
	PERFORM CASE WHEN pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0'
			OR pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval OPERATOR(pg_catalog.>) k.remaining
		THEN pg_catalog.set_config('idle_in_transaction_session_timeout',
			(pg_catalog.ceil(pg_catalog.date_part('epoch', k.remaining) OPERATOR(pg_catalog.*) 1000)::int)::pg_catalog.text, true) END
	FROM (SELECT least(s.expires_at, v_hold_until) OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp() AS remaining FROM tenure.session s, tenure.authority a
		WHERE s.id OPERATOR(pg_catalog.=) v_session AND s.ended OPERATOR(pg_catalog.=) 0 AND s.since OPERATOR(pg_catalog.<) p_token AND a.id OPERATOR(pg_catalog.=) p_authority AND a.one
			AND (pg_catalog.current_setting('max_prepared_transactions') OPERATOR(pg_catalog.=) '0' OR a.allow_prepared)
		OFFSET 0) k -- the clock is read once
	WHERE k.remaining OPERATOR(pg_catalog.>) '0'::interval;
	IF NOT FOUND THEN
		PERFORM tenure.verify_long(p_authority, p_name, p_acquisition, p_token);
	END IF;
END $$;

-- The whole rule, for a claim that did not pass at once: it says why, or finds that it holds by now. Returns what is left.
CREATE FUNCTION tenure.verify_long(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS interval
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	l tenure.lease;
	v_left interval;
	v_how smallint;
	v_own uuid;
	v_issued bigint;
BEGIN
	PERFORM tenure.check_claim(p_authority, p_name, p_acquisition, p_token);
	-- Any version of the row: an old snapshot fails with 40001 here instead of telling what was.
	SELECT * INTO l FROM tenure.lease x WHERE x.name = p_name FOR SHARE;
	SELECT a.id, least(s.expires_at, l.hold_until) - clock_timestamp(), tenure.over_by(l.over, l.hold_until, s.ended, s.expires_at, clock_timestamp())
	INTO v_own, v_left, v_how FROM tenure.authority a LEFT JOIN tenure.session s ON s.id = l.session AND s.since < l.token
	WHERE a.allow_prepared OR current_setting('max_prepared_transactions') = '0';
	IF v_own IS NULL THEN
		PERFORM tenure.fail('TN008', 'verify refuses where transactions can be prepared: a prepared one outlives every bound', NULL,
			'Nothing was written. Set max_prepared_transactions = 0, or let the owner UPDATE tenure.authority SET allow_prepared = true.');
	ELSIF v_own <> p_authority THEN
		PERFORM tenure.foreign_claim(p_name, p_authority, p_name, v_own, p_name);
	END IF;
	v_issued := tenure.issued();
	IF p_token > v_issued THEN
		PERFORM tenure.claim_ahead(p_name, p_token, v_issued);
	ELSIF l.token > p_token THEN
		PERFORM tenure.refuse(p_name, p_name, p_token, 'superseded', l.token);
	ELSIF l.token IS NULL OR l.token < p_token OR l.acquisition <> p_acquisition THEN
		PERFORM tenure.refuse(p_name, p_name, p_token, 'not granted', NULL);
	ELSIF v_how <> 0 OR v_left <= interval '0' THEN
		-- A session that is forgotten had ended, and no release was written.
		PERFORM tenure.refuse(p_name, p_name, p_token, CASE WHEN v_how IN (1, 2) THEN 'released' WHEN v_how = 5 THEN 'revoked' WHEN v_how = 4 THEN 'superseded' ELSE 'expired' END, NULL);
	END IF;
	PERFORM tenure.bound_by('idle_in_transaction_session_timeout', v_left);
	RETURN v_left;
END $$;

-- Lowers a setting of the transaction to what is left, at least 1 ms; a lower bound stays.
CREATE FUNCTION tenure.bound_by(p_setting text, p_left interval) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF current_setting(p_setting) = '0' OR current_setting(p_setting)::interval > p_left THEN
		PERFORM set_config(p_setting, greatest(1, ceil(extract(epoch FROM p_left) * 1000)::int)::text, true);
	END IF;
END $$;

-- verify, and no later statement of the transaction may take longer than the lease has left, which it returns. It bounds each statement by
-- what was left at this moment, not their sum. Its first two statements are verify's.
CREATE FUNCTION tenure.verify_bounded(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS interval LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
DECLARE
	v_session pg_catalog.uuid;
	v_hold_until pg_catalog.timestamptz;
	v_left interval;
	v_idle pg_catalog.text;
	v_statement pg_catalog.text;
BEGIN
	SELECT l.session, l.hold_until INTO v_session, v_hold_until FROM tenure.lease l
	WHERE l.name OPERATOR(pg_catalog.=) p_name AND l.token OPERATOR(pg_catalog.=) p_token AND l.acquisition OPERATOR(pg_catalog.=) p_acquisition
		AND l.over OPERATOR(pg_catalog.=) 0 FOR SHARE;
	SELECT k.remaining,
		CASE WHEN pg_catalog.current_setting('idle_in_transaction_session_timeout') OPERATOR(pg_catalog.=) '0'
				OR pg_catalog.current_setting('idle_in_transaction_session_timeout')::interval OPERATOR(pg_catalog.>) k.remaining
			THEN pg_catalog.set_config('idle_in_transaction_session_timeout',
				(pg_catalog.ceil(pg_catalog.date_part('epoch', k.remaining) OPERATOR(pg_catalog.*) 1000)::int)::pg_catalog.text, true) END,
		CASE WHEN pg_catalog.current_setting('statement_timeout') OPERATOR(pg_catalog.=) '0'
				OR pg_catalog.current_setting('statement_timeout')::interval OPERATOR(pg_catalog.>) k.remaining
			THEN pg_catalog.set_config('statement_timeout',
				(pg_catalog.ceil(pg_catalog.date_part('epoch', k.remaining) OPERATOR(pg_catalog.*) 1000)::int)::pg_catalog.text, true) END
	INTO v_left, v_idle, v_statement
	FROM (SELECT least(s.expires_at, v_hold_until) OPERATOR(pg_catalog.-) pg_catalog.clock_timestamp() AS remaining FROM tenure.session s, tenure.authority a
		WHERE s.id OPERATOR(pg_catalog.=) v_session AND s.ended OPERATOR(pg_catalog.=) 0 AND s.since OPERATOR(pg_catalog.<) p_token AND a.id OPERATOR(pg_catalog.=) p_authority AND a.one
			AND (pg_catalog.current_setting('max_prepared_transactions') OPERATOR(pg_catalog.=) '0' OR a.allow_prepared)
		OFFSET 0) k
	WHERE k.remaining OPERATOR(pg_catalog.>) '0'::interval;
	IF NOT FOUND THEN
		v_left := tenure.verify_long(p_authority, p_name, p_acquisition, p_token);
		PERFORM tenure.bound_by('statement_timeout', v_left);
	END IF;
	RETURN v_left;
END $$;
GRANT EXECUTE ON FUNCTION tenure.verify_bounded(uuid, text, uuid, bigint) TO tenure_user;

-- A claim of this authority is to a token that it has issued.
CREATE FUNCTION tenure.check_issued(p_authority uuid, p_name text, p_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_token > tenure.issued() AND EXISTS (SELECT 1 FROM tenure.authority a WHERE a.id = p_authority) THEN
		PERFORM tenure.claim_ahead(p_name, p_token, tenure.issued());
	END IF;
END $$;
