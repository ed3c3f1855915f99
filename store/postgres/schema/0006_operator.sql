-- Reading, and what operators do.

CREATE TYPE tenure.lease_row AS (name text, token bigint, held boolean, acquisition uuid, session uuid, owner text,
	remaining interval, hold_left interval, how text);

-- One name; a row also where nothing is known of it, with token 0.
CREATE FUNCTION tenure.lease_of(p_name text) RETURNS SETOF tenure.lease_row LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN QUERY SELECT * FROM tenure.leases_where(ARRAY[p_name]);
	IF NOT FOUND THEN
		RETURN QUERY SELECT p_name, 0::bigint, false, NULL::uuid, NULL::uuid, NULL::text, NULL::interval, NULL::interval, NULL::text;
	END IF;
END $$;

-- Names that start with a prefix and come after another, in byte order.
CREATE FUNCTION tenure.leases(p_prefix text DEFAULT '', p_after text DEFAULT '', p_limit int DEFAULT 100)
RETURNS SETOF tenure.lease_row LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF p_limit < 1 OR p_limit > 1000 THEN
		PERFORM tenure.fail('TN004', 'invalid limit: want 1 to 1000', jsonb_build_object('field', 'limit'), 'Ask for the next page after the last name.');
	END IF;
	RETURN QUERY SELECT * FROM tenure.leases_where(ARRAY(
		SELECT l.name FROM tenure.lease l WHERE l.token > 0 AND l.name > p_after AND l.name >= p_prefix AND starts_with(l.name, p_prefix)
		ORDER BY l.name LIMIT p_limit));
END $$;

CREATE FUNCTION tenure.leases_where(p_names text[]) RETURNS SETOF tenure.lease_row LANGUAGE plpgsql STABLE AS $$
DECLARE
	v_now timestamptz := clock_timestamp();
BEGIN
	RETURN QUERY
		SELECT l.name::text, l.token, o.how = 0, l.acquisition, l.session, coalesce(s.owner, ''),
			CASE WHEN o.how = 0 THEN s.expires_at - v_now END, CASE WHEN o.how = 0 THEN l.hold_until - v_now END, tenure.how(o.how)
		FROM tenure.lease l LEFT JOIN tenure.session s ON s.id = l.session AND s.since < l.token,
			LATERAL (SELECT tenure.over_by(l.over, l.hold_until, s.ended, s.expires_at, v_now) AS how) o
		WHERE l.name = ANY (p_names) AND l.token > 0 ORDER BY l.name;
END $$;

-- Ends the acquisition that holds the name under exactly this token, with all its names. Code 0 revoked, 1 it was already, 3 over otherwise,
-- 4 another token (token is the latest), 6 begin again, 8 a row is locked. believes: how long the former holder may believe that it holds.
CREATE FUNCTION tenure.lease_revoke(p_name text, p_token bigint, p_reason text,
	OUT code smallint, OUT how smallint, OUT token bigint, OUT acquisition uuid, OUT names text[], OUT believes interval, OUT reason text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	l tenure.lease;
	s tenure.session;
	v_now timestamptz;
	v_names text[];
BEGIN
	PERFORM tenure.read_committed('revoke'), tenure.durable();
	-- There is no index on acquisitions, it would burden every grant: an operator's call reads the table.
	SELECT * INTO l FROM tenure.lease x WHERE x.name = p_name;
	v_names := ARRAY(SELECT x.name FROM tenure.lease x WHERE x.acquisition = l.acquisition AND x.session = l.session AND x.over = 0 ORDER BY x.name);
	IF tenure.lock_names(ARRAY(SELECT DISTINCT u.name FROM unnest(v_names || p_name) u (name) ORDER BY u.name), 1000) < 0 THEN
		code := 8;
		RETURN;
	END IF;
	SELECT * INTO l FROM tenure.lease x WHERE x.name = p_name;
	token := coalesce(l.token, 0);
	acquisition := l.acquisition;
	IF token <> p_token OR token = 0 THEN
		code := 4;
		RETURN;
	END IF;
	SELECT * INTO s FROM tenure.session x WHERE x.id = l.session AND x.since < l.token;
	v_now := clock_timestamp();
	how := tenure.over_by(l.over, l.hold_until, s.ended, s.expires_at, v_now);
	believes := greatest(interval '0', CASE WHEN s.ended = 0 THEN least(s.expires_at, l.hold_until) - v_now ELSE interval '0' END);
	IF how = 3 AND l.over = 0 AND s.ended = 0 THEN
		-- An expiry that is told is written: a renewal on its way is waited for, and the clock may go back.
		IF s.expires_at <= v_now THEN
			IF tenure.settle_session(l.session) = 0 THEN
				code := 6;
				RETURN;
			END IF;
		ELSE
			UPDATE tenure.lease x SET over = 3, over_at = l.hold_until WHERE x.name = ANY (v_names) AND x.acquisition = l.acquisition AND x.session = l.session AND x.over = 0;
		END IF;
	END IF;
	IF how <> 0 THEN
		SELECT e.how, e.reason INTO how, reason FROM tenure.ended e WHERE e.session = l.session AND e.acquisition = l.acquisition;
		how := coalesce(how, tenure.over_by(l.over, l.hold_until, s.ended, s.expires_at, v_now));
		code := CASE WHEN how = 5 THEN 1 ELSE 3 END;
		RETURN;
	END IF;
	v_names := ARRAY(SELECT x.name FROM tenure.lease x WHERE x.name = ANY (v_names) AND x.acquisition = l.acquisition AND x.session = l.session AND x.over = 0 ORDER BY x.name);
	IF cardinality(v_names) <> l.names THEN
		code := 6; -- it was granted while its names were looked for
		RETURN;
	END IF;
	UPDATE tenure.lease x SET over = 5, over_at = v_now WHERE x.name = ANY (v_names) AND x.acquisition = l.acquisition AND x.session = l.session AND x.over = 0;
	INSERT INTO tenure.ended (session, acquisition, how, reason, told) VALUES (l.session, l.acquisition, 5, p_reason, false)
	ON CONFLICT ON CONSTRAINT ended_pkey DO UPDATE SET how = 5, reason = excluded.reason, told = false;
	names := v_names;
	code := 0;
END $$;

-- Deletes what has been over for at least that age and that nobody may still ask for, at most p_limit rows, and returns how many. No token repeats.
CREATE FUNCTION tenure.prune(p_age interval, p_limit int DEFAULT 10000) RETURNS int
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_before timestamptz := clock_timestamp() - p_age;
	v_total int;
	v_count int;
BEGIN
	IF p_age IS NULL OR p_age < interval '1 hour' OR p_limit IS NULL OR p_limit < 1 OR p_limit > 10000 THEN
		PERFORM tenure.fail('TN004', 'invalid prune: want an age of at least 1 hour and a limit of 1 to 10000', jsonb_build_object('field', 'prune'), 'Nothing was changed.');
	END IF;
	PERFORM tenure.read_committed('prune'), tenure.durable();
	-- An expiry that is acted on is written first, under the session's lock; a renewal on its way keeps it.
	UPDATE tenure.session s SET ended = 3, ended_at = s.expires_at WHERE s.ended = 0 AND s.expires_at <= v_before AND s.ctid = ANY (ARRAY(
		SELECT x.ctid FROM tenure.session x WHERE x.ended = 0 AND x.expires_at <= v_before LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED));
	-- Deletes under the row's lock, what is still so under it. Nothing is waited for.
	DELETE FROM tenure.lease WHERE ctid = ANY (ARRAY(
		SELECT l.ctid FROM tenure.lease l LEFT JOIN tenure.session s ON s.id = l.session AND s.since < l.token
		WHERE (l.token = 0 OR s.id IS NULL OR s.ended <> 0 OR l.acquisition < s.closed_below AND l.bound <= s.closed_below)
			AND CASE WHEN l.over <> 0 THEN l.over_at <= v_before
				WHEN l.hold_until <= v_before OR s.id IS NULL THEN true
				ELSE s.ended <> 0 AND s.ended_at <= v_before END
		LIMIT p_limit FOR UPDATE OF l SKIP LOCKED));
	GET DIAGNOSTICS v_total = ROW_COUNT;
	DELETE FROM tenure.ended WHERE ctid = ANY (ARRAY(
		SELECT e.ctid FROM tenure.ended e LEFT JOIN tenure.session s ON s.id = e.session
		WHERE e.at <= v_before AND (s.id IS NULL OR s.ended <> 0 OR e.told AND e.acquisition < s.closed_below)
		LIMIT p_limit - v_total FOR UPDATE OF e SKIP LOCKED));
	GET DIAGNOSTICS v_count = ROW_COUNT;
	v_total := v_total + v_count;
	DELETE FROM tenure.session WHERE ctid = ANY (ARRAY(
		SELECT s.ctid FROM tenure.session s WHERE s.ended <> 0 AND s.ended_at <= v_before
		LIMIT p_limit - v_total FOR UPDATE SKIP LOCKED));
	GET DIAGNOSTICS v_count = ROW_COUNT;
	RETURN v_total + v_count;
END $$;

-- Makes every later token greater than p_above and than all that this authority can have issued by its clock; lifts stops. Returns the floor.
CREATE FUNCTION tenure.epoch_raise(p_above bigint DEFAULT 0) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_floor bigint;
BEGIN
	IF p_above IS NULL OR p_above < 0 OR p_above > 4611686018427387904 THEN
		PERFORM tenure.fail('TN004', 'invalid above: want a token from 0 to 4611686018427387904', jsonb_build_object('field', 'above'), 'Nothing was changed.');
	END IF;
	PERFORM tenure.read_committed('epoch_raise'), tenure.durable();
	PERFORM 1 FROM tenure.authority FOR UPDATE;
	v_floor := tenure.jump((SELECT a.origin FROM tenure.authority a));
	IF v_floor < p_above THEN
		v_floor := setval('tenure.token', p_above);
	END IF;
	DELETE FROM tenure.ahead WHERE token <= v_floor;
	UPDATE tenure.authority SET timeline = tenure.timeline(), started = pg_postmaster_start_time(), ahead = EXISTS (SELECT 1 FROM tenure.ahead);
	RETURN v_floor;
END $$;

-- Stops grants of the name until the epoch is raised, if the token is above everything that was issued. At most 1024 names are stopped.
CREATE FUNCTION tenure.report_ahead(p_authority uuid, p_name text, p_token bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	-- The jump of an incarnation that has not granted yet may lie above the token already.
	IF p_token IS NULL OR p_token <= 0 THEN
		PERFORM tenure.fail('TN004', 'invalid claim: the token is not positive', jsonb_build_object('field', 'token'), 'Nothing was changed.');
	END IF;
	PERFORM tenure.check_name(p_name), tenure.read_committed('report_ahead'), tenure.durable(), tenure.enter_incarnation_if_new();
	PERFORM 1 FROM tenure.authority FOR UPDATE;
	IF p_token <= tenure.issued() OR p_token > 4611686018427387904 OR p_authority IS DISTINCT FROM (SELECT a.id FROM tenure.authority a)
		OR (SELECT count(*) FROM tenure.ahead) >= 1024 THEN
		RETURN; -- it says nothing, or nothing new
	END IF;
	INSERT INTO tenure.ahead (name, token) VALUES (p_name, p_token) ON CONFLICT (name) DO UPDATE SET token = greatest(ahead.token, excluded.token);
	UPDATE tenure.authority SET ahead = true;
END $$;

-- For a copy that is meant to live beside its parent: an identity of its own. Claims of the old one are foreign from here on; marks that
-- were kept under it in this database go on under the new one.
CREATE FUNCTION tenure.authority_new() RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_old uuid;
	v_new uuid := gen_random_uuid();
BEGIN
	PERFORM tenure.read_committed('authority_new'), tenure.durable();
	SELECT a.id INTO STRICT v_old FROM tenure.authority a FOR UPDATE;
	PERFORM tenure.epoch_raise(0);
	UPDATE tenure.authority SET id = v_new;
	UPDATE tenure.mark SET authority = v_new WHERE authority = v_old;
	RETURN v_new;
END $$;

CREATE FUNCTION tenure.authority_id() RETURNS uuid LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN RETURN (SELECT a.id FROM tenure.authority a); END $$;
