package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

// Outbox keeps messages in this process's memory. Like [Store] it runs one call at a time, no call's outcome is ever unknown, and nothing survives the process; Append is a transaction of its own. It is what every
// other store of messages is compared with.
type Outbox struct {
	clock func() time.Duration
	turn  chan struct{} // as in Store

	// guarded by turn
	now      time.Duration
	position int64
	posts    []*post // by position
	ids      map[fence.ID]*post
	paused   map[string]string // reasons
	hint     chan struct{}     // closed when something may be claimable
	changes  int               // how often it was
	seen     int               // changes at the latest claim
	seenAt   time.Duration     // when that was
}

var (
	_ outbox.Store  = (*Outbox)(nil)
	_ outbox.Office = (*Outbox)(nil)
	_ outbox.Waker  = (*Outbox)(nil)
)

type post struct {
	outbox.Message
	position int64
	state    outbox.State
	appended time.Duration
	ended    time.Duration
	attempts int
	lost     int // claims in a row that expired without a verdict, the latest one not included
	claim    fence.ID
	relay    string
	until    time.Duration // the claim's deadline
	settled  bool          // the claim has had its verdict
	due      time.Duration
	errors   []failure
}

type failure struct {
	outbox.Failure
	at time.Duration
}

// chain is what ordered messages share.
type chain struct{ topic, key string }

func (p *post) chain() chain { return chain{p.Topic, p.Key} }

// open: the latest claim has had no verdict.
func (p *post) open() bool { return !p.claim.IsZero() && !p.settled }

func (p *post) live(now time.Duration) bool {
	return p.state == outbox.Pending && p.open() && now < p.until
}

// losses includes a claim that has expired now.
func (p *post) losses(now time.Duration) int {
	if p.open() && now >= p.until {
		return p.lost + 1
	}
	return p.lost
}

func (p *post) failed(now time.Duration, relay, text string) {
	p.errors = append(p.errors, failure{outbox.Failure{Attempt: p.attempts, Relay: relay, Text: outbox.Text(text)}, now})
	p.errors = p.errors[max(0, len(p.errors)-outbox.KeptErrors):]
}

// NewOutbox returns a store without messages.
func NewOutbox(o Options) *Outbox {
	if o.Clock == nil {
		o.Clock = clock.Client()
	}
	return &Outbox{clock: o.Clock, turn: make(chan struct{}, 1), now: o.Clock(), ids: map[fence.ID]*post{}, paused: map[string]string{}, hint: make(chan struct{})}
}

func (s *Outbox) begin(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		select {
		case s.turn <- struct{}{}:
			s.now = max(s.now, s.clock())
			return nil
		case <-ctx.Done():
		}
	}
	return &outbox.UnavailableError{Op: op, Err: context.Cause(ctx)}
}

func (s *Outbox) end() { <-s.turn }

// Advance makes it as if d had passed.
func (s *Outbox) Advance(d time.Duration) {
	s.turn <- struct{}{}
	defer s.end()
	for _, p := range s.posts {
		p.appended -= d
		p.ended -= d
		p.until -= d
		p.due -= d
		for i := range p.errors {
			p.errors[i].at -= d
		}
	}
	s.wake()
}

func (s *Outbox) wake() {
	s.changes++
	close(s.hint)
	s.hint = make(chan struct{})
}

// Await implements [outbox.Waker].
func (s *Outbox) Await(ctx context.Context, atMost time.Duration) (bool, error) {
	if err := outbox.CheckAwait(atMost); err != nil {
		return false, err
	}
	if err := s.begin(ctx, "await"); err != nil {
		return false, err
	}
	hint, now := s.hint, s.claimable()
	s.end()
	if now {
		return true, nil
	}
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-hint:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, nil
	}
}

// claimable reports whether a claim would get something that the latest one did not leave: what waits for another of its key, or is of a topic for which nobody asks, must not wake anybody, or a
// relay would ask all the time.
func (s *Outbox) claimable() bool {
	blocked := s.claimed()
	for _, p := range s.posts {
		switch {
		case p.state != outbox.Pending || !s.open(p.Topic) || p.Ordered && blocked[p.chain()]:
		case s.due(p) && (s.changes != s.seen || p.due > s.seenAt || p.open() && p.until > s.seenAt):
			return true
		case p.Ordered:
			blocked[p.chain()] = true
		}
	}
	return false
}

// claimed are the keys of which a message is under a live claim.
func (s *Outbox) claimed() map[chain]bool {
	blocked := map[chain]bool{}
	for _, p := range s.posts {
		if p.Ordered && p.live(s.now) {
			blocked[p.chain()] = true
		}
	}
	return blocked
}

// Append implements [outbox.Store].
func (s *Outbox) Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error) {
	if err := outbox.CheckAppend(messages); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "append"); err != nil {
		return nil, err
	}
	defer s.end()
	for i := range messages {
		if known := s.ids[messages[i].ID]; known != nil {
			if what := differs(&known.Message, &messages[i]); what != "" {
				return nil, &outbox.MismatchError{ID: known.ID, What: what}
			}
		}
	}
	ids := make([]fence.ID, 0, len(messages))
	for _, m := range messages {
		if m.ID.IsZero() {
			m.ID = lease.NewID()
		}
		ids = append(ids, m.ID)
		if s.ids[m.ID] != nil {
			continue
		}
		m.Headers, m.Payload = maps.Clone(m.Headers), bytes.Clone(m.Payload)
		s.position++
		p := &post{Message: m, position: s.position, state: outbox.Pending, appended: s.now, due: s.now}
		s.posts = append(s.posts, p)
		s.ids[m.ID] = p
	}
	s.wake()
	return ids, nil
}

// differs says what of two messages with one id differs, or "".
func differs(a, b *outbox.Message) string {
	switch {
	case a.Topic != b.Topic:
		return "topic"
	case a.Key != b.Key:
		return "key"
	case a.Ordered != b.Ordered:
		return "order"
	case !maps.Equal(a.Headers, b.Headers):
		return "headers"
	case !bytes.Equal(a.Payload, b.Payload):
		return "payload"
	}
	return ""
}

// open: the topic is not paused.
func (s *Outbox) open(topic string) bool {
	_, all := s.paused[""]
	_, one := s.paused[topic]
	return !all && !one
}

// due: but for its key and its topic it may be claimed.
func (s *Outbox) due(p *post) bool {
	return p.state == outbox.Pending && !p.live(s.now) && s.now >= p.due
}

// Claim implements [outbox.Store].
func (s *Outbox) Claim(ctx context.Context, req outbox.ClaimRequest) (outbox.Batch, error) {
	if err := req.Check(); err != nil {
		return outbox.Batch{}, err
	}
	if err := s.begin(ctx, "claim"); err != nil {
		return outbox.Batch{}, err
	}
	defer s.end()
	s.seen, s.seenAt = s.changes, s.now
	got := outbox.Batch{Claim: req.Claim, Left: req.TTL}
	blocked := s.claimed()
	size := 0
	for _, p := range s.inTurn() {
		if p.Ordered && blocked[p.chain()] || len(req.Topics) > 0 && !slices.Contains(req.Topics, p.Topic) || !s.open(p.Topic) {
			continue
		}
		if s.due(p) && p.attempts >= req.MaxAttempts {
			s.giveUp(p)
			got.Dead++
			continue
		}
		suspect := p.losses(s.now) >= outbox.LostBefore
		if !s.due(p) || suspect && len(got.Deliveries) > 0 {
			if p.Ordered {
				blocked[p.chain()] = true
			}
			continue
		}
		if size += len(p.Payload); size > req.Bytes && len(got.Deliveries) > 0 {
			break
		}
		got.Deliveries = append(got.Deliveries, s.hand(p, &req))
		if suspect || len(got.Deliveries) == req.Limit {
			break
		}
	}
	slices.SortFunc(got.Deliveries, func(a, b outbox.Delivery) int { return cmp.Compare(a.Position, b.Position) })
	return got, nil
}

// inTurn is the pending posts in the order of when they, or the first ones of their keys, became claimable: what is given back each time must not come first each time.
func (s *Outbox) inTurn() []*post {
	var posts []*post
	turns := map[*post]time.Duration{}
	firsts := map[chain]time.Duration{}
	for _, p := range s.posts {
		if p.state != outbox.Pending {
			continue
		}
		at := p.due
		if p.open() {
			at = max(at, p.until)
		}
		if first, known := firsts[p.chain()]; p.Ordered && known {
			at = first
		} else if p.Ordered {
			firsts[p.chain()] = at
		}
		posts, turns[p] = append(posts, p), at
	}
	slices.SortStableFunc(posts, func(a, b *post) int { return cmp.Compare(turns[a], turns[b]) })
	return posts
}

// notice records that a claim has expired without a verdict.
func (s *Outbox) notice(p *post) {
	if p.open() {
		p.failed(s.now, p.relay, outbox.Expired)
		p.lost++
	}
}

func (s *Outbox) giveUp(p *post) {
	s.notice(p)
	p.state, p.ended, p.claim = outbox.Dead, s.now, fence.ID{}
}

func (s *Outbox) hand(p *post, req *outbox.ClaimRequest) outbox.Delivery {
	s.notice(p)
	p.claim, p.relay, p.until, p.settled = req.Claim, req.Relay, s.now+req.TTL, false
	p.attempts++
	d := outbox.Delivery{Message: p.Message, Position: p.position, Attempt: p.attempts, Age: s.now - p.appended}
	d.Headers, d.Payload = maps.Clone(p.Headers), bytes.Clone(p.Payload)
	return d
}

// Settle implements [outbox.Store].
func (s *Outbox) Settle(ctx context.Context, req outbox.SettleRequest) (outbox.Settled, error) {
	if err := req.Check(); err != nil {
		return outbox.Settled{}, err
	}
	if err := s.begin(ctx, "settle"); err != nil {
		return outbox.Settled{}, err
	}
	defer s.end()
	var done outbox.Settled
	var behind []*post
	for _, v := range req.Verdicts {
		p := s.at(v.Position)
		switch {
		case p == nil || p.claim != req.Claim || p.open() && p.state != outbox.Pending:
			done.Late = append(done.Late, v.Position)
		case p.settled:
			done.Applied++
		default:
			s.settle(p, req.Relay, v)
			done.Applied++
			if p.Ordered && v.Outcome != outbox.Published {
				behind = append(behind, p)
			}
		}
	}
	for _, first := range behind {
		for _, p := range s.posts {
			if p.Ordered && p.chain() == first.chain() && p.position > first.position && p.claim == req.Claim && !p.settled {
				s.settle(p, req.Relay, outbox.Verdict{Outcome: outbox.Returned})
			}
		}
	}
	slices.Sort(done.Late)
	s.wake()
	return done, nil
}

func (s *Outbox) at(position int64) *post {
	if i, found := slices.BinarySearchFunc(s.posts, position, func(p *post, at int64) int { return cmp.Compare(p.position, at) }); found {
		return s.posts[i]
	}
	return nil
}

func (s *Outbox) settle(p *post, relay string, v outbox.Verdict) {
	p.settled, p.lost = true, 0
	switch v.Outcome {
	case outbox.Published:
		p.state, p.ended = outbox.Delivered, s.now
	case outbox.Failed:
		p.failed(s.now, relay, v.Error)
		if p.due = s.now + v.RetryIn; v.Dead {
			p.state, p.ended = outbox.Dead, s.now
		}
	case outbox.Returned:
		p.attempts--
		p.due = s.now + v.RetryIn
	}
}

// Guarantees implements [outbox.Store].
func (s *Outbox) Guarantees() outbox.Guarantees { return outbox.Guarantees{Store: "memory"} }
