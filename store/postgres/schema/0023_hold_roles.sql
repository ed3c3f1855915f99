-- Who may do what with holds. tenure_user stocks, places and sells; tenure_operator also prunes.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM PUBLIC;
GRANT EXECUTE ON FUNCTION tenure.guard(oid, text[]), tenure.family(regclass), tenure.guard_triggers(regclass, text, text, text), tenure.guard_always(regclass), tenure.guard_args(bytea) TO PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM PUBLIC;

GRANT EXECUTE ON FUNCTION
	tenure.hold_place(uuid, text, text[], bigint[], interval, bigint, bigint), tenure.hold_extend(uuid, text, interval), tenure.hold_confirm(uuid, text, text, interval), tenure.hold_release(uuid, text),
	tenure.hold_get(uuid), tenure.hold_list(text, text, text[], uuid, int), tenure.item_stock(text[], bigint[]), tenure.items(text, text, int),
	tenure.hold_place_many(uuid[], text[], interval[], int[], text[], bigint[]), tenure.hold_confirm_many(uuid[], text[], text[])
TO tenure_user;
GRANT EXECUTE ON FUNCTION tenure.hold_prune(interval, int) TO tenure_operator;
