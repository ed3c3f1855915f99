package relay_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/outbox"
	"github.com/tenure-go/tenure/relay"
	"github.com/tenure-go/tenure/store/memory"
)

// carrier is a relay, or a twin of it. late is how often it has told that it came too late.
type carrier interface {
	Run(ctx context.Context) error
	late() int64
}

type maker func(store outbox.Store, s outbox.Sink, o relay.Options) carrier

type genuine struct{ *relay.Relay }

func (g genuine) late() int64 { return g.Stats().Late }

func makeGenuine(store outbox.Store, s outbox.Sink, o relay.Options) carrier {
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	r, err := relay.New(store, s, o)
	if err != nil {
		panic(err)
	}
	return genuine{r}
}

// The flaws of twins. Each is the name of the case that catches it.
const (
	noFlaw          = ""
	settlesFirst    = "settles before it publishes"
	handsOverLate   = "hands over after the deadline"
	countsOutages   = "counts outages against messages"
	forgetsItsOwn   = "does not give back what it has not handed over"
	busyLoop        = "asks a store that is away without a pause"
	retriesRefused  = "tries again what is refused"
	neverGivesUp    = "holds no failure against its message"
	dropsLate       = "does not tell that it was late"
	settlesOnceOnly = "does not repeat a settlement whose outcome is unknown"
)

// twin is the least that can be called a relay, and one thing is wrong with it.
type twin struct {
	store   outbox.Store
	sink    outbox.Sink
	o       relay.Options
	flaw    string
	tooLate atomic.Int64
}

func makeTwin(flaw string) maker {
	return func(store outbox.Store, s outbox.Sink, o relay.Options) carrier {
		if o.TTL == 0 {
			o.TTL = 30 * time.Second
		}
		if o.MaxAttempts == 0 {
			o.MaxAttempts = 20
		}
		return &twin{store: store, sink: s, o: o, flaw: flaw}
	}
}

func (w *twin) late() int64 { return w.tooLate.Load() }

func (w *twin) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		sent := time.Now()
		batch, err := w.store.Claim(context.WithoutCancel(ctx), outbox.ClaimRequest{Claim: lease.NewID(), Limit: 100, Bytes: 1 << 20, TTL: w.o.TTL, MaxAttempts: w.o.MaxAttempts})
		switch {
		case err != nil && w.flaw == busyLoop:
			wait(ctx, time.Millisecond)
		case err != nil, len(batch.Deliveries) == 0:
			wait(ctx, time.Second)
		default:
			w.carry(ctx, &batch, sent.Add(batch.Left-w.o.TTL/10))
		}
	}
	return nil
}

func (w *twin) carry(ctx context.Context, batch *outbox.Batch, until time.Time) {
	if ctx.Err() != nil && w.flaw == forgetsItsOwn {
		return
	}
	errs := make([]error, len(batch.Deliveries))
	if w.flaw == settlesFirst {
		w.settle(ctx, batch, errs)
	}
	handed := ctx.Err() == nil && (w.flaw == handsOverLate || time.Now().Before(until))
	if handed {
		errs = w.sink.Publish(context.WithoutCancel(ctx), batch.Deliveries)
	} else {
		for i := range errs {
			errs[i] = outbox.Outage(errors.New("not handed over"))
		}
	}
	w.settle(ctx, batch, errs)
	if handed && errors.Is(errors.Join(errs...), outbox.ErrOutage) {
		wait(ctx, 5*time.Second)
	}
}

func (w *twin) settle(ctx context.Context, batch *outbox.Batch, errs []error) {
	req := outbox.SettleRequest{Claim: batch.Claim}
	for i, err := range errs {
		v := outbox.Verdict{Position: batch.Deliveries[i].Position, Outcome: outbox.Published}
		refused := errors.Is(err, outbox.ErrRefused) && w.flaw != retriesRefused
		switch {
		case err == nil:
		case errors.Is(err, outbox.ErrOutage) && w.flaw != countsOutages, w.flaw == neverGivesUp:
			v.Outcome, v.RetryIn = outbox.Returned, time.Second
		default:
			v.Outcome, v.Error, v.RetryIn = outbox.Failed, err.Error(), time.Second
			v.Dead = refused || batch.Deliveries[i].Attempt >= w.o.MaxAttempts
		}
		req.Verdicts = append(req.Verdicts, v)
	}
	for range 5 {
		done, err := w.store.Settle(context.WithoutCancel(ctx), req)
		if err == nil && w.flaw != dropsLate {
			w.tooLate.Add(int64(len(done.Late)))
		}
		if err == nil || w.flaw == settlesOnceOnly {
			return
		}
		wait(ctx, time.Second)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// runs starts a relay, and returns what ends it.
func runs(t *testing.T, c carrier) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

type promise struct {
	flaw string
	hold func(t *testing.T, makes maker) error
}

// promises are what a relay keeps, by the flaw of one that does not.
func promises() []promise {
	return []promise{{settlesFirst, published}, {handsOverLate, inTime}, {countsOutages, outages}, {forgetsItsOwn, givenBack}, {busyLoop, unhurried}, {retriesRefused, refused}, {neverGivesUp, givenUp}, {dropsLate, toldLate},
		{settlesOnceOnly, repeated}}
}

// published: while the destination has not acknowledged it, a message is not delivered.
func published(t *testing.T, makes maker) error {
	t.Helper()
	store, hang := memory.NewOutbox(memory.Options{}), make(chan struct{})
	post(t, store, false, "a")
	stop := runs(t, makes(store, &sink{answer: func(context.Context, outbox.Delivery) error { <-hang; return nil }}, relay.Options{}))
	<-time.After(5 * time.Second)
	got := states(t, store)
	close(hang)
	stop()
	return differs("while it is being published", got, "map[pending:1]")
}

// inTime: a claim whose reply comes after its deadline is not published.
func inTime(t *testing.T, makes maker) error {
	t.Helper()
	store := &tardy{memory.NewOutbox(memory.Options{}), 4 * time.Second}
	post(t, store, false, "a")
	began, first := time.Now(), time.Duration(0)
	s := &sink{answer: func(context.Context, outbox.Delivery) error {
		if first == 0 {
			first = time.Since(began)
		}
		return nil
	}}
	other := &sink{}
	stop := runs(t, makes(store, s, relay.Options{TTL: 3 * time.Second}))
	<-time.After(3500 * time.Millisecond)
	stopOther := runs(t, makeGenuine(store.Outbox, other, relay.Options{}))
	<-time.After(10 * time.Second)
	stop()
	stopOther()
	return differs("published by the slow one, and the other", fmt.Sprint(s.keys(), other.keys()), "[] [a]")
}

// outages: a destination that is away for ten minutes makes no dead letter, and no attempt.
func outages(t *testing.T, makes maker) error {
	t.Helper()
	store := memory.NewOutbox(memory.Options{})
	post(t, store, false, "a")
	stop := runs(t, makes(store, &sink{answer: func(context.Context, outbox.Delivery) error { return outbox.Outage(errors.New("away")) }}, relay.Options{MaxAttempts: 3}))
	<-time.After(10 * time.Minute)
	stop()
	return differs("after an outage", states(t, store), "map[pending:1]")
}

// givenBack: what was claimed when the relay is told to end is anybody's at once.
func givenBack(t *testing.T, makes maker) error {
	t.Helper()
	store := cut{memory.NewOutbox(memory.Options{})}
	post(t, store, false, "a")
	stop := runs(t, makes(store, &sink{}, relay.Options{}))
	synctest.Wait()
	stop()
	all, err := store.List(t.Context(), outbox.ListRequest{Limit: 1})
	return errors.Join(err, differs("left of the claim", all[0].Claimed, "0s"))
}

// unhurried: a store that is away for a minute is not asked a thousand times.
func unhurried(t *testing.T, makes maker) error {
	t.Helper()
	store := &calls{Outbox: memory.NewOutbox(memory.Options{}), claim: func(int) error { return &outbox.UnavailableError{Op: "claim", Err: errors.New("away")} }}
	stop := runs(t, makes(store, &sink{}, relay.Options{}))
	<-time.After(time.Minute)
	stop()
	if n := store.looks(); n < 2 || n > 1000 {
		return fmt.Errorf("asked %d times in a minute", n)
	}
	return nil
}

// refused: what the destination will never take is handed over once.
func refused(t *testing.T, makes maker) error {
	t.Helper()
	store := memory.NewOutbox(memory.Options{})
	post(t, store, false, "a")
	s := &sink{answer: func(context.Context, outbox.Delivery) error { return outbox.Refused(errors.New("never")) }}
	stop := runs(t, makes(store, s, relay.Options{}))
	<-time.After(time.Minute)
	stop()
	return errors.Join(differs("handed over", s.keys(), "[a]"), differs("afterwards", states(t, store), "map[dead:1]"))
}

// givenUp: what fails each time goes to the dead letters after so many attempts.
func givenUp(t *testing.T, makes maker) error {
	t.Helper()
	store := memory.NewOutbox(memory.Options{})
	post(t, store, false, "a")
	s := &sink{answer: func(context.Context, outbox.Delivery) error { return errors.New("no") }}
	stop := runs(t, makes(store, s, relay.Options{MaxAttempts: 3}))
	<-time.After(time.Minute)
	stop()
	infos, err := store.List(t.Context(), outbox.ListRequest{Limit: 1})
	return errors.Join(err, differs("handed over", s.keys(), "[a a a]"), differs("errors", len(infos[0].Errors), "3"), differs("afterwards", states(t, store), "map[dead:1]"))
}

// toldLate: a relay whose claim another has followed tells that it was late.
func toldLate(t *testing.T, makes maker) error {
	t.Helper()
	store := memory.NewOutbox(memory.Options{})
	post(t, store, false, "a")
	c := makes(store, &sink{answer: func(context.Context, outbox.Delivery) error { <-time.After(time.Minute); return nil }}, relay.Options{TTL: 10 * time.Second})
	stop := runs(t, c)
	<-time.After(time.Second)
	stopOther := runs(t, makeGenuine(store, &sink{}, relay.Options{}))
	<-time.After(2 * time.Minute)
	stop()
	stopOther()
	return differs("told", c.late(), "1")
}

// repeated: a settlement that did not arrive is said again, and the message is not published again.
func repeated(t *testing.T, makes maker) error {
	t.Helper()
	store := &calls{Outbox: memory.NewOutbox(memory.Options{}), settle: func(n int, _ outbox.SettleRequest) error {
		if n == 1 {
			return &outbox.UnknownError{Op: "settle", Err: errors.New("the connection broke")}
		}
		return nil
	}}
	post(t, store, false, "a")
	s := &sink{}
	stop := runs(t, makes(store, s, relay.Options{TTL: 10 * time.Second}))
	<-time.After(time.Minute)
	stop()
	return differs("published", s.keys(), "[a]")
}

func differs(what string, got any, want string) error {
	if text := fmt.Sprint(got); text != want {
		return fmt.Errorf("%s: %s; want %s", what, text, want)
	}
	return nil
}

// TestPromises: the relay keeps each, and so does a twin without a flaw: what catches the others is their flaw.
func TestPromises(t *testing.T) {
	for kind, makes := range map[string]maker{"relay": makeGenuine, "twin": makeTwin(noFlaw)} {
		for _, p := range promises() {
			t.Run(kind+"/"+p.flaw, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					if err := p.hold(t, makes); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestTwinsAreCaught: each by the promise that it breaks.
func TestTwinsAreCaught(t *testing.T) {
	for _, p := range promises() {
		t.Run(p.flaw, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if err := p.hold(t, makeTwin(p.flaw)); err == nil {
					t.Error("it passes")
				}
			})
		})
	}
}
