package budgetgrpc

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/tenure-go/tenure/budget"
)

// progress is how far a call has come, as gRPC tells it. gRPC may make several attempts of one call by itself.
type progress struct {
	mu      sync.Mutex
	earlier bool // an attempt before this one was sent, and gRPC does not know that it was not processed
	now     attempt
}

type attempt struct {
	headed   bool // its headers were handed to a connection
	sent     bool // so was a message
	begun    bool // the answer's headers have come, and are not all of it
	message  bool // a message of the answer was read
	answered bool // the server has ended the call itself
	trailer  metadata.MD
}

func (p *progress) look() (earlier bool, now attempt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.earlier, p.now
}

func (p *progress) note(s stats.RPCStats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s := s.(type) {
	case *stats.Begin:
		// A transparent attempt says of the one before it that the server has not processed it.
		p.earlier = p.earlier || p.now.headed && !s.IsTransparentRetryAttempt
		p.now = attempt{}
	case *stats.OutHeader:
		p.now.headed = true
	case *stats.OutPayload:
		p.now.sent = true
	case *stats.InHeader:
		p.now.begun = true
	case *stats.InPayload:
		p.now.message = true
	case *stats.InTrailer:
		p.now.answered, p.now.trailer = true, s.Trailer
	}
}

func (a attempt) phase() budget.Phase {
	switch {
	case a.begun, a.answered:
		return budget.PhaseReading
	case a.sent:
		return budget.PhaseAnswer
	case a.headed:
		return budget.PhaseSending
	}
	return budget.PhaseConnection
}

// noRetry reports whether the trailer asks for no repetition, by our mark or by gRPC's own.
func (a attempt) noRetry() bool {
	if values := a.trailer.Get(noRetryKey); len(values) > 0 && budget.ParseNoRetry(values[0]) {
		return true
	}
	values := a.trailer.Get(pushBackKey)
	return len(values) > 0 && strings.HasPrefix(values[0], "-")
}

type progressKey struct{}

// observer hands what gRPC tells to the progress of the call.
type observer struct{}

// TagRPC is part of stats.Handler: the interceptor has put the progress into the context.
func (observer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC is part of stats.Handler.
func (observer) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if p, ok := ctx.Value(progressKey{}).(*progress); ok {
		p.note(s)
	}
}

// TagConn is part of stats.Handler.
func (observer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is part of stats.Handler.
func (observer) HandleConn(context.Context, stats.ConnStats) {}
