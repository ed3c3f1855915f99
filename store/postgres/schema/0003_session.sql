-- Sessions. Results for the Go store are codes; the functions for people, further below, raise errors instead.

CREATE FUNCTION tenure.session_open(p_id uuid, p_owner text, p_ttl interval, OUT code smallint, OUT how smallint, OUT remaining interval, OUT what text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	s tenure.session;
BEGIN
	PERFORM tenure.read_committed('open'), tenure.durable();
	code := 0;
	INSERT INTO tenure.session (id, owner, ttl, since, expires_at) VALUES (p_id, p_owner, p_ttl, tenure.issued(), clock_timestamp() + p_ttl) ON CONFLICT (id) DO NOTHING;
	IF FOUND THEN
		remaining := p_ttl;
		PERFORM tenure.sweep();
		RETURN;
	END IF;
	how := tenure.settle_session(p_id);
	IF how <> 0 THEN
		code := 2;
		RETURN;
	END IF;
	SELECT * INTO STRICT s FROM tenure.session WHERE id = p_id;
	IF s.owner <> p_owner OR s.ttl <> p_ttl THEN
		code := 4;
		what := CASE WHEN s.owner <> p_owner THEN 'owner' ELSE 'ttl' END;
		RETURN;
	END IF;
	remaining := s.expires_at - clock_timestamp();
END $$;

-- Locks the session's row, reads the clock in a later statement, and writes the verdict if it has expired. Returns how it is over, or 0.
-- A caller that holds a lease row may call it; one that will wait for a lease row afterwards may not.
CREATE FUNCTION tenure.settle_session(p_id uuid) RETURNS smallint LANGUAGE plpgsql AS $$
DECLARE
	v_ended smallint;
BEGIN
	PERFORM 1 FROM tenure.session WHERE id = p_id FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		RETURN 6;
	END IF;
	UPDATE tenure.session SET ended = 3, ended_at = expires_at WHERE id = p_id AND ended = 0 AND expires_at <= clock_timestamp();
	SELECT s.ended INTO STRICT v_ended FROM tenure.session s WHERE s.id = p_id;
	RETURN v_ended;
END $$;

-- A session that opens clears a little of what others left, so that the tables stay small without upkeep.
CREATE FUNCTION tenure.sweep() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM tenure.session WHERE ctid = ANY (ARRAY(
		SELECT s.ctid FROM tenure.session s WHERE s.ended <> 0 AND s.ended_at <= clock_timestamp() - interval '24 hours' LIMIT 16 FOR UPDATE SKIP LOCKED));
	DELETE FROM tenure.ended WHERE ctid = ANY (ARRAY(
		SELECT e.ctid FROM tenure.ended e WHERE e.at <= clock_timestamp() - interval '24 hours'
			AND NOT EXISTS (SELECT 1 FROM tenure.session s WHERE s.id = e.session AND s.ended = 0) LIMIT 16 FOR UPDATE SKIP LOCKED));
END $$;
CREATE INDEX session_over ON tenure.session (ended_at) WHERE ended <> 0; -- a renewal changes neither column

CREATE FUNCTION tenure.session_renew(p_id uuid, p_closed_below uuid, OUT code smallint, OUT how smallint, OUT remaining interval, OUT revoked uuid[], OUT reasons text[], OUT unbroken uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
BEGIN
	PERFORM tenure.read_committed('renew'), tenure.durable();
	code := 0;
	PERFORM 1 FROM tenure.session WHERE id = p_id FOR NO KEY UPDATE;
	-- A new statement, so that the clock is read after the wait.
	UPDATE tenure.session SET expires_at = clock_timestamp() + ttl, closed_below = greatest(closed_below, p_closed_below)
	WHERE id = p_id AND ended = 0 AND expires_at > clock_timestamp() RETURNING ttl INTO remaining;
	IF NOT FOUND THEN
		code := 2;
		how := tenure.settle_session(p_id);
		IF how = 0 THEN -- the clock went back between two readings: the verdict stands all the same, it has been decided
			UPDATE tenure.session SET ended = 3, ended_at = expires_at WHERE id = p_id AND ended = 0;
			how := 3;
		END IF;
		RETURN;
	END IF;
	DELETE FROM tenure.ended e USING tenure.session s WHERE s.id = p_id AND e.session = p_id AND e.acquisition < s.closed_below
		AND (e.how = 1 OR e.how IN (3, 4) AND e.at <= clock_timestamp() - interval '1 hour'); -- how an expired one ended is told for an hour
	SELECT array_agg(u.acquisition ORDER BY u.acquisition), array_agg(u.reason ORDER BY u.acquisition) INTO revoked, reasons
	FROM (SELECT e.acquisition, e.reason FROM tenure.ended e WHERE e.session = p_id AND NOT e.told ORDER BY e.acquisition LIMIT 256) u;
	unbroken := tenure.unbroken_id();
END $$;

-- Locks a session's row FOR UPDATE, because an acquire holds KEY SHARE, which a plain UPDATE does not wait for. Returns 1, 0 where there is no
-- row, or -1: begin again. Who waits for this lock would be first in the row's queue, and behind it wait those who hold lease rows and
-- must write this session's end or bound: a circle, until it gives up. So it never queues: for 50 ms it looks again and again, holding nothing.
CREATE FUNCTION tenure.lock_session(p_id uuid) RETURNS int LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..25 LOOP
		PERFORM 1 FROM tenure.session WHERE id = p_id FOR UPDATE SKIP LOCKED;
		IF FOUND THEN
			RETURN 1;
		ELSIF NOT EXISTS (SELECT 1 FROM tenure.session WHERE id = p_id) THEN
			RETURN 0;
		END IF;
		PERFORM pg_sleep(0.001 + random() * 0.002);
	END LOOP;
	RETURN -1;
END $$;

-- Code 6: begin again.
CREATE FUNCTION tenure.session_close(p_id uuid, OUT code smallint, OUT how smallint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_locked int;
BEGIN
	PERFORM tenure.read_committed('close'), tenure.durable();
	code := 0;
	v_locked := tenure.lock_session(p_id);
	IF v_locked < 0 THEN
		code := 6;
		RETURN;
	ELSIF v_locked = 0 THEN
		-- Remembered as closed, so that an open which arrives later is refused.
		INSERT INTO tenure.session (id, owner, ttl, expires_at, ended, ended_at) VALUES (p_id, '', '0', clock_timestamp(), 2, clock_timestamp())
		ON CONFLICT (id) DO NOTHING;
		IF NOT FOUND THEN
			code := 6; -- it was opened at this moment
		END IF;
		RETURN;
	END IF;
	UPDATE tenure.session SET ended = 2, ended_at = clock_timestamp() WHERE id = p_id AND ended = 0 AND expires_at > clock_timestamp();
	IF NOT FOUND THEN
		how := tenure.settle_session(p_id);
		code := CASE WHEN how = 2 THEN 0 ELSE 2 END;
	END IF;
END $$;

-- After the session's end is committed: marks its leases as over, so that a transaction with an older snapshot fails with 40001
-- instead of trusting them. Skips what is locked: those leases name an ended session and count as free all the same.
CREATE FUNCTION tenure.free_closed(p_session uuid, p_ids uuid[], p_names text[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_rows tid[];
BEGIN
	PERFORM tenure.read_committed('close');
	v_rows := ARRAY(SELECT l.ctid FROM unnest(p_ids, p_names) u (id, name) JOIN tenure.lease l ON l.name = u.name AND l.acquisition = u.id
		WHERE l.session = p_session AND l.over = 0 ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED);
	UPDATE tenure.lease l SET over = s.ended, over_at = coalesce(s.ended_at, clock_timestamp())
	FROM tenure.session s WHERE l.ctid = ANY (v_rows) AND l.session = p_session AND l.over = 0 AND s.id = p_session AND s.ended <> 0;
END $$;

-- The mark of an uninterrupted life of the server; see table tenure.unbroken. NULL on a standby.
CREATE FUNCTION tenure.unbroken_id() RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	IF pg_is_in_recovery() THEN
		RETURN NULL; -- a standby keeps no unlogged table, and renews nothing
	END IF;
	IF NOT EXISTS (SELECT 1 FROM tenure.unbroken) THEN
		INSERT INTO tenure.unbroken (id) VALUES (gen_random_uuid()) ON CONFLICT (one) DO NOTHING;
	END IF;
	RETURN (SELECT u.id FROM tenure.unbroken u);
END $$;
