package leasetest_test

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/lease"
)

func equalityTwins() []twin {
	return []twin{
		{"renewal accepted at equality", renewAtEquality, []string{"renewal-refused-at-equality"}},
		{"renewal refused just before equality", renewEarly, []string{"renewal-accepted-just-before-equality"}},
		{"a session lives at the equality of its expiry", liveAtEquality, []string{
			"renewal-refused-at-equality", "take-over-granted-at-equality-and-not-before", "acquire-refused-at-the-equality-of-its-own-session",
			"release-at-equality-is-too-late", "close-and-open-at-equality-are-too-late", "get-shows-a-free-name-at-equality",
		}},
		{"a take-over is granted just before equality", takeOverEarly, []string{"take-over-granted-at-equality-and-not-before"}},
		{"MaxHold lasts through equality", maxHoldThroughEquality, []string{"max-hold-over-at-equality"}},
		{"what remains is rounded to seconds", remainingRounded, []string{"remaining-is-exact"}},
	}
}

// shifted runs a call with the clock of the store moved by d.
func shifted(h *harness, d time.Duration, call func()) {
	h.mem.Advance(d)
	call()
	h.mem.Advance(-d)
}

func renewAtEquality(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (r lease.Renewal, err error) {
		shifted(h, -time.Microsecond, func() { r, err = w.inner.Renew(ctx, req) })
		return r, err
	}
}

func renewEarly(h *harness) {
	w := replace(h)
	w.renew = func(ctx context.Context, req lease.RenewRequest) (r lease.Renewal, err error) {
		shifted(h, time.Microsecond, func() { r, err = w.inner.Renew(ctx, req) })
		return r, err
	}
}

// liveAtEquality compares now > expiry everywhere.
func liveAtEquality(h *harness) {
	withTTL(h, func(d time.Duration) time.Duration { return d + time.Microsecond }, true)
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(ctx, req)
		for i := range grants {
			grants[i].Remaining--
		}
		return grants, err
	}
	w.get = func(ctx context.Context, name string) (lease.Info, error) {
		info, err := w.inner.Get(ctx, name)
		info.Remaining = max(info.Remaining-time.Microsecond, 0)
		return info, err
	}
}

func takeOverEarly(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) (grants []lease.Grant, err error) {
		shifted(h, time.Microsecond, func() { grants, err = w.inner.Acquire(ctx, req) })
		return grants, err
	}
}

func maxHoldThroughEquality(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		if req.MaxHold > 0 {
			req.MaxHold++
		}
		grants, err := w.inner.Acquire(ctx, req)
		for i := range grants {
			grants[i].HoldLeft = max(grants[i].HoldLeft-time.Microsecond, 0)
		}
		return grants, err
	}
}

func remainingRounded(h *harness) {
	w := replace(h)
	w.get = func(ctx context.Context, name string) (lease.Info, error) {
		info, err := w.inner.Get(ctx, name)
		info.Remaining = info.Remaining.Round(time.Second)
		return info, err
	}
}
