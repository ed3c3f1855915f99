-- Of protected tables, in both halves.

-- The same for claims in their text form.
CREATE FUNCTION tenure.present(VARIADIC p_claims text[]) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_authority uuid;
	v_names text[];
	v_acquisitions uuid[];
	v_tokens bigint[];
	v_authorities bigint;
BEGIN
	IF coalesce(cardinality(p_claims), 0) NOT BETWEEN 1 AND 4096 THEN
		PERFORM tenure.fail('TN004', 'invalid claims: want 1 to 4096', '{"field": "claims"}', 'Nothing was presented.');
	END IF;
	SELECT min(c.authority::text)::uuid, count(DISTINCT c.authority), array_agg(c.name), array_agg(c.acquisition), array_agg(c.token)
	INTO v_authority, v_authorities, v_names, v_acquisitions, v_tokens FROM unnest(p_claims) u (claim), tenure.claim_parse(u.claim) c;
	IF v_authorities > 1 THEN
		PERFORM tenure.fail('TN004', 'invalid claims: they are of several authorities', '{"field": "claims"}', 'Nothing was presented. Present those of one authority in one call.');
	END IF;
	PERFORM tenure.present(v_authority, v_names, v_acquisitions, v_tokens);
END $$;

CREATE FUNCTION tenure.refuse_row(p_table text, p_name text, p_seen text, p_needed text, p_why text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	v_short text := CASE WHEN octet_length(p_name) > 512 THEN left(p_name, 100) || '... (' || octet_length(p_name) || ' bytes)' ELSE p_name END;
	v_seen text := CASE WHEN p_seen ~ '^[0-9]{1,19}$' THEN p_seen END; -- anything else was set by hand
BEGIN
	PERFORM tenure.fail('TN013',
		CASE p_why
			WHEN 'no name' THEN format('table %s is protected, and a row has no name: its name expression gives NULL', p_table)
			WHEN 'not presented' THEN format('table %s is protected: a row of lease %s is written only under a claim to it, and none was presented in this transaction%s', p_table, quote_ident(v_short), coalesce('; token ' || p_needed || ' holds it', ''))
			ELSE format('table %s refused token %s of lease %s: %s%s', p_table, coalesce(v_seen, '?'), quote_ident(v_short), p_why, coalesce('; token ' || p_needed || ' holds it', '')) END,
		jsonb_build_object('resource', p_table, 'name', v_short, 'token', v_seen, 'why', CASE p_why WHEN 'no name' THEN 'not presented' ELSE p_why END, 'newer', p_needed),
		CASE p_why
			WHEN 'no name' THEN 'Nothing was written. Give the row what the expression needs; the list of tenure.protections() shows it.'
			WHEN 'not presented' THEN 'Nothing was written. Acquire that lease, and in the transaction that writes, before it, call tenure.present(claim); behind a pooler, in the same transaction, not before BEGIN.'
			ELSE 'Nothing was written. Roll back, and acquire the lease again before writing.' END);
END $$;
