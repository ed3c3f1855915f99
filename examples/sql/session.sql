-- Two terminals, a worker in each, both with: psql "$DATABASE_URL" -v ttl='30 seconds'
-- "--- A" and "--- B" say in whose terminal the next lines are typed, "--- A stops" and "--- A goes on" are Ctrl-Z and fg there.
-- docs/sql.md shows what comes out; it is made from this file by running it.

--- A
-- Worker A opens a session and asks for a lease. The ids are chosen before the calls that use them.
\x on
\set SHOW_CONTEXT never
SELECT tenure.new_id() AS session \gset
SELECT * FROM tenure.open_session(:'session', 'worker-a', :'ttl');
SELECT tenure.new_id() AS job \gset
SELECT outcome, name, token, claim, remaining FROM tenure.acquire(:'session', :'job', ARRAY['nightly-report']);

--- A
-- Asking again under the same id, as after a lost answer, gives the same grant and no second one.
SELECT token, claim FROM tenure.acquire(:'session', :'job', ARRAY['nightly-report']) \gset
\echo :token :claim

--- B
-- Worker B is refused. It learns who holds the lease, and for how long at most unless it is renewed.
\x on
\set SHOW_CONTEXT never
SELECT tenure.new_id() AS session \gset
SELECT * FROM tenure.open_session(:'session', 'worker-b', '1 minute');
SELECT tenure.new_id() AS job \gset
SELECT outcome, name, holder, token, remaining FROM tenure.acquire(:'session', :'job', ARRAY['nightly-report']);

--- A
-- A renews, and writes. The check and the write are one transaction.
SELECT outcome, remaining FROM tenure.renew(:'session');
BEGIN;
SELECT tenure.verify(:'claim');
INSERT INTO report VALUES ('nightly-report', 1, 'worker-a', :token);
COMMIT;

--- A stops
-- A is paused, as by a debugger, a frozen container or a machine out of memory. It renews no more, and does not know.

--- B
-- B asks once more, waits until A's time is up, and is granted what it asked for under the same id. The token is higher.
SELECT outcome, holder, remaining FROM tenure.acquire(:'session', :'job', ARRAY['nightly-report']);
SELECT pg_sleep_for(:'ttl');
SELECT outcome, token, claim FROM tenure.acquire(:'session', :'job', ARRAY['nightly-report']) \gset
\echo :outcome :token
BEGIN;
SELECT tenure.verify(:'claim');
INSERT INTO report VALUES ('nightly-report', 2, 'worker-b', :token);
COMMIT;

--- A goes on
-- A goes on where it was, and sends its write. The database refuses it.
BEGIN;
SELECT tenure.verify(:'claim');
\echo :LAST_ERROR_SQLSTATE
INSERT INTO report VALUES ('nightly-report', 3, 'worker-a', :token);
ROLLBACK;
SELECT outcome FROM tenure.renew(:'session');
SELECT outcome, over FROM tenure.acquire(:'session', :'job', ARRAY['nightly-report']);

--- B
-- B releases. Saying so twice does no harm.
SELECT outcome FROM tenure.release(:'session', :'job', ARRAY['nightly-report']);
SELECT outcome FROM tenure.release(:'session', :'job', ARRAY['nightly-report']);
SELECT outcome FROM tenure.close_session(:'session');
SELECT name, token, held, how FROM tenure.lease_of('nightly-report');
SELECT line, made_by, token FROM report;
