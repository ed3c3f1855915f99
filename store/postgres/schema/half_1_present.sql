-- The fence half: resources here, their authority elsewhere. There are no leases to look at, so a protected row goes by its mark (resource and name are the
-- name of the row): the high-water contract. It does not notice expiry, and knows nothing of a successor that has not presented its claim here yet.

-- Whether a token was issued is known to its authority alone.
CREATE FUNCTION tenure.check_issued(p_authority uuid, p_name text, p_token bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	NULL;
END $$;

-- Enters the mark of the name, and presents the claim for the rest of the transaction. It stands before what is read: see enter.
CREATE FUNCTION tenure.present(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_presented pg_catalog.jsonb;
BEGIN
	PERFORM tenure.enter(p_name, p_authority, p_name, p_acquisition, p_token);
	v_presented := pg_catalog.jsonb_build_object(p_name, pg_catalog.concat(p_authority, ':', p_token));
	IF pg_catalog.current_setting('tenure.presented', true) OPERATOR(pg_catalog.<>) '' THEN
		v_presented := pg_catalog.current_setting('tenure.presented')::pg_catalog.jsonb OPERATOR(pg_catalog.||) v_presented;
	END IF;
	PERFORM pg_catalog.set_config('tenure.presented', v_presented::pg_catalog.text, true);
END $$;

CREATE FUNCTION tenure.present(p_authority uuid, p_names text[], p_acquisitions uuid[], p_tokens bigint[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	c record;
BEGIN
	IF coalesce(cardinality(p_names), 0) NOT BETWEEN 1 AND 4096 OR cardinality(p_acquisitions) IS DISTINCT FROM cardinality(p_names) OR cardinality(p_tokens) IS DISTINCT FROM cardinality(p_names) THEN
		PERFORM tenure.fail('TN004', 'invalid claims: want 1 to 4096', '{"field": "claims"}', 'Nothing was presented.');
	END IF;
	FOR c IN SELECT * FROM unnest(p_names, p_acquisitions, p_tokens) u (name, acquisition, token) ORDER BY u.name COLLATE "C" LOOP
		PERFORM tenure.present(p_authority, c.name, c.acquisition, c.token);
	END LOOP;
END $$;

-- See both_5_protect.sql. The mark is locked: it was written by present, and if that has gone with a savepoint, or the setting is forged, nobody enters meanwhile.
CREATE FUNCTION tenure.guard(p_table oid, p_names text[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_presented jsonb := nullif(current_setting('tenure.presented', true), '')::jsonb;
	r record;
BEGIN
	IF v_presented IS NOT NULL AND cardinality(p_names) = (SELECT count(*) FROM (SELECT FROM unnest(p_names) u (name) JOIN tenure.mark m ON m.resource = u.name AND m.name = u.name
			WHERE m.token > 0 AND concat(m.authority, ':', m.token) = (v_presented ->> u.name) FOR NO KEY UPDATE OF m) k) THEN
		RETURN;
	END IF;
	SELECT u.name, split_part(v_presented ->> u.name, ':', 2) AS seen, m.token::text AS needed,
		CASE WHEN u.name IS NULL THEN 'no name' WHEN v_presented ->> u.name IS NULL THEN 'not presented' WHEN m.token IS NULL THEN 'not granted' ELSE 'superseded' END AS why
	INTO r FROM unnest(p_names) u (name) LEFT JOIN tenure.mark m ON m.resource = u.name AND m.name = u.name AND m.token > 0
	WHERE u.name IS NULL OR concat(m.authority, ':', m.token) IS DISTINCT FROM (v_presented ->> u.name) ORDER BY u.name COLLATE "C" LIMIT 1;
	IF NOT FOUND THEN
		RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the marks of these rows changed at this moment', HINT = 'Nothing was written. Roll back and begin again.';
	END IF;
	PERFORM tenure.refuse_row((SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = p_table), r.name, r.seen, r.needed, r.why);
END $$;
