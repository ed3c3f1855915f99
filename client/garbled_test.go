package client_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tenure-go/tenure/hold"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/operation"
)

// A reply that makes no sense is an unknown outcome, or for a question no answer; and never the request's own fault.
func TestARepliesNonsense(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var reply atomic.Pointer[[]byte]
	c := dial(t, roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(req)
		if b := reply.Load(); b != nil && err == nil {
			if err := resp.Body.Close(); err != nil {
				return nil, err
			}
			resp.StatusCode, resp.ContentLength = http.StatusOK, int64(len(*b))
			resp.Header.Set("Content-Type", "application/proto")
			resp.Header.Del("Content-Encoding")
			resp.Header.Del("Content-Length")
			resp.Body = io.NopCloser(strings.NewReader(string(*b)))
		}
		return resp, err
	}), w.url)
	body, ctx := []byte("x"), t.Context()
	for name, x := range map[string]struct {
		reply proto.Message
		call  func() error
		kind  error
	}{
		"operation": {&v1.SubmitOperationResponse{Operation: &v1.Operation{Fingerprint: []byte{1}}}, func() error {
			_, err := c.Operations().Submit(ctx, operation.SubmitRequest{ID: "o", Kind: "k", Request: body, Fingerprint: operation.FingerprintOf("k", body)})
			return err
		}, operation.ErrUnknown},
		"look at an operation": {&v1.GetOperationResponse{Operation: &v1.Operation{Fingerprint: []byte{1}}}, func() error {
			_, err := c.Operations().Get(ctx, "o")
			return err
		}, operation.ErrUnavailable},
		"hold": {&v1.ReleaseHoldResponse{Hold: &v1.Hold{Id: "x"}}, func() error {
			_, err := c.Holds().Release(ctx, lease.NewID(), "a")
			return err
		}, hold.ErrUnknown},
		"look at a hold": {&v1.GetHoldResponse{Hold: &v1.Hold{Id: "x"}}, func() error {
			_, err := c.Holds().Get(ctx, lease.NewID())
			return err
		}, hold.ErrUnavailable},
		"lease": {&v1.AcquireResponse{Grants: []*v1.Grant{{Claim: &v1.Claim{Authority: "x"}}}}, func() error {
			_, err := c.Leases().Acquire(ctx, lease.AcquireRequest{Session: lease.NewID(), ID: lease.NewID(), Names: []string{"n"}})
			return err
		}, lease.ErrUnknown},
		"look at a lease": {&v1.GetLeaseResponse{Lease: &v1.LeaseInfo{Session: "x"}}, func() error {
			_, err := c.Leases().Get(ctx, "n")
			return err
		}, lease.ErrUnavailable},
	} {
		b, err := proto.Marshal(x.reply)
		if err != nil {
			t.Fatal(err)
		}
		reply.Store(&b)
		err = x.call()
		for _, kind := range []error{operation.ErrInvalid, operation.ErrUnknown, operation.ErrUnavailable, hold.ErrInvalid, hold.ErrUnknown, hold.ErrUnavailable, lease.ErrInvalid, lease.ErrUnknown, lease.ErrUnavailable} {
			if errors.Is(err, kind) != (kind == x.kind) { //nolint:errorlint // which of the kinds
				t.Errorf("%s: %v: is it %v: %v", name, err, kind, errors.Is(err, kind))
			}
		}
	}
}
