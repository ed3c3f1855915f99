package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/outbox"
)

// post is a rig and the outbox on it.
type post struct {
	*rig
	outbox *Outbox
}

func newPost(r *rig) *post { return &post{r, r.store.Outbox()} }

// note is a message; with a key it is ordered.
func (p *post) note(key, text string) outbox.Message {
	return outbox.Message{ID: p.ids.New(), Topic: "orders", Key: key, Ordered: key != "", Payload: []byte(text)}
}

// append writes messages, each in a transaction of its own.
func (p *post) append(ctx context.Context, messages ...outbox.Message) {
	p.t.Helper()
	for _, m := range messages {
		if _, err := p.outbox.Append(ctx, []outbox.Message{m}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// claimed is a batch, and what its payloads are.
type claimed struct {
	outbox.Batch
	texts []string
}

func (p *post) claim(ctx context.Context, limit int) (claimed, error) {
	b, err := p.outbox.Claim(ctx, outbox.ClaimRequest{Claim: p.ids.New(), Relay: "r", Limit: limit, Bytes: 1 << 20, TTL: time.Minute, MaxAttempts: 10})
	c := claimed{Batch: b}
	for _, d := range b.Deliveries {
		c.texts = append(c.texts, string(d.Payload))
	}
	return c, err
}

// take demands what a claim gets.
func (p *post) take(ctx context.Context, want ...string) claimed {
	p.t.Helper()
	c, err := p.claim(ctx, 100)
	if err != nil || !slices.Equal(c.texts, want) {
		p.t.Fatalf("claimed %q, %v; want %q", c.texts, err, want)
	}
	return c
}

// verdicts are the same for every message of a claim.
func (c claimed) verdicts(v outbox.Verdict) outbox.SettleRequest {
	req := outbox.SettleRequest{Claim: c.Claim, Relay: "r"}
	for _, d := range c.Deliveries {
		v.Position = d.Position
		req.Verdicts = append(req.Verdicts, v)
	}
	return req
}

// fullLook sets when the latest full look was, and returns where the next one begins that is not full.
func (p *post) fullLook(at time.Time) int64 {
	h := &p.outbox.hints
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked = at
	return h.from["orders"]
}

// passLate lets looks begin behind the first message, which has not committed. Transactions of other tests that end meanwhile let them go back, so it may take a few.
func (p *post) passLate(ctx context.Context) {
	p.t.Helper()
	for range 100 {
		p.append(ctx, p.note("", "m"))
		p.publish(ctx, p.take(ctx, "m"))
		if p.fullLook(time.Now().Add(time.Hour)) > 2 {
			return
		}
	}
	p.t.Fatal("looks begin at the beginning still, so nothing was tried")
}

func (p *post) publish(ctx context.Context, c claimed) {
	p.t.Helper()
	if done, err := p.outbox.Settle(ctx, c.verdicts(outbox.Verdict{Outcome: outbox.Published})); err != nil || done.Applied != len(c.texts) {
		p.t.Fatalf("%+v, %v", done, err)
	}
}

// expire lets every claim end.
func (p *post) expire(ctx context.Context) {
	p.t.Helper()
	if err := (&outboxHarness{p.harness}).Advance(ctx, 2*time.Minute); err != nil {
		p.t.Fatal(err)
	}
}

const (
	claimByHand = `SELECT count(*) FROM tenure.outbox_claim($1, 'x', NULL, $2)`
	noticeAll   = `SELECT tenure.outbox_notice(clock_timestamp())`
	oneByOne    = `SELECT DISTINCT tenure.outbox_lock_of(u.topic, u.key) AS k FROM unnest(p_topics, v_keys, v_ordered) u (topic, key, ordered) WHERE u.ordered ORDER BY 1`
)

func outboxTrials() []trial {
	return []trial{
		{name: "a message commits late", run: lateMessage, twins: map[string][]edit{
			"a cursor on the sequence": {{"outbox_claim_many", "coalesce((p_from ->> t.topic)::bigint, 0)", "coalesce((SELECT max(m.position) FROM tenure.outbox_message m WHERE m.claim IS NOT NULL), 0)"}},
		}},
		{name: "two append to one key at once", run: orderOfCommits, twins: map[string][]edit{
			"positions without the key's lock": {{"outbox_append", "PERFORM pg_advisory_xact_lock(tenure.outbox_lock_of(p_topic, p_key));", "NULL;"}},
		}},
		{name: "two append to many keys in opposite order", run: oppositeKeys, twins: map[string][]edit{
			"keys are locked as they come": {{"outbox_append_many", oneByOne, `SELECT tenure.outbox_lock_of(u.topic, u.key) AS k FROM unnest(p_topics, v_keys, v_ordered) WITH ORDINALITY u (topic, key, ordered, o) WHERE u.ordered ORDER BY u.o`}},
		}},
		{name: "two relays come to one key at once", run: oneKeyTwice, twins: map[string][]edit{
			"a key is not locked": {
				{now: `ALTER TABLE tenure.outbox_lane DROP CONSTRAINT outbox_lane_pkey`},
				{"outbox_lane_look", "IF NOT pg_try_advisory_xact_lock(tenure.outbox_lane_of(p_topic, p_key)) THEN", "IF false THEN"},
				{"outbox_claim_many", "IF v_ordered <> v_expected THEN", "IF false THEN"},
			},
		}},
		{name: "a late verdict meets the next claim", run: verdictMeetsClaim, twins: map[string][]edit{
			"what is behind a message that was put off is handed out": {{"outbox_claim_many", "IF v_ordered <> v_expected THEN", "IF false THEN"}},
		}},
		{name: "a claim meets a late verdict", run: claimMeetsVerdict, twins: map[string][]edit{
			"a verdict decides by a look without locks": {{
				"outbox_settle", "WHERE m.position = ANY (p_positions) AND m.claim = p_claim AND m.state = 1 AND NOT m.settled RETURNING",
				"WHERE m.position = ANY (ARRAY(SELECT o.position FROM tenure.outbox_message o WHERE o.position = ANY (p_positions) AND o.claim = p_claim)) RETURNING",
			}},
		}},
		{name: "a key is given back while its next message comes", run: givenBack, twins: map[string][]edit{
			"an empty key is not queued": {{"outbox_release", "nextval('tenure.outbox_turn'), g.key FROM gone g;", "nextval('tenure.outbox_turn'), g.key FROM gone g WHERE EXISTS (SELECT 1 FROM tenure.outbox_line l WHERE l.topic = g.topic AND l.key = g.key);"}},
		}},
		{name: "an earlier message of a key that was put off is replayed", run: replayedBeforePutOff, twins: map[string][]edit{
			"a key that was put off is not looked at": {{"outbox_lane_look", "NOT tenure.outbox_lane_due(p_topic, p_key)", "true"}},
		}},
		{name: "it is replayed while a claim is under way", run: replayedMeanwhile, twins: map[string][]edit{
			"the claim looks as of when it began": {{"outbox_lane_due", "m.claim IS NULL OR m.due <= clock_timestamp()", "m.due <= clock_timestamp() - interval '1 minute'"}},
		}},
		{name: "a key is returned for ever", run: returnedForEver, twins: map[string][]edit{
			"a batch is cut by position": {{"outbox_claim_many", "(ORDER BY u.t, u.p ROWS", "(ORDER BY u.p ROWS"}},
		}},
		{name: "a key is returned for ever before one that was lost twice", run: returnedBeforeSuspect, twins: map[string][]edit{
			"who is handed out alone comes by position": {{"outbox_claim_many", "IF v_turn < coalesce((SELECT min(u.t) FROM unnest(v_t) u (t)), v_turn + 1) THEN", "IF v_first < coalesce((SELECT min(u.p) FROM unnest(v_p) u (p)), v_first + 1) THEN"}},
		}},
		{name: "one is handed out alone between two that are given up", run: aloneBetweenDead, twins: map[string][]edit{
			"the places of what is given up are mixed up": {{"outbox_claim_many", "v_dead_c := v_dead_c || array_fill(NULL::tid, ARRAY[cardinality(l.dead)]);", ""}},
		}},
		{name: "a consumer has one message twice at once", run: onceAtOnce, twins: map[string][]edit{
			"the note is looked for before it is written": {
				{now: `ALTER TABLE tenure.inbox_note DROP CONSTRAINT inbox_note_pkey`},
				{"inbox_take", "ON CONFLICT DO NOTHING;", ";"},
				{"inbox_take", "FOR i IN 1..20 LOOP", "IF EXISTS (SELECT 1 FROM tenure.inbox_note n WHERE n.consumer = p_consumer AND n.message = p_message) THEN RETURN '0'; END IF;\n\tFOR i IN 1..20 LOOP"},
			},
		}},
	}
}

func lateMessage(ctx context.Context, r *rig) error {
	p := newPost(r)
	x := r.begin(ctx, pgx.ReadCommitted)
	if _, err := p.outbox.AppendTx(ctx, x, p.note("", "late")); err != nil {
		return err
	}
	p.passLate(ctx)
	x.commit(ctx)
	c, err := p.claim(ctx, 100)
	if err == nil && !slices.Equal(c.texts, []string{"late"}) {
		return broken("after a late commit a claim gets %q", c.texts)
	}
	return err
}

func orderOfCommits(ctx context.Context, r *rig) error {
	p := newPost(r)
	x := r.begin(ctx, pgx.ReadCommitted)
	if _, err := p.outbox.AppendTx(ctx, x, p.note("k", "first")); err != nil {
		return err
	}
	second := start(func() error { _, err := p.outbox.Append(ctx, []outbox.Message{p.note("k", "second")}); return err })
	if !r.blocked(ctx, 1, second) {
		c, err := p.claim(ctx, 100)
		x.commit(ctx)
		return errors.Join(broken("%q was claimed while an earlier one of its key was not there", c.texts), err, <-second)
	}
	x.commit(ctx)
	if err := <-second; err != nil {
		return err
	}
	p.take(ctx, "first", "second")
	return nil
}

func oppositeKeys(ctx context.Context, r *rig) error {
	p := newPost(r)
	x := r.begin(ctx, pgx.ReadCommitted)
	if _, err := p.outbox.AppendTx(ctx, x, p.note("c", "0")); err != nil {
		return err
	}
	one := start(func() error {
		_, err := p.outbox.Append(ctx, []outbox.Message{p.note("a", "1"), p.note("c", "1"), p.note("b", "1")})
		return err
	})
	two := start(func() error {
		_, err := p.outbox.Append(ctx, []outbox.Message{p.note("b", "2"), p.note("c", "2"), p.note("a", "2")})
		return err
	})
	if !r.blocked(ctx, 2, one) {
		return fmt.Errorf("they do not wait: %w", <-one)
	}
	x.commit(ctx)
	if err := errors.Join(<-one, <-two); err != nil {
		return err
	}
	if n, _ := deadlocks(r.harness); n > 0 {
		return broken("%d deadlocks", n)
	}
	return nil
}

func oneKeyTwice(ctx context.Context, r *rig) error {
	p := newPost(r)
	p.append(ctx, p.note("k", "1"), p.note("k", "2"), p.note("", "other"))
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, claimByHand, uuid(p.ids.New()), 1) // has the first of the key
	var got claimed
	second := start(func() (err error) { got, err = p.claim(ctx, 100); return err })
	waits := r.blocked(ctx, 1, second)
	x.commit(ctx)
	if err := <-second; err != nil {
		return err
	}
	if slices.Contains(got.texts, "1") || slices.Contains(got.texts, "2") {
		return broken("one key is under two claims: %q", got.texts)
	}
	if waits || !slices.Equal(got.texts, []string{"other"}) {
		return broken("a claim waits for another (%t), and has %q", waits, got.texts)
	}
	return nil
}

func verdictMeetsClaim(ctx context.Context, r *rig) error {
	p := newPost(r)
	p.append(ctx, p.note("k", "1"), p.note("k", "2"))
	c, err := p.claim(ctx, 1)
	if err != nil || len(c.Deliveries) != 1 {
		return fmt.Errorf("%q, %w", c.texts, err)
	}
	p.expire(ctx)
	if _, err := r.own.Exec(ctx, noticeAll); err != nil {
		return err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT tenure.outbox_settle($1, $2, '{failed}', '{down}', '{1 hour}')`, uuid(c.Claim), []int64{c.Deliveries[0].Position})
	var got claimed
	next := start(func() (err error) { got, err = p.claim(ctx, 100); return err })
	if !r.blocked(ctx, 1, next) {
		return fmt.Errorf("it does not wait: %w", <-next)
	}
	x.commit(ctx)
	if err := <-next; err != nil {
		return err
	}
	if len(got.texts) > 0 {
		return broken("%q is handed out while the first of its key is put off", got.texts)
	}
	return nil
}

func claimMeetsVerdict(ctx context.Context, r *rig) error {
	p := newPost(r)
	p.append(ctx, p.note("", "1"))
	c := p.take(ctx, "1")
	p.expire(ctx)
	if _, err := r.own.Exec(ctx, noticeAll); err != nil {
		return err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, claimByHand, uuid(p.ids.New()), 1)
	var done outbox.Settled
	late := start(func() (err error) {
		done, err = p.outbox.Settle(ctx, c.verdicts(outbox.Verdict{Outcome: outbox.Published}))
		return err
	})
	if !r.blocked(ctx, 1, late) {
		return fmt.Errorf("it does not wait: %w", <-late)
	}
	x.commit(ctx)
	if err := <-late; err != nil {
		return err
	}
	info, err := p.outbox.Get(ctx, c.Deliveries[0].ID)
	if err != nil {
		return err
	}
	if done.Applied != 0 || info.State != outbox.Pending {
		return broken("a verdict on a claim that another has followed: %+v, and the message is %v", done, info.State)
	}
	return nil
}

func givenBack(ctx context.Context, r *rig) error {
	p := newPost(r)
	p.append(ctx, p.note("k", "1"))
	c := p.take(ctx, "1")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT tenure.outbox_settle($1, $2)`, uuid(c.Claim), []int64{c.Deliveries[0].Position})
	p.append(ctx, p.note("k", "2"))
	p.take(ctx) // the key is not free yet
	x.commit(ctx)
	got, err := p.claim(ctx, 100)
	if err == nil && !slices.Equal(got.texts, []string{"2"}) {
		return broken("a message of a key that was given back is not found: %q", got.texts)
	}
	return err
}

func onceAtOnce(ctx context.Context, r *rig) error {
	take := func(tx interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}) (first bool, err error) {
		err = tx.QueryRow(ctx, `SELECT tenure.inbox_once('mail', 'm')`).Scan(&first)
		return first, err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	one, err := take(x)
	if err != nil || !one {
		return fmt.Errorf("%t, %w", one, err)
	}
	var two bool
	second := start(func() (err error) { two, err = take(r.own); return err })
	r.blocked(ctx, 1, second)
	x.commit(ctx)
	if err := <-second; err != nil {
		return err
	}
	if two {
		return broken("one message is done twice")
	}
	return nil
}

// TestForgottenFloorsLoseLateCommits demands that the race with a late commit finds hints that go back to nothing.
func TestForgottenFloorsLoseLateCommits(t *testing.T) {
	ctx := t.Context()
	p := newPost(&rig{t: t, harness: newHarness(t)})
	x := p.begin(ctx, pgx.ReadCommitted)
	if _, err := p.outbox.AppendTx(ctx, x, p.note("", "late")); err != nil {
		t.Fatal(err)
	}
	p.passLate(ctx)
	p.outbox.hints.mu.Lock()
	p.outbox.hints.floors = map[uint64]map[string]int64{} // the twin
	p.outbox.hints.mu.Unlock()
	x.commit(ctx)
	p.take(ctx)                            // it is not found
	p.fullLook(time.Now().Add(-time.Hour)) // but by a full look it is
	p.publish(ctx, p.take(ctx, "late"))
}

// The transaction of a late commit may be the newest of the cluster, which no snapshot names: it is found as soon as any.
func TestTheNewestTransactionCommitsLate(t *testing.T) {
	ctx := t.Context()
	p := newPost(&rig{t: t, harness: newHarness(t)})
	for range 3 { // hints that have been learnt
		p.append(ctx, p.note("", "before"))
		p.publish(ctx, p.take(ctx, "before"))
	}
	for range 3 {
		p.fullLook(time.Now())
		x := p.begin(ctx, pgx.ReadCommitted)
		if _, err := p.outbox.AppendTx(ctx, x, p.note("", "late")); err != nil {
			t.Fatal(err)
		}
		p.take(ctx)
		p.take(ctx)
		x.commit(ctx)
		p.publish(ctx, p.take(ctx, "late"))
	}
}

// TestHintsWithoutASolidFloor demands that the race with the newest transaction finds hints that trust a snapshot's list.
func TestHintsWithoutASolidFloor(t *testing.T) {
	h := &hints{}
	for n, twin := range []bool{false, true} {
		h.reset()
		h.looked = time.Now()
		var l look
		learn := func(first int64, seen string, claimed bool) {
			l = h.begin(time.Now())
			l.full = false
			h.learn(l, []string{"t"}, []int64{first}, seen, claimed, time.Now())
			if twin {
				h.solid = map[string]int64{"t": 1 << 40}
			}
		}
		learn(10, "700:700:", true)
		learn(20, "702:702:", true)
		learn(30, "704:704:", false)
		// 706 has drawn 31, and is under way; 705 has drawn 32, committed, and is what the look finds, and claims.
		learn(32, "704:706:", false)
		h.begin(time.Now())
		if lost := h.from["t"] > 31; lost != twin {
			t.Errorf("%d: looks begin at %d; what draws 31 commits late: lost %v, want %v", n, h.from["t"], lost, twin)
		}
	}
}
