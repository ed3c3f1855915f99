package sqlite

// schemaV5 adds messages and what consumers have noted of them. Instants are nanoseconds of authority time. Bodies stand apart, so that a claim and a verdict carry none.
//
// lead is what keeps a claim from looking at all messages of a key: of an ordered key the first pending message alone can be claimed, with what follows it, and it alone is
// found as due.
const schemaV5 = `
CREATE TABLE tenure_message (
	position INTEGER PRIMARY KEY, -- rises, and is not used again: see tenure_outbox
	id       BLOB    NOT NULL UNIQUE,
	topic    TEXT    NOT NULL,
	key      TEXT    NOT NULL,
	ordered  INTEGER NOT NULL,
	state    INTEGER NOT NULL DEFAULT 1, -- 1 pending, 2 delivered, 3 dead
	lead     INTEGER NOT NULL, -- of state 1: 1 not ordered, 2 the first pending one of its topic and key; else 0
	at       INTEGER NOT NULL, -- of state 1: the deadline of the claim if that is open, else when it is due; of others: when they ended
	open     INTEGER NOT NULL DEFAULT 0, -- 1: the latest claim has had no verdict
	claim    BLOB    NOT NULL DEFAULT x'', -- the latest one, also after its verdict
	relay    TEXT    NOT NULL DEFAULT '',
	attempts INTEGER NOT NULL DEFAULT 0,
	lost     INTEGER NOT NULL DEFAULT 0, -- claims in a row that expired without a verdict, the latest one not included
	size     INTEGER NOT NULL, -- of the payload
	appended INTEGER NOT NULL
) STRICT;
CREATE INDEX tenure_message_due ON tenure_message (topic, at, position, lead) WHERE lead > 0;
CREATE INDEX tenure_message_chain ON tenure_message (topic, key) WHERE ordered = 1 AND state = 1;
CREATE INDEX tenure_message_open ON tenure_message (topic, key, at) WHERE ordered = 1 AND open = 1;
CREATE INDEX tenure_message_over ON tenure_message (state, at) WHERE state > 1;
CREATE INDEX tenure_message_key ON tenure_message (key) WHERE key <> ''; -- for operators

-- Headers and payloads that are not empty.
CREATE TABLE tenure_message_body (
	position INTEGER PRIMARY KEY,
	headers  TEXT NOT NULL, -- a JSON object, or empty
	payload  BLOB NOT NULL
) STRICT;

-- Why attempts have not delivered, the newest of each message.
CREATE TABLE tenure_message_error (
	position INTEGER NOT NULL,
	n        INTEGER NOT NULL, -- rises
	attempt  INTEGER NOT NULL,
	relay    TEXT    NOT NULL,
	text     TEXT    NOT NULL,
	at       INTEGER NOT NULL,
	PRIMARY KEY (position, n)
) STRICT, WITHOUT ROWID;

-- One row: positions up to floor have been used by messages that are forgotten.
CREATE TABLE tenure_outbox (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	floor INTEGER NOT NULL
) STRICT;
INSERT INTO tenure_outbox VALUES (1, 0);

-- Topics that are paused; the empty one stands for all.
CREATE TABLE tenure_paused (
	topic  TEXT PRIMARY KEY,
	reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- What consumers have done.
CREATE TABLE tenure_inbox (
	consumer TEXT    NOT NULL,
	message  TEXT    NOT NULL,
	at       INTEGER NOT NULL,
	PRIMARY KEY (consumer, message)
) STRICT, WITHOUT ROWID;
CREATE INDEX tenure_inbox_at ON tenure_inbox (at);

UPDATE tenure_schema SET version = 5;
`
