-- What every function stands on. Codes of results: 0 done, 1 held, 2 session over, 3 acquisition over, 4 mismatch,
-- 5 ahead, 6 begin again, 7 another incarnation, 8 a row is locked, 9 absent. How: 1 released, 2 closed, 3 expired, 4 superseded, 5 revoked, 6 forgotten.

-- The timeline is right immediately after a promotion, while pg_control_checkpoint() still shows the old one. Fails on a standby (55000).
CREATE FUNCTION tenure.timeline() RETURNS bigint LANGUAGE plpgsql STABLE
AS $$ BEGIN RETURN ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint; END $$;

CREATE FUNCTION tenure.how(p_how smallint) RETURNS text LANGUAGE plpgsql IMMUTABLE
AS $$ BEGIN RETURN (ARRAY['released', 'closed', 'expired', 'superseded', 'revoked', 'forgotten'])[p_how]; END $$;

-- Why an acquisition is over, or 0 while it is valid. ended is NULL when its session is not known.
CREATE FUNCTION tenure.over_by(p_over smallint, p_hold_until timestamptz, p_ended smallint, p_expires_at timestamptz, p_now timestamptz)
RETURNS smallint LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN CASE
		WHEN p_over <> 0 THEN p_over
		WHEN p_ended IS NULL THEN 6
		WHEN p_ended <> 0 THEN p_ended
		WHEN p_now >= p_expires_at OR p_now >= p_hold_until THEN 3
		ELSE 0 END;
END $$;

-- What a function promises is durable before it is told, whatever the role's setting. It is only ever raised.
CREATE FUNCTION tenure.durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('synchronous_commit') IN ('off', 'local') THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
END $$;

-- Sees its statements' snapshots one by one, as the rules need.
CREATE FUNCTION tenure.read_committed(p_what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM tenure.fail('TN007', p_what || ' runs at READ COMMITTED alone', jsonb_build_object('isolation', current_setting('transaction_isolation')),
			'Nothing was changed. Call it outside the transaction, or begin that at READ COMMITTED.');
	END IF;
END $$;

-- The first grant of an incarnation raises the sequence above whatever another branch of the history issued: fewer than
-- 1,024 tokens a millisecond. setval is written to the log before the row is, and a rollback does not undo it.
CREATE FUNCTION tenure.enter_incarnation() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_origin timestamptz;
	v_same boolean;
BEGIN
	PERFORM tenure.read_committed('enter_incarnation');
	PERFORM 1 FROM tenure.authority FOR UPDATE;
	SELECT a.origin, a.timeline = tenure.timeline() AND a.started = pg_postmaster_start_time() INTO STRICT v_origin, v_same FROM tenure.authority a;
	IF v_same THEN
		RETURN;
	END IF;
	PERFORM tenure.durable();
	PERFORM tenure.jump(v_origin);
	UPDATE tenure.authority SET timeline = tenure.timeline(), started = pg_postmaster_start_time();
END $$;

-- The caller holds the authority's row FOR UPDATE: nobody else raises the sequence meanwhile.
CREATE FUNCTION tenure.jump(p_origin timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RETURN setval('tenure.token', greatest((SELECT last_value + 1 FROM tenure.token),
		floor(extract(epoch FROM clock_timestamp() - p_origin) * 1000)::bigint << 10));
END $$;

CREATE FUNCTION tenure.issued() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN RETURN (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM tenure.token); END $$;
