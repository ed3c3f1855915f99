package budget

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Budget is time to answer in. It starts to run when it is made. Safe for concurrent use.
type Budget struct {
	name    string
	begun   time.Time
	total   time.Duration
	reserve time.Duration
	ctx     context.Context
	cancel  context.CancelFunc
	over    context.CancelCauseFunc // ends ctx where the machine has slept for too long
	asleep  asleep

	mu      sync.Mutex
	entries []Entry
	dropped int
	first   [inline]Entry
}

const (
	inline     = 2   // entries that need no memory of their own
	maxEntries = 256 // that Explain keeps of one budget
	maxTotal   = 24 * time.Hour * 366
)

// Option is a choice at [Start].
type Option func(*Budget)

// Reserve keeps d of the total: no attempt may use it. It is for answering, and for asking what became of a call. Default 0: none.
func Reserve(d time.Duration) Option { return func(b *Budget) { b.reserve = d } }

// Named is what [Budget.Explain] calls it. Default "budget".
func Named(name string) Option { return func(b *Budget) { b.name = name } }

// Start begins a budget of total, or of what ctx has left where that is less. Its context ends with it, or with ctx. Under the Context of another budget it may use that one's reserve, which is
// what asks what became of a call; under the context of an attempt, a Do or a part it may not.
//
// The caller calls [Budget.End] when it is done. Start returns an error matching [ErrInvalid] for a total that is not positive or above a year, and for a
// reserve that is negative or not below the total, and one matching [ErrNoTime] if ctx has no more left than the reserve.
func Start(ctx context.Context, total time.Duration, options ...Option) (*Budget, error) {
	b := &Budget{name: "budget", begun: time.Now(), total: total, asleep: newAsleep()}
	for _, o := range options {
		o(b)
	}
	switch {
	case total <= 0 || total > maxTotal:
		return nil, &InvalidError{"total", fmt.Sprintf("%v; want more than 0 and at most %v", total, maxTotal)}
	case b.reserve < 0 || b.reserve >= total:
		return nil, &InvalidError{"reserve", fmt.Sprintf("%v of a total of %v; want at least 0 and less than the total", b.reserve, total)}
	}
	b.asleep.begin(b.begun)
	if deadline, ok := ctx.Deadline(); ok {
		b.total = min(total, rest(ctx, deadline.Sub(b.begun)))
	}
	left := b.total - b.reserve
	if ctx.Err() != nil {
		left = 0
	}
	if left <= 0 {
		return nil, &NoTimeError{What: b.name, Needs: 1, Left: left, Reserve: b.reserve}
	}
	b.entries = b.first[:0]
	ctx, b.cancel = context.WithTimeout(ctx, b.total) // around the other one: it lets go of what ctx was when its time is over, also of a budget that nobody ends
	ctx, b.over = context.WithCancelCause(ctx)
	b.ctx = &budgetContext{ctx, b}
	return b, nil
}

// budgetContext carries its budget without an allocation for each look.
type budgetContext struct {
	context.Context
	b *Budget
}

type contextKey struct{}

func (c *budgetContext) Value(key any) any {
	if key == (contextKey{}) {
		return c.b
	}
	return c.Context.Value(key)
}

// From is the budget that a context carries, the innermost one, or nil.
func From(ctx context.Context) *Budget {
	b, _ := ctx.Value(contextKey{}).(*Budget)
	return b
}

// Context is for the work of this budget. It ends with the total, reserve included: what is started by [Budget.Attempt] and [Do] ends before the reserve.
func (b *Budget) Context() context.Context { return b.ctx }

// End gives back what the budget holds and ends its context. It may be called twice.
func (b *Budget) End() { b.cancel() }

// Remaining is what is left for attempts: up to the reserve. It is never negative.
func (b *Budget) Remaining() time.Duration { return max(0, b.total-b.reserve-b.spent()) }

// RemainingTotal is what is left up to the end, the reserve included. It is never negative.
func (b *Budget) RemainingTotal() time.Duration { return max(0, b.total-b.spent()) }

// Total is the budget's whole duration; Reserved is what of it no attempt may use.
func (b *Budget) Total() time.Duration { return b.total }

// Reserved is what no attempt may use.
func (b *Budget) Reserved() time.Duration { return b.reserve }

// Try is one attempt: what it is, and how long it may and must have.
type Try struct {
	Name string // of what is called, for Explain
	// Timeout is how long it may take at most; 0: all that is left before the reserve.
	Timeout time.Duration
	// Minimum is what it must have at least to be worth starting; 0: its Timeout, or where that is 0 too, a millisecond.
	Minimum time.Duration
}

func (t Try) minimum() time.Duration {
	switch {
	case t.Minimum > 0:
		return t.Minimum
	case t.Timeout > 0:
		return t.Timeout
	}
	return time.Millisecond
}

func (t Try) check() error {
	switch {
	case t.Timeout < 0:
		return &InvalidError{"timeout", fmt.Sprintf("%v is negative", t.Timeout)}
	case t.Minimum < 0 || t.Timeout > 0 && t.Minimum > t.Timeout:
		return &InvalidError{"minimum", fmt.Sprintf("%v with a timeout of %v; want at least 0 and at most the timeout", t.Minimum, t.Timeout)}
	}
	return nil
}

// Attempt is a context for one attempt: it ends with ctx, after the attempt's timeout, and before the budget's reserve. done records how it went, for
// [Budget.Explain], and ends the context; it is called once, with the attempt's error or nil.
//
// Attempt returns an error matching [ErrNoTime] if the minimum does not fit, before the reserve or before ctx's own deadline, one matching [ErrInvalid] for a Try that makes no sense, and the cause of ctx if
// that has ended. Nothing was started then.
func (b *Budget) Attempt(ctx context.Context, t Try) (attempt context.Context, done func(error), err error) {
	within, at, err := b.fits(ctx, t)
	if err != nil {
		return nil, nil, err
	}
	attempt, cancel := context.WithDeadline(ctx, b.instant(at+within)) // however long it takes to come here
	return attempt, func(err error) {
		cancel()
		b.note(Entry{Kind: KindAttempt, Name: t.Name, At: at, Took: b.spent() - at, Allowed: within, Err: err})
	}, nil
}

// fits is how long an attempt that begins now, at that time of the budget, may take.
func (b *Budget) fits(ctx context.Context, t Try) (within, at time.Duration, err error) {
	if err := t.check(); err != nil {
		return 0, 0, err
	}
	if ctx.Err() != nil {
		return 0, 0, context.Cause(ctx)
	}
	at = b.spent()
	within = b.left(ctx, at)
	if needs := t.minimum(); within < needs {
		err := &NoTimeError{What: named("an attempt", t.Name), Needs: needs, Left: within, Reserve: b.reserve}
		b.note(Entry{Kind: KindNotStarted, Name: t.Name, At: at, Allowed: max(0, within), Err: err})
		return 0, 0, err
	}
	if t.Timeout > 0 {
		within = min(within, t.Timeout)
	}
	return within, at, nil
}

// left is what something under ctx may take at that time of the budget: up to the reserve, or to ctx's own deadline where that is sooner, as it is in an attempt of another call.
func (b *Budget) left(ctx context.Context, at time.Duration) time.Duration {
	left := b.total - b.reserve - at
	if ctx == b.ctx { // it ends later than that
		return left
	}
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, b.timeOf(deadline)-at)
	}
	return left
}

func named(what, name string) string {
	if name == "" {
		return what
	}
	return what + " of " + name
}
