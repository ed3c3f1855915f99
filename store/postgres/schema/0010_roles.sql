-- Who may do what. tenure_user acquires and fences; tenure_operator also revokes and prunes; tenure_owner owns the tables and repairs.
-- Nobody gets a right on a table: every function that touches one runs as its owner, with a pinned search path. Everybody gets what the triggers of
-- protected tables call: they refuse whoever writes there, also roles that Tenure knows nothing of.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA tenure FROM PUBLIC;
REVOKE ALL ON SCHEMA tenure FROM PUBLIC;
GRANT USAGE ON SCHEMA tenure TO tenure_user, tenure_operator;

GRANT EXECUTE ON FUNCTION
	tenure.new_id(), tenure.authority_id(), tenure.schema_version(),
	tenure.open_session(uuid, text, interval), tenure.renew(uuid, uuid), tenure.close_session(uuid),
	tenure.acquire(uuid, uuid, text[], interval, uuid, interval), tenure.release(uuid, uuid, text[], uuid, interval),
	tenure.lease_of(text), tenure.leases(text, text, int),
	tenure.claim_text(uuid, text, uuid, bigint), tenure.claim_parse(text),
	tenure.verify(text), tenure.enter(text, text), tenure.admit(text, text),
	tenure.verify(uuid, text, uuid, bigint), tenure.enter(text, uuid, text, uuid, bigint), tenure.admit(text, uuid, text, uuid, bigint), tenure.allow(text, uuid, text),
	tenure.report_ahead(uuid, text, bigint), tenure.enter_incarnation(),
	tenure.session_open(uuid, text, interval), tenure.session_renew(uuid, uuid), tenure.session_close(uuid), tenure.unbroken_id(), tenure.free_closed(uuid, uuid[], text[]),
	tenure.acquire_one(uuid, uuid, uuid, text, interval), tenure.acquire_many(uuid, uuid, uuid[], text[], interval[]), tenure.acquire_rows(uuid, uuid, uuid, text[], interval, int),
	tenure.mend_sequence(), tenure.issued(), tenure.release_one(uuid, uuid, uuid, text), tenure.release_many(uuid, uuid, uuid[], text[]), tenure.release_rows(uuid, uuid, text[], int), tenure.release_absent(uuid, uuid, uuid, text[])
TO tenure_user;
GRANT EXECUTE ON FUNCTION
	tenure.present(uuid, text, uuid, bigint), tenure.present(uuid, text[], uuid[], bigint[]), tenure.present(text[]), tenure.fail(text, text, jsonb, text),
	tenure.protect(regclass, text, boolean), tenure.protect_script(regclass, text, boolean), tenure.unprotect(regclass), tenure.protections(),
	tenure.guard_body(text), tenure.guard_function(regclass), tenure.check_table(regclass), tenure.check_rights(regclass), tenure.check_expression(regclass, text)
TO tenure_user;
GRANT USAGE ON SCHEMA tenure TO PUBLIC;
GRANT EXECUTE ON FUNCTION tenure.guard(oid, text[]), tenure.family(regclass), tenure.guard_triggers(regclass, text, text, text), tenure.guard_always(regclass), tenure.guard_args(bytea) TO PUBLIC;
GRANT EXECUTE ON FUNCTION
	tenure.lease_revoke(text, bigint, text), tenure.revoke(text, bigint, text), tenure.prune(interval, int)
TO tenure_operator;

-- Granted, and reads the sequence for its caller.
ALTER FUNCTION tenure.issued() SECURITY DEFINER SET search_path = pg_catalog, pg_temp;
