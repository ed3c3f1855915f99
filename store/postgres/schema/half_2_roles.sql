-- Who may do what: see 0010_roles.sql.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM PUBLIC;
REVOKE ALL ON SCHEMA tenure FROM PUBLIC;
GRANT USAGE ON SCHEMA tenure TO tenure_user, tenure_operator, PUBLIC;

GRANT EXECUTE ON FUNCTION
	tenure.schema_version(), tenure.claim_text(uuid, text, uuid, bigint), tenure.claim_parse(text), tenure.fail(text, text, jsonb, text),
	tenure.enter(text, text), tenure.admit(text, text), tenure.enter(text, uuid, text, uuid, bigint), tenure.admit(text, uuid, text, uuid, bigint), tenure.allow(text, uuid, text),
	tenure.present(uuid, text, uuid, bigint), tenure.present(uuid, text[], uuid[], bigint[]), tenure.present(text[]),
	tenure.protect(regclass, text, boolean), tenure.protect_script(regclass, text, boolean), tenure.unprotect(regclass), tenure.protections(),
	tenure.guard_body(text), tenure.guard_function(regclass), tenure.check_table(regclass), tenure.check_rights(regclass), tenure.check_expression(regclass, text)
TO tenure_user;
GRANT EXECUTE ON FUNCTION tenure.guard(oid, text[]), tenure.family(regclass), tenure.guard_triggers(regclass, text, text, text), tenure.guard_always(regclass), tenure.guard_args(bytea) TO PUBLIC;
