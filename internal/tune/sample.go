package tune

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
)

// Limits of a sample.
const (
	MinSample = time.Second
	MaxSample = time.Hour
	MinEvery  = 10 * time.Millisecond

	DefaultEvery = 100 * time.Millisecond

	sampleLeast = 20                   // renewals, or there is nothing to say
	sampleCall  = 10 * time.Second     // that one renewal is waited for
	pauseTick   = 2 * time.Millisecond // of the clock that notices pauses
	pauseLeast  = 5 * time.Millisecond // a shorter one is a late timer
)

// SampleOptions say how to sample.
type SampleOptions struct {
	For   time.Duration // MinSample to MaxSample
	Every time.Duration // between two renewals in the mean, from MinEvery; 0: 100 ms, or less where For would hold too few
	// Progress is told of what was measured so far, about once a second. May be nil.
	Progress func(elapsed time.Duration, renewals, failed int)
	// Clock reads a clock that also counts while the machine sleeps. Nil: the kernel's boot clock.
	Clock func() time.Duration
}

// Sampled is what was measured.
type Sampled struct {
	Renewals    Measured // round trips of renewals that were acknowledged
	Pauses      Measured // of this process, of 5 ms and more, also those in which it waited for a processor
	Acked       int
	Failed      int
	LastFailure error
	Elapsed     time.Duration
	Interrupted bool // ctx ended before the time was up
}

// Sample opens a session of its own with a TTL well beyond the sample, renews it at a gentle pace, and closes it; it takes
// no lease, and nothing else is written to the store. Beside it a timer notices how long this process stands still.
//
// When ctx ends, Sample stops, closes the session within a few seconds, and returns what it has. It returns an [*InputError] for
// options out of range, what the store returned if the session could not be opened or is over, and an error matching
// [ErrTooFew], with the last failure in it, if fewer than 20 renewals were acknowledged.
func Sample(ctx context.Context, store lease.Store, o SampleOptions) (Sampled, error) {
	if o.Every == 0 {
		o.Every = min(DefaultEvery, o.For/(2*sampleLeast))
	}
	if o.Clock == nil {
		o.Clock = clock.Boot()
	}
	switch {
	case o.For < MinSample || o.For > MaxSample:
		return Sampled{}, wrongf("sample", "%v; want %v to %v", o.For, MinSample, MaxSample)
	case o.Every < MinEvery || o.Every > o.For/sampleLeast:
		return Sampled{}, wrongf("sample", "a renewal every %v in %v; want %v to a %dth of the time", o.Every, o.For, MinEvery, sampleLeast)
	}
	ttl := (2*o.For + time.Minute).Round(time.Second)
	req := lease.OpenRequest{ID: lease.NewID(), Owner: "tenure tune", TTL: min(ttl, lease.MaxTTL)}
	opening, cancel := context.WithTimeout(ctx, sampleCall)
	defer cancel()
	_, err := store.Open(opening, req)
	defer closeSession(ctx, store, req)
	if err != nil {
		return Sampled{}, fmt.Errorf("opening a session to measure with: %w", err)
	}
	s := &sampler{store: store, req: req, o: o, renewals: newCounts(), pauses: newCounts()}
	return s.run(ctx)
}

// closeSession gives the session back, also one whose open was not answered. Where it fails the session expires by itself, and holds nothing.
func closeSession(ctx context.Context, store lease.Store, req lease.OpenRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	_ = store.Close(ctx, req.ID)
}

type sampler struct {
	store    lease.Store
	req      lease.OpenRequest
	o        SampleOptions
	renewals *counts
	pauses   *counts
	out      Sampled
}

func (s *sampler) run(ctx context.Context) (Sampled, error) {
	begin := s.o.Clock()
	timed, cancel := context.WithTimeout(ctx, s.o.For)
	defer cancel()
	var beside sync.WaitGroup
	beside.Go(func() { s.watch(timed) })
	err := s.renew(timed, begin)
	cancel()
	beside.Wait()
	s.out.Elapsed = s.o.Clock() - begin
	s.out.Interrupted = ctx.Err() != nil
	s.out.Renewals, s.out.Pauses = s.renewals.measured(s.out.Elapsed), s.pauses.measured(s.out.Elapsed)
	if err != nil {
		return s.out, err
	}
	if s.out.Acked < sampleLeast {
		err := fmt.Errorf("%w: %d of at least %d in %v, %d failed", ErrTooFew, s.out.Acked, sampleLeast, s.out.Elapsed.Round(time.Millisecond), s.out.Failed)
		if s.out.LastFailure != nil {
			err = fmt.Errorf("%w; the last: %w", err, s.out.LastFailure)
		}
		return s.out, err
	}
	return s.out, nil
}

// renew measures until ctx ends, one renewal at a time. It returns an error if the authority says that the session is over.
func (s *sampler) renew(ctx context.Context, begin time.Duration) error {
	told := begin
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		err := s.one(ctx)
		if errors.Is(err, lease.ErrEnded) {
			return fmt.Errorf("the session to measure with is over before its time: %w", err)
		}
		if now := s.o.Clock(); s.o.Progress != nil && now-told >= time.Second {
			told = now
			s.o.Progress(now-begin, s.out.Acked, s.out.Failed)
		}
		// Jitter, so that the sample does not march in step with something periodic.
		timer.Reset(s.o.Every/2 + rand.N(s.o.Every))
	}
}

func (s *sampler) one(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, sampleCall)
	defer cancel()
	sent := s.o.Clock()
	_, err := s.store.Renew(call, lease.RenewRequest{Session: s.req.ID})
	switch {
	case err == nil:
		s.out.Acked++
		s.renewals.add((s.o.Clock() - sent).Seconds())
	case ctx.Err() == nil: // not cut off by the end of the sample
		s.out.Failed++
		s.out.LastFailure = err
	}
	return err
}

// watch notes how much later than meant a timer wakes this process.
func (s *sampler) watch(ctx context.Context) {
	timer := time.NewTimer(pauseTick)
	defer timer.Stop()
	last := s.o.Clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := s.o.Clock()
		if late := now - last - pauseTick; late >= pauseLeast {
			s.pauses.add(late.Seconds())
		}
		last = now
		timer.Reset(pauseTick)
	}
}

// counts is a histogram with 20 buckets a decade from 10 us to 1,000 s: a sample of any length has one size.
type counts struct{ n [161]uint64 }

func newCounts() *counts { return &counts{} }

func (c *counts) add(s float64) {
	i := int(math.Ceil(20 * math.Log10(max(s, 1e-5)/1e-5)))
	c.n[min(i, len(c.n)-1)]++
}

func (c *counts) measured(over time.Duration) Measured {
	m := Measured{Over: over}
	sum := 0.0
	for i, n := range c.n {
		if n == 0 && (i+1 == len(c.n) || c.n[i+1] == 0) {
			continue // only buckets at the edge of something are worth a line
		}
		sum += float64(n)
		m.Buckets = append(m.Buckets, Bucket{LE: 1e-5 * math.Pow(10, float64(i)/20), Count: sum})
	}
	return m
}
