-- Submitting, asking, cancelling and late evidence. What changes nothing is an error: invalid input (TN004), an id in use for something else (TN020), an operation in another state
-- (TN021 decided, TN022 undecided), an attempt that is not the current one (TN023), an unknown id (TN024). What was recorded all the same is a row, whose outcome says so.

-- outcome: submitted, known (it was before; the record says how it stands). An operation of an order waits for transactions that have submitted or decided another one of the same order;
-- any waits for a transaction that is submitting the same id.
CREATE FUNCTION tenure.op_submit(p_id text, p_kind text, p_request bytea, p_run_in interval DEFAULT '0', p_priority int DEFAULT 0, p_order text DEFAULT NULL, p_compensates text DEFAULT NULL,
	p_fingerprint bytea DEFAULT NULL)
RETURNS tenure.op_record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
	v_print bytea := coalesce(p_fingerprint, sha256(int8send(octet_length(p_kind)) || convert_to(p_kind, 'UTF8') || coalesce(p_request, '')));
	v_order text := nullif(p_order, '');
	v_target text := nullif(p_compensates, '');
	v_state smallint;
	v_now timestamptz;
	v record;
BEGIN
	PERFORM tenure.op_check_submission(p_id, p_kind, p_request, p_run_in, p_priority, v_order, v_target, v_print);
	PERFORM tenure.durable();
	IF v_order IS NOT NULL THEN -- what stands before it is found in a later snapshot than the lock
		PERFORM tenure.read_committed('the submission of an operation with an order'), pg_advisory_xact_lock(tenure.op_order(v_order));
	END IF;
	FOR i IN 1..20 LOOP
		SELECT o.kind, o.fingerprint INTO v FROM tenure.operation o WHERE o.id = p_id;
		IF FOUND THEN
			IF v.kind <> p_kind OR v.fingerprint <> v_print THEN
				PERFORM tenure.fail('TN020', format('operation %s was submitted with another %s', to_json(p_id), CASE WHEN v.kind <> p_kind THEN 'kind' ELSE 'request' END),
					jsonb_build_object('id', p_id, 'what', CASE WHEN v.kind <> p_kind THEN 'kind' ELSE 'request' END), 'Nothing was changed. An id is for one request, ever.');
			END IF;
			PERFORM tenure.op_known_before();
			RETURN tenure.op_tell(p_id, true, clock_timestamp(), 'known');
		END IF;
		IF v_target IS NOT NULL THEN
			SELECT o.state INTO v_state FROM tenure.operation o WHERE o.id = v_target;
			IF FOUND AND v_state = 4 THEN -- final; the lock keeps it from being forgotten meanwhile
				SELECT o.state INTO v_state FROM tenure.operation o WHERE o.id = v_target FOR SHARE;
			END IF;
			IF v_state IS NULL THEN
				PERFORM tenure.op_not_found(v_target);
			ELSIF v_state <> 4 THEN
				PERFORM tenure.op_refuse(v_target, v_state, 'a compensation');
			END IF;
		END IF;
		v_now := clock_timestamp();
		INSERT INTO tenure.operation AS o (id, kind, fingerprint, request, priority, ord, compensates, submission, created, due, blocked)
		VALUES (p_id, p_kind, v_print, p_request, p_priority, v_order, v_target, nextval('tenure.submission'), v_now, v_now + p_run_in,
			v_order IS NOT NULL AND EXISTS (SELECT 1 FROM tenure.operation n WHERE n.ord = v_order AND n.state < 4))
		ON CONFLICT (id) DO NOTHING;
		IF FOUND THEN
			RETURN tenure.op_tell(p_id, true, v_now, 'submitted');
		END IF;
	END LOOP;
	PERFORM tenure.fail('TN006', format('operation %s came and went under every look', to_json(p_id)), NULL, 'Nothing was changed. Ask again.');
END $$;

CREATE FUNCTION tenure.op_check_submission(p_id text, p_kind text, p_request bytea, p_run_in interval, p_priority int, p_order text, p_target text, p_print bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM tenure.op_check_text('id', p_id, 1, 256), tenure.op_check_text('kind', p_kind, 1, 128), tenure.op_check_text('order', coalesce(p_order, ''), 0, 256),
		tenure.op_check_delay('run in', p_run_in, '0', '366 days'), tenure.op_check_text('compensates', coalesce(p_target, ''), 0, 256);
	IF octet_length(p_request) > 1048576 THEN
		PERFORM tenure.op_invalid('request', octet_length(p_request) || ' bytes; at most 1048576: keep what is larger elsewhere, and submit where it is');
	ELSIF octet_length(p_print) IS DISTINCT FROM 32 THEN
		PERFORM tenure.op_invalid('fingerprint', 'want 32 bytes');
	ELSIF p_priority IS NULL OR p_priority NOT BETWEEN 0 AND 3 THEN
		PERFORM tenure.op_invalid('priority', 'want 0 to 3');
	ELSIF p_target = p_id THEN
		PERFORM tenure.op_invalid('compensates', 'an operation does not undo itself');
	END IF;
END $$;

-- Many new operations without an order, which undo nothing: strangers to each other. Returns which it has not recorded, from 1: they ask singly. Another transaction that is submitting one
-- of the ids is waited for, 300 ms at most (55P03).
CREATE FUNCTION tenure.op_submit_many(p_ids text[], p_kinds text[], p_requests bytea[], p_prints bytea[], p_priorities int[], p_run_ins interval[])
RETURNS int[] LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	v_before text := current_setting('lock_timeout');
	v_now timestamptz := clock_timestamp();
	v_done text[];
	v_left int[] := '{}';
BEGIN
	PERFORM tenure.read_committed('submit'), tenure.durable();
	PERFORM tenure.op_check_submission(u.id, u.kind, u.request, u.run_in, u.priority, NULL, NULL, u.print)
	FROM unnest(p_ids, p_kinds, p_requests, p_prints, p_priorities, p_run_ins) u (id, kind, request, print, priority, run_in)
	WHERE (octet_length(u.id) BETWEEN 1 AND 256 AND octet_length(u.kind) BETWEEN 1 AND 128 AND u.id !~ U&'[\0001-\001F\007F-\009F]' AND u.kind !~ U&'[\0001-\001F\007F-\009F]'
		AND octet_length(coalesce(u.request, '')) <= 1048576 AND octet_length(u.print) = 32 AND u.priority BETWEEN 0 AND 3 AND u.run_in BETWEEN interval '0' AND interval '366 days') IS NOT TRUE;
	PERFORM set_config('lock_timeout', '300', true);
	-- By id, so that two batches wait for each other in one direction only.
	WITH d AS (
		INSERT INTO tenure.operation AS o (id, kind, fingerprint, request, priority, submission, created, due)
		SELECT u.id, u.kind, u.print, u.request, u.priority, nextval('tenure.submission'), v_now, v_now + u.run_in
		FROM (SELECT * FROM unnest(p_ids, p_kinds, p_requests, p_prints, p_priorities, p_run_ins) WITH ORDINALITY x (id, kind, request, print, priority, run_in, o) ORDER BY x.id COLLATE "C", x.o) u
		ON CONFLICT (id) DO NOTHING RETURNING o.id)
	SELECT array_agg(d.id) INTO v_done FROM d;
	PERFORM set_config('lock_timeout', v_before, true);
	IF coalesce(cardinality(v_done), 0) < cardinality(p_ids) THEN
		v_left := ARRAY(SELECT t.o FROM (SELECT u.o::int, u.id, row_number() OVER (PARTITION BY u.id ORDER BY u.o) AS time FROM unnest(p_ids) WITH ORDINALITY u (id, o)) t
			WHERE t.time > 1 OR t.id NOT IN (SELECT x.id FROM unnest(v_done) x (id)) ORDER BY t.o); -- of an id that stands there twice the first was recorded
	END IF;
	RETURN v_left;
END $$;

-- outcome: there. Reads only.
CREATE FUNCTION tenure.op_get(p_id text, p_bodies boolean DEFAULT true) RETURNS tenure.op_record LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
DECLARE
	r tenure.op_record := tenure.op_tell(p_id, p_bodies, clock_timestamp(), 'there');
BEGIN
	IF r.id IS NULL THEN
		PERFORM tenure.op_not_found(p_id);
	END IF;
	RETURN r;
END $$;

-- outcome: cancelled; wished, where an attempt may have had its effect.
CREATE FUNCTION tenure.op_cancel(p_id text, p_reason text DEFAULT '') RETURNS tenure.op_record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off AS $$
DECLARE
	h tenure.op_head;
	v_now timestamptz;
BEGIN
	PERFORM tenure.op_check_answer(NULL, p_reason);
	h := tenure.op_lock(p_id);
	v_now := clock_timestamp();
	IF h.state IN (4, 5) THEN
		PERFORM tenure.op_refuse(p_id, h.state, 'cancelling');
	ELSIF h.state < 4 AND NOT h.unsure AND coalesce(h.known, 1) <= 2 THEN
		h.state := 6;
		UPDATE tenure.operation o SET reason = p_reason WHERE o.id = p_id;
		PERFORM tenure.op_save(h, v_now);
	ELSIF h.state < 4 THEN
		h.wished := true;
		PERFORM tenure.op_save(h, v_now);
	ELSE
		PERFORM tenure.op_known_before();
	END IF;
	RETURN tenure.op_tell(p_id, true, v_now, CASE h.state WHEN 6 THEN 'cancelled' ELSE 'wished' END);
END $$;

-- Evidence: what the provider has said of an attempt, or with p_number 0 of the operation as a whole (then p_known is effective, or refused where there was one attempt). outcome:
-- recorded; stale (of an attempt that is not the current one, recorded, decided nothing); decided (it was before; what contradicts the decision is kept as a conflict).
CREATE FUNCTION tenure.op_respond(p_id text, p_number bigint, p_known text, p_result bytea DEFAULT NULL, p_reason text DEFAULT '', p_final boolean DEFAULT false)
RETURNS tenure.op_record LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off AS $$
DECLARE
	h tenure.op_head;
	v_number bigint := coalesce(p_number, 0);
	v_known smallint := array_position(ARRAY['not sent', 'refused', NULL, 'no answer', 'effective'], p_known);
	v_outcome text := 'recorded';
	v_now timestamptz;
	v record;
BEGIN
	IF v_known IS NULL THEN
		PERFORM tenure.op_invalid('answer', 'want not sent, refused, no answer or effective');
	ELSIF v_number < 0 OR v_number = 0 AND v_known NOT IN (2, 5) THEN
		PERFORM tenure.op_invalid('attempt', 'none, and the answer is neither effective nor refused');
	END IF;
	PERFORM tenure.op_check_answer(p_result, p_reason);
	h := tenure.op_lock(p_id);
	v_now := clock_timestamp();
	IF h.kept = 3 AND v_known <> 5 THEN
		RETURN tenure.op_tell(p_id, true, v_now, v_outcome); -- what contradicts nothing has nowhere to be kept
	ELSIF h.kept < 3 AND v_number = 0 AND v_known = 2 THEN
		IF h.attempts <> 1 THEN
			PERFORM tenure.op_invalid('attempt', 'none, and a refusal of one attempt says nothing of the others');
		END IF;
		v_number := h.number;
	END IF;
	IF v_number = 0 OR h.kept = 3 THEN
		v := tenure.op_find(h, 1, p_result, coalesce(p_reason, ''));
		v_outcome := CASE WHEN v.stale THEN 'decided' ELSE v_outcome END;
	ELSE
		v := tenure.op_report(h, v_number, v_known, p_result, coalesce(p_reason, ''), p_final, v_now);
		v_outcome := CASE WHEN v.stale THEN 'stale' ELSE v_outcome END;
	END IF;
	h := v.h;
	IF h.state <> h.was THEN -- what follows from evidence is due at once
		h.due := v_now;
	END IF;
	PERFORM tenure.op_save(h, v_now);
	RETURN tenure.op_tell(p_id, true, v_now, v_outcome);
END $$;
