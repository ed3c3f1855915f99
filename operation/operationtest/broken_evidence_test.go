package operationtest_test

import (
	"context"
	"slices"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// responding changes every response, or answers it instead where answer says so.
func (w *wrap) responding(change func(ctx context.Context, resp *operation.Response, rec operation.Record) (instead bool)) {
	w.respond = func(ctx context.Context, resp operation.Response) (operation.Record, error) {
		if change(ctx, &resp, w.look(ctx, resp.ID)) {
			return w.inner.Get(ctx, resp.ID)
		}
		return w.inner.Respond(ctx, resp)
	}
}

func evidenceTwins() []twin {
	return []twin{
		{"a late success is ignored", breaking(func(w *wrap) {
			w.responding(func(_ context.Context, resp *operation.Response, rec operation.Record) bool {
				return resp.Known == operation.Effective && rec.State == operation.Uncertain
			})
		}), by("O41-a-late-success-decides-what-is-uncertain", "of-many-answers-at-once-one-decides-and-the-others-are-conflicts")},
		{"a late success against a decision is dropped", breaking(func(w *wrap) {
			w.responding(func(_ context.Context, resp *operation.Response, rec operation.Record) bool {
				return resp.Known == operation.Effective && rec.State.Decided()
			})
		}), by("O14-a-late-success-against-a-decision-is-kept-and-the-decision-stays", "of-many-answers-at-once-one-decides-and-the-others-are-conflicts", "O2-of-two-workers-the-current-one-decides",
			"resolving-needs-an-uncertain-operation-and-a-reason")},
		{"a conflict overwrites the decision", breaking(func(w *wrap) {
			w.told = func(rec *operation.Record) {
				if n := len(rec.Conflicts); n > 0 && rec.Kept == operation.Whole {
					rec.State, rec.Result = operation.Succeeded, rec.Conflicts[n-1].Result
				}
			}
		}), by("O14-a-late-success-against-a-decision-is-kept-and-the-decision-stays", "a-conflict-is-kept-once-and-each-is-counted-up-to-what-is-kept", "a-finding-against-a-decision-is-a-conflict")},
		{"a conflict is counted each time", breaking(func(w *wrap) {
			times := map[string]int{}
			w.responding(func(_ context.Context, resp *operation.Response, rec operation.Record) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				if slices.ContainsFunc(rec.Conflicts, func(c operation.Conflict) bool { return string(c.Result) == string(resp.Result) }) {
					times[resp.ID]++
				}
				return false
			})
			w.told = func(rec *operation.Record) {
				w.mu.Lock()
				defer w.mu.Unlock()
				rec.ConflictCount += times[rec.ID]
			}
		}), by("a-conflict-is-kept-once-and-each-is-counted-up-to-what-is-kept")},
		{"beyond what is kept no conflict is counted", breaking(func(w *wrap) {
			w.told = func(rec *operation.Record) { rec.ConflictCount = min(rec.ConflictCount, operation.MaxConflicts) }
		}), by("a-conflict-is-kept-once-and-each-is-counted-up-to-what-is-kept")},
	}
}

func wholeTwins() []twin {
	return []twin{
		{"evidence of an older attempt is ignored", breaking(func(w *wrap) {
			w.responding(func(_ context.Context, resp *operation.Response, rec operation.Record) bool {
				return resp.Number > 0 && resp.Number < rec.Current()
			})
		}), by("a-success-of-an-older-attempt-decides-while-another-runs", "a-refusal-of-an-older-attempt-leaves-the-current-one-at-work", "a-refusal-of-the-last-unknown-attempt-makes-it-pending")},
		{"evidence of an older attempt is taken for the current one's", breaking(func(w *wrap) {
			w.responding(func(_ context.Context, resp *operation.Response, rec operation.Record) bool {
				if resp.Number > 0 {
					resp.Number = rec.Current()
				}
				return false
			})
		}), by("a-refusal-of-an-older-attempt-leaves-the-current-one-at-work", "evidence-of-an-attempt-that-was-never-recorded-is-refused")},
		{"what is said of the whole is ignored", breaking(func(w *wrap) {
			w.responding(func(_ context.Context, resp *operation.Response, rec operation.Record) bool {
				return resp.Number == 0 && !rec.State.Decided()
			})
		}), by("evidence-of-the-operation-as-a-whole-decides", "a-refusal-of-the-whole-is-of-the-only-attempt")},
		{"a refusal of the whole is the current attempt's", breaking(func(w *wrap) {
			w.responding(func(_ context.Context, resp *operation.Response, rec operation.Record) bool {
				if resp.Number == 0 && resp.Known == operation.Refused {
					resp.Number = rec.Current()
				}
				return false
			})
		}), by("a-refusal-of-the-whole-is-of-the-only-attempt")},
		{"whatever comes after a decision is a conflict", breaking(func(w *wrap) {
			inner := w.respond
			w.respond = func(ctx context.Context, resp operation.Response) (operation.Record, error) {
				decided := w.look(ctx, resp.ID).State.Decided()
				rec, err := inner(ctx, resp)
				if decided && err == nil {
					err = &operation.StaleError{ID: resp.ID, Attempt: resp.Number, Newer: rec.Current(), State: rec.State}
				}
				return rec, err
			}
		}), by("evidence-that-agrees-is-no-conflict", "the-same-evidence-again-changes-nothing", "evidence-against-what-was-forgotten-is-still-a-conflict")},
		{"what is known of an attempt is what was said last", breaking(func(w *wrap) {
			last := map[string]operation.Known{}
			w.responding(func(_ context.Context, resp *operation.Response, rec operation.Record) bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				if resp.Number == rec.Current() && resp.Known != operation.Effective {
					last[resp.ID] = resp.Known
				}
				return false
			})
			w.told = func(rec *operation.Record) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if k := last[rec.ID]; k != 0 && len(rec.Attempts) > 0 && !rec.State.Decided() {
					rec.Attempts[len(rec.Attempts)-1].Known = k
				}
			}
		}), by("the-same-evidence-again-changes-nothing")},
		{"old attempts are not kept", breaking(func(w *wrap) {
			w.told = func(rec *operation.Record) { rec.Attempts = rec.Attempts[max(0, len(rec.Attempts)-10):] }
		}), by("every-attempt-is-kept-whatever-follows-it")},
		{"evidence does not end the claim", breaking(func(w *wrap) {
			w.renew = func(context.Context, operation.RenewRequest) ([]operation.Ref, error) { return nil, nil }
		}), by("evidence-ends-the-claim-of-the-current-attempt", "a-finding-decides-also-while-an-attempt-is-at-work")},
	}
}

// inquiring changes every inquiry.
func (w *wrap) inquiring(change func(ctx context.Context, inq *operation.Inquiry)) {
	w.inquired = func(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
		change(ctx, &inq)
		return w.inner.Inquired(ctx, inq)
	}
}

// asking changes every request for what is due.
func (w *wrap) asking(change func(req *operation.DueRequest)) {
	w.due = func(ctx context.Context, req operation.DueRequest) ([]operation.Record, error) {
		if req.Check() == nil {
			change(&req)
		}
		return w.inner.Due(ctx, req)
	}
}

func inquiryTwins() []twin {
	return []twin{
		{"what is not observed has failed", breaking(func(w *wrap) {
			w.inquiring(func(_ context.Context, inq *operation.Inquiry) {
				if inq.Finding == operation.NotObserved {
					inq.Finding = operation.Closed
				}
			})
		}), by("what-an-inquiry-finds-decides-and-not-observed-does-not", "an-uncertain-one-blocks-its-order", "a-compensation-of-what-is-undecided-is-refused-whatever-has-expired")},
		{"that the instant has passed is believed", breaking(func(w *wrap) {
			w.inquiring(func(_ context.Context, inq *operation.Inquiry) {
				if inq.Finding == operation.PastInstant {
					inq.Finding = operation.Closed
				}
			})
		}), by("that-the-instant-has-passed-is-refused-before-it-has", "that-the-instant-has-passed-is-refused-where-none-was-carried", "the-instant-has-passed-at-equality")},
		{"a closing is of whatever attempt", breaking(func(w *wrap) { w.inquiring(func(_ context.Context, inq *operation.Inquiry) { inq.AsOf = 0 }) }), by("a-closing-says-nothing-of-an-attempt-that-has-begun-since")},
		{"what is due is not held", breaking(func(w *wrap) { w.asking(func(req *operation.DueRequest) { req.Hold = 1 }) }),
			by("what-is-due-is-put-off-by-the-hold", "what-is-to-be-undone-is-held-as-an-inquiry-is", "two-reconcilers-are-never-handed-the-same", "what-is-put-off-stays-so-across-a-restart")},
		{"due hands out any kind", breaking(func(w *wrap) { w.asking(func(req *operation.DueRequest) { req.Kinds = []string{"charge", "refund"} }) }), by("due-keeps-its-kinds-and-its-limit")},
		{"due ignores its limit", breaking(func(w *wrap) { w.asking(func(req *operation.DueRequest) { req.Limit = operation.MaxBatch }) }), by("due-keeps-its-kinds-and-its-limit")},
		{"who asks is not heard on when to ask again", breaking(func(w *wrap) {
			w.inquiring(func(_ context.Context, inq *operation.Inquiry) { inq.AskIn = min(inq.AskIn, time.Second) })
		}), by("O45-inquiries-are-paced-by-who-asks", "what-is-due-is-due-at-equality")},
		{"a finding against a decision is dropped", breaking(func(w *wrap) {
			w.inquired = func(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
				if rec := w.look(ctx, inq.ID); rec.State.Decided() {
					return rec, nil
				}
				return w.inner.Inquired(ctx, inq)
			}
		}), by("a-finding-against-a-decision-is-a-conflict")},
		{"a finding waits for the attempt at work", breaking(func(w *wrap) {
			w.inquired = func(ctx context.Context, inq operation.Inquiry) (operation.Record, error) {
				if rec := w.look(ctx, inq.ID); rec.State == operation.Attempting {
					return rec, nil
				}
				return w.inner.Inquired(ctx, inq)
			}
		}), by("a-finding-decides-also-while-an-attempt-is-at-work")},
		{"an operator may resolve what is at work", breaking(func(w *wrap) {
			w.resolve = func(ctx context.Context, v operation.Verdict) (operation.Record, error) {
				if rec := w.look(ctx, v.ID); rec.State == operation.Attempting {
					_, _ = w.inner.Respond(ctx, operation.Response{ID: v.ID, Number: rec.Current(), Answer: operation.Answer{Known: operation.NoAnswer}})
				}
				return w.inner.Resolve(ctx, v)
			}
		}), by("resolving-needs-an-uncertain-operation-and-a-reason")},
		{"an operator needs no reason", breaking(func(w *wrap) {
			w.resolve = func(ctx context.Context, v operation.Verdict) (operation.Record, error) {
				if v.Reason == "" {
					v.Reason = "none"
				}
				return w.inner.Resolve(ctx, v)
			}
		}), by("resolving-needs-an-uncertain-operation-and-a-reason")},
	}
}
