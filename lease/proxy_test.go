package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
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

func (p *proxy) pass(ctx context.Context, c call, forward func(context.Context, lease.Store) error) error {
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
		return forward(ctx, to)
	}
	return r(ctx, func(ctx context.Context) error { return forward(ctx, to) })
}

func (p *proxy) Open(ctx context.Context, req lease.OpenRequest) (left time.Duration, err error) {
	err = p.pass(ctx, call{op: "open", id: req.ID}, func(ctx context.Context, to lease.Store) (err error) {
		left, err = to.Open(ctx, req)
		return err
	})
	return left, err
}

func (p *proxy) Renew(ctx context.Context, req lease.RenewRequest) (r lease.Renewal, err error) {
	seen := call{op: "renew", id: req.Session, closedBelow: req.ClosedBelow}
	for _, a := range req.Release {
		seen.released = append(seen.released, a.ID)
	}
	err = p.pass(ctx, seen, func(ctx context.Context, to lease.Store) (err error) {
		r, err = to.Renew(ctx, req)
		return err
	})
	if err != nil {
		return lease.Renewal{}, err
	}
	return r, nil
}

func (p *proxy) Close(ctx context.Context, session fence.ID) error {
	return p.pass(ctx, call{op: "close", id: session}, func(ctx context.Context, to lease.Store) error {
		return to.Close(ctx, session)
	})
}

func (p *proxy) Acquire(ctx context.Context, req lease.AcquireRequest) (g []lease.Grant, err error) {
	err = p.pass(ctx, call{op: "acquire", id: req.ID, closedBelow: req.ClosedBelow}, func(ctx context.Context, to lease.Store) (err error) {
		g, err = to.Acquire(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (p *proxy) Release(ctx context.Context, req lease.ReleaseRequest) (r lease.Released, err error) {
	err = p.pass(ctx, call{op: "release", id: req.ID, closedBelow: req.ClosedBelow}, func(ctx context.Context, to lease.Store) (err error) {
		r, err = to.Release(ctx, req)
		return err
	})
	return r, err
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
