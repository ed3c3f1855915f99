-- Tables of the authority. Instants are timestamptz by the primary's clock_timestamp(); durations are intervals of microseconds.
-- Sessions and leases are two tables, so that a renewal touches no lease row and waits for no fenced transaction.

CREATE TABLE tenure.authority (
	one            boolean     PRIMARY KEY DEFAULT true CHECK (one),
	id             uuid        NOT NULL,
	origin         timestamptz NOT NULL, -- when it was installed; the floor of raised tokens counts from it
	timeline       bigint      NOT NULL, -- of the last incarnation that granted
	started        timestamptz NOT NULL, -- the same: pg_postmaster_start_time()
	ahead          boolean     NOT NULL DEFAULT false, -- tenure.ahead has rows
	allow_prepared boolean     NOT NULL DEFAULT false  -- verify may run although max_prepared_transactions > 0
);

-- Unlogged: crash recovery and promotion empty it. Whoever finds the same id as before knows that no commit in between was lost, also no
-- asynchronous one.
CREATE UNLOGGED TABLE tenure.unbroken (one boolean PRIMARY KEY DEFAULT true CHECK (one), id uuid NOT NULL);

CREATE SEQUENCE tenure.token AS bigint;

-- No index but the key: it would end HOT updates of renewals. ended: 0 while live, else how (tenure.how).
CREATE TABLE tenure.session (
	id           uuid        PRIMARY KEY,
	owner        text        NOT NULL,
	ttl          interval    NOT NULL,
	since        bigint      NOT NULL DEFAULT 0, -- the highest token issued when it was opened: leases up to it are of an earlier session of this id, which was forgotten
	expires_at   timestamptz NOT NULL,
	closed_below uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', -- no acquisition below it is granted any more
	ended        smallint    NOT NULL DEFAULT 0,
	ended_at     timestamptz,
	-- Whoever may call the Go store's functions may call them with anything.
	CONSTRAINT ttl_in_range CHECK (ttl BETWEEN interval '0' AND interval '24 hours'),
	CONSTRAINT owner_in_range CHECK (octet_length(owner) <= 256)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);

-- The latest acquisition of each name; token 0: none yet. No index but the key, for the same reason: each acquire and
-- each release changes session and acquisition. over: 0 until an end is written, else how. prev guards every path that writes tokens.
CREATE TABLE tenure.lease (
	name        text COLLATE "C" PRIMARY KEY,
	token       bigint      NOT NULL DEFAULT 0,
	prev        bigint      NOT NULL DEFAULT -1,
	acquisition uuid,
	session     uuid,
	bound       uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000', -- the session has said: nothing below it is asked for any more
	names       smallint    NOT NULL DEFAULT 0, -- how many names the acquisition took
	max_hold    interval,                       -- as asked for; NULL: none
	hold_until  timestamptz,                    -- NULL: none
	over        smallint    NOT NULL DEFAULT 6,
	over_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
	CONSTRAINT tokens_rise CHECK (token > prev)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 500);

-- Acquisitions that are over and whose end must be remembered apart from the lease row.
CREATE TABLE tenure.ended (
	session     uuid        NOT NULL,
	acquisition uuid        NOT NULL,
	how         smallint    NOT NULL,
	reason      text        NOT NULL DEFAULT '',
	told        boolean     NOT NULL DEFAULT true, -- false: a revocation that the session has not confirmed
	at          timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (session, acquisition) -- what one session says of an id closes nothing of another's
);
CREATE INDEX ended_untold ON tenure.ended (session) WHERE NOT told;
CREATE INDEX ended_at ON tenure.ended (at);

-- Names of which a token was seen that this authority has not issued: no grants until the epoch is raised.
CREATE TABLE tenure.ahead (
	name  text COLLATE "C" PRIMARY KEY,
	token bigint NOT NULL
);
