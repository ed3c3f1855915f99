-- Three terminals: O is the owner of the table, who is a member of tenure_user; A and B are workers, with -v ttl='30 seconds'.
-- "--- O" says in whose terminal the next lines are typed. docs/sql.md shows what comes out; it is made from this file by running it.

--- O
-- The owner protects the table: each row is written under the lease whose name the expression gives.
\x on
\set SHOW_CONTEXT never
SELECT count(*) AS statements FROM tenure.protect('stock', $$'stock/' || item$$);

--- O
-- A plain UPDATE is refused from now on: of everybody, the owner included.
UPDATE stock SET on_hand = on_hand - 1 WHERE item = 'lamp';
\echo :LAST_ERROR_SQLSTATE

--- A
-- Worker A acquires the lease, and presents its claim in the transaction that writes. The same UPDATE passes.
\x on
\set SHOW_CONTEXT never
SELECT tenure.new_id() AS session \gset
SELECT outcome FROM tenure.open_session(:'session', 'worker-a', :'ttl');
SELECT tenure.new_id() AS job \gset
SELECT outcome, token, claim FROM tenure.acquire(:'session', :'job', ARRAY['stock/lamp']) \gset
\echo :outcome :token
BEGIN;
SELECT tenure.present(:'claim');
UPDATE stock SET on_hand = on_hand - 1 WHERE item = 'lamp';
COMMIT;

--- A
-- A claim opens the rows of its own name and no others, and what was presented is gone with the transaction.
BEGIN;
SELECT tenure.present(:'claim');
UPDATE stock SET on_hand = on_hand - 1 WHERE item = 'chair';
ROLLBACK;
UPDATE stock SET on_hand = on_hand - 1 WHERE item = 'lamp';

--- B
-- A does not renew. When its time is up, worker B is granted the lease, and sells a lamp.
\x on
\set SHOW_CONTEXT never
SELECT tenure.new_id() AS session \gset
SELECT outcome FROM tenure.open_session(:'session', 'worker-b', '1 minute');
SELECT tenure.new_id() AS job \gset
SELECT pg_sleep_for(:'ttl');
SELECT outcome, token, claim FROM tenure.acquire(:'session', :'job', ARRAY['stock/lamp']) \gset
\echo :outcome :token
BEGIN;
SELECT tenure.present(:'claim');
UPDATE stock SET on_hand = on_hand - 1 WHERE item = 'lamp';
COMMIT;

--- A
-- A's claim is stale now, and refused when it is presented.
BEGIN;
SELECT tenure.present(:'claim');
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;

--- A
-- To write by hand what present writes proves nothing: the triggers look for themselves.
BEGIN;
SELECT set_config('tenure.presented', jsonb_build_object('stock/lamp', :'job' || ':1')::text, true);
UPDATE stock SET on_hand = on_hand - 1 WHERE item = 'lamp';
ROLLBACK;

--- O
-- What is in force: everything. With an event trigger, which the first call of a superuser makes, new_partitions would be t; this table has none.
SELECT * FROM tenure.protections();

--- O
-- An owner can switch a trigger off. Then the row is open, and the list says why.
ALTER TABLE stock DISABLE TRIGGER tenure_guard_update;
UPDATE stock SET on_hand = on_hand - 1 WHERE item = 'chair';
SELECT * FROM tenure.protections();

--- O
-- To protect the table once more mends it.
SELECT count(*) AS statements FROM tenure.protect('stock', $$'stock/' || item$$);
SELECT relation, problems FROM tenure.protections();
SELECT * FROM stock ORDER BY item;
