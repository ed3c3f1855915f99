-- For psql and every other language. Outcomes are rows, not errors: what they tell must be committed ("your session has expired" is written
-- with the answer), and contention is no error. Invalid input raises TN004. Call them outside a transaction block: an answer holds once it is committed.

CREATE FUNCTION tenure.verify(p_claim text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
	c := tenure.claim_parse(p_claim);
	PERFORM tenure.verify(c.authority, c.name, c.acquisition, c.token);
END $$;

CREATE FUNCTION tenure.check_duration(p_what text, p_value interval, p_most interval) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF p_value IS NULL OR p_value < interval '1 millisecond' OR p_value > p_most THEN
		RAISE EXCEPTION 'invalid %: want 1 ms to %', p_what, p_most USING ERRCODE = 'TN004', DETAIL = jsonb_build_object('field', p_what)::text, HINT = 'Nothing was changed.';
	END IF;
END $$;

-- outcome: open, expired, closed, forgotten, mismatch.
CREATE FUNCTION tenure.open_session(p_session uuid, p_owner text DEFAULT '', p_ttl interval DEFAULT '15 seconds', OUT outcome text, OUT remaining interval)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE r record;
BEGIN
	PERFORM tenure.check_id('session', p_session), tenure.check_duration('ttl', p_ttl, '24 hours');
	IF p_owner IS NULL OR octet_length(p_owner) > 256 THEN
		PERFORM tenure.fail('TN004', 'invalid owner: want at most 256 bytes', '{"field": "owner"}', 'Nothing was changed.');
	END IF;
	r := tenure.session_open(p_session, p_owner, make_interval(secs => extract(epoch FROM p_ttl)::double precision));
	outcome := CASE r.code WHEN 0 THEN 'open' WHEN 4 THEN 'mismatch' ELSE tenure.how(r.how) END;
	remaining := r.remaining;
END $$;

-- outcome: renewed, expired, closed, forgotten. revoked: acquisitions that an operator took away and that were not named in a release since.
CREATE FUNCTION tenure.renew(p_session uuid, p_closed_below uuid DEFAULT NULL, OUT outcome text, OUT remaining interval, OUT revoked uuid[], OUT reasons text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE r record;
BEGIN
	PERFORM tenure.check_id('session', p_session);
	r := tenure.session_renew(p_session, p_closed_below);
	outcome := CASE r.code WHEN 0 THEN 'renewed' ELSE tenure.how(r.how) END;
	remaining := r.remaining; revoked := coalesce(r.revoked, '{}'); reasons := coalesce(r.reasons, '{}');
END $$;

-- outcome: closed, expired (it had ended before, and its leases with it).
CREATE FUNCTION tenure.close_session(p_session uuid, OUT outcome text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE r record;
BEGIN
	PERFORM tenure.check_id('session', p_session);
	FOR i IN 1..30 LOOP
		r := tenure.session_close(p_session);
		EXIT WHEN r.code <> 6;
	END LOOP;
	outcome := CASE r.code WHEN 0 THEN 'closed' WHEN 2 THEN tenure.how(r.how) ELSE 'again' END;
END $$;

CREATE FUNCTION tenure.check_names(p_names text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE v_name text;
BEGIN
	IF p_names IS NULL OR cardinality(p_names) < 1 OR cardinality(p_names) > 128 OR array_ndims(p_names) <> 1
		OR cardinality(p_names) <> (SELECT count(DISTINCT u.n) FROM unnest(p_names) u (n)) THEN
		PERFORM tenure.fail('TN004', 'invalid names: want 1 to 128 different ones', '{"field": "names"}', 'Nothing was changed.');
	END IF;
	FOREACH v_name IN ARRAY p_names LOOP
		PERFORM tenure.check_name(v_name);
	END LOOP;
END $$;

-- All of the names or none, under the acquisition p_id. outcome: granted (a row for each name); held (name, token, holder, remaining at most,
-- unless renewed); expired, released, closed, superseded, revoked, forgotten (session or acquisition is over, as over says); mismatch (reason says what
-- differs); ahead (see tenure.epoch_raise); busy (a row was locked for longer than p_wait). p_wait is for locked rows, not for the holder's end.
CREATE FUNCTION tenure.acquire(p_session uuid, p_id uuid, p_names text[], p_max_hold interval DEFAULT NULL, p_closed_below uuid DEFAULT NULL, p_wait interval DEFAULT '1 second')
RETURNS TABLE (outcome text, name text, token bigint, claim text, remaining interval, hold_left interval, holder text, over text, reason text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_rows tenure.grant_row[];
	r tenure.grant_row;
	v_wait int := least(1000, greatest(0, extract(epoch FROM p_wait) * 1000))::int;
	v_below uuid := coalesce(p_closed_below, '00000000-0000-0000-0000-000000000000');
BEGIN
	PERFORM tenure.check_id('session', p_session), tenure.check_id('acquisition', p_id), tenure.check_names(p_names);
	IF p_max_hold IS NOT NULL THEN
		PERFORM tenure.check_duration('max hold', p_max_hold, '366 days');
	END IF;
	PERFORM tenure.read_committed('acquire'), tenure.durable(), tenure.enter_incarnation_if_new();
	FOR i IN 1..20 LOOP
		BEGIN
			v_rows := ARRAY(SELECT x FROM tenure.acquire_rows(p_session, v_below, p_id, p_names, make_interval(secs => extract(epoch FROM p_max_hold)::double precision), v_wait) x);
			r := v_rows[1];
			IF r.code IN (6, 8) THEN
				RAISE EXCEPTION USING ERRCODE = 'TN006'; -- gives back what it locked
			END IF;
		EXCEPTION
			WHEN SQLSTATE 'TN006' THEN NULL;
			WHEN lock_not_available THEN r := (0, 8, 0, NULL, NULL, NULL, NULL); -- somebody else is about to make the name
		END;
		EXIT WHEN r.code <> 6;
	END LOOP;
	IF r.code = 0 THEN
		RETURN QUERY SELECT 'granted', p_names[u.o], u.token, tenure.claim_text(a.id, p_names[u.o], p_id, u.token), u.remaining, u.hold_left, NULL::text, NULL::text, NULL::text
			FROM unnest(v_rows) u, tenure.authority a ORDER BY u.o;
		RETURN;
	END IF;
	outcome := CASE r.code WHEN 1 THEN 'held' WHEN 2 THEN tenure.how(r.how) WHEN 3 THEN tenure.how(r.how) WHEN 4 THEN 'mismatch' WHEN 5 THEN 'ahead' ELSE 'busy' END;
	token := r.token;
	over := CASE r.code WHEN 2 THEN 'session' WHEN 3 THEN 'acquisition' END;
	IF r.code = 1 THEN
		name := (SELECT u.n FROM (SELECT u.n, row_number() OVER (ORDER BY u.n COLLATE "C") AS o FROM unnest(p_names) u (n)) u WHERE u.o = r.o);
		holder := r.what; remaining := r.remaining;
	ELSIF r.code = 5 THEN
		name := r.what;
	ELSE
		reason := r.what;
	END IF;
	RETURN NEXT;
END $$;

CREATE FUNCTION tenure.enter_incarnation_if_new() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF NOT EXISTS (SELECT 1 FROM tenure.authority a WHERE a.started = pg_postmaster_start_time() AND a.timeline = tenure.timeline()) THEN
		PERFORM tenure.enter_incarnation();
	END IF;
END $$;

-- Ends the acquisition and closes its id. outcome: released; already (released before, its session closed, or never granted: it is closed all the
-- same); expired, superseded, revoked (over earlier than the caller believed); mismatch; busy.
CREATE FUNCTION tenure.release(p_session uuid, p_id uuid, p_names text[], p_closed_below uuid DEFAULT NULL, p_wait interval DEFAULT '1 second', OUT outcome text, OUT reason text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	r record;
	v_wait int := least(1000, greatest(0, extract(epoch FROM p_wait) * 1000))::int;
	v_below uuid := coalesce(p_closed_below, '00000000-0000-0000-0000-000000000000');
BEGIN
	PERFORM tenure.check_id('session', p_session), tenure.check_id('acquisition', p_id), tenure.check_names(p_names);
	FOR i IN 1..20 LOOP
		BEGIN
			r := tenure.release_rows(p_session, p_id, p_names, v_wait);
			IF r.code IN (8, 9) THEN
				RAISE EXCEPTION USING ERRCODE = 'TN006';
			END IF;
		EXCEPTION WHEN SQLSTATE 'TN006' THEN NULL;
		END;
		IF r.code = 9 THEN
			BEGIN -- no lease row is locked any more
				r := tenure.release_absent(p_session, v_below, p_id, p_names);
				IF r.code = 6 THEN
					RAISE EXCEPTION USING ERRCODE = 'TN006';
				END IF;
			EXCEPTION WHEN SQLSTATE 'TN006' THEN NULL;
			END;
		END IF;
		EXIT WHEN r.code <> 6;
	END LOOP;
	outcome := CASE r.code WHEN 0 THEN 'released' WHEN 1 THEN 'already' WHEN 3 THEN tenure.how(r.how) WHEN 4 THEN 'mismatch' ELSE 'busy' END;
	reason := nullif(r.what, '');
END $$;

-- outcome: revoked, already, mismatch (token is the latest), or how it was over. names: what it freed.
CREATE FUNCTION tenure.revoke(p_name text, p_token bigint, p_reason text, OUT outcome text, OUT names text[], OUT believes interval, OUT token bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE r record;
BEGIN
	PERFORM tenure.check_name(p_name);
	IF p_reason IS NULL OR p_reason = '' OR octet_length(p_reason) > 512 THEN
		PERFORM tenure.fail('TN004', 'invalid reason: want 1 to 512 bytes', '{"field": "reason"}', 'Nothing was changed.');
	END IF;
	FOR i IN 1..10 LOOP
		r := tenure.lease_revoke(p_name, p_token, p_reason);
		EXIT WHEN r.code <> 6;
	END LOOP;
	outcome := CASE r.code WHEN 0 THEN 'revoked' WHEN 1 THEN 'already' WHEN 3 THEN tenure.how(r.how) WHEN 4 THEN 'mismatch' ELSE 'busy' END;
	names := CASE WHEN r.code = 0 THEN r.names END; believes := r.believes; token := r.token;
END $$;
