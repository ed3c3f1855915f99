package sqlite

// schemaV3 adds operations. Instants are nanoseconds of authority time. The current attempt stands in its operation's row, so that an operation which is done at its
// first attempt costs two updates of one row; bodies stand apart, so that these updates carry none.
const schemaV3 = `
CREATE TABLE tenure_operation (
	n           INTEGER PRIMARY KEY, -- rises with every submission
	id          TEXT    NOT NULL UNIQUE,
	kind        TEXT    NOT NULL,
	fingerprint BLOB    NOT NULL,
	state       INTEGER NOT NULL, -- 1 pending, 2 attempting, 3 uncertain, 4 succeeded, 5 failed, 6 cancelled
	step        INTEGER NOT NULL, -- 1 idle, 2 work, 3 watch, 4 ask, 5 undo
	due         INTEGER NOT NULL, -- of the step; of watch: when the claim expires
	priority    INTEGER NOT NULL,
	ord         TEXT    NOT NULL, -- the key of order, or empty
	blocked     INTEGER NOT NULL, -- 1: an earlier operation of its order is undecided
	compensates TEXT    NOT NULL,
	created     INTEGER NOT NULL,
	kept        INTEGER NOT NULL DEFAULT 1, -- 1 whole, 2 without bodies, 3 verdict only
	decided     INTEGER NOT NULL DEFAULT 0, -- when it was; 0 while it is not
	reason      TEXT    NOT NULL DEFAULT '',
	result_of   INTEGER NOT NULL DEFAULT 0, -- whose result is the operation's: an attempt's number, -1: its own, 0: none
	wished      INTEGER NOT NULL DEFAULT 0,
	undone_by   TEXT    NOT NULL DEFAULT '',
	inquiries   INTEGER NOT NULL DEFAULT 0,
	conflicts   INTEGER NOT NULL DEFAULT 0, -- all, also those that are not kept
	attempts    INTEGER NOT NULL DEFAULT 0, -- the current one included; those before it are in tenure_attempt
	first       INTEGER NOT NULL DEFAULT 0, -- when the first attempt was recorded
	until       INTEGER NOT NULL DEFAULT 0, -- the current attempt's timeout
	again_until INTEGER NOT NULL DEFAULT -1, -- another attempt may follow an unknown outcome until then; -1: none may
	not_after   INTEGER NOT NULL DEFAULT 0, -- the instant that every attempt carries, by this clock
	instant     INTEGER NOT NULL DEFAULT 0, -- the same as attempts carry it, in nanoseconds of Unix time; 0: none
	asks        INTEGER NOT NULL DEFAULT 0,
	undoes      INTEGER NOT NULL DEFAULT 0,
	number      INTEGER NOT NULL DEFAULT 0, -- the current attempt; 0: there was none
	worker      TEXT    NOT NULL DEFAULT '',
	known       INTEGER NOT NULL DEFAULT 0, -- 1 not sent, 2 refused, 3 open, 4 no answer, 5 effective
	began       INTEGER NOT NULL DEFAULT 0,
	ended       INTEGER NOT NULL DEFAULT 0,
	why         TEXT    NOT NULL DEFAULT ''
) STRICT;
-- Each row has one entry at most in the first three, by what comes next for it.
CREATE INDEX tenure_operation_work ON tenure_operation (kind, blocked, priority, due) WHERE step = 2;
CREATE INDEX tenure_operation_watch ON tenure_operation (due) WHERE step = 3;
CREATE INDEX tenure_operation_desk ON tenure_operation (kind, due) WHERE step >= 4;
CREATE INDEX tenure_operation_order ON tenure_operation (ord) WHERE ord <> '' AND state <= 3;
CREATE INDEX tenure_operation_decided ON tenure_operation (kept, decided) WHERE decided > 0;
-- What is rare, for operators.
CREATE INDEX tenure_operation_uncertain ON tenure_operation (id) WHERE state = 3;
CREATE INDEX tenure_operation_conflicts ON tenure_operation (id) WHERE conflicts > 0;
CREATE INDEX tenure_operation_wished ON tenure_operation (id) WHERE wished = 1;

-- Attempts that are not the current one any more.
CREATE TABLE tenure_attempt (
	n      INTEGER NOT NULL, -- of the operation
	number INTEGER NOT NULL,
	worker TEXT    NOT NULL,
	known  INTEGER NOT NULL,
	began  INTEGER NOT NULL,
	ended  INTEGER NOT NULL,
	why    TEXT    NOT NULL,
	PRIMARY KEY (n, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE tenure_conflict (
	n       INTEGER NOT NULL,
	ordinal INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	result  BLOB    NOT NULL,
	why     TEXT    NOT NULL,
	PRIMARY KEY (n, ordinal)
) STRICT, WITHOUT ROWID;

-- Bodies that are not empty. part is 0: the request; an attempt's number: its result; -1: the operation's own result.
CREATE TABLE tenure_body (
	n    INTEGER NOT NULL,
	part INTEGER NOT NULL,
	body BLOB    NOT NULL,
	PRIMARY KEY (n, part)
) STRICT, WITHOUT ROWID;

-- Every attempt of every operation, for people.
CREATE VIEW tenure_attempts AS
	SELECT o.id AS id, a.number AS number, a.worker AS worker, a.known AS known, a.began AS began, a.ended AS ended, a.why AS why
		FROM tenure_operation o JOIN tenure_attempt a ON a.n = o.n
	UNION ALL SELECT id, number, worker, known, began, ended, why FROM tenure_operation WHERE number > 0;

UPDATE tenure_schema SET version = 3;
`
