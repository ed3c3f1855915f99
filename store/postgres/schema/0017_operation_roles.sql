-- Who may do what with operations. tenure_user submits, works and reconciles; tenure_operator also resolves and prunes.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenure.guard(oid, text[]), tenure.family(regclass), tenure.guard_triggers(regclass, text, text, text), tenure.guard_always(regclass), tenure.guard_args(bytea) TO PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM PUBLIC;

GRANT EXECUTE ON FUNCTION
	tenure.op_submit(text, text, bytea, interval, int, text, text, bytea), tenure.op_submit_many(text[], text[], bytea[], bytea[], int[], interval[]),
	tenure.op_get(text, boolean), tenure.op_cancel(text, text), tenure.op_respond(text, bigint, text, bytea, text, boolean),
	tenure.op_claim(text[], text, int, interval, interval, interval, interval, int, boolean, boolean, text),
	tenure.op_claim_many(text, interval, int, text[], int[], interval[], interval[], interval[], int[], boolean[], boolean[], text, timestamptz[]),
	tenure.op_renew(text[], bigint[], interval, int), tenure.op_complete(text, bigint, text, bytea, text, boolean, interval),
	tenure.op_complete_many(text[], bigint[], smallint[], bytea[], text[], boolean[], interval[]),
	tenure.op_expire(int), tenure.op_due(text[], int, interval), tenure.op_inquired(text, text, bytea, text, interval, bigint), tenure.op_undone(text, text),
	tenure.op_list(text[], text, text, text, int, boolean, boolean, boolean), tenure.op_stats(), tenure.op_mend_sequence()
TO tenure_user;
GRANT EXECUTE ON FUNCTION tenure.op_resolve(text, text, text, bytea), tenure.op_prune(interval, interval, interval, int) TO tenure_operator;
