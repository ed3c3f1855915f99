package operationtest_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// over are the attempts whose claims have expired, as they really are.
func (w *wrap) over(ctx context.Context) (over []operation.Record) {
	for _, rec := range w.all(ctx) {
		if rec.Step == operation.Watch && rec.StepIn == 0 {
			over = append(over, rec)
		}
	}
	return over
}

func renewTwins() []twin {
	return []twin{
		{"a claim is renewed beyond its timeout", breaking(func(w *wrap) {
			timeouts := map[string]time.Duration{}
			w.kinds(func(k *operation.KindClaim) {
				w.mu.Lock()
				defer w.mu.Unlock()
				timeouts[k.Kind] = k.Timeout
				k.Timeout = operation.MaxDelay
			})
			w.jobs(func(j *operation.Job) {
				w.mu.Lock()
				defer w.mu.Unlock()
				j.TimeLeft = timeouts[j.Kind]
				j.Remaining = min(j.Remaining, j.TimeLeft)
			})
		}), by("O10-a-claim-is-not-renewed-beyond-the-timeout-of-its-attempt", "a-claim-ends-with-its-timeout-exactly")},
		{"a stale attempt renews the current one", breaking(func(w *wrap) {
			w.renew = func(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
				req.Refs = slices.Clone(req.Refs)
				for i := range req.Refs {
					if rec := w.look(ctx, req.Refs[i].ID); rec.State == operation.Attempting {
						req.Refs[i].Number = rec.Current()
					}
				}
				return w.inner.Renew(ctx, req)
			}
		}), by("what-is-not-the-open-current-attempt-is-not-renewed", "an-expired-claim-is-not-renewed")},
		{"a renewal does nothing", breaking(func(w *wrap) {
			w.renew = func(context.Context, operation.RenewRequest) ([]operation.Ref, error) { return nil, nil }
		}), by("O5-a-handler-three-times-longer-than-its-claim-runs-once", "what-is-not-the-open-current-attempt-is-not-renewed")},
		{"a claim past its time is lost before anybody ends it", breaking(func(w *wrap) {
			w.renew = func(ctx context.Context, req operation.RenewRequest) ([]operation.Ref, error) {
				over := w.over(ctx)
				lost, err := w.inner.Renew(ctx, req)
				for _, ref := range req.Refs {
					if slices.ContainsFunc(over, func(r operation.Record) bool { return r.ID == ref.ID }) && !slices.Contains(lost, ref) {
						lost = append(lost, ref)
					}
				}
				return lost, err
			}
		}), by("a-claim-past-its-time-that-nobody-ended-is-renewed")},
	}
}

func expiryTwins() []twin {
	return []twin{
		{"an expired attempt is taken for one that was not sent", breaking(func(w *wrap) {
			w.expire = func(ctx context.Context, _ int) (int, error) {
				over := w.over(ctx)
				for _, rec := range over {
					_, _ = w.inner.Respond(ctx, operation.Response{ID: rec.ID, Number: rec.Current(), Answer: operation.Answer{Known: operation.NotSent}})
				}
				return len(over), nil
			}
		}), by("an-attempt-whose-claim-expired-is-unknown-and-never-not-done", "a-completion-after-the-expiry-is-stale", "an-attempt-survives-a-restart-as-one-that-may-have-sent")},
		{"an expired attempt has failed", breaking(func(w *wrap) {
			w.expire = func(ctx context.Context, limit int) (int, error) {
				over := w.over(ctx)
				n, err := w.inner.Expire(ctx, limit)
				for _, rec := range over {
					_, _ = w.inner.Inquired(ctx, operation.Inquiry{ID: rec.ID, Finding: operation.Closed})
				}
				return n, err
			}
		}), by("an-attempt-whose-claim-expired-is-unknown-and-never-not-done", "O47-an-expired-attempt-is-asked-about-and-decided")},
		{"a claim expires early", breaking(func(w *wrap) {
			w.expire = func(ctx context.Context, limit int) (int, error) {
				w.h.mem.Advance(4 * time.Second)
				return w.inner.Expire(ctx, limit)
			}
		}), by("an-attempt-whose-claim-expired-is-unknown-and-never-not-done", "an-attempt-survives-a-restart-as-one-that-may-have-sent")},
		{"expire ignores its limit", breaking(func(w *wrap) {
			w.expire = func(ctx context.Context, limit int) (int, error) {
				return w.inner.Expire(ctx, min(limit*operation.MaxBatch, operation.MaxBatch))
			}
		}), by("expire-ends-what-is-over-and-at-most-so-many")},
		{"expire tells what others have ended too", breaking(func(w *wrap) {
			w.expire = func(ctx context.Context, limit int) (int, error) {
				n, err := w.inner.Expire(ctx, limit)
				return min(n+1, limit), err
			}
		}), by("O12-of-two-recoverers-one-ends-an-attempt")},
		{"a worker that claims again keeps what it had", breaking(func(w *wrap) {
			w.expire = func(ctx context.Context, limit int) (int, error) {
				workers := map[string]int{}
				for _, rec := range w.over(ctx) {
					workers[rec.Attempts[len(rec.Attempts)-1].Worker]++
				}
				for _, n := range workers {
					if n > 1 {
						return 0, nil
					}
				}
				return w.inner.Expire(ctx, limit)
			}
		}), by("O7-claims-of-a-worker-that-came-back-under-its-name-expire", "O3-the-claims-of-dead-workers-move-again")},
		{"a completion past the claim's time is refused before anybody ends it", breaking(func(w *wrap) {
			w.complete = func(ctx context.Context, all []operation.Completion) ([]error, error) {
				if _, err := w.inner.Expire(ctx, operation.MaxBatch); err != nil {
					return nil, err
				}
				return w.inner.Complete(ctx, all)
			}
		}), by("O1-a-completion-before-anybody-acts-on-the-expiry-counts")},
	}
}

func completeTwins() []twin {
	stale := func(err error) bool { return errors.Is(err, operation.ErrStale) }
	return []twin{
		{"completion is unconditional", breaking(func(w *wrap) {
			w.completed(func(ctx context.Context, c operation.Completion, err error) error {
				if stale(err) {
					_, _ = w.inner.Respond(ctx, operation.Response{ID: c.ID, Number: c.Number, Answer: c.Answer})
					return nil
				}
				return err
			})
		}), by("O2b-a-stale-completion-moves-nothing", "O2-of-two-workers-the-current-one-decides", "a-completion-after-the-expiry-is-stale", "completing-twice-is-stale", "one-attempt-twice-in-a-batch-counts-once")},
		{"a completion that moved nothing is told as done", breaking(func(w *wrap) {
			w.completed(func(_ context.Context, _ operation.Completion, err error) error {
				if stale(err) {
					return nil
				}
				return err
			})
		}), by("O2b-a-stale-completion-moves-nothing", "O3-the-claims-of-dead-workers-move-again", "of-many-completions-at-once-one-counts", "evidence-ends-the-claim-of-the-current-attempt",
			"a-success-of-an-older-attempt-decides-while-another-runs", "a-completion-and-an-expiry-at-once-agree")},
		{"a stale completion is refused, and recorded all the same", breaking(func(w *wrap) {
			w.completed(func(ctx context.Context, c operation.Completion, err error) error {
				if stale(err) {
					_, _ = w.inner.Respond(ctx, operation.Response{ID: c.ID, Number: c.Number, Answer: c.Answer})
				}
				return err
			})
		}), by("O2b-a-stale-completion-moves-nothing", "completing-twice-is-stale", "a-completion-after-the-expiry-is-stale")},
		{"a batch shares its fate", breaking(func(w *wrap) {
			w.complete = func(ctx context.Context, all []operation.Completion) ([]error, error) {
				errs := make([]error, len(all))
				for i := range all {
					if err := all[i].Check(); err != nil {
						for j := range errs {
							errs[j] = err
						}
						_ = i
						return errs, nil
					}
				}
				return w.inner.Complete(ctx, all)
			}
		}), by("O23-strangers-in-a-batch-share-no-fate")},
		{"the last of a batch counts", breaking(func(w *wrap) {
			w.complete = func(ctx context.Context, all []operation.Completion) ([]error, error) {
				slices.Reverse(all)
				errs, err := w.inner.Complete(ctx, all)
				slices.Reverse(errs)
				return errs, err
			}
		}), by("one-attempt-twice-in-a-batch-counts-once")},
	}
}

func answerTwins() []twin {
	return []twin{
		{"a refusal fails while another attempt is unknown", breaking(func(w *wrap) {
			w.completed(func(ctx context.Context, c operation.Completion, err error) error {
				if err == nil && c.Final && w.look(ctx, c.ID).State == operation.Uncertain {
					_, _ = w.inner.Inquired(ctx, operation.Inquiry{ID: c.ID, Finding: operation.Closed})
				}
				return err
			})
		}), by("a-refusal-proves-nothing-about-an-earlier-attempt", "O2b-a-stale-completion-moves-nothing")},
		{"no refusal is final", breaking(func(w *wrap) { w.answers(func(c *operation.Completion) { c.Final = false }) }), by("each-answer-moves-the-operation-as-the-rules-say")},
		{"every refusal is final", breaking(func(w *wrap) { w.answers(func(c *operation.Completion) { c.Final = c.Known == operation.Refused }) }),
			by("each-answer-moves-the-operation-as-the-rules-say", "attempts-without-effect-are-bounded", "of-one-order-each-begins-when-the-one-before-is-decided")},
		{"no answer is taken for not sent", breaking(func(w *wrap) {
			w.answers(func(c *operation.Completion) {
				if c.Known == operation.NoAnswer {
					c.Known = operation.NotSent
				}
			})
		}), by("each-answer-moves-the-operation-as-the-rules-say", "without-a-window-an-unknown-outcome-is-asked-about")},
		{"results are forgotten", breaking(func(w *wrap) { w.answers(func(c *operation.Completion) { c.Result = nil }) }),
			by("each-answer-moves-the-operation-as-the-rules-say", "replies-and-requests-own-their-slices", "what-was-decided-stays-decided-after-a-restart")},
		{"any number completes", breaking(func(w *wrap) {
			w.complete = func(ctx context.Context, all []operation.Completion) ([]error, error) {
				for i := range all {
					if rec := w.look(ctx, all[i].ID); !slices.ContainsFunc(rec.Attempts, func(a operation.Attempt) bool { return a.Number == all[i].Number }) {
						all[i].Number = rec.Current()
					}
				}
				return w.inner.Complete(ctx, all)
			}
		}), by("a-completion-of-what-was-never-recorded-is-refused")},
	}
}
