package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// proxy stands between one client and the authority, and does to its calls what a network does.
type proxy struct {
	lease.Store

	mu     sync.Mutex
	rules  map[string][]rule // one for each coming call of that kind, in order
	always map[string]rule   // for the calls after those
	log    []call
}

// rule decides what becomes of a call: forward hands it to the authority and returns its error.
type rule func(ctx context.Context, forward func(context.Context) error) error

// call is what was seen of a request on its way to the authority.
type call struct {
	op          string
	at          time.Time
	id          fence.ID // of the acquisition; the session's for renew and close
	closedBelow fence.ID
	released    []fence.ID // by a renewal
}

var errLost = errors.New("connection reset")

func newProxy(to lease.Store) *proxy {
	return &proxy{Store: to, rules: map[string][]rule{}, always: map[string]rule{}}
}

// next sets rules for the coming calls of a kind, one each.
func (p *proxy) next(op string, rules ...rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules[op] = append(p.rules[op], rules...)
}

// all sets a rule for every call of the kinds.
func (p *proxy) all(r rule, ops ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range ops {
		p.always[op] = r
	}
}

// heal forgets all rules.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.rules)
	clear(p.always)
}

// switchTo puts another authority behind the proxy.
func (p *proxy) switchTo(to lease.Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Store = to
}

// calls returns what was seen of a kind.
func (p *proxy) calls(op string) []call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.log), func(c call) bool { return c.op != op })
}

// everyOp lists the kinds of call that reach an authority.
func everyOp() []string { return []string{"open", "renew", "close", "acquire", "release"} }

// relay hands a call to its rule. What a late or repeated request is answered with is seen by nobody but the rule.
func relay[R any](ctx context.Context, p *proxy, c call, ask func(context.Context, lease.Store) (R, error)) (R, error) {
	p.mu.Lock()
	c.at = time.Now()
	p.log = append(p.log, c)
	r := p.always[c.op]
	if queue := p.rules[c.op]; len(queue) > 0 {
		r, p.rules[c.op] = queue[0], queue[1:]
	}
	to := p.Store
	p.mu.Unlock()
	if r == nil {
		r = through
	}
	var reply atomic.Value
	err := r(ctx, func(ctx context.Context) error {
		got, err := ask(ctx, to)
		if err == nil {
			reply.Store(got)
		}
		return err
	})
	got, ok := reply.Load().(R)
	if err != nil || !ok {
		var none R
		return none, err
	}
	return got, nil
}

func (p *proxy) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	return relay(ctx, p, call{op: "open", id: req.ID}, func(ctx context.Context, to lease.Store) (time.Duration, error) {
		return to.Open(ctx, req)
	})
}

func (p *proxy) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	seen := call{op: "renew", id: req.Session, closedBelow: req.ClosedBelow}
	for _, a := range req.Release {
		seen.released = append(seen.released, a.ID)
	}
	return relay(ctx, p, seen, func(ctx context.Context, to lease.Store) (lease.Renewal, error) {
		return to.Renew(ctx, req)
	})
}

func (p *proxy) Close(ctx context.Context, session fence.ID) error {
	_, err := relay(ctx, p, call{op: "close", id: session}, func(ctx context.Context, to lease.Store) (struct{}, error) {
		return struct{}{}, to.Close(ctx, session)
	})
	return err
}

func (p *proxy) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	seen := call{op: "acquire", id: req.ID, closedBelow: req.ClosedBelow}
	return relay(ctx, p, seen, func(ctx context.Context, to lease.Store) ([]lease.Grant, error) {
		return to.Acquire(ctx, req)
	})
}

func (p *proxy) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	seen := call{op: "release", id: req.ID, closedBelow: req.ClosedBelow}
	return relay(ctx, p, seen, func(ctx context.Context, to lease.Store) (lease.Released, error) {
		return to.Release(ctx, req)
	})
}

// unknownTo is what a client's transport makes of a reply that does not come.
func unknownTo(err error) error { return &lease.UnknownError{Op: "call", Err: err} }

// loseReply applies the request and resets the connection.
func loseReply(ctx context.Context, forward func(context.Context) error) error {
	_ = forward(context.WithoutCancel(ctx))
	return unknownTo(errLost)
}

// loseRequest resets the connection before the request is applied.
func loseRequest(context.Context, func(context.Context) error) error { return unknownTo(errLost) }

// blackHole swallows the request: nothing is heard until the caller gives up.
func blackHole(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return unknownTo(context.Cause(ctx))
}

// swallowReply applies the request; nothing is heard until the caller gives up.
func swallowReply(ctx context.Context, forward func(context.Context) error) error {
	_ = forward(context.WithoutCancel(ctx))
	return blackHole(ctx, forward)
}

// unavailable refuses the connection.
func unavailable(context.Context, func(context.Context) error) error {
	return &lease.UnavailableError{Op: "call", Err: errLost}
}

// through lets the call pass.
func through(ctx context.Context, forward func(context.Context) error) error { return forward(ctx) }

// stuck returns a rule that heeds nothing but the channel.
func stuck(until <-chan struct{}) rule {
	return func(context.Context, func(context.Context) error) error {
		<-until
		return unknownTo(errLost)
	}
}

// late returns a rule that applies the request at once and delivers the reply after d, also to a caller
// that no longer waits.
func late(d time.Duration) rule {
	return func(ctx context.Context, forward func(context.Context) error) error {
		err := forward(context.WithoutCancel(ctx))
		<-time.After(d)
		return err
	}
}

// answers returns a rule that answers without asking the authority.
func answers(err error) rule {
	return func(context.Context, func(context.Context) error) error { return err }
}
