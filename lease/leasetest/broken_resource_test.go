package leasetest_test

import (
	"context"
	"errors"
	"sync"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
	"github.com/tenure-go/tenure/lease/leasetest"
	"github.com/tenure-go/tenure/store/memory"
)

func durableTwins() []twin {
	return []twin{
		{"everything is kept only in memory", lostAtRestart, []string{
			"a-grant-survives-a-restart", "what-was-over-stays-over-after-a-restart", "a-verdict-survives-a-restart",
			"a-renewal-survives-a-restart", "closed-below-survives-a-restart", "time-goes-on-across-a-restart",
		}},
		{"renewals are not written through", renewalsLost, []string{"a-renewal-survives-a-restart"}},
		{"time stands still while no process runs", timeStands, []string{"time-goes-on-across-a-restart"}},
		{"mark kept only in memory", marksLost, []string{"the-mark-survives-a-restart"}},
	}
}

func lostAtRestart(h *harness) {
	h.restart = func() {
		h.mem = memory.New(memory.Options{})
		h.store = h.mem
	}
}

func renewalsLost(h *harness) {
	w := replace(h)
	restarted := false
	h.restart = func() { restarted = true }
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		if restarted {
			return w.inner.Renew(ctx, req)
		}
		return lease.Renewal{Remaining: w.session(req.Session).TTL}, nil // in a buffer that dies with the process
	}
}

func timeStands(h *harness) {
	w := replace(h)
	h.restart = func() { h.mem.Advance(-w.now()) }
}

func marksLost(h *harness) {
	h.restart = func() {
		old := h.resource.(*list)
		h.resource = &list{mem: old.mem, marks: memory.NewMarks(), rows: old.rows}
	}
}

func resourceTwins() []twin {
	return []twin{
		{"unfenced", unfenced, []string{
			"strict-accepts-the-holder-alone", "strict-refuses-after-expiry-before-any-successor", "strict-refuses-what-was-never-granted",
			"fault-13-a-refusal-names-the-newer-token-and-changes-nothing", "fault-15-no-acknowledged-update-is-lost",
			"L20-the-late-write-of-a-healed-holder-is-refused", "strict-refuses-a-revoked-claim",
		}},
		{"strict looks at the token alone", strictByToken, []string{
			"strict-refuses-after-expiry-before-any-successor", "strict-refuses-what-was-never-granted", "strict-refuses-a-revoked-claim",
		}},
		{"strict check in a transaction of its own", strictApart, []string{"strict-keeps-successors-out-until-it-ends"}},
		{"the mark asks the authority", markAsks, []string{"the-mark-accepts-a-former-owner-until-a-successor-enters"}},
		{"equal token refused at the mark", equalRefused, []string{
			"L76-equal-and-higher-tokens-pass-and-lower-ones-do-not", "fault-14-one-token-writes-many-times",
		}},
		{"a refusal does not name the newer token", refusalUnnamed, []string{"fault-13-a-refusal-names-the-newer-token-and-changes-nothing"}},
		{"marks on writes only", marksOnWrites, []string{"fault-15-no-acknowledged-update-is-lost"}},
		{"mark deleted with the resource", markDeleted, []string{"fault-18-the-mark-survives-a-recreated-resource"}},
		{"tokens are compared without a sign", tokensUnsigned, []string{"fault-17-tokens-out-of-range-are-refused"}},
		{"the mark compares tokens of any authority and name", marksMixed, []string{
			"the-claim-of-another-authority-is-foreign", "another-name-for-the-same-resource-is-foreign",
		}},
		{"a token from the future is refused and forgotten", aheadForgotten, []string{
			"fault-16-a-token-from-the-future-stops-its-name-until-the-epoch-is-raised",
		}},
	}
}

// fenced is a list of which single methods are replaced.
type fenced struct {
	*list
	strict func(ctx context.Context, c fence.Claim, value string, between func()) error
	marked func(ctx context.Context, c fence.Claim, edit func([]string) []string, between func()) error
	blind  func(ctx context.Context, c fence.Claim, value string) error
	anew   func(ctx context.Context) error
}

func (f *fenced) Strict(ctx context.Context, c fence.Claim, value string, between func()) error {
	return f.strict(ctx, c, value, between)
}

func (f *fenced) Marked(ctx context.Context, c fence.Claim, edit func([]string) []string, between func()) error {
	return f.marked(ctx, c, edit, between)
}

func (f *fenced) Blind(ctx context.Context, c fence.Claim, value string) error {
	return f.blind(ctx, c, value)
}

func (f *fenced) Recreate(ctx context.Context) error { return f.anew(ctx) }

var _ leasetest.Resource = (*fenced)(nil)

func refence(h *harness) *fenced {
	l := h.resource.(*list)
	f := &fenced{list: l, strict: l.Strict, marked: l.Marked, blind: l.Blind, anew: l.Recreate}
	h.resource = f
	return f
}

func unfenced(h *harness) {
	f := refence(h)
	f.strict = func(_ context.Context, _ fence.Claim, value string, between func()) error {
		call(between)
		f.put(value)
		return nil
	}
	f.marked = func(ctx context.Context, _ fence.Claim, edit func([]string) []string, between func()) error {
		content, _ := f.Read(ctx)
		call(between)
		f.set(edit(content))
		return nil
	}
	f.blind = func(_ context.Context, _ fence.Claim, value string) error { f.put(value); return nil }
}

func strictByToken(h *harness) {
	f := refence(h)
	f.strict = func(ctx context.Context, c fence.Claim, value string, between func()) error {
		info, err := h.mem.Get(ctx, c.Name)
		if err != nil {
			return err
		}
		if c.Token < info.Token {
			return &fence.RefusedError{Resource: "list", Claim: c, Why: fence.Superseded, Newer: info.Token}
		}
		call(between)
		f.put(value)
		return nil
	}
}

func strictApart(h *harness) {
	f := refence(h)
	f.strict = func(ctx context.Context, c fence.Claim, value string, between func()) error {
		if err := h.mem.Fenced(ctx, c, func(context.Context) error { return nil }); err != nil {
			return err
		}
		call(between)
		f.put(value)
		return nil
	}
}

func markAsks(h *harness) {
	f := refence(h)
	f.marked = func(ctx context.Context, c fence.Claim, edit func([]string) []string, between func()) error {
		if err := h.mem.Fenced(ctx, c, func(context.Context) error { return nil }); err != nil {
			return err
		}
		return f.list.Marked(ctx, c, edit, between)
	}
}

func equalRefused(h *harness) {
	f := refence(h)
	var mu sync.Mutex
	var highest fence.Token
	fresh := func(c fence.Claim) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Token <= highest {
			return &fence.RefusedError{Resource: "list", Claim: c, Why: fence.Superseded, Newer: highest}
		}
		highest = c.Token
		return nil
	}
	f.marked = func(ctx context.Context, c fence.Claim, edit func([]string) []string, between func()) error {
		if err := fresh(c); err != nil {
			return err
		}
		return f.list.Marked(ctx, c, edit, between)
	}
	f.blind = func(ctx context.Context, c fence.Claim, value string) error {
		if err := fresh(c); err != nil {
			return err
		}
		return f.list.Blind(ctx, c, value)
	}
}

func refusalUnnamed(h *harness) {
	f := refence(h)
	f.blind = func(ctx context.Context, c fence.Claim, value string) error {
		err := f.list.Blind(ctx, c, value)
		var refused *fence.RefusedError
		if errors.As(err, &refused) {
			return &fence.RefusedError{Resource: refused.Resource, Claim: refused.Claim, Why: refused.Why}
		}
		return err
	}
}

// marksOnWrites reads without entering, and admits the write afterwards.
func marksOnWrites(h *harness) {
	f := refence(h)
	f.marked = func(ctx context.Context, c fence.Claim, edit func([]string) []string, between func()) error {
		content, _ := f.Read(ctx)
		call(between)
		return f.marks.Admit(ctx, "list", c, func(context.Context) error {
			f.set(edit(content))
			return nil
		})
	}
}

func markDeleted(h *harness) {
	f := refence(h)
	f.anew = func(ctx context.Context) error {
		f.marks = memory.NewMarks()
		return f.list.Recreate(ctx)
	}
}

func tokensUnsigned(h *harness) {
	f := refence(h)
	var highest uint64
	f.blind = func(_ context.Context, c fence.Claim, value string) error {
		if uint64(c.Token) < highest {
			return &fence.RefusedError{Resource: "list", Claim: c, Why: fence.Superseded}
		}
		highest = uint64(c.Token)
		f.put(value)
		return nil
	}
}

func marksMixed(h *harness) {
	f := refence(h)
	same := func(c fence.Claim) fence.Claim {
		c.Authority, c.Name = h.mem.Authority(), "n"
		return c
	}
	f.marked = func(ctx context.Context, c fence.Claim, edit func([]string) []string, between func()) error {
		return f.list.Marked(ctx, same(c), edit, between)
	}
	f.blind = func(ctx context.Context, c fence.Claim, value string) error { return f.list.Blind(ctx, same(c), value) }
}

func aheadForgotten(h *harness) {
	f := refence(h)
	f.strict = func(ctx context.Context, c fence.Claim, value string, between func()) error {
		if info, _ := h.mem.Get(ctx, c.Name); c.Token > info.Token+1<<30 {
			return &fence.AheadError{Claim: c, Issued: info.Token}
		}
		return f.list.Strict(ctx, c, value, between)
	}
}
