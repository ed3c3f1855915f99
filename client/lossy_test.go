package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/client"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
)

// lossy loses every third reply, after the server has done what it was asked for, and every seventh request. A release's reply says whether it was the first one, which no repetition can tell after a loss: of releases it
// loses the requests alone, and TestLostReleaseReply the reply.
type lossy struct {
	base        http.RoundTripper
	calls, lost atomic.Int64
}

func (l *lossy) RoundTrip(req *http.Request) (*http.Response, error) {
	n := l.calls.Add(1)
	if n < 3 { // the client introduces itself
		return l.base.RoundTrip(req)
	}
	if n%7 == 0 || n%3 == 0 && strings.HasSuffix(req.URL.Path, "/Release") {
		l.lost.Add(1)
		return nil, io.ErrUnexpectedEOF
	}
	resp, err := l.base.RoundTrip(req)
	if err != nil || n%3 != 0 {
		return resp, err
	}
	l.lost.Add(1)
	_, err = io.Copy(io.Discard, resp.Body)
	return nil, errors.Join(io.ErrUnexpectedEOF, err, resp.Body.Close())
}

// again repeats a call until its outcome is known, as the contracts say.
func again[T any](call func() (T, error), unknown ...error) (got T, err error) {
	var first error
	for n := 0; ; n++ {
		got, err = call()
		open := false
		for _, kind := range unknown {
			open = open || errors.Is(err, kind)
		}
		if n > 0 && errors.Is(err, lease.ErrUnavailable) { // this one was not applied, but an earlier one may have been
			err = first
		}
		if !open || n == 20 {
			return got, err
		}
		first = err
	}
}

// patient is the leases of a client whose caller repeats what it does not know.
type patient struct{ *client.Leases }

func (p patient) Open(ctx context.Context, req lease.OpenRequest) (time.Duration, error) {
	return again(func() (time.Duration, error) { return p.Leases.Open(ctx, req) }, lease.ErrUnknown)
}

func (p patient) Renew(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
	return again(func() (lease.Renewal, error) { return p.Leases.Renew(ctx, req) }, lease.ErrUnknown)
}

func (p patient) Close(ctx context.Context, session fence.ID) error {
	_, err := again(func() (bool, error) { return true, p.Leases.Close(ctx, session) }, lease.ErrUnknown)
	return err
}

func (p patient) Acquire(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
	return again(func() ([]lease.Grant, error) { return p.Leases.Acquire(ctx, req) }, lease.ErrUnknown)
}

func (p patient) Release(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
	return again(func() (lease.Released, error) { return p.Leases.Release(ctx, req) }, lease.ErrUnknown)
}

func (p patient) Get(ctx context.Context, name string) (lease.Info, error) {
	return again(func() (lease.Info, error) { return p.Leases.Get(ctx, name) }, lease.ErrUnavailable)
}

type patientWorld struct {
	*world
	leases patient
}

func (w patientWorld) Store() lease.Store { return w.leases }

// Every suite's case holds where replies and requests are lost, because repeating a call settles it.
func TestLossyConformance(t *testing.T) {
	for _, c := range leasetest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			fresh := newManualWorld // what is repeated takes its time, and no lease's
			if c.Name == "no-grant-before-the-last-renewal-ran-out" {
				fresh = newWorld // it waits for a lease to run out
			}
			w := fresh(t)
			l := &lossy{base: http.DefaultTransport}
			h := patientWorld{w, patient{dial(t, l, w.url).Leases()}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.Run(ctx, h); err != nil {
				t.Errorf("%v (%d of %d lost)", err, l.lost.Load(), l.calls.Load())
			}
		})
	}
}

// patientHolds is the same of holds.
type patientHolds struct{ *client.Holds }

func (p patientHolds) Place(ctx context.Context, req hold.PlaceRequest) (hold.Hold, error) {
	return again(func() (hold.Hold, error) { return p.Holds.Place(ctx, req) }, hold.ErrUnknown)
}

func (p patientHolds) Confirm(ctx context.Context, req hold.ConfirmRequest) (hold.Hold, error) {
	return again(func() (hold.Hold, error) { return p.Holds.Confirm(ctx, req) }, hold.ErrUnknown)
}

func (p patientHolds) Extend(ctx context.Context, id fence.ID, actor string, ttl time.Duration) (hold.Hold, error) {
	return again(func() (hold.Hold, error) { return p.Holds.Extend(ctx, id, actor, ttl) }, hold.ErrUnknown)
}

func (p patientHolds) Release(ctx context.Context, id fence.ID, actor string) (hold.Hold, error) {
	return again(func() (hold.Hold, error) { return p.Holds.Release(ctx, id, actor) }, hold.ErrUnknown)
}

func (p patientHolds) Stock(ctx context.Context, items []hold.Item) error {
	_, err := again(func() (bool, error) { return true, p.Holds.Stock(ctx, items) }, hold.ErrUnknown)
	return err
}

func (p patientHolds) Get(ctx context.Context, id fence.ID) (hold.Hold, error) {
	return again(func() (hold.Hold, error) { return p.Holds.Get(ctx, id) }, hold.ErrUnavailable)
}

type patientHoldWorld struct {
	*world
	holds patientHolds
}

func (w patientHoldWorld) Store() hold.Store   { return w.holds }
func (w patientHoldWorld) Office() hold.Office { return w.client.Holds() }

func TestLossyHoldConformance(t *testing.T) {
	for _, c := range holdtest.Cases() {
		switch c.Name {
		case "a-call-that-was-cut-off-is-settled-by-repeating-it", "everything-at-once", "F32-a-confirmation-and-an-expiry-at-once-agree":
			continue // they cut calls off themselves, or place holds that expire while they are repeated
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			w := newManualWorld(t) // what is repeated takes its time, and no lease's
			h := patientHoldWorld{w, patientHolds{dial(t, &lossy{base: http.DefaultTransport}, w.url).Holds()}}
			if err := c.Run(t.Context(), h); err != nil {
				t.Error(err)
			}
		})
	}
}
