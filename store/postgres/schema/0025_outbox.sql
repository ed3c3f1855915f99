-- Outbox: messages that leave if and only if the transaction that wrote them has committed. State: 1 pending, 2 delivered, 3 dead.

-- Positions, and turns in the queue: one sequence, so that a turn that is drawn later is higher than every position that was there. No order that is kept rests on when transactions began.
CREATE SEQUENCE tenure.outbox_turn AS bigint;

CREATE TYPE tenure.outbox_failure AS (attempt int, relay text, problem text, at timestamptz);

-- What is true of a message stands here, and is in no index: a claim and a verdict change the row within its page. until is the deadline of its latest claim; settled: that had its verdict.
CREATE TABLE tenure.outbox_message (
	position bigint      PRIMARY KEY,
	id       uuid        NOT NULL CONSTRAINT outbox_once UNIQUE,
	topic    text        COLLATE "C" NOT NULL,
	key      text        COLLATE "C" NOT NULL,
	ordered  boolean     NOT NULL,
	settled  boolean     NOT NULL DEFAULT false,
	state    smallint    NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 3),
	attempts int         NOT NULL DEFAULT 0,
	lost     int         NOT NULL DEFAULT 0,
	appended timestamptz NOT NULL,
	due      timestamptz NOT NULL,
	claim    uuid,
	relay    text,
	until    timestamptz,
	ended    timestamptz,
	headers  jsonb,
	errors   tenure.outbox_failure[],
	payload  bytea       NOT NULL
) WITH (fillfactor = 50);

-- Where to look for what may be claimed, in turn: a message, or where position is NULL an ordered key that may have some. What is in it is a hint, the message's row decides. But every message that may be claimed now, or its
-- key, is in it, unless its claim has expired and nobody has noticed, or its back-off has ended and nobody has noticed. Whoever claims takes the row away.
CREATE TABLE tenure.outbox_queue (
	topic    text   COLLATE "C" NOT NULL,
	turn     bigint NOT NULL,
	position bigint,
	key      text   COLLATE "C",
	PRIMARY KEY (topic, turn)
);

-- The ordered messages that are pending, by key.
CREATE TABLE tenure.outbox_line (
	topic    text   COLLATE "C" NOT NULL,
	key      text   COLLATE "C" NOT NULL,
	position bigint NOT NULL,
	PRIMARY KEY (topic, key, position)
);

-- A row for each ordered key that may not be claimed: open of its messages have had no verdict under that claim, or, without a claim, its first is not due. Whoever takes the row away puts the key into the queue.
CREATE TABLE tenure.outbox_lane (
	topic text COLLATE "C" NOT NULL,
	key   text COLLATE "C" NOT NULL,
	claim uuid,
	open  int  NOT NULL DEFAULT 0,
	PRIMARY KEY (topic, key)
);

-- What has been put off, a message or a key.
CREATE TABLE tenure.outbox_later (
	due      timestamptz NOT NULL,
	topic    text        COLLATE "C" NOT NULL,
	position bigint,
	key      text        COLLATE "C"
);
CREATE INDEX later_due ON tenure.outbox_later (due);

-- Claims some of whose messages have had no verdict, as many as open.
CREATE TABLE tenure.outbox_claim (
	claim     uuid        PRIMARY KEY,
	until     timestamptz NOT NULL,
	open      int         NOT NULL,
	positions bigint[]    NOT NULL,
	topics    text[]      NOT NULL, -- of its ordered keys
	keys      text[]      NOT NULL
);
CREATE INDEX claim_until ON tenure.outbox_claim (until);

-- What has ended together, for pruning. A message that was made pending since has not.
CREATE TABLE tenure.outbox_ended (
	ended     timestamptz NOT NULL,
	state     smallint    NOT NULL,
	positions bigint[]    NOT NULL
);
CREATE INDEX ended_when ON tenure.outbox_ended (state, ended);

-- The dead letters.
CREATE TABLE tenure.outbox_dead (
	position bigint PRIMARY KEY,
	topic    text   COLLATE "C" NOT NULL
);
CREATE INDEX dead_topic ON tenure.outbox_dead (topic, position);

-- Every topic that ever had a message. Two that are first at once write a row each, for neither may wait for the other.
CREATE TABLE tenure.outbox_topic (topic text COLLATE "C" NOT NULL);
CREATE INDEX topic_known ON tenure.outbox_topic (topic);

-- '' is all of them.
CREATE TABLE tenure.outbox_pause (
	topic  text COLLATE "C" PRIMARY KEY,
	reason text NOT NULL
);

-- A delivery. The batch is in the order of the positions.
CREATE TYPE tenure.outbox_delivery AS (
	"position" bigint, id uuid, topic text, key text, ordered boolean, headers jsonb, payload bytea, attempt int, age interval);

-- A message as operators see it. Times are durations, as of the reply.
CREATE TYPE tenure.outbox_info AS (
	id uuid, topic text, key text, ordered boolean, headers jsonb, payload bytea, bytes int, "position" bigint, state text, attempts int, relay text,
	claimed interval, due_in interval, age interval, ended interval, errors jsonb);
