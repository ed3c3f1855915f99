package outboxtest_test

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// live reports whether somebody is at it.
func (s *frail) live(r *row) bool {
	if r.state != outbox.Pending || r.claim.IsZero() || r.verdict || s.is("a claim is not exclusive") {
		return false
	}
	switch {
	case s.is("equality is missed"):
		return s.now() <= r.deadline
	case s.is("a claim ends early"):
		return s.now() < r.deadline-5*time.Second
	case s.is("a claim never ends"):
		return true
	}
	return s.now() < r.deadline
}

// free reports whether it may be claimed, but for others of its key.
func (s *frail) free(r *row) bool {
	_, all := s.paused[""]
	_, one := s.paused[r.m.Topic]
	if s.is("a paused topic is claimed") {
		one = false
	}
	if s.is("the pause of every topic is of none") {
		all = false
	}
	due := s.now() >= r.due || s.is("back-off is ignored")
	if s.is("what backs off is due too early") {
		due = s.now() >= r.due-5*time.Second
	}
	return r.state == outbox.Pending && !all && !one && !s.live(r) && due && !r.skipped
}

type key struct{ topic, key string }

func (s *frail) key(r *row) key {
	switch {
	case !r.m.Ordered && !s.is("unordered messages wait for their key"):
		return key{}
	case s.is("a key holds up every key"):
		return key{"every", "key"}
	case s.is("a key is one in every topic"):
		return key{"every", r.m.Key}
	}
	return key{r.m.Topic, r.m.Key}
}

func (s *frail) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	if err := req.Check(); err != nil && !s.is("a claim is not checked") {
		return outbox.Batch{}, err
	}
	end, err := s.begin(ctx, "claim")
	if err != nil {
		return outbox.Batch{}, err
	}
	defer end()
	s.fresh = false
	b := outbox.Batch{Claim: req.Claim, Left: req.TTL}
	shut := map[key]bool{}
	for _, r := range s.rows {
		if s.live(r) && !s.is("a live claim does not hold up its key") || r.state == outbox.Dead && s.is("what is dead holds up its key for ever") {
			shut[s.key(r)] = true
		}
	}
	var take []*row
	size := 0
	for _, r := range s.inTurn() {
		s.cursor = max(s.cursor, r.position)
		if len(req.Topics) > 0 && !slices.Contains(req.Topics, r.m.Topic) && !s.is("topics are ignored") || r.state != outbox.Pending {
			continue
		}
		k := s.key(r)
		open := k == (key{}) || !shut[k] || s.is("the order of a key is ignored")
		if s.free(r) && open && r.tries >= req.MaxAttempts && !s.is("poison is never dead") {
			s.giveUp(r)
			b.Dead++
			continue
		}
		alone := r.lost >= outbox.LostBefore || !r.claim.IsZero() && !r.verdict && r.lost+1 >= outbox.LostBefore
		alone = alone && !s.is("suspects are not alone")
		if !s.free(r) || !open || alone && len(take) > 0 {
			if !(s.is("what backs off does not hold up its key") && s.now() < r.due || s.is("a live claim does not hold up its key") && s.live(r)) {
				shut[k] = true
			}
			continue
		}
		if size+len(r.m.Payload) > req.Bytes && (len(take) > 0 || s.is("what is too large never fits")) && !s.is("bytes are ignored") || len(take) >= req.Limit && !s.is("the limit is ignored") {
			break
		}
		size += len(r.m.Payload)
		if take = append(take, r); alone {
			break
		}
	}
	if s.is("what is free is read before the lock") {
		s.yield()
	}
	for _, r := range take {
		b.Deliveries = append(b.Deliveries, s.hand(r, &req))
	}
	slices.SortFunc(b.Deliveries, func(a, b outbox.Delivery) int { return cmp.Compare(a.Position, b.Position) })
	if s.is("a batch is in any order") {
		slices.Reverse(b.Deliveries)
	}
	return b, nil
}

// inTurn has first what has waited longest, and the rest of an ordered key behind its first one.
func (s *frail) inTurn() []*row {
	rows := slices.Clone(s.rows)
	if s.is("who comes first comes first each time") || s.is("a key holds up every key") { // the latter holds up what is behind by position
		return rows
	}
	at := map[*row]time.Duration{}
	heads := map[key]time.Duration{}
	for _, r := range rows {
		at[r] = r.due
		if !r.claim.IsZero() && !r.verdict {
			at[r] = max(r.due, r.deadline)
		}
		k := key{r.m.Topic, r.m.Key}
		if head, known := heads[k]; known && r.m.Ordered && r.state == outbox.Pending {
			at[r] = head
		} else if r.m.Ordered && r.state == outbox.Pending {
			heads[k] = at[r]
		}
	}
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(at[a], at[b]) })
	return rows
}

func (s *frail) expired(r *row) {
	if r.claim.IsZero() || r.verdict {
		return
	}
	r.lost++
	if !s.is("what was lost is not recorded") {
		s.fails(r, r.relay, outbox.Expired)
	}
}

func (s *frail) fails(r *row, relay, text string) {
	if !s.is("errors are not cut") {
		text = outbox.Text(text)
	}
	r.errors = append(r.errors, outbox.Failure{Attempt: r.tries, Relay: relay, Text: text, Age: s.now()})
	if n := len(r.errors) - outbox.KeptErrors; n > 0 && !s.is("errors are kept without end") {
		if r.errors = r.errors[n:]; s.is("the oldest errors are kept") {
			r.errors[len(r.errors)-1].Text = r.errors[0].Text
		}
	}
}

func (s *frail) giveUp(r *row) {
	s.expired(r)
	r.state, r.over, r.claim = outbox.Dead, s.now(), fence.ID{}
}

func (s *frail) hand(r *row, req *outbox.ClaimRequest) outbox.Delivery {
	s.expired(r)
	r.claim, r.relay, r.deadline, r.verdict = req.Claim, req.Relay, s.now()+req.TTL, false
	if s.is("the TTL is ignored") {
		r.deadline = s.now() + 10*time.Second
	}
	if r.tries++; s.is("attempts are not counted") {
		r.tries = 1
	}
	d := outbox.Delivery{Message: r.m, Position: r.position, Attempt: r.tries, Age: s.now() - r.born}
	if !s.is("replies share what is kept") {
		d.Headers, d.Payload = maps.Clone(r.m.Headers), bytes.Clone(r.m.Payload)
	}
	if s.is("every delivery has an id of its own") {
		s.ids++
		d.ID[15] = byte(s.ids)
	}
	return d
}

// late reports whether the claim has nothing to say about it.
func (s *frail) late(r *row, claim fence.ID) bool {
	switch {
	case s.is("a verdict is taken by position alone"):
		return r.state != outbox.Pending
	case s.is("a verdict is refused after the deadline") && r.claim == claim && !r.verdict && s.now() >= r.deadline:
		return true
	case s.is("a verdict that is repeated is late") && r.verdict:
		return true
	}
	return r.claim != claim
}

func (s *frail) Settle(ctx context.Context, req outbox.SettleRequest) (outbox.Settled, error) {
	if err := req.Check(); err != nil && !s.is("a settlement is not checked") {
		return outbox.Settled{}, err
	}
	end, err := s.begin(ctx, "settle")
	if err != nil {
		return outbox.Settled{}, err
	}
	defer end()
	var done outbox.Settled
	said := map[*row]bool{}
	var fell []*row
	for _, v := range req.Verdicts {
		i := slices.IndexFunc(s.rows, func(r *row) bool { return r.position == v.Position })
		if i < 0 || s.late(s.rows[i], req.Claim) {
			if !s.is("what is late is not told") {
				done.Late = append(done.Late, v.Position)
			}
			continue
		}
		r := s.rows[i]
		done.Applied++
		said[r] = true
		if r.verdict && !s.is("a second verdict replaces the first") && !s.is("a verdict is taken by position alone") {
			continue
		}
		if s.is("a verdict is checked before the lock") {
			s.yield()
		}
		s.settle(r, req.Relay, v)
		if r.m.Ordered && v.Outcome != outbox.Published {
			fell = append(fell, r)
		}
	}
	for _, f := range fell {
		for _, r := range s.rows {
			if r.m.Ordered && s.key(r) == s.key(f) && r.position > f.position && r.claim == req.Claim && !r.verdict && !said[r] && !s.is("a failing head leaves those behind in the claim") {
				s.settle(r, req.Relay, outbox.Verdict{Outcome: outbox.Returned})
			}
		}
	}
	slices.Sort(done.Late)
	s.wake()
	return done, nil
}

func (s *frail) settle(r *row, relay string, v outbox.Verdict) {
	r.verdict = true
	if !s.is("a verdict does not end what was lost in a row") {
		r.lost = 0
	}
	switch v.Outcome {
	case outbox.Published:
		r.state, r.over = outbox.Delivered, s.now()
	case outbox.Returned:
		if r.tries--; s.is("what is returned is counted") {
			r.tries++
		}
		r.due = s.now() + v.RetryIn
	case outbox.Failed:
		s.fails(r, relay, v.Error)
		r.due = s.now() + v.RetryIn
		if v.Dead && !s.is("nobody is given up at once") {
			r.state, r.over = outbox.Dead, s.now()
		}
	}
}
