-- Who may do what with messages. tenure_user appends, claims and notes; tenure_operator also retries, replays, pauses and prunes.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenure.guard(oid, text[]), tenure.family(regclass), tenure.guard_triggers(regclass, text, text, text), tenure.guard_always(regclass), tenure.guard_args(bytea) TO PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA tenure FROM PUBLIC;

GRANT EXECUTE ON FUNCTION
	tenure.outbox_append(text, bytea, text, boolean, jsonb, uuid), tenure.outbox_append_many(text[], bytea[], text[], boolean[], jsonb[], uuid[]),
	tenure.outbox_claim(uuid, text, text[], int, int, interval, int), tenure.outbox_claim_many(uuid, text, text[], int, int, interval, int, jsonb),
	tenure.outbox_settle(uuid, bigint[], text[], text[], interval[], boolean[], text), tenure.outbox_ready(bigint),
	tenure.outbox_list(text, text, text[], bigint, int, boolean), tenure.outbox_get(uuid), tenure.outbox_topics(text),
	tenure.inbox_once(text, text), tenure.inbox_take(text, text)
TO tenure_user;
GRANT EXECUTE ON FUNCTION
	tenure.outbox_pause(text, boolean, text), tenure.outbox_retry(uuid[], text, text, bigint, bigint, interval, int), tenure.outbox_replay(uuid[], text, text, bigint, bigint, interval, int),
	tenure.outbox_prune(interval, interval, int), tenure.inbox_prune(interval, int)
TO tenure_operator;
