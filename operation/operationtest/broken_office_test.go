package operationtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/operation"
	"github.com/tenure-go/tenure/store/memory"
)

// listing changes every list.
func (w *wrap) listing(change func(req *operation.ListRequest)) {
	w.list = func(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
		if req.Check() == nil {
			change(&req)
		}
		return w.inner.List(ctx, req)
	}
}

func officeTwins() []twin {
	return []twin{
		{"a listing shows bodies", breaking(func(w *wrap) { w.listing(func(req *operation.ListRequest) { req.Bodies = true }) }), by("a-list-holds-bodies-only-when-asked")},
		{"a list ignores states", breaking(func(w *wrap) { w.listing(func(req *operation.ListRequest) { req.States = nil }) }), by("a-list-holds-what-matches-all-that-is-set")},
		{"a list ignores conflicts", breaking(func(w *wrap) { w.listing(func(req *operation.ListRequest) { req.Conflicts = false }) }),
			by("a-list-holds-what-matches-all-that-is-set", "evidence-against-what-was-forgotten-is-still-a-conflict")},
		{"a list ignores wishes", breaking(func(w *wrap) { w.listing(func(req *operation.ListRequest) { req.Wished = false }) }), by("a-list-holds-what-matches-all-that-is-set")},
		{"a compensation that came to nothing fulfils a wish", breaking(func(w *wrap) {
			w.list = func(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
				found, err := w.inner.List(ctx, req)
				return slices.DeleteFunc(found, func(rec operation.Record) bool { return req.Wished && rec.UndoneBy != "" }), err
			}
		}), by("a-list-holds-what-matches-all-that-is-set")},
		{"a page begins anew", breaking(func(w *wrap) { w.listing(func(req *operation.ListRequest) { req.After = "" }) }), by("a-list-goes-on-after-an-id")},
		{"a prefix is a pattern", breaking(func(w *wrap) {
			w.list = func(ctx context.Context, req operation.ListRequest) ([]operation.Record, error) {
				if i := strings.IndexAny(req.Prefix, "%_*\\"); i >= 0 {
					req.Prefix = req.Prefix[:i]
				}
				return w.inner.List(ctx, req)
			}
		}), by("a-prefix-is-taken-byte-by-byte")},
		{"statistics count what is decided", breaking(func(w *wrap) {
			w.stats = func(ctx context.Context) ([]operation.Stat, error) {
				stats, err := w.inner.Stats(ctx)
				return append(stats, operation.Stat{Kind: "charge", State: operation.Succeeded}), err
			}
		}), by("statistics-count-what-is-undecided-and-what-needs-an-operator")},
		{"statistics do not tell what is stuck", breaking(func(w *wrap) {
			w.stats = func(ctx context.Context) ([]operation.Stat, error) {
				stats, err := w.inner.Stats(ctx)
				for i := range stats {
					stats[i].Stuck = 0
				}
				return stats, err
			}
		}), by("statistics-count-what-is-undecided-and-what-needs-an-operator")},
	}
}

// pruning changes every pruning.
func (w *wrap) pruning(change func(ctx context.Context, req *operation.PruneRequest)) {
	w.prune = func(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
		if req.Check() == nil {
			change(ctx, &req)
		}
		return w.inner.Prune(ctx, req)
	}
}

func pruneTwins() []twin {
	return []twin{
		{"prune forgets the fingerprint", breaking(func(w *wrap) {
			taken(w, func(rec operation.Record, what string) bool {
				return what == "request" && rec.Kept == operation.VerdictOnly
			})
		}), by("what-is-forgotten-but-for-its-verdict-is-still-compared")},
		{"prune forgets the verdict with the record", breaking(func(w *wrap) {
			w.get = func(ctx context.Context, id string) (operation.Record, error) {
				rec, err := w.inner.Get(ctx, id)
				if rec.Kept == operation.VerdictOnly {
					return operation.Record{}, &operation.NotFoundError{ID: id}
				}
				return rec, err
			}
		}), by("bodies-are-forgotten-before-records-and-records-before-the-operation", "evidence-against-what-was-forgotten-is-still-a-conflict")},
		{"nothing is forgotten for good", breaking(func(w *wrap) { w.pruning(func(_ context.Context, req *operation.PruneRequest) { req.Forget = 0 }) }),
			by("an-id-that-was-forgotten-is-a-new-operation", "what-is-old-enough-is-forgotten-at-equality", "what-was-forgotten-is-still-compared-after-a-restart")},
		{"prune takes what is uncertain", breaking(func(w *wrap) {
			w.pruning(func(ctx context.Context, req *operation.PruneRequest) {
				for _, rec := range w.all(ctx) {
					if rec.State == operation.Uncertain && rec.Age > req.Records {
						_, _ = w.inner.Inquired(ctx, operation.Inquiry{ID: rec.ID, Finding: operation.Closed})
					}
				}
			})
		}), by("what-is-undecided-is-never-forgotten")},
		{"prune takes what is to be undone", breaking(func(w *wrap) {
			w.prune = func(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
				p, err := w.inner.Prune(ctx, req)
				for _, rec := range w.all(ctx) {
					if rec.Step == operation.Undo && req.Forget > 0 && rec.Decided >= req.Forget {
						p.Forgotten++
					}
				}
				return p, err
			}
		}), by("what-is-to-be-undone-is-not-forgotten")},
		{"prune takes what undoes something", breaking(func(w *wrap) {
			w.prune = func(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
				p, err := w.inner.Prune(ctx, req)
				for _, rec := range w.all(ctx) {
					if rec.State.Decided() && rec.Compensates != "" && req.Forget > 0 && rec.Decided >= req.Forget {
						p.Forgotten++
					}
				}
				return p, err
			}
		}), by("what-undoes-is-not-forgotten-before-that-is-noted")},
		{"the age counts from the submission", breaking(func(w *wrap) {
			w.pruning(func(ctx context.Context, req *operation.PruneRequest) {
				for _, rec := range w.all(ctx) {
					if rec.State.Decided() && req.Bodies > 0 && rec.Age >= req.Bodies {
						req.Bodies = max(min(req.Bodies, rec.Decided), 1)
					}
				}
			})
		}), by("the-age-counts-from-the-decision")},
		{"prune ignores its limit", breaking(func(w *wrap) {
			w.pruning(func(_ context.Context, req *operation.PruneRequest) { req.Limit = operation.MaxPrune })
		}), by("prune-keeps-its-limit")},
	}
}

func forgottenTwins() []twin {
	return []twin{
		{"evidence of what was forgotten is dropped", breaking(func(w *wrap) {
			w.responding(func(_ context.Context, _ *operation.Response, rec operation.Record) bool {
				return rec.Kept == operation.VerdictOnly
			})
		}), by("evidence-against-what-was-forgotten-is-still-a-conflict")},
		{"what was forgotten cannot be compensated", breaking(func(w *wrap) {
			w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
				if rec := w.look(ctx, req.Compensates); rec.Kept == operation.VerdictOnly {
					return operation.Submitted{}, &operation.NotFoundError{ID: req.Compensates}
				}
				return w.inner.Submit(ctx, req)
			}
		}), by("what-was-forgotten-is-still-compensated")},
		{"prune leaves bodies", breaking(func(w *wrap) {
			w.told = func(rec *operation.Record) {
				if rec.Kept == operation.WithoutBodies {
					rec.Request = []byte("the request of " + rec.ID)
				}
			}
		}), by("bodies-are-forgotten-before-records-and-records-before-the-operation")},
	}
}

// lenient answers what makes no sense with nothing, and no error.
func lenient(err error) error {
	if errors.Is(err, operation.ErrInvalid) {
		return nil
	}
	return err
}

func inputTwins() []twin {
	return []twin{
		{"nonsense is submitted", breaking(func(w *wrap) {
			w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
				sub, err := w.inner.Submit(ctx, req)
				return sub, lenient(err)
			}
		}), by("a-submission-that-makes-no-sense-is-refused", "a-body-beyond-the-limit-is-refused-before-anything-else")},
		{"nonsense is claimed", breaking(func(w *wrap) {
			w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
				jobs, err := w.inner.Claim(ctx, req)
				return jobs, lenient(err)
			}
		}), by("a-claim-that-makes-no-sense-is-refused")},
		{"nonsense is pruned", breaking(func(w *wrap) {
			w.prune = func(ctx context.Context, req operation.PruneRequest) (operation.Pruned, error) {
				p, err := w.inner.Prune(ctx, req)
				return p, lenient(err)
			}
		}), by("whatever-else-makes-no-sense-is-refused")},
	}
}

func bodyTwins() []twin {
	return []twin{
		{"bodies are cut", breaking(func(w *wrap) {
			w.answers(func(c *operation.Completion) {
				if len(c.Result) <= operation.MaxBody {
					c.Result = c.Result[:min(len(c.Result), 65535)]
				}
			})
		}), by("bodies-of-64-KiB-and-of-the-limit-are-kept-byte-by-byte")},
		{"bodies are looked at after the id", breaking(func(w *wrap) {
			w.respond = func(ctx context.Context, resp operation.Response) (operation.Record, error) {
				if operation.CheckID(resp.ID) == nil {
					if _, err := w.inner.Get(ctx, resp.ID); err != nil {
						return operation.Record{}, err
					}
				}
				return w.inner.Respond(ctx, resp)
			}
		}), by("a-body-beyond-the-limit-is-refused-before-anything-else")},
		{"texts lose letters", breaking(func(w *wrap) {
			w.told = func(rec *operation.Record) {
				rec.Reason = strings.Map(func(r rune) rune {
					if r > 0xffff {
						return '?'
					}
					return r
				}, rec.Reason)
			}
		}), by("texts-of-any-letters-and-up-to-their-limits-are-kept")},
		{"a context that has ended is not looked at", breaking(func(w *wrap) {
			w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
				return w.inner.Submit(context.WithoutCancel(ctx), req)
			}
		}), by("a-call-whose-context-has-ended-changes-nothing")},
		{"what was cut off is told as not applied", breaking(func(w *wrap) {
			w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
				sub, err := w.inner.Submit(context.WithoutCancel(ctx), req)
				if _, bounded := ctx.Deadline(); bounded && err == nil {
					return operation.Submitted{}, &operation.UnavailableError{Op: "submit", Err: context.DeadlineExceeded}
				}
				return sub, err
			}
		}), by("a-call-that-was-cut-off-is-settled-by-repeating-it")},
		{"the store guarantees nothing", breaking(func(w *wrap) { w.states = func() operation.Guarantees { return operation.Guarantees{} } }), by("the-store-says-what-it-keeps")},
		{"an empty batch is refused", breaking(func(w *wrap) {
			w.complete = func(ctx context.Context, all []operation.Completion) ([]error, error) {
				if len(all) == 0 {
					return nil, &operation.InvalidError{Field: "completions", Problem: "none"}
				}
				return w.inner.Complete(ctx, all)
			}
		}), by("empty-batches-are-fine")},
	}
}

// late runs a call as if the clock were a little behind.
func late(w *wrap, call func()) {
	if w.h.clock == nil {
		call()
		return
	}
	w.h.clock.behind(time.Nanosecond)
	defer w.h.clock.behind(0)
	call()
}

func timeTwins() []twin {
	return []twin{
		{"expiry at equality is missed", breaking(func(w *wrap) {
			w.expire = func(ctx context.Context, limit int) (n int, err error) {
				late(w, func() { n, err = w.inner.Expire(ctx, limit) })
				return n, err
			}
		}), by("a-claim-expires-at-equality-and-not-before")},
		{"what is due at equality is not begun", breaking(func(w *wrap) {
			w.claim = func(ctx context.Context, req operation.ClaimRequest) (jobs []operation.Job, err error) {
				late(w, func() { jobs, err = w.inner.Claim(ctx, req) })
				return jobs, err
			}
		}), by("an-operation-is-begun-at-the-equality-of-its-time")},
		{"what is due at equality is not handed out", breaking(func(w *wrap) {
			w.due = func(ctx context.Context, req operation.DueRequest) (recs []operation.Record, err error) {
				late(w, func() { recs, err = w.inner.Due(ctx, req) })
				return recs, err
			}
		}), by("what-is-due-is-due-at-equality")},
		{"what is old enough at equality is kept", breaking(func(w *wrap) {
			w.prune = func(ctx context.Context, req operation.PruneRequest) (p operation.Pruned, err error) {
				late(w, func() { p, err = w.inner.Prune(ctx, req) })
				return p, err
			}
		}), by("what-is-old-enough-is-forgotten-at-equality")},
		{"an attempt ends whenever something is learned of it", breaking(func(w *wrap) {
			ended := map[string]bool{}
			w.responding(func(_ context.Context, resp *operation.Response, _ operation.Record) bool {
				ended[resp.ID] = true
				return false
			})
			w.told = func(rec *operation.Record) {
				if ended[rec.ID] {
					rec.Attempts = slices.Clone(rec.Attempts)
					rec.Attempts[0].Ended = 0
				}
			}
		}), by("durations-are-exact")},
		{"nothing survives a restart", func(h *harness) {
			w := replace(h)
			h.restart = func() {
				h.mem = memory.NewOperations(memory.Options{})
				h.store = h.mem
			}
			_ = w
		}, by("a-submission-survives-a-restart", "an-attempt-survives-a-restart-as-one-that-may-have-sent", "no-number-repeats-after-a-restart", "what-was-decided-stays-decided-after-a-restart",
			"what-is-put-off-stays-so-across-a-restart", "what-was-forgotten-is-still-compared-after-a-restart")},
		{"numbers begin anew at a restart", func(h *harness) {
			w := replace(h)
			restarts := int64(0)
			h.restart = func() { restarts++ }
			renumber(w, func(j operation.Job) int64 { return max(int64(j.Number)-2*restarts, 1) })
		}, by("no-number-repeats-after-a-restart")},
	}
}
