package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/tenure-go/tenure/budget/budgetconnect"
	"github.com/tenure-go/tenure/budget/budgethttp"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/internal/gen/tenure/v1/tenurev1connect"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// Sizes in bytes. What is larger is refused before it is read, or sent.
const (
	MaxRequest = 8 << 20
	MaxReply   = 64 << 20 // a page of operations with their bodies, or what a worker has claimed
)

// Options says what is served. Of the rest but Leases, what is nil is not: its calls are answered "unimplemented". What a store of leases can do for operators is served where it can do it.
type Options struct {
	Authority  fence.ID
	Leases     lease.Store
	Marks      Marks
	Holds      hold.Store
	Operations operation.Store
	Limits     Limits
	// Draining is closed when the server is about to end: streams and waits then end too. nil: never.
	Draining <-chan struct{}
}

// Marks keeps high-water marks on behalf of resources that cannot.
type Marks interface {
	// EnterMark writes the resource's mark or refuses the claim, with fence's errors.
	EnterMark(ctx context.Context, resource string, claim fence.Claim) error
	// AdmitMark is EnterMark for a write that depends on nothing that was read.
	AdmitMark(ctx context.Context, resource string, claim fence.Claim) error
	// VerifyClaim says whether the claim holds now.
	VerifyClaim(ctx context.Context, claim fence.Claim) error
}

// Limits bound what callers can make a server do at a time. The zero value is the default of each.
type Limits struct {
	// Most is the longest that a call may take, whatever its caller waits for; 1 minute.
	Most time.Duration
	// AtOnce is how many calls may run at a time, at most; 256. How many do is learnt from how long they take. Calls that wait come after those that renew, and after those that ask what became of something.
	AtOnce int
	// Waits is how many calls may wait for an operation's end, or keep a session on a stream, at a time; 1,024.
	Waits int
}

func (l Limits) withDefaults() (Limits, error) {
	if l.Most == 0 {
		l.Most = time.Minute
	}
	if l.AtOnce == 0 {
		l.AtOnce = 256
	}
	if l.Waits == 0 {
		l.Waits = 1024
	}
	if l.Most < time.Second || l.Most > time.Hour {
		return l, &InvalidError{"most", fmt.Sprintf("%v; want a second to an hour", l.Most)}
	}
	if l.AtOnce < 4 || l.AtOnce > 10_000 || l.Waits < 1 || l.Waits > 100_000 {
		return l, &InvalidError{"at once", fmt.Sprintf("%d calls and %d waits; want 4 to 10000, and 1 to 100000", l.AtOnce, l.Waits)}
	}
	return l, nil
}

// Handler serves what o names: Connect, gRPC, gRPC-Web and JSON, with gRPC's health checks and reflection. It returns an [*InvalidError] for limits that make no sense. It is safe for concurrent use.
func Handler(o Options) (http.Handler, error) {
	limits, err := o.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	budgets, err := budgetconnect.NewServer(budgethttp.Limits{Most: limits.Most})
	if err != nil {
		return nil, err
	}
	admit, err := newDoor(limits)
	if err != nil {
		return nil, err
	}
	bounds := connect.WithHandlerOptions(connect.WithReadMaxBytes(MaxRequest), connect.WithSendMaxBytes(MaxReply), connect.WithInterceptors(budgets))
	shared := connect.WithHandlerOptions(bounds, connect.WithInterceptors(ours{o.Authority}, admit))
	mux := http.NewServeMux()
	served := []string{tenurev1connect.LeaseServiceName}
	mux.Handle(tenurev1connect.NewLeaseServiceHandler(&leases{&o}, shared))
	if o.Marks != nil {
		served = append(served, tenurev1connect.MarkServiceName)
		mux.Handle(tenurev1connect.NewMarkServiceHandler(&marks{store: o.Marks}, shared))
	}
	if o.Holds != nil {
		served = append(served, tenurev1connect.HoldServiceName)
		mux.Handle(tenurev1connect.NewHoldServiceHandler(&holds{store: o.Holds}, shared))
	}
	if o.Operations != nil {
		served = append(served, tenurev1connect.OperationServiceName)
		mux.Handle(tenurev1connect.NewOperationServiceHandler(&operations{o.Operations, o.Draining}, shared))
	}
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(served...), bounds))
	mux.Handle(grpcreflect.NewHandlerV1(grpcreflect.NewStaticReflector(served...), bounds))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(grpcreflect.NewStaticReflector(served...), bounds)) // what grpcurl asks for
	return mux, nil
}

// one is the reply of a call of one value; it says why it was not done by the contract's error.
func one[In, Out, Reply any](ctx context.Context, in In, err error, do func(context.Context, In) (Out, error), put func(Out) *Reply, fault func(error) error) (*Reply, error) {
	if err != nil {
		return nil, fault(err)
	}
	out, err := do(ctx, in)
	if err != nil {
		return nil, fault(err)
	}
	return put(out), nil
}
