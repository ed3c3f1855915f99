package server

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

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

// Handler serves what o names. It is safe for concurrent use.
func Handler(o Options) http.Handler {
	limits := connect.WithHandlerOptions(connect.WithReadMaxBytes(MaxRequest), connect.WithSendMaxBytes(MaxReply))
	mux := http.NewServeMux()
	mux.Handle(tenurev1connect.NewLeaseServiceHandler(&leases{&o}, limits))
	if o.Marks != nil {
		mux.Handle(tenurev1connect.NewMarkServiceHandler(&marks{store: o.Marks}, limits))
	}
	if o.Holds != nil {
		mux.Handle(tenurev1connect.NewHoldServiceHandler(&holds{store: o.Holds}, limits))
	}
	if o.Operations != nil {
		mux.Handle(tenurev1connect.NewOperationServiceHandler(&operations{store: o.Operations}, limits))
	}
	return mux
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
