package server

import (
	"context"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/budget/admission"
	"github.com/tenure-go/tenure/budget/budgetconnect/admissionconnect"
	"github.com/tenure-go/tenure/internal/gen/tenure/v1/tenurev1connect"
)

// door lets calls in. What waits for something else than the store has places of its own: how long it takes says nothing of how busy the store is, and it must not keep work out.
type door struct{ calls, waits connect.Interceptor }

func newDoor(l Limits) (*door, error) {
	calls, err := admission.New(admission.Options{Most: l.AtOnce, First: min(64, l.AtOnce)})
	if err != nil {
		return nil, err
	}
	waits, err := admission.New(admission.Options{Least: l.Waits, First: l.Waits, Most: l.Waits})
	if err != nil {
		return nil, err
	}
	return &door{admissionconnect.New(calls, priority), admissionconnect.New(waits, nil)}, nil
}

// priority is what a call is, by its procedure alone.
func priority(procedure string) admission.Priority {
	switch procedure {
	case tenurev1connect.LeaseServiceRenewSessionProcedure, tenurev1connect.OperationServiceRenewAttemptsProcedure:
		return admission.Renewal
	case tenurev1connect.LeaseServiceGetLeaseProcedure, tenurev1connect.HoldServiceGetHoldProcedure, tenurev1connect.OperationServiceGetOperationProcedure,
		tenurev1connect.OperationServiceCompleteAttemptsProcedure, tenurev1connect.OperationServiceRespondOperationProcedure, tenurev1connect.MarkServiceVerifyClaimProcedure:
		return admission.Status
	}
	return admission.Work
}

func waits(procedure string) bool {
	return procedure == tenurev1connect.OperationServiceWaitOperationProcedure || procedure == tenurev1connect.LeaseServiceKeepSessionProcedure
}

// WrapUnary is part of [connect.Interceptor].
func (d *door) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	call, wait := d.calls.WrapUnary(next), d.waits.WrapUnary(next)
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if waits(req.Spec().Procedure) {
			return wait(ctx, req)
		}
		return call(ctx, req)
	}
}

// WrapStreamingClient is part of [connect.Interceptor].
func (d *door) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler is part of [connect.Interceptor].
func (d *door) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	call, wait := d.calls.WrapStreamingHandler(next), d.waits.WrapStreamingHandler(next)
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if waits(conn.Spec().Procedure) {
			return wait(ctx, conn)
		}
		return call(ctx, conn)
	}
}
