package worker

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/internal/clock"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// The defaults. Operational choices, not theorems.
const (
	defaultTimeout     = 30 * time.Second
	defaultAttempts    = 25
	defaultConcurrency = 10
	defaultBase        = time.Second
	defaultMost        = 10 * time.Minute
	defaultTTL         = 15 * time.Second
	defaultMargin      = 500 * time.Millisecond // or a tenth of the TTL, if that is more
	defaultPoll        = 500 * time.Millisecond
	defaultPrefetch    = 1000
	defaultDrain       = 30 * time.Second
	defaultGrace       = time.Second

	minTTL = 100 * time.Millisecond
)

// complete fills in the defaults, and says which settings contradict each other.
func (e *Entry) complete() error {
	set(&e.timeout, defaultTimeout)
	set(&e.reserve, min(e.timeout/10, time.Second))
	set(&e.base, defaultBase)
	set(&e.most, max(defaultMost, e.base))
	set(&e.askBase, defaultBase)
	set(&e.askMost, max(defaultMost, e.askBase))
	if e.attempts == 0 {
		e.attempts = defaultAttempts
	}
	if e.concurrency == 0 {
		e.concurrency = defaultConcurrency
	}
	if e.provider == "" {
		e.provider = e.name
	}
	bad := func(field, format string, args ...any) error {
		return &InvalidError{fmt.Sprintf("the handler of %q", e.name), field, fmt.Sprintf(format, args...)}
	}
	switch {
	case e.name == "" || len(e.name) > operation.MaxKind:
		return bad("kind", "want 1 to %d bytes", operation.MaxKind)
	case e.perform == nil:
		return bad("perform", "nil; who never performs a kind leaves it to others")
	case e.timeout < time.Millisecond || e.timeout > operation.MaxDelay/2:
		return bad("timeout", "%v; want 1ms to %v", e.timeout, operation.MaxDelay/2)
	case e.reserve < 0 || e.reserve >= e.timeout:
		return bad("reserve", "%v of a timeout of %v; want less than the timeout", e.reserve, e.timeout)
	case e.base < 0 || e.base > e.most || e.most > operation.MaxDelay:
		return bad("base", "%v with a most of %v; want the base at most the most, and that at most %v", e.base, e.most, operation.MaxDelay)
	case e.askBase < 0 || e.askBase > e.askMost || e.askMost > operation.MaxDelay:
		return bad("ask base", "%v with a most of %v; want the base at most the most, and that at most %v", e.askBase, e.askMost, operation.MaxDelay)
	case e.attempts < 1 || e.attempts > operation.MaxAttempts:
		return bad("attempts", "%d; want 1 to %d", e.attempts, operation.MaxAttempts)
	case e.concurrency < 1 || e.concurrency > operation.MaxBatch:
		return bad("concurrency", "%d; want 1 to %d", e.concurrency, operation.MaxBatch)
	case e.notAfter < 0 || e.notAfter > operation.MaxDelay:
		return bad("not after", "%v; want 0 for none, to %v", e.notAfter, operation.MaxDelay)
	case e.window < 0 || e.window > operation.MaxDelay && e.window != operation.Forever:
		return bad("window", "%v; want 0 for none, to %v, or Forever", e.window, operation.MaxDelay)
	case e.local && (e.inquire != nil || e.window != 0 || e.notAfter != 0):
		return bad("local", "together with Inquire, Window or NotAfter; what stands in the completing transaction needs no provider to be asked")
	}
	if e.local {
		e.window = operation.Forever
	}
	return nil
}

func set(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}

// Options set up a worker. The zero value is ready.
type Options struct {
	// Label is recorded with each attempt, for people; at most [operation.MaxWorker] bytes. It is never proof, and may be reused.
	Label string
	// TTL is how long the store waits for a renewal of a claim. A third of it passes between renewals. Default (0) 15 s; 100 ms to [operation.MaxTTL].
	TTL time.Duration
	// Margin is how long before its expiry a claim is taken for lost. It covers clocks whose rates differ. Default (0) the larger of TTL/10 and 500 ms, less where that leaves no third of the TTL; at least TTL/3 must remain without it.
	Margin time.Duration
	// Poll is the longest pause between two looks for work while there is none. Default (0) 500 ms.
	Poll time.Duration
	// Prefetch bounds how many operations of a kind wait in this process for a slot, in addition to those that run. As many are fetched as were begun in a tenth of a second of late, so a slow
	// kind prefetches none; and of a kind without a Window, and not Local, no more than its concurrency, because what a killed worker had here must be asked about. A request has up to [operation.MaxBody] bytes: where they are large, choose it
	// small. Default (0) 1000, which is the most.
	Prefetch int
	// Drain is how long attempts may run on after Run's context has ended. Default (0) 30 s.
	Drain time.Duration
	// Grace is how long a handler may take to return after its context has ended. Then the attempt is reported as without an answer. Default (0) 1 s.
	Grace time.Duration
	// MaxAbandoned is how many handlers of a kind may be left running after that. With so many the kind claims nothing more until one returns. Default (0): the kind's concurrency.
	MaxAbandoned int
	// Leases is the authority that names of [Handler.Lease] are acquired from, in a session of the worker's own, which Session sets up.
	Leases  lease.Store
	Session lease.Options
	// Clock reads a clock that also counts while the machine sleeps and never goes back. Default (nil) the clock of clients: the kernel's boot clock, inside a synctest bubble the bubble's.
	Clock func() time.Duration
	// Logger receives panics, lost claims, what is stale, and first failures and recoveries of the store. Default (nil) nowhere.
	Logger *slog.Logger
	// OnAttempt is told of each attempt that was reported, with what the store answered. OnConflict is told of each operation to which evidence was reported that contradicts its decision.
	// Both are called on the goroutines that report: return soon. May be nil.
	OnAttempt  func(Ended)
	OnConflict func(operation.Record)
}

func (o Options) complete() (Options, error) {
	set(&o.TTL, defaultTTL)
	set(&o.Margin, min(max(o.TTL/10, defaultMargin), o.TTL-o.TTL/3))
	set(&o.Poll, defaultPoll)
	set(&o.Drain, defaultDrain)
	set(&o.Grace, defaultGrace)
	if o.Prefetch == 0 {
		o.Prefetch = defaultPrefetch
	}
	if o.Clock == nil {
		o.Clock = clock.Client()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	bad := func(field, format string, args ...any) (Options, error) {
		return o, &InvalidError{"the options", field, fmt.Sprintf(format, args...)}
	}
	switch {
	case len(o.Label) > operation.MaxWorker:
		return bad("label", "%d bytes; at most %d", len(o.Label), operation.MaxWorker)
	case o.TTL < minTTL || o.TTL > operation.MaxTTL:
		return bad("ttl", "%v; want 0 for %v, or %v to %v", o.TTL, defaultTTL, minTTL, operation.MaxTTL)
	case o.Margin < 0 || o.TTL-o.Margin < o.TTL/3:
		return bad("margin", "%v of a TTL of %v leaves less than the third between two renewals", o.Margin, o.TTL)
	case o.Poll < leastPause || o.Drain < 0 || o.Grace < 0:
		return bad("duration", "poll %v, drain %v, grace %v; want none negative, and a poll of at least %v", o.Poll, o.Drain, o.Grace, leastPause)
	case o.Prefetch < 1 || o.Prefetch > operation.MaxBatch:
		return bad("prefetch", "%d; want 0 for %d, or 1 to %d", o.Prefetch, defaultPrefetch, operation.MaxBatch)
	case o.MaxAbandoned < 0:
		return bad("max abandoned", "%d; want at least 0", o.MaxAbandoned)
	}
	return o, nil
}

// queueMost is how long an operation may wait for a slot: its claim lives as long without a renewal.
func (o *Options) queueMost() time.Duration { return o.TTL / 3 }

// claimed is what the store is told of a kind: its timeout holds what the attempt may wait for a slot, and for being reported, in addition.
func (o *Options) claimed(e *Entry) operation.KindClaim {
	return operation.KindClaim{Kind: e.name, Timeout: e.timeout + o.queueMost() + o.Grace + o.Margin, Window: e.window, NotAfter: e.notAfter, MaxAttempts: e.attempts, Asks: e.inquire != nil, Undoes: e.compensate != nil}
}

// fits says where a handler contradicts the options.
func (o *Options) fits(e *Entry) error {
	if e.err != nil {
		return e.err
	}
	c := o.claimed(e)
	what := fmt.Sprintf("the handler of %q", e.name)
	switch {
	case c.Timeout > operation.MaxDelay:
		return &InvalidError{what, "timeout", fmt.Sprintf("%v with what the worker adds; at most %v", c.Timeout, operation.MaxDelay)}
	case e.window > 0 && e.window <= c.Timeout:
		return &InvalidError{what, "window", fmt.Sprintf("%v holds no second attempt: the store gives each %v, of which the worker's TTL, grace and margin take %v; 0 says that there is none", e.window, c.Timeout, c.Timeout-e.timeout)}
	case e.lease != nil && o.Leases == nil:
		return &InvalidError{what, "lease", "names one, and the worker's Leases is nil"}
	}
	return nil
}
