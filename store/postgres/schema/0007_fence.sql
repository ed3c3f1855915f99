-- Checks for a caller's own transaction. A refusal raises: TN010 stale, TN011 foreign, TN012 from the future; the caller rolls back.

-- Strict: the claim is the latest acquisition of its name and valid by the authority's clock, and no successor is recognised before the
-- transaction ends. Above READ COMMITTED it must be the first statement; 40001 means roll back and begin again.
CREATE FUNCTION tenure.verify(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
DECLARE
	v_token bigint;
	v_acquisition uuid;
	v_session uuid;
	v_over smallint;
	v_hold_until timestamptz;
	v_left interval;
	v_how smallint;
	v_own uuid;
	v_issued bigint;
	v_idle interval;
BEGIN
	SELECT l.token, l.acquisition, l.session, l.over, l.hold_until INTO v_token, v_acquisition, v_session, v_over, v_hold_until
	FROM tenure.lease l WHERE l.name = p_name FOR SHARE;
	-- A later statement than the lock: its snapshot, at READ COMMITTED, and its clock.
	SELECT a.id, least(s.expires_at, v_hold_until) - clock_timestamp(), tenure.over_by(v_over, v_hold_until, s.ended, s.expires_at, clock_timestamp())
	INTO v_own, v_left, v_how FROM tenure.authority a LEFT JOIN tenure.session s ON s.id = v_session
	WHERE a.allow_prepared OR current_setting('max_prepared_transactions') = '0';
	IF v_own IS NULL THEN
		PERFORM tenure.fail('TN008', 'verify refuses where transactions can be prepared: a prepared one outlives every bound', NULL,
			'Nothing was written. Set max_prepared_transactions = 0, or let the owner UPDATE tenure.authority SET allow_prepared = true.');
	END IF;
	IF v_own = p_authority AND v_token = p_token AND v_acquisition = p_acquisition AND v_how = 0 AND v_left > interval '0' THEN
		-- An idle holder is ended with its lease. A lower bound stays.
		v_idle := current_setting('idle_in_transaction_session_timeout')::interval;
		IF v_idle = interval '0' OR v_idle > v_left THEN
			PERFORM set_config('idle_in_transaction_session_timeout', greatest(1, least(2147483647, ceil(extract(epoch FROM v_left) * 1000)))::bigint::text, true);
		END IF;
		RETURN;
	END IF;
	PERFORM tenure.check_claim(p_authority, p_name, p_acquisition, p_token);
	IF v_own <> p_authority THEN
		PERFORM tenure.foreign_claim(p_name, p_authority, p_name, v_own, p_name);
	END IF;
	v_issued := tenure.issued();
	IF p_token > v_issued THEN
		PERFORM tenure.claim_ahead(p_name, p_token, v_issued);
	ELSIF v_token > p_token THEN
		PERFORM tenure.refuse(p_name, p_name, p_token, 'superseded', v_token);
	ELSIF v_token IS NULL OR v_token < p_token OR v_acquisition <> p_acquisition THEN
		PERFORM tenure.refuse(p_name, p_name, p_token, 'not granted', NULL);
	END IF;
	PERFORM tenure.refuse(p_name, p_name, p_token,
		CASE WHEN v_how IN (1, 2) THEN 'released' WHEN v_how = 5 THEN 'revoked' WHEN v_how = 4 THEN 'superseded' WHEN v_how = 6 THEN 'not granted' ELSE 'expired' END, NULL);
END $$;

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
-- it writes calls enter first, as the first statement of its transaction; admit fences a blind write.
CREATE FUNCTION tenure.enter(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
	UPDATE tenure.mark m SET token = p_token WHERE m.resource = p_resource AND m.authority = p_authority AND m.name = p_name AND m.token <= p_token AND m.token > 0
		AND (p_token <= (SELECT last_value FROM tenure.token) OR p_authority <> (SELECT a.id FROM tenure.authority a));
	IF NOT FOUND THEN
		PERFORM tenure.first_entry(p_resource, p_authority, p_name, p_acquisition, p_token);
	END IF;
END $$;

CREATE FUNCTION tenure.admit(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
BEGIN
	UPDATE tenure.mark m SET token = p_token WHERE m.resource = p_resource AND m.authority = p_authority AND m.name = p_name AND m.token <= p_token AND m.token > 0
		AND (p_token <= (SELECT last_value FROM tenure.token) OR p_authority <> (SELECT a.id FROM tenure.authority a));
	IF NOT FOUND THEN
		PERFORM tenure.first_entry(p_resource, p_authority, p_name, p_acquisition, p_token);
	END IF;
END $$;

-- For a claim that moved no mark: nothing has entered yet, or the claim is stale, foreign or from the future.
CREATE FUNCTION tenure.first_entry(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	m tenure.mark;
	v_own uuid;
BEGIN
	PERFORM tenure.check_claim(p_authority, p_name, p_acquisition, p_token), tenure.check_resource(p_resource);
	-- Two first entries of one resource must not both see none: they queue for the resource until the other's transaction ends.
	PERFORM pg_advisory_xact_lock(hashtextextended('tenure.mark:' || p_resource, 0));
	SELECT * INTO m FROM tenure.mark x WHERE x.resource = p_resource ORDER BY (x.authority = p_authority AND x.name = p_name) DESC, x.authority, x.name LIMIT 1;
	IF FOUND AND (m.authority <> p_authority OR m.name <> p_name) THEN
		PERFORM tenure.foreign_claim(p_resource, p_authority, p_name, m.authority, m.name);
	ELSIF FOUND AND m.token > p_token THEN
		PERFORM tenure.refuse(p_resource, p_name, p_token, 'superseded', m.token);
	END IF;
	SELECT a.id INTO v_own FROM tenure.authority a;
	IF v_own = p_authority AND p_token > tenure.issued() THEN
		PERFORM tenure.claim_ahead(p_name, p_token, tenure.issued());
	END IF;
	INSERT INTO tenure.mark AS x (resource, authority, name, token) VALUES (p_resource, p_authority, p_name, p_token)
	ON CONFLICT (resource, authority, name) DO UPDATE SET token = excluded.token WHERE x.token <= excluded.token;
	IF NOT FOUND THEN
		PERFORM tenure.refuse(p_resource, p_name, p_token, 'superseded', (SELECT x.token FROM tenure.mark x WHERE x.resource = p_resource AND x.authority = p_authority AND x.name = p_name));
	END IF;
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
