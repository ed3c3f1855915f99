-- Operations: what is known to have happened. State: 1 pending, 2 attempting, 3 uncertain, 4 succeeded, 5 failed, 6 cancelled. Step: 1 idle, 2 work,
-- 3 watch, 4 ask, 5 undo. Known, of an attempt: 1 not sent, 2 refused, 3 open, 4 no answer, 5 effective. Kept: 1 whole, 2 without bodies, 3 verdict only.

CREATE SEQUENCE tenure.submission AS bigint;

-- The current attempt lives in the operation's row (number, known, worker, began ...); earlier ones are moved to tenure.attempt when the next begins. So an operation that
-- is done at the first attempt costs one insert and two updates. What follows is in step and due, so that each row has at most one entry in the three indexes that work is found by;
-- of the rest a normal operation pays only for the key, and for one look at a page's range of times.
CREATE TABLE tenure.operation (
	submission  bigint      NOT NULL, -- order of submission, within a key of order
	number      bigint,               -- of the current attempt: NULL before the first
	prev        bigint,               -- of the attempt before it; guards every path that draws numbers
	created     timestamptz NOT NULL,
	due         timestamptz NOT NULL, -- of the step; of watch: when the claim expires
	began       timestamptz,
	ended       timestamptz,          -- the current attempt
	until       timestamptz,          -- the current attempt's timeout: no claim is renewed beyond it
	first       timestamptz,          -- when the first attempt began, where the current one is another
	again_until timestamptz,          -- another attempt may follow an unknown outcome until then; NULL: none may
	not_after   timestamptz,          -- every attempt carries it, and the provider refuses the effect after it
	decided     timestamptz,
	attempts    int         NOT NULL DEFAULT 0,
	unsent      int         NOT NULL DEFAULT 0, -- of these, how many were certainly not sent
	inquiries   int         NOT NULL DEFAULT 0,
	conflicts   int         NOT NULL DEFAULT 0, -- also those that are not kept
	state       smallint    NOT NULL DEFAULT 1,
	step        smallint    NOT NULL DEFAULT 2,
	priority    smallint    NOT NULL DEFAULT 0,
	known       smallint,             -- of the current attempt
	kept        smallint    NOT NULL DEFAULT 1,
	blocked     boolean     NOT NULL DEFAULT false, -- by an earlier one of its order
	unsure      boolean     NOT NULL DEFAULT false, -- an attempt before the current one may have had the effect
	wished      boolean     NOT NULL DEFAULT false, -- its cancelling was
	asks        boolean     NOT NULL DEFAULT false,
	undoes      boolean     NOT NULL DEFAULT false,
	own         boolean     NOT NULL DEFAULT false, -- result is what the current attempt was answered
	id          text        COLLATE "C" PRIMARY KEY,
	kind        text        COLLATE "C" NOT NULL,
	fingerprint bytea       NOT NULL,
	worker      text,                 -- of the current attempt
	ord         text        COLLATE "C",
	compensates text        COLLATE "C",
	undone_by   text        COLLATE "C",
	reason      text,
	why         text,                 -- the current attempt's reason
	request     bytea,
	result      bytea,
	answer      bytea,                -- the current attempt's result, where it is not the operation's
	CONSTRAINT numbers_rise CHECK (number > prev)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_analyze_scale_factor = 0.05, autovacuum_analyze_threshold = 2000,
	autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX operation_work ON tenure.operation (kind, priority, due, submission) WHERE step = 2 AND NOT blocked;
CREATE INDEX operation_watch ON tenure.operation (due) WHERE step = 3;
CREATE INDEX operation_desk ON tenure.operation (kind, due, submission) WHERE step > 3;
CREATE INDEX operation_order ON tenure.operation (ord, submission) WHERE ord IS NOT NULL AND state < 4;
CREATE INDEX operation_uncertain ON tenure.operation (id) WHERE state = 3;
CREATE INDEX operation_wished ON tenure.operation (id) WHERE wished;
CREATE INDEX operation_conflicts ON tenure.operation (id) WHERE conflicts > 0;
CREATE INDEX operation_pruned ON tenure.operation (decided) WHERE kept > 1;
CREATE INDEX operation_decided ON tenure.operation USING brin (decided) WITH (pages_per_range = 64, autosummarize = on);

-- Attempts that another one has followed.
CREATE TABLE tenure.attempt (
	id     text        COLLATE "C" NOT NULL,
	number bigint      NOT NULL,
	began  timestamptz NOT NULL,
	ended  timestamptz NOT NULL,
	known  smallint    NOT NULL,
	worker text        NOT NULL,
	why    text,
	answer bytea,
	PRIMARY KEY (id, number)
);

-- Answers that contradict a decision, the first of them.
CREATE TABLE tenure.conflict (
	id      text   COLLATE "C" NOT NULL,
	o       int    NOT NULL,
	attempt bigint NOT NULL, -- 0: an inquiry's
	why     text   NOT NULL,
	answer  bytea,
	PRIMARY KEY (id, o)
);

-- All attempts, one a row.
CREATE VIEW tenure.attempts AS
	SELECT a.id, a.number, a.known, a.worker, a.began, a.ended, a.why, a.answer FROM tenure.attempt a
	UNION ALL
	SELECT o.id, o.number, o.known, o.worker, o.began, o.ended, o.why, CASE WHEN o.own THEN o.result ELSE o.answer END FROM tenure.operation o WHERE o.number IS NOT NULL;

-- An operation as it is told. outcome says what became of the call. Times are durations, as of the reply.
CREATE TYPE tenure.op_record AS (
	outcome text, id text, kind text, fingerprint bytea, state text, step text, step_in interval, priority int, ord text, blocked boolean,
	age interval, decided interval, kept text, inquiries int, conflicts int, wished boolean, compensates text, undone_by text, not_after timestamptz, reason text, request bytea, result bytea,
	numbers bigint[], knowns text[], workers text[], began interval[], ended interval[], reasons text[], results bytea[],
	conflict_attempts bigint[], conflict_reasons text[], conflict_results bytea[]);

-- What the rules read and write, without bodies. was: the state before.
CREATE TYPE tenure.op_head AS (
	id text, kind text, was smallint, state smallint, number bigint, known smallint, attempts int, unsure boolean, wished boolean, asks boolean, undoes boolean, undone boolean,
	kept smallint, ord text, due timestamptz, again_until timestamptz, not_after timestamptz);

-- An attempt that has begun. time_left: the claim is not renewed beyond it. was_due: since when it could have.
CREATE TYPE tenure.op_job AS (
	id text, number bigint, kind text, ordinal int, request bytea, unsure boolean, priority int, ord text, remaining interval, time_left interval, not_after timestamptz, was_due timestamptz);
