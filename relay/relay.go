package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
)

const (
	leastPause = time.Millisecond // no loop is hot
	callBound  = 5 * time.Second  // of a call of the store
	pruneEvery = time.Minute
	firstVain  = 10 * time.Millisecond // before another look, after a hint in vain; doubling up to Poll
	maxShift   = 20
	// maxPushback is the longest rest that a destination may ask for.
	maxPushback = 10 * time.Minute
)

// Relay carries messages from one store to one destination. Its methods are safe for concurrent use, but for Run, which is called once.
type Relay struct {
	store outbox.Store
	sink  outbox.Sink
	o     Options
	clock clock.Source
	newID func() fence.ID
	hint  chan struct{}

	// of Run's goroutine
	restless int // outages of the destination in a row
	// leaveAlone is how long the destination asked to be left alone, in the latest batch.
	leaveAlone time.Duration
	idleHands  int           // batches in a row of which nothing could be handed over
	inVain     int           // looks in a row to which a hint had led, and which found nothing
	away       int           // failures of the store in a row
	deaf       bool          // the store's hints are not to be had, which was said
	pruned     time.Duration // when it was last done

	counts counts
}

type counts struct {
	claimed, published, failed, refused, returned, dead, late, outages, unsettled, hanging atomic.Int64
}

// Stats counts since the relay was made.
type Stats struct {
	Claimed   int64 // handed out to this relay
	Published int64 // acknowledged by the destination
	Failed    int64 // failed attempts, refusals included
	Refused   int64 // of these, those that the destination will never take
	Returned  int64 // given back untried, or in an outage
	Dead      int64 // given up
	Late      int64 // of which this relay said something after another claim had followed
	Outages   int64 // batches that ended in an outage
	Unsettled int64 // of which it could not say what became of them: they are published again
	Hanging   int64 // batches for which the destination had not returned when their claim was over
}

// New returns a relay that does nothing yet. It returns an [*InvalidError] for options that make no sense.
func New(store outbox.Store, sink outbox.Sink, o Options) (*Relay, error) {
	if store == nil || sink == nil {
		return nil, &InvalidError{"relay", "it needs a store and a sink"}
	}
	o.withDefaults()
	if err := o.check(store); err != nil {
		return nil, err
	}
	return &Relay{store: store, sink: sink, o: o, clock: clock.Client(), newID: lease.NewID, hint: make(chan struct{}, 1)}, nil
}

// Wake lets a relay that rests between two looks look now, but for one whose store or destination is away. It never blocks.
func (r *Relay) Wake() {
	select {
	case r.hint <- struct{}{}:
	default:
	}
}

// Stats returns the counts so far.
func (r *Relay) Stats() Stats {
	c := &r.counts
	return Stats{Claimed: c.claimed.Load(), Published: c.published.Load(), Failed: c.failed.Load(), Refused: c.refused.Load(), Returned: c.returned.Load(), Dead: c.dead.Load(), Late: c.late.Load(),
		Outages: c.outages.Load(), Unsettled: c.unsettled.Load(), Hanging: c.hanging.Load()}
}

// Run carries messages until ctx ends. Then it gives back what it has not handed over, waits for what it has for at most [Options.Drain], and returns nil, or a [*DrainError] where the destination did not return: what it still has may be
// published, and is claimed again. What cannot be recorded within another Drain, because the store is away, is logged and counted, and is published again too.
func (r *Relay) Run(ctx context.Context) error {
	r.pruned = r.clock()
	for ctx.Err() == nil {
		r.prune(ctx)
		batch, deadline, err := r.claim(ctx)
		switch {
		case err != nil:
			r.away++
			if r.away == 1 && ctx.Err() == nil {
				r.o.Log.LogAttrs(ctx, levelError, "outbox: the store does not answer", attr("relay", r.o.Name), attr("error", err.Error()))
			}
			pause(ctx, backoff(r.away, r.o.Poll, r.o.RestMost))
		case len(batch.Deliveries) == 0:
			r.answered(ctx)
			if batch.Dead == 0 {
				r.idle(ctx)
			}
		default:
			r.answered(ctx)
			r.inVain = 0
			if err := r.carry(ctx, &batch, deadline); err != nil {
				return err
			}
			switch {
			case r.restless > 0 || r.leaveAlone > 0:
				pause(ctx, max(backoff(max(r.restless, 1), r.o.RetryFirst, r.o.RestMost), r.leaveAlone))
			case r.idleHands > 1: // the store's replies leave no time
				pause(ctx, backoff(r.idleHands-1, r.o.Poll, r.o.RestMost))
			}
		}
	}
	return nil
}

func (r *Relay) answered(ctx context.Context) {
	if r.away > 0 {
		r.o.Log.LogAttrs(ctx, levelInfo, "outbox: the store answers again", attr("relay", r.o.Name))
	}
	r.away = 0
}

// claim asks for a batch, of one message while the destination takes none. The deadline counts from before the request was sent. The call is not ended by ctx: what is claimed in one whose reply nobody awaits would wait for its deadline.
func (r *Relay) claim(ctx context.Context) (outbox.Batch, time.Duration, error) {
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), callBound)
	defer cancel()
	req := outbox.ClaimRequest{Claim: r.newID(), Relay: r.o.Name, Topics: r.o.Topics, Limit: r.o.Batch, Bytes: r.o.Bytes, TTL: r.o.TTL, MaxAttempts: r.o.MaxAttempts}
	if r.restless > 0 {
		req.Limit = 1
	}
	sent := r.clock()
	batch, err := r.store.Claim(bound, req)
	if err != nil {
		return batch, 0, err
	}
	r.counts.claimed.Add(int64(len(batch.Deliveries)))
	r.counts.dead.Add(int64(batch.Dead))
	if batch.Dead > 0 {
		r.o.Log.LogAttrs(ctx, levelError, "outbox: messages were given up, whose claims had expired", attr("relay", r.o.Name), number("messages", batch.Dead))
	}
	return batch, sent + min(batch.Left, r.o.TTL) - r.o.Margin, nil
}

// idle waits until there may be something: for the store's hint where it gives any, for Wake, and at most for Poll. After hints in vain it waits first, ever longer, whoever hints: they may be about what this relay cannot have, and no loop is hot.
func (r *Relay) idle(ctx context.Context) {
	least := min(firstVain<<min(r.inVain, maxShift), r.o.Poll)
	if r.inVain > 0 && !pause(ctx, least) {
		return
	}
	if r.hinted(ctx) {
		r.inVain++
	} else {
		r.inVain = 0
	}
}

// hinted waits for a hint, or for Poll, and reports which it was.
func (r *Relay) hinted(ctx context.Context) bool {
	waker, ok := r.store.(outbox.Waker)
	if !ok {
		return r.rest(ctx, around(r.o.Poll))
	}
	poll := around(r.o.Poll)
	wait, cancel := context.WithTimeout(ctx, poll+callBound) // also where the store does not keep to it
	var woken sync.WaitGroup
	woken.Go(func() {
		select {
		case <-r.hint:
			cancel()
		case <-wait.Done():
		}
	})
	began := r.clock()
	atMost := min(poll, outbox.MaxTTL)
	hint, err := waker.Await(wait, atMost)
	again := wait.Err() != nil
	cancel()
	woken.Wait()
	if err == nil || again {
		r.deaf = r.deaf && err != nil
		return hint || again || r.clock()-began < atMost/2 // who returns at once for nothing has hinted in vain
	}
	if !r.deaf {
		r.deaf = true
		r.o.Log.LogAttrs(ctx, levelWarn, "outbox: the store gives no hints: looking every "+r.o.Poll.String(), attr("relay", r.o.Name), attr("error", err.Error()))
	}
	return r.rest(ctx, poll-(r.clock()-began))
}

// rest waits for d, for Wake, or until ctx ends, and reports whether it was Wake.
func (r *Relay) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, leastPause))
	defer timer.Stop()
	select {
	case <-r.hint:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// pause waits for d, whoever hints, and reports whether it did, rather than ctx ending first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, leastPause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// prune forgets what was delivered, or given up, long ago.
func (r *Relay) prune(ctx context.Context) {
	office, ok := r.store.(outbox.Office)
	if now := r.clock(); !ok || r.o.Keep == 0 && r.o.KeepDead == 0 || now-r.pruned < pruneEvery {
		return
	} else {
		r.pruned = now
	}
	bound, cancel := context.WithTimeout(ctx, callBound)
	defer cancel()
	n, err := office.Prune(bound, r.o.prune())
	if err != nil && ctx.Err() == nil {
		r.o.Log.LogAttrs(ctx, levelWarn, "outbox: pruning", attr("relay", r.o.Name), attr("error", err.Error()))
	}
	if n == outbox.MaxMove {
		r.pruned -= pruneEvery // there is more
	}
}

// backoff is random up to base after the first, twice that after the second and so on, never above most.
func backoff(n int, base, most time.Duration) time.Duration {
	upTo := most
	if shift := n - 1; shift < 40 && base < most>>shift {
		upTo = base << shift
	}
	return max(leastPause, rand.N(max(upTo, 1)))
}

// around is d, a tenth more or less.
func around(d time.Duration) time.Duration {
	return max(leastPause, d-d/10+rand.N(max(d/5, 1)))
}

// unsettled reports whether repeating a settlement may still say something.
func unsettled(err error) bool {
	return errors.Is(err, outbox.ErrUnknown) || errors.Is(err, outbox.ErrUnavailable)
}
