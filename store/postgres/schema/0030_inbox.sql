-- Inbox: which messages a consumer has had.

CREATE TABLE tenure.inbox_note (
	consumer text        COLLATE "C" NOT NULL,
	message  text        COLLATE "C" NOT NULL,
	noted    timestamptz NOT NULL,
	PRIMARY KEY (consumer, message)
);
CREATE INDEX inbox_noted ON tenure.inbox_note (noted);

-- Notes a message in the caller's transaction. age: NULL where it was not noted before; else since when, and nothing is to be done. It waits for another transaction that is noting the same; above READ COMMITTED that is 40001 when that has committed.
CREATE FUNCTION tenure.inbox_take(p_consumer text, p_message text) RETURNS interval LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	v_noted timestamptz;
BEGIN
	IF p_consumer IS NULL OR octet_length(p_consumer) NOT BETWEEN 1 AND 256 OR p_message IS NULL OR octet_length(p_message) NOT BETWEEN 1 AND 512 OR p_consumer || p_message ~ U&'[\0001-\001F\007F-\009F]' THEN
		PERFORM tenure.op_check_text('consumer', p_consumer, 1, 256), tenure.op_check_text('message id', p_message, 1, 512);
	END IF;
	IF current_setting('synchronous_commit') IN ('off', 'local') THEN
		PERFORM set_config('synchronous_commit', 'on', true);
	END IF;
	FOR i IN 1..20 LOOP
		INSERT INTO tenure.inbox_note (consumer, message, noted) VALUES (p_consumer, p_message, clock_timestamp()) ON CONFLICT DO NOTHING;
		IF FOUND THEN
			RETURN NULL;
		END IF;
		SELECT n.noted INTO v_noted FROM tenure.inbox_note n WHERE n.consumer = p_consumer AND n.message = p_message;
		IF FOUND THEN
			RETURN greatest(clock_timestamp() - v_noted, '0');
		END IF;
	END LOOP;
	PERFORM tenure.fail('TN006', 'the note came and went', NULL, 'Nothing was changed. Ask again.');
END $$;

-- True: do it, in this transaction. False: it was done.
CREATE FUNCTION tenure.inbox_once(p_consumer text, p_message text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	RETURN tenure.inbox_take(p_consumer, p_message) IS NULL;
END $$;

-- Forgets notes that are at least so old, the oldest first, and returns how many. A message that comes again afterwards is done again.
CREATE FUNCTION tenure.inbox_prune(p_age interval, p_limit int DEFAULT 1000)
RETURNS int LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	v_done int;
BEGIN
	PERFORM tenure.op_check_delay('age', p_age, '1 minute', '36600 days');
	IF p_limit IS NULL OR p_limit NOT BETWEEN 1 AND 10000 THEN
		PERFORM tenure.op_invalid('limit', 'want 1 to 10000');
	END IF;
	PERFORM tenure.read_committed('inbox_prune'), tenure.durable();
	WITH gone AS (
		DELETE FROM tenure.inbox_note n WHERE n.ctid = ANY (ARRAY(
			SELECT o.ctid FROM tenure.inbox_note o WHERE o.noted <= clock_timestamp() - p_age ORDER BY o.noted LIMIT p_limit FOR UPDATE SKIP LOCKED)) RETURNING 1)
	SELECT count(*) INTO v_done FROM gone;
	RETURN v_done;
END $$;
