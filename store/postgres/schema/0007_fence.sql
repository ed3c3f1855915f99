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

CREATE FUNCTION tenure.check_claim(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.check_name(p_name), tenure.check_id('authority', p_authority), tenure.check_id('acquisition', p_acquisition);
	IF p_token IS NULL OR p_token <= 0 THEN
		PERFORM tenure.fail('TN004', 'invalid claim: the token is not positive', jsonb_build_object('field', 'token'), 'Nothing was written.');
	END IF;
END $$;

CREATE FUNCTION tenure.refuse(p_resource text, p_name text, p_token bigint, p_why text, p_newer bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail('TN010', format('%s refused token %s of lease %s: %s%s', quote_ident(p_resource), p_token, quote_ident(p_name), p_why, coalesce(', newer token ' || p_newer, '')),
		jsonb_build_object('resource', p_resource, 'name', p_name, 'token', p_token::text, 'why', p_why, 'newer', p_newer::text),
		'Nothing was written. Roll back, and acquire the lease again before writing.');
END $$;

CREATE FUNCTION tenure.foreign_claim(p_resource text, p_authority uuid, p_name text, p_of uuid, p_guard text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail('TN011', format('%s is guarded by lease %s of authority %s; the claim is to %s of authority %s', quote_ident(p_resource), quote_ident(p_guard), p_of, quote_ident(p_name), p_authority),
		jsonb_build_object('resource', p_resource, 'authority', p_of, 'name', p_guard),
		'Nothing was written. Check that both sides use the same store, claim the guarding name, or admit this one with tenure.allow.');
END $$;

CREATE FUNCTION tenure.claim_ahead(p_name text, p_token bigint, p_issued bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.fail('TN012', format('token %s of lease %s is above %s, the highest that this authority knows it issued', p_token, quote_ident(p_name), p_issued),
		jsonb_build_object('name', p_name, 'token', p_token::text, 'issued', p_issued::text),
		'Nothing was written. The database was probably restored or promoted without its last commits: call tenure.report_ahead, then tenure.epoch_raise above it.');
END $$;

-- High-water: refuses a token lower than the highest accepted, and writes the mark, also when it is equal. A holder that reads before
-- it writes calls enter first, as a statement of its own and the first of its transaction; admit fences a blind write, and may
-- stand in the statement of that write. Above READ COMMITTED, 40001 means that somebody else has entered since: roll back and begin again.
CREATE FUNCTION tenure.enter(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
BEGIN
	-- An equal token is written too. It was looked at when it came first.
	UPDATE tenure.mark m SET token = p_token WHERE m.resource OPERATOR(pg_catalog.=) p_resource AND m.authority OPERATOR(pg_catalog.=) p_authority
		AND m.name OPERATOR(pg_catalog.=) p_name AND m.token OPERATOR(pg_catalog.=) p_token AND m.token OPERATOR(pg_catalog.>) 0;
	IF NOT FOUND THEN
		PERFORM tenure.raise_mark(p_resource, p_authority, p_name, p_acquisition, p_token);
	END IF;
END $$;

CREATE FUNCTION tenure.admit(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
BEGIN
	-- An equal token is written too. It was looked at when it came first.
	UPDATE tenure.mark m SET token = p_token WHERE m.resource OPERATOR(pg_catalog.=) p_resource AND m.authority OPERATOR(pg_catalog.=) p_authority
		AND m.name OPERATOR(pg_catalog.=) p_name AND m.token OPERATOR(pg_catalog.=) p_token AND m.token OPERATOR(pg_catalog.>) 0;
	IF NOT FOUND THEN
		PERFORM tenure.raise_mark(p_resource, p_authority, p_name, p_acquisition, p_token);
	END IF;
END $$;

-- Which name came first, and so guards a resource, is told by an index that two first entries collide in, whatever their snapshots are.
ALTER TABLE tenure.mark ADD COLUMN bound boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX mark_bound ON tenure.mark (resource) WHERE bound;

-- For a claim that is not at the mark: it is higher, nothing has entered yet, or it is stale, foreign or from the future.
CREATE FUNCTION tenure.raise_mark(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	m tenure.mark;
BEGIN
	PERFORM tenure.check_claim(p_authority, p_name, p_acquisition, p_token), tenure.check_resource(p_resource);
	IF p_token > tenure.issued() AND EXISTS (SELECT 1 FROM tenure.authority a WHERE a.id = p_authority) THEN
		PERFORM tenure.claim_ahead(p_name, p_token, tenure.issued());
	END IF;
	FOR i IN 1..3 LOOP -- each wait below ends with a row that the next look sees
		SELECT * INTO m FROM tenure.mark x WHERE x.resource = p_resource
		ORDER BY (x.authority = p_authority AND x.name = p_name) DESC, x.bound DESC, x.authority, x.name LIMIT 1;
		IF NOT FOUND THEN
			INSERT INTO tenure.mark (resource, authority, name, token, bound) VALUES (p_resource, p_authority, p_name, p_token, true) ON CONFLICT DO NOTHING;
		ELSIF m.authority <> p_authority OR m.name <> p_name THEN
			PERFORM tenure.foreign_claim(p_resource, p_authority, p_name, m.authority, m.name);
		ELSIF m.token > p_token THEN
			PERFORM tenure.refuse(p_resource, p_name, p_token, 'superseded', m.token);
		ELSE
			UPDATE tenure.mark x SET token = p_token WHERE x.resource = p_resource AND x.authority = p_authority AND x.name = p_name AND x.token <= p_token;
		END IF;
		IF FOUND THEN
			RETURN;
		END IF;
	END LOOP;
	RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the mark changed under every attempt', HINT = 'Nothing was written. Roll back and begin again.';
END $$;

CREATE FUNCTION tenure.check_resource(p_resource text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF p_resource IS NULL OR p_resource = '' OR octet_length(p_resource) > 512 THEN
		PERFORM tenure.fail('TN004', 'invalid resource: want 1 to 512 bytes', jsonb_build_object('field', 'resource'), 'Nothing was written.');
	END IF;
END $$;

-- Admits another authority or name for a resource, beside the one that entered first. Allowing again changes nothing.
CREATE FUNCTION tenure.allow(p_resource text, p_authority uuid, p_name text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	PERFORM tenure.check_resource(p_resource), tenure.check_name(p_name), tenure.check_id('authority', p_authority);
	INSERT INTO tenure.mark (resource, authority, name, token) VALUES (p_resource, p_authority, p_name, 0) ON CONFLICT (resource, authority, name) DO NOTHING;
END $$;
