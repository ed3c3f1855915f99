package server_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/gen/tenure/v1/tenurev1connect"
	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/server"
	"github.com/tenure-go/tenure/store/memory"
)

// vague is a store whose reports and evidence end in errors of no contract.
type vague struct{ *memory.Operations }

func (vague) Complete(_ context.Context, all []operation.Completion) ([]error, error) {
	errs := make([]error, len(all))
	errs[0] = errors.New("disk")
	return errs, nil
}

func (vague) Respond(_ context.Context, r operation.Response) (operation.Record, error) {
	return operation.Record{Operation: operation.Operation{ID: r.ID}}, errors.New("disk")
}

func (vague) Inquired(_ context.Context, i operation.Inquiry) (operation.Record, error) {
	return operation.Record{Operation: operation.Operation{ID: i.ID}}, errors.New("disk")
}

// An error that nobody has classified is told as an unknown outcome, also where it stands beside a record or among others: without a fault it would be taken for done.
func TestAnErrorOfNoContractIsNotLeftOut(t *testing.T) {
	t.Parallel()
	c := tenurev1connect.NewOperationServiceClient(http.DefaultClient, start(t, server.Options{Leases: memory.New(memory.Options{}), Operations: vague{memory.NewOperations(memory.Options{})}}))
	completed, err := c.CompleteAttempts(t.Context(), &v1.CompleteAttemptsRequest{Completions: []*v1.Completion{{}, {}}})
	if err != nil || completed.GetResults()[0].GetFault().GetCode() != "unknown" || completed.GetResults()[1].GetFault() != nil {
		t.Errorf("%v, %v", completed, err)
	}
	responded, err := c.RespondOperation(t.Context(), &v1.RespondOperationRequest{Id: "x"})
	if err != nil || responded.GetFault().GetCode() != "unknown" {
		t.Errorf("%v, %v", responded, err)
	}
	inquired, err := c.InquiredOperation(t.Context(), &v1.InquiredOperationRequest{Id: "x"})
	if err != nil || inquired.GetFault().GetCode() != "unknown" {
		t.Errorf("%v, %v", inquired, err)
	}
}
