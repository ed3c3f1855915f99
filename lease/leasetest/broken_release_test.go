package leasetest_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

func releaseTwins() []twin {
	return []twin{
		{"release of an unknown id forgotten", releaseForgets, []string{
			"release-overtakes-acquire", "a-release-and-its-acquire-race-to-one-outcome", "what-was-over-stays-over-after-a-restart",
		}},
		{"releasing twice is an error", releaseOnce, []string{"L14-releasing-twice-is-success"}},
		{"release by name only", releaseByNameOnly, []string{
			"L1-a-late-release-leaves-the-next-lease", "a-release-frees-by-acquisition-never-by-name",
			"a-release-in-an-ended-session-closes-nothing-else", "an-owner-label-is-no-proof",
		}},
		{"release by owner label", releaseByOwner, []string{"an-owner-label-is-no-proof"}},
		{"release as separate read and delete", releaseReadDelete, []string{"duplicate-releases-never-end-a-successor"}},
		{"release never says how it was over", releaseSilent, []string{"L90-release-answers-success-or-how-it-was-over"}},
		{"release ignores the names", releaseAnyNames, []string{"a-release-names-what-was-acquired"}},
		{"releases that make no sense are success", releaseLenient, []string{"releases-that-make-no-sense-are-refused"}},
		{"releasing a name releases what is below it", releasePrefix, []string{"L87-a-name-is-never-a-prefix-or-a-pattern"}},
	}
}

func releaseForgets(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		pause() // so that a release sent at once comes first
		return w.inner.Acquire(ctx, req)
	}
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		if _, ok := w.known(req.ID); !ok && req.Check() == nil {
			return lease.Released{Already: true}, nil
		}
		return w.inner.Release(ctx, req)
	}
}

func releaseOnce(h *harness) {
	w := replace(h)
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		r, err := w.inner.Release(ctx, req)
		if r.Already {
			return r, &lease.EndedError{What: "acquisition", ID: req.ID, How: lease.EndReleased}
		}
		return r, err
	}
}

func releaseByNameOnly(h *harness) {
	w := replace(h)
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		r, err := w.inner.Release(ctx, req)
		for _, name := range req.Names {
			w.free(ctx, name)
		}
		return r, err
	}
}

func releaseByOwner(h *harness) {
	w := replace(h)
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		r, err := w.inner.Release(ctx, req)
		for _, name := range req.Names {
			if _, info := w.holder(ctx, name); info.Held && info.Owner == w.session(req.Session).Owner {
				w.free(ctx, name)
			}
		}
		return r, err
	}
}

func releaseReadDelete(h *harness) {
	w := replace(h)
	var nth atomic.Int64
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		info, err := w.inner.Get(ctx, req.Names[0])
		if err != nil || info.Acquisition != req.ID || !info.Held {
			return w.inner.Release(ctx, req)
		}
		for range nth.Add(1) % 3 * 2 {
			pause()
		}
		for _, name := range req.Names {
			w.free(ctx, name)
		}
		return lease.Released{}, nil
	}
}

func releaseSilent(h *harness) {
	w := replace(h)
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		r, err := w.inner.Release(ctx, req)
		if errors.Is(err, lease.ErrEnded) {
			return lease.Released{}, nil
		}
		return r, err
	}
}

func releaseAnyNames(h *harness) {
	w := replace(h)
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		if was, ok := w.known(req.ID); ok {
			req.Names = was.Names
		}
		return w.inner.Release(ctx, req)
	}
}

func releaseLenient(h *harness) {
	w := replace(h)
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		r, err := w.inner.Release(ctx, req)
		if errors.Is(err, lease.ErrInvalid) {
			return lease.Released{Already: true}, nil
		}
		return r, err
	}
}

func releasePrefix(h *harness) {
	w := replace(h)
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		infos, _ := w.h.mem.List(ctx, lease.ListRequest{Prefix: req.Names[0], Limit: lease.MaxList})
		for _, info := range infos {
			w.free(ctx, info.Name)
		}
		return w.inner.Release(ctx, req)
	}
}

func inputTwins() []twin {
	return []twin{
		{"names are folded and trimmed", namesFolded, []string{"L87-names-are-compared-byte-by-byte"}},
		{"names are mended", namesMended, []string{"L87-names-that-are-none-are-refused"}},
		{"acquires that make no sense are mended", acquiresMended, []string{"acquires-that-make-no-sense-are-refused"}},
	}
}

func namesFolded(h *harness) {
	w := replace(h)
	fold := func(name string) string {
		if folded := strings.ToLower(strings.TrimSpace(name)); folded != "" {
			return folded
		}
		return name
	}
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		req.Names = []string{fold(req.Names[0])}
		return w.inner.Acquire(ctx, req)
	}
	w.get = func(ctx context.Context, name string) (lease.Info, error) { return w.inner.Get(ctx, fold(name)) }
}

func namesMended(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		var mended []string
		for _, name := range req.Names {
			name = strings.ToValidUTF8(strings.Map(func(r rune) rune {
				if r < ' ' || r == '#' {
					return '_'
				}
				return r
			}, name), "_")
			mended = append(mended, name[:min(len(name), fence.MaxName)])
		}
		req.Names = mended
		return w.inner.Acquire(ctx, req)
	}
}

func acquiresMended(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		seen := map[string]bool{}
		var names []string
		for _, name := range req.Names {
			if !seen[name] && len(names) < lease.MaxNames {
				seen[name] = true
				names = append(names, name)
			}
		}
		req.Names = names
		req.MaxHold = min(max(req.MaxHold, 0), lease.MaxMaxHold)
		return w.inner.Acquire(ctx, req)
	}
}

func cutOffTwins() []twin {
	return []twin{
		{"a cut-off acquire is applied and said not to be", cutOffApplied, []string{"L8-a-cancelled-acquire-is-settled-by-its-release"}},
		{"a failed release drops what it knew", failedReleaseDrops, []string{"L2-a-failed-release-is-repeatable"}},
		{"a handle is stuck once a call about it was cut off", handleStuck, []string{"L10-a-handle-is-never-stuck"}},
	}
}

func cutOffApplied(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		grants, err := w.inner.Acquire(context.WithoutCancel(ctx), req)
		if ctx.Err() != nil && err == nil {
			return nil, &lease.UnavailableError{Op: "acquire", Err: ctx.Err()}
		}
		return grants, err
	}
}

func failedReleaseDrops(h *harness) {
	w := replace(h)
	var dropped sync.Map
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		if _, is := dropped.Load(req.ID); is {
			return lease.Released{Already: true}, nil
		}
		r, err := w.inner.Release(ctx, req)
		if err != nil {
			dropped.Store(req.ID, true)
		}
		return r, err
	}
}

func handleStuck(h *harness) {
	w := replace(h)
	var stuck atomic.Bool
	w.renew = func(ctx context.Context, req lease.RenewRequest) (lease.Renewal, error) {
		r, err := w.inner.Renew(ctx, req)
		stuck.Store(err != nil)
		return r, err
	}
	w.release = func(ctx context.Context, req lease.ReleaseRequest) (lease.Released, error) {
		if stuck.Load() {
			return lease.Released{}, &lease.UnknownError{Op: "release", ID: req.ID, Err: context.Canceled}
		}
		return w.inner.Release(ctx, req)
	}
}

func raceTwins() []twin {
	return []twin{
		{"acquire looks first and then takes", acquireLooksFirst, []string{"one-grant-under-contention"}},
		{"two acquires at once deadlock", acquiresDeadlock, []string{"two-sessions-take-over-from-each-other"}},
	}
}

func acquireLooksFirst(h *harness) {
	w := replace(h)
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		info, err := w.inner.Get(ctx, req.Names[0])
		if err != nil || info.Held {
			return w.inner.Acquire(ctx, req)
		}
		pause()
		w.free(ctx, req.Names[0])
		w.remember(req) // before it is told, so that others find it
		return w.inner.Acquire(ctx, req)
	}
}

func acquiresDeadlock(h *harness) {
	w := replace(h)
	var running atomic.Int64
	w.acquire = func(ctx context.Context, req lease.AcquireRequest) ([]lease.Grant, error) {
		defer running.Add(-1)
		if running.Add(1) > 1 {
			return nil, &lease.UnavailableError{Op: "acquire", Err: errors.New("deadlock detected")}
		}
		pause()
		return w.inner.Acquire(ctx, req)
	}
}
