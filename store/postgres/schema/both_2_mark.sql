-- Marks: the high-water contract, for resources in any database.
--
-- enter and admit stand in fenced transactions: as verify, they do not pin their search path, and qualify everything.

-- What protected resources remember. Token 0: the name was admitted and has not entered yet.
CREATE TABLE tenure.mark (
	resource  text COLLATE "C" NOT NULL,
	authority uuid   NOT NULL,
	name      text COLLATE "C" NOT NULL,
	token     bigint NOT NULL CHECK (token >= 0),
	PRIMARY KEY (resource, authority, name)
) WITH (fillfactor = 50);

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
-- it writes calls enter first, as a statement of its own and the first of its transaction; admit fences a blind write, and may
-- stand in the statement of that write. Above READ COMMITTED, 40001 means that somebody else has entered since: roll back and begin again.
CREATE FUNCTION tenure.enter(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
BEGIN
	-- An equal token is written too. It was looked at when it came first.
	UPDATE tenure.mark m SET token = p_token WHERE m.resource OPERATOR(pg_catalog.=) p_resource AND m.authority OPERATOR(pg_catalog.=) p_authority
		AND m.name OPERATOR(pg_catalog.=) p_name AND m.token OPERATOR(pg_catalog.=) p_token AND m.token OPERATOR(pg_catalog.>) 0;
	IF NOT FOUND THEN
		PERFORM tenure.raise_mark(p_resource, p_authority, p_name, p_acquisition, p_token);
	END IF;
END $$;

CREATE FUNCTION tenure.admit(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET enable_seqscan = off AS $$
BEGIN
	-- An equal token is written too. It was looked at when it came first.
	UPDATE tenure.mark m SET token = p_token WHERE m.resource OPERATOR(pg_catalog.=) p_resource AND m.authority OPERATOR(pg_catalog.=) p_authority
		AND m.name OPERATOR(pg_catalog.=) p_name AND m.token OPERATOR(pg_catalog.=) p_token AND m.token OPERATOR(pg_catalog.>) 0;
	IF NOT FOUND THEN
		PERFORM tenure.raise_mark(p_resource, p_authority, p_name, p_acquisition, p_token);
	END IF;
END $$;

-- Which name came first, and so guards a resource, is told by an index that two first entries collide in, whatever their snapshots are.
ALTER TABLE tenure.mark ADD COLUMN bound boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX mark_bound ON tenure.mark (resource) WHERE bound;

-- For a claim that is not at the mark: it is higher, nothing has entered yet, or it is stale, foreign or from the future.
CREATE FUNCTION tenure.raise_mark(p_resource text, p_authority uuid, p_name text, p_acquisition uuid, p_token bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	m tenure.mark;
BEGIN
	PERFORM tenure.check_claim(p_authority, p_name, p_acquisition, p_token), tenure.check_resource(p_resource);
	PERFORM tenure.check_issued(p_authority, p_name, p_token);
	FOR i IN 1..3 LOOP -- each wait below ends with a row that the next look sees
		SELECT * INTO m FROM tenure.mark x WHERE x.resource = p_resource
		ORDER BY (x.authority = p_authority AND x.name = p_name) DESC, x.bound DESC, x.authority, x.name LIMIT 1;
		IF NOT FOUND THEN
			INSERT INTO tenure.mark (resource, authority, name, token, bound) VALUES (p_resource, p_authority, p_name, p_token, true) ON CONFLICT DO NOTHING;
		ELSIF m.authority <> p_authority OR m.name <> p_name THEN
			PERFORM tenure.foreign_claim(p_resource, p_authority, p_name, m.authority, m.name);
		ELSIF m.token > p_token THEN
			PERFORM tenure.refuse(p_resource, p_name, p_token, 'superseded', m.token);
		ELSE
			UPDATE tenure.mark x SET token = p_token WHERE x.resource = p_resource AND x.authority = p_authority AND x.name = p_name AND x.token <= p_token;
		END IF;
		IF FOUND THEN
			RETURN;
		END IF;
	END LOOP;
	RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'the mark changed under every attempt', HINT = 'Nothing was written. Roll back and begin again.';
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
