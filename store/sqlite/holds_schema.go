package sqlite

// schemaV4 adds holds. Instants are nanoseconds of authority time. held and sold are kept in the item's row, so that no call counts what has been held or sold: held counts
// the lines of holds in state 1, those included whose time has passed and that nobody has noticed yet; whoever needs what they hold takes it from the front of tenure_line_live.
const schemaV4 = `
CREATE TABLE tenure_item (
	name     TEXT    PRIMARY KEY,
	quantity INTEGER NOT NULL,
	sold     INTEGER NOT NULL,
	held     INTEGER NOT NULL,
	CHECK (sold >= 0 AND held >= 0 AND sold + held <= quantity) -- stands behind every path: nothing is sold twice
) STRICT, WITHOUT ROWID;

CREATE TABLE tenure_hold (
	id        BLOB    PRIMARY KEY,
	actor     TEXT    NOT NULL,
	ttl       INTEGER NOT NULL, -- as asked for
	placed    INTEGER NOT NULL,
	at        INTEGER NOT NULL, -- of state 1: its deadline; else when it ended
	state     INTEGER NOT NULL, -- 1 held, or expired and not noticed; 2 confirmed, 3 released, 4 expired, 5 late
	units     INTEGER NOT NULL, -- of all lines
	reference TEXT    NOT NULL DEFAULT '' -- of states 2 and 5
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_hold_actor ON tenure_hold (actor, state, id);
CREATE INDEX tenure_hold_live ON tenure_hold (actor, at, units) WHERE state = 1; -- an actor's limits
CREATE INDEX tenure_hold_at ON tenure_hold (state, at, id);

CREATE TABLE tenure_line (
	hold     BLOB    NOT NULL,
	item     TEXT    NOT NULL,
	quantity INTEGER NOT NULL,
	until    INTEGER NOT NULL, -- the hold's deadline
	state    INTEGER NOT NULL, -- the hold's
	sole     INTEGER NOT NULL DEFAULT 0, -- 1: confirmed when there was one of the item
	PRIMARY KEY (hold, item)
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_line_item ON tenure_line (item, state, hold);
CREATE INDEX tenure_line_live ON tenure_line (item, until, quantity) WHERE state = 1;
-- Stands behind the counters: what there is one of is sold once.
CREATE UNIQUE INDEX tenure_line_sole ON tenure_line (item) WHERE state = 2 AND sole = 1;

UPDATE tenure_schema SET version = 4;
`
