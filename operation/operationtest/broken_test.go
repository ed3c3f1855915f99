package operationtest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// twin is a store that is right but for one fault, and the cases that must catch it.
type twin struct {
	fault    string
	breaks   func(h *harness)
	caughtBy []string
}

func twins() []twin {
	return slices.Concat(
		submitTwins(), orderTwins(), claimTwins(), boundTwins(), windowTwins(), renewTwins(), expiryTwins(), completeTwins(), answerTwins(), evidenceTwins(), wholeTwins(), inquiryTwins(), cancelTwins(),
		undoTwins(), officeTwins(), pruneTwins(), forgottenTwins(), inputTwins(), bodyTwins(), timeTwins(),
	)
}

// by names the cases that must catch a fault.
func by(names ...string) []string { return names }

// TestBrokenStores demands that the named cases catch each fault.
func TestBrokenStores(t *testing.T) {
	cases := map[string]anyCase{}
	for _, c := range allCases() {
		cases[c.Name] = c
	}
	for _, broken := range twins() {
		t.Run(broken.fault, func(t *testing.T) {
			t.Parallel()
			if len(broken.caughtBy) == 0 {
				t.Error("no case is named that must catch it")
			}
			for _, name := range broken.caughtBy {
				c, ok := cases[name]
				if !ok {
					t.Errorf("no case is named %q", name)
					continue
				}
				if !catches(t.Context(), c, broken) {
					t.Errorf("%q did not catch it", name)
				}
			}
		})
	}
}

// catches runs the case on the broken store. Where calls of several goroutines meet by chance alone, they may need some runs.
func catches(ctx context.Context, c anyCase, broken twin) bool {
	runs := 1
	if strings.HasSuffix(c.Name, "-at-once-agree") {
		runs = 50
	}
	for range runs {
		h := c.harness()
		broken.breaks(h)
		if err := c.Run(ctx, h); err != nil {
			return true
		}
	}
	return false
}

// TestEveryCaseCatches demands that no case is there which has not been seen to fail.
func TestEveryCaseCatches(t *testing.T) {
	caught := map[string]bool{}
	for _, broken := range twins() {
		for _, name := range broken.caughtBy {
			caught[name] = true
		}
	}
	for _, c := range allCases() {
		if !caught[c.Name] {
			t.Errorf("no broken store is named that %q must catch", c.Name)
		}
	}
}

// wrap is the harness's store with single methods replaced, and what is told of a record changed.
type wrap struct {
	h     *harness
	inner operation.Backend
	mu    sync.Mutex // of what a twin keeps

	submit   func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error)
	get      func(ctx context.Context, id string) (operation.Record, error)
	cancel   func(ctx context.Context, id, reason string) (operation.Record, error)
	respond  func(ctx context.Context, resp operation.Response) (operation.Record, error)
	claim    func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error)
	renew    func(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error)
	complete func(ctx context.Context, all []operation.Completion) ([]error, error)
	expire   func(ctx context.Context, limit int) (int, error)
	due      func(ctx context.Context, req operation.DueRequest) ([]operation.Record, error)
	inquired func(ctx context.Context, inq operation.Inquiry) (operation.Record, error)
	undone   func(ctx context.Context, id, by string) (operation.Record, error)
	list     func(ctx context.Context, req operation.ListRequest) ([]operation.Record, error)
	resolve  func(ctx context.Context, v operation.Verdict) (operation.Record, error)
	prune    func(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error)
	stats    func(ctx context.Context) ([]operation.Stat, error)
	states   func() operation.Guarantees
	told     func(rec *operation.Record)
}

// replace puts a wrap around the harness's store.
func replace(h *harness) *wrap {
	i := h.store
	w := &wrap{h: h, inner: i, told: func(*operation.Record) {}}
	w.submit, w.get, w.cancel, w.respond, w.states = i.Submit, i.Get, i.Cancel, i.Respond, i.Guarantees
	w.claim, w.renew, w.complete = i.Claim, i.Renew, i.Complete
	w.expire, w.due, w.inquired, w.undone = i.Expire, i.Due, i.Inquired, i.Undone
	w.list, w.resolve, w.prune, w.stats = i.List, i.Resolve, i.Prune, i.Stats
	h.store = w
	return w
}

// breaking makes a twin's change of a wrap.
func breaking(change func(w *wrap)) func(h *harness) { return func(h *harness) { change(replace(h)) } }

func (w *wrap) one(rec operation.Record, err error) (operation.Record, error) {
	if rec.ID != "" {
		w.told(&rec)
	}
	return rec, err
}

func (w *wrap) many(recs []operation.Record, err error) ([]operation.Record, error) {
	for i := range recs {
		w.told(&recs[i])
	}
	return recs, err
}

func (w *wrap) Submit(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
	sub, err := w.submit(ctx, req)
	sub.Record, err = w.one(sub.Record, err)
	return sub, err
}

func (w *wrap) Get(ctx context.Context, id string) (operation.Record, error) {
	return w.one(w.get(ctx, id))
}

func (w *wrap) Cancel(ctx context.Context, id, reason string) (operation.Record, error) {
	return w.one(w.cancel(ctx, id, reason))
}

func (w *wrap) Respond(ctx context.Context, resp operation.Response) (operation.Record, error) {
	return w.one(w.respond(ctx, resp))
}

func (w *wrap) Guarantees() operation.Guarantees { return w.states() }

func (w *wrap) Claim(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
	req.Kinds = slices.Clone(req.Kinds)
	return w.claim(ctx, req)
}

func (w *wrap) Renew(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
	return w.renew(ctx, req)
}

func (w *wrap) Complete(ctx context.Context, all []operation.Completion) ([]error, error) {
	return w.complete(ctx, slices.Clone(all))
}

func (w *wrap) Expire(ctx context.Context, limit int) (int, error) { return w.expire(ctx, limit) }

func (w *wrap) Due(ctx context.Context, req operation.DueRequest) ([]operation.Record, error) {
	return w.many(w.due(ctx, req))
}

func (w *wrap) Inquired(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
	return w.one(w.inquired(ctx, inq))
}

func (w *wrap) Undone(ctx context.Context, id, compensation string) (operation.Record, error) {
	return w.one(w.undone(ctx, id, compensation))
}

func (w *wrap) List(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
	return w.many(w.list(ctx, req))
}

func (w *wrap) Resolve(ctx context.Context, v operation.Verdict) (operation.Record, error) {
	return w.one(w.resolve(ctx, v))
}

func (w *wrap) Prune(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
	return w.prune(ctx, req)
}

func (w *wrap) Stats(ctx context.Context) ([]operation.Stat, error) { return w.stats(ctx) }

// look is an operation as it really is; empty where there is none.
func (w *wrap) look(ctx context.Context, id string) operation.Record {
	rec, err := w.inner.Get(ctx, id)
	if err != nil {
		return operation.Record{}
	}
	return rec
}

// all are all operations as they really are.
func (w *wrap) all(ctx context.Context) []operation.Record {
	recs, err := w.inner.List(ctx, operation.ListRequest{Limit: operation.MaxList, Bodies: true})
	if err != nil {
		return nil
	}
	return recs
}

// claimThose claims one after the other what is allowed, in this order; nothing is blocked by its order on the inner store.
func (w *wrap) claimThose(order func(a, b operation.Record) int, allowed func(rec operation.Record, all []operation.Record) bool) {
	w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		recs := w.all(ctx)
		slices.SortStableFunc(recs, order)
		jobs := []operation.Job{}
		for _, rec := range recs {
			if len(jobs) == req.Limit || !allowed(rec, recs) {
				continue
			}
			one := req
			one.ID = rec.ID
			got, err := w.inner.Claim(ctx, one)
			if err != nil {
				return nil, err
			}
			jobs = append(jobs, got...)
		}
		return jobs, nil
	}
}

// kinds changes what every claim says of its kinds.
func (w *wrap) kinds(change func(k *operation.KindClaim)) {
	inner := w.claim
	w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
		if req.Check() == nil {
			for i := range req.Kinds {
				change(&req.Kinds[i])
			}
		}
		return inner(ctx, req)
	}
}

// jobs changes what is told of every job.
func (w *wrap) jobs(change func(j *operation.Job)) {
	inner := w.claim
	w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
		jobs, err := inner(ctx, req)
		for i := range jobs {
			change(&jobs[i])
		}
		return jobs, err
	}
}

// answers changes every completion.
func (w *wrap) answers(change func(c *operation.Completion)) {
	w.complete = func(ctx context.Context, all []operation.Completion) ([]error, error) {
		for i := range all {
			change(&all[i])
		}
		return w.inner.Complete(ctx, all)
	}
}

// completed changes how each completion is answered.
func (w *wrap) completed(change func(ctx context.Context, c operation.Completion, err error) error) {
	w.complete = func(ctx context.Context, all []operation.Completion) ([]error, error) {
		errs, err := w.inner.Complete(ctx, all)
		for i := range errs {
			errs[i] = change(ctx, all[i], errs[i])
		}
		return errs, err
	}
}

// fold is an id as a store that does not care for case keeps it.
func fold(id string) string { return strings.ToLower(id) }

func setNumber(ref *operation.Ref, n int64) { ref.Number = fence.Token(n) }
