-- Holds: what is for sale, and who has reserved it until when. State: 1 held, 2 confirmed, 3 released, 4 expired, 5 late.

-- held counts the lines that are live, those included whose time has passed unnoticed: whoever locks the item frees them, so that nothing sweeps, and nothing is
-- summed that grows with what is sold. sold never falls.
CREATE TABLE tenure.item (
	name     text   COLLATE "C" PRIMARY KEY,
	quantity bigint NOT NULL,
	sold     bigint NOT NULL DEFAULT 0,
	held     bigint NOT NULL DEFAULT 0,
	CONSTRAINT never_oversold CHECK (sold >= 0 AND held >= 0 AND sold + held <= quantity)
) WITH (fillfactor = 70);

-- items and quantities never change. until is the deadline, and once the hold has ended otherwise than by it, when that was.
CREATE TABLE tenure.hold (
	id         uuid        PRIMARY KEY,
	actor      text        COLLATE "C" NOT NULL,
	state      smallint    NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 5),
	units      bigint      NOT NULL,
	ttl        interval    NOT NULL,
	placed     timestamptz NOT NULL,
	until      timestamptz NOT NULL,
	reference  text,
	items      text[]      COLLATE "C" NOT NULL,
	quantities bigint[]    NOT NULL,
	CONSTRAINT paid_by_reference CHECK ((state IN (2, 5)) = (reference IS NOT NULL))
) WITH (fillfactor = 85);

CREATE INDEX hold_of_actor ON tenure.hold (actor, id);
CREATE INDEX hold_live ON tenure.hold (actor, until) WHERE state = 1;
CREATE INDEX hold_until ON tenure.hold (until);

-- A line belongs to its item's row: whoever changes it has locked that. live: it is counted as held. A line that is not, of a hold whose state is held, is the written verdict that
-- the hold has expired. sole: it was sold, and of its item there was one.
CREATE TABLE tenure.hold_line (
	item     text        COLLATE "C" NOT NULL,
	hold     uuid        NOT NULL,
	quantity bigint      NOT NULL CHECK (quantity > 0),
	until    timestamptz NOT NULL,
	live     boolean     NOT NULL DEFAULT true,
	sole     boolean     NOT NULL DEFAULT false,
	PRIMARY KEY (item, hold)
);

CREATE INDEX line_live ON tenure.hold_line (item, until) WHERE live;

-- What stands behind every form of selling: a single item is sold once.
CREATE UNIQUE INDEX sold_once ON tenure.hold_line (item) WHERE sole;

-- A hold as it is told. outcome says what became of the call. Times are durations, as of the reply. quantities go with items.
CREATE TYPE tenure.hold_record AS (
	outcome text, id uuid, actor text, items text[], quantities bigint[], ttl interval, state text, remaining interval, reference text, age interval, ended interval);

-- Why a hold is not placed: limit 'holds' or 'units', or 'taken', or 'item' where it was never stocked. NULL: it may be.
CREATE TYPE tenure.hold_refusal AS (why text, item text, wanted bigint, free bigint, next interval);
