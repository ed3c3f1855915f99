-- The claim's text form, as in package fence: tenure1:AUTHORITY:ACQUISITION:TOKEN:NAME, the name percent-encoded.
CREATE FUNCTION tenure.claim_text(p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN 'tenure1:' || p_authority || ':' || p_acquisition || ':' || p_token || ':' || (
		SELECT string_agg(CASE WHEN c BETWEEN 48 AND 57 OR c BETWEEN 65 AND 90 OR c BETWEEN 97 AND 122 OR c IN (45, 46, 95, 126, 47)
			THEN chr(c) ELSE '%' || upper(lpad(to_hex(c), 2, '0')) END, '' ORDER BY i)
		FROM (SELECT i, get_byte(convert_to(p_name, 'UTF8'), i) AS c FROM generate_series(0, octet_length(p_name) - 1) i) b);
END $$;

CREATE FUNCTION tenure.claim_parse(p_claim text, OUT authority uuid, OUT acquisition uuid, OUT token bigint, OUT name text) LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	v_parts text[] := string_to_array(p_claim, ':');
	v_hex text;
BEGIN
	IF p_claim IS NULL OR octet_length(p_claim) > 1700 OR cardinality(v_parts) <> 5 OR v_parts[1] <> 'tenure1'
		OR v_parts[5] !~ '^([A-Za-z0-9._~/-]|%[0-9A-F]{2})+$' OR v_parts[4] !~ '^[1-9][0-9]{0,18}$' THEN
		RAISE EXCEPTION USING ERRCODE = 'TN004', MESSAGE = 'invalid claim: want tenure1:AUTHORITY:ACQUISITION:TOKEN:NAME', DETAIL = '{"field": "claim"}', HINT = 'Nothing was written.';
	END IF;
	authority := v_parts[2]; acquisition := v_parts[3]; token := v_parts[4];
	v_hex := (SELECT string_agg(CASE WHEN m[1] LIKE '\%%' THEN lower(substr(m[1], 2)) ELSE to_hex(ascii(m[1])) END, '' ORDER BY o)
		FROM regexp_matches(v_parts[5], '%..|.', 'g') WITH ORDINALITY x (m, o));
	name := convert_from(decode(v_hex, 'hex'), 'UTF8');
	IF tenure.claim_text(authority, name, acquisition, token) <> p_claim THEN
		RAISE EXCEPTION USING ERRCODE = 'TN004', MESSAGE = 'invalid claim: not in canonical form', DETAIL = '{"field": "claim"}', HINT = 'Nothing was written.';
	END IF;
EXCEPTION WHEN data_exception THEN
	RAISE EXCEPTION USING ERRCODE = 'TN004', MESSAGE = 'invalid claim: want tenure1:AUTHORITY:ACQUISITION:TOKEN:NAME', DETAIL = '{"field": "claim"}', HINT = 'Nothing was written.';
END $$;

CREATE FUNCTION tenure.enter(p_resource text, p_claim text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
	c := tenure.claim_parse(p_claim);
	PERFORM tenure.enter(p_resource, c.authority, c.name, c.acquisition, c.token);
END $$;

CREATE FUNCTION tenure.admit(p_resource text, p_claim text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE c record;
BEGIN
	c := tenure.claim_parse(p_claim);
	PERFORM tenure.admit(p_resource, c.authority, c.name, c.acquisition, c.token);
END $$;

