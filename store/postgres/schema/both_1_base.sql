-- What both halves of the schema stand on: errors, names and ids. The fence half is all that a database needs whose resources are guarded by an authority elsewhere.

-- Raises in SQLSTATE class TN. The detail is JSON: facts for programs.
CREATE FUNCTION tenure.fail(p_state text, p_message text, p_detail jsonb, p_hint text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION USING ERRCODE = p_state, MESSAGE = p_message, DETAIL = coalesce(p_detail::text, '{}'), HINT = p_hint;
END $$;

CREATE FUNCTION tenure.check_name(p_name text) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF p_name IS NULL OR p_name = '' OR octet_length(p_name) > 512 OR p_name ~ U&'[#\0001-\001F\007F-\009F]' THEN
		RAISE EXCEPTION 'invalid name: want 1 to 512 bytes without control characters and without ''#'''
			USING ERRCODE = 'TN004', DETAIL = jsonb_build_object('field', 'name')::text, HINT = 'Nothing was changed.';
	END IF;
END $$;

CREATE FUNCTION tenure.check_id(p_what text, p_id uuid) RETURNS void LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF p_id IS NULL OR p_id = '00000000-0000-0000-0000-000000000000' THEN
		RAISE EXCEPTION 'invalid %: no id', p_what
			USING ERRCODE = 'TN004', DETAIL = jsonb_build_object('field', p_what)::text, HINT = 'Nothing was changed. tenure.new_id() makes one.';
	END IF;
END $$;

-- A UUIDv7: 48 bits of milliseconds, then 12 bits within the millisecond (RFC 9562, 6.2 method 3), then random bits.
CREATE FUNCTION tenure.new_id() RETURNS uuid LANGUAGE plpgsql VOLATILE AS $$
DECLARE
	micros bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
	hex text := replace(gen_random_uuid()::text, '-', '');
BEGIN
	RETURN (lpad(to_hex(micros / 1000), 12, '0') || '7' || lpad(to_hex((micros % 1000) * 4095 / 1000), 3, '0') || substr(hex, 17))::uuid;
END $$;

