-- Claims that a transaction presents, for tables that refuse whoever has none; see both_5_protect.sql. What was presented is a setting of the transaction: it is gone
-- with it, a savepoint that is rolled back takes it back, and whoever sets it by hand has proved nothing, because it is verified again at each write.

-- Verifies a claim and presents it, beside those that were presented before. Its search path is not pinned, as in verify.
CREATE FUNCTION tenure.present(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_presented pg_catalog.jsonb;
BEGIN
	PERFORM tenure.verify(p_authority, p_name, p_acquisition, p_token);
	v_presented := pg_catalog.jsonb_build_object(p_name, pg_catalog.concat(p_acquisition, ':', p_token));
	IF pg_catalog.current_setting('tenure.presented', true) OPERATOR(pg_catalog.<>) '' THEN
		v_presented := pg_catalog.current_setting('tenure.presented')::pg_catalog.jsonb OPERATOR(pg_catalog.||) v_presented;
	END IF;
	PERFORM pg_catalog.set_config('tenure.presented', v_presented::pg_catalog.text, true);
END $$;

-- Verifies the claims of one authority, all or none, and presents them, beside those that were presented before. Several in one call are locked
-- in the order of their names; who calls twice keeps to that order, else two transactions may deadlock. At READ COMMITTED it stands before the writes,
-- above that it is the first statement of the transaction. As verify does, it ends the connection when it stays idle for longer than the leases have left.
CREATE FUNCTION tenure.present(p_authority uuid, p_names text[], p_acquisitions uuid[], p_tokens bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_sessions uuid[];
	v_tokens bigint[];
	v_hold_until timestamptz;
	v_found bigint;
	v_live bigint;
	v_left interval;
	v_presented jsonb;
BEGIN
	IF coalesce(cardinality(p_names), 0) NOT BETWEEN 1 AND 4096 OR cardinality(p_acquisitions) IS DISTINCT FROM cardinality(p_names) OR cardinality(p_tokens) IS DISTINCT FROM cardinality(p_names)
		OR array_position(p_names, NULL) > 0 THEN
		PERFORM tenure.fail('TN004', 'invalid claims: want 1 to 4096', '{"field": "claims"}', 'Nothing was presented.');
	END IF;
	SELECT sum(k.n), array_agg(k.session), array_agg(k.token), min(k.hold_until) INTO v_found, v_sessions, v_tokens, v_hold_until
	FROM (SELECT x.session, count(*) AS n, min(x.token) AS token, min(x.hold_until) AS hold_until
		FROM (SELECT l.session, l.token, l.hold_until FROM unnest(p_names, p_acquisitions, p_tokens) u (name, acquisition, token) JOIN tenure.lease l ON l.name = u.name
			WHERE l.acquisition = u.acquisition AND l.token = u.token AND l.over = 0 ORDER BY l.name FOR SHARE OF l) x
		GROUP BY x.session) k;
	-- A later statement than the locks: its snapshot, at READ COMMITTED, and its clock.
	SELECT count(*), least(min(s.expires_at), v_hold_until) - clock_timestamp() INTO v_live, v_left
	FROM unnest(v_sessions, v_tokens) u (id, token) JOIN tenure.session s ON s.id = u.id JOIN tenure.authority a ON a.one
	WHERE s.ended = 0 AND s.since < u.token AND a.id = p_authority AND (a.allow_prepared OR current_setting('max_prepared_transactions') = '0');
	IF v_found IS DISTINCT FROM cardinality(p_names) OR v_live <> cardinality(v_sessions) OR v_left <= interval '0' THEN
		-- The first that does not pass says why; one that was renewed at this moment does.
		SELECT min(tenure.verify_long(p_authority, u.name, u.acquisition, u.token)) INTO v_left
		FROM (SELECT * FROM unnest(p_names, p_acquisitions, p_tokens) x (name, acquisition, token) ORDER BY x.name COLLATE "C") u;
	ELSE
		PERFORM tenure.bound_by('idle_in_transaction_session_timeout', v_left);
	END IF;
	v_presented := jsonb_object(p_names, ARRAY(SELECT concat(u.acquisition, ':', u.token) FROM unnest(p_acquisitions, p_tokens) u (acquisition, token)));
	IF current_setting('tenure.presented', true) <> '' THEN
		v_presented := current_setting('tenure.presented')::jsonb || v_presented;
	END IF;
	PERFORM set_config('tenure.presented', v_presented::text, true);
END $$;

-- Called by the triggers of protected tables, for whoever writes there: passes if the transaction has presented a claim to each of the names, and each
-- of them holds. Each write verifies anew: the setting may be forged. What was presented is locked, so nothing is waited for here. Its search path is not pinned, as in verify.
CREATE FUNCTION tenure.guard(p_table oid, p_names text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
DECLARE
	v_presented pg_catalog.jsonb := CASE WHEN pg_catalog.current_setting('tenure.presented', true) OPERATOR(pg_catalog.<>) '' THEN pg_catalog.current_setting('tenure.presented')::pg_catalog.jsonb END;
	v_session pg_catalog.uuid;
	v_token pg_catalog.int8;
	v_hold_until pg_catalog.timestamptz;
BEGIN
	IF v_presented IS NOT NULL AND pg_catalog.cardinality(p_names) OPERATOR(pg_catalog.=) 1 THEN
		SELECT l.session, l.token, l.hold_until INTO v_session, v_token, v_hold_until FROM tenure.lease l
		WHERE l.name OPERATOR(pg_catalog.=) p_names[1] AND l.over OPERATOR(pg_catalog.=) 0
			AND pg_catalog.concat(l.acquisition, ':', l.token) OPERATOR(pg_catalog.=) (v_presented OPERATOR(pg_catalog.->>) p_names[1]) FOR SHARE;
		PERFORM 1 FROM tenure.session s WHERE s.id OPERATOR(pg_catalog.=) v_session AND s.ended OPERATOR(pg_catalog.=) 0 AND s.since OPERATOR(pg_catalog.<) v_token
			AND s.expires_at OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp() AND (v_hold_until IS NULL OR v_hold_until OPERATOR(pg_catalog.>) pg_catalog.clock_timestamp());
		IF FOUND THEN
			RETURN;
		END IF;
	END IF;
	PERFORM tenure.guard_all(p_table, p_names, v_presented);
END $$;

CREATE FUNCTION tenure.guard_all(p_table oid, p_names text[], p_presented jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_found bigint;
	v_sessions uuid[];
	v_tokens bigint[];
	v_hold_until timestamptz;
	v_live bigint;
BEGIN
	IF p_presented IS NOT NULL AND array_position(p_names, NULL) IS NULL THEN
		SELECT sum(k.n), array_agg(k.session), array_agg(k.token), min(k.hold_until) INTO v_found, v_sessions, v_tokens, v_hold_until
		FROM (SELECT x.session, count(*) AS n, min(x.token) AS token, min(x.hold_until) AS hold_until
			FROM (SELECT l.session, l.token, l.hold_until FROM unnest(p_names) u (name) JOIN tenure.lease l ON l.name = u.name
				WHERE l.over = 0 AND concat(l.acquisition, ':', l.token) = (p_presented ->> u.name) FOR SHARE OF l) x
			GROUP BY x.session) k;
		v_live := (SELECT count(*) FROM unnest(v_sessions, v_tokens) u (id, token) JOIN tenure.session s ON s.id = u.id
			WHERE s.ended = 0 AND s.since < u.token AND s.expires_at > clock_timestamp() AND (v_hold_until IS NULL OR v_hold_until > clock_timestamp()));
		IF v_found = cardinality(p_names) AND v_live = cardinality(v_sessions) THEN
			RETURN;
		END IF;
	END IF;
	PERFORM tenure.unguarded(p_table, p_names, p_presented);
END $$;

-- Says which row may not be written, and why; the first by name.
CREATE FUNCTION tenure.unguarded(p_table oid, p_names text[], p_presented jsonb) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_table text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_table);
	v_name text;
	v_seen text;
	v_needed bigint;
	v_why text;
BEGIN
	SELECT u.name, p_presented ->> u.name, CASE WHEN k.how = 0 THEN k.token END,
		CASE WHEN u.name IS NULL THEN 'no name' WHEN p_presented ->> u.name IS NULL THEN 'not presented'
			WHEN k.token::text = split_part(p_presented ->> u.name, ':', 2) THEN CASE k.how WHEN 1 THEN 'released' WHEN 2 THEN 'released' WHEN 5 THEN 'revoked' WHEN 0 THEN 'not granted' ELSE 'expired' END
			WHEN k.token IS NULL THEN 'not granted' ELSE 'superseded' END
	INTO v_name, v_seen, v_needed, v_why
	FROM unnest(p_names) u (name) LEFT JOIN LATERAL (
		SELECT l.token, l.acquisition, tenure.over_by(l.over, l.hold_until, s.ended, s.expires_at, clock_timestamp()) AS how
		FROM tenure.lease l LEFT JOIN tenure.session s ON s.id = l.session AND s.since < l.token WHERE l.name = u.name AND l.token > 0) k ON true
	WHERE u.name IS NULL OR k.how IS DISTINCT FROM 0::smallint OR concat(k.acquisition, ':', k.token) IS DISTINCT FROM (p_presented ->> u.name)
	ORDER BY u.name COLLATE "C" LIMIT 1;
	IF v_why IS NULL THEN -- it was so when the rows were looked at, and is not any more
		RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = format('%s: the leases of these rows changed at this moment', v_table), HINT = 'Nothing was written. Roll back and begin again.';
	END IF;
	PERFORM tenure.refuse_row(v_table, v_name, split_part(v_seen, ':', 2), v_needed::text, v_why);
END $$;
