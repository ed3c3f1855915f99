package operationtest_test

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/operation"
)

func cancelTwins() []twin {
	return []twin{
		{"cancelling while an attempt is at work succeeds", breaking(func(w *wrap) {
			w.cancel = func(ctx context.Context, id, reason string) (operation.Record, error) {
				if rec := w.look(ctx, id); rec.State == operation.Attempting {
					_, _ = w.inner.Respond(ctx, operation.Response{ID: id, Number: rec.Current(), Answer: operation.Answer{Known: operation.NotSent}})
				}
				return w.inner.Cancel(ctx, id, reason)
			}
		}), by("cancelling-while-an-attempt-may-have-an-effect-is-a-wish", "a-claim-and-a-cancel-at-once-agree")},
		{"after an attempt nothing can be cancelled", breaking(func(w *wrap) {
			w.cancel = func(ctx context.Context, id, reason string) (operation.Record, error) {
				if rec := w.look(ctx, id); rec.State == operation.Pending && len(rec.Attempts) > 0 {
					return rec, nil
				}
				return w.inner.Cancel(ctx, id, reason)
			}
		}), by("cancelling-succeeds-while-no-attempt-can-have-had-an-effect")},
		{"a wish is recorded, and not honoured", breaking(func(w *wrap) {
			wished := map[string]bool{}
			w.cancel = func(ctx context.Context, id, reason string) (operation.Record, error) {
				if rec := w.look(ctx, id); rec.State == operation.Attempting || rec.State == operation.Uncertain {
					w.mu.Lock()
					defer w.mu.Unlock()
					wished[id] = true
					return rec, nil
				}
				return w.inner.Cancel(ctx, id, reason)
			}
			w.told = func(rec *operation.Record) {
				if w.mu.TryLock() {
					defer w.mu.Unlock()
				}
				rec.CancelWished = rec.CancelWished || wished[rec.ID]
			}
		}), by("a-wish-is-granted-when-no-attempt-had-an-effect", "a-wish-for-what-happened-all-the-same-is-to-be-undone", "what-is-wished-away-is-asked-about-rather-than-attempted",
			"what-is-to-be-undone-is-not-forgotten", "undone-is-noted-once-and-by-what-undoes-it", "a-list-holds-what-matches-all-that-is-set")},
		{"what is decided is cancelled without a word", breaking(func(w *wrap) {
			w.cancel = func(ctx context.Context, id, reason string) (operation.Record, error) {
				rec, err := w.inner.Cancel(ctx, id, reason)
				if errors.Is(err, operation.ErrDecided) {
					return w.inner.Get(ctx, id)
				}
				return rec, err
			}
		}), by("what-is-decided-is-not-cancelled")},
	}
}

func undoTwins() []twin {
	return []twin{
		{"anything undoes", breaking(func(w *wrap) {
			w.undone = func(ctx context.Context, id, by string) (operation.Record, error) {
				rec, err := w.inner.Undone(ctx, id, by)
				if err != nil {
					return w.inner.Get(ctx, id)
				}
				return rec, err
			}
		}), by("undone-is-noted-once-and-by-what-undoes-it")},
		{"what is undone is undone again", breaking(func(w *wrap) {
			w.undone = func(ctx context.Context, id, by string) (operation.Record, error) {
				_, err := w.inner.Undone(ctx, id, by)
				if err != nil {
					return operation.Record{}, err
				}
				rec, err := w.inner.Get(ctx, id)
				rec.UndoneBy, rec.Step = "", operation.Undo
				return rec, err
			}
		}), by("undone-is-noted-once-and-by-what-undoes-it")},
		{"what is undecided is compensated", breaking(func(w *wrap) { compensates(w, operation.ErrUndecided) }),
			by("a-compensation-of-what-is-undecided-is-refused-whatever-has-expired", "a-decision-and-a-compensation-at-once-agree")},
		{"what has failed is compensated", breaking(func(w *wrap) { compensates(w, operation.ErrDecided) }),
			by("only-what-succeeded-is-compensated", "what-was-forgotten-is-still-compensated")},
		{"a compensation that expired is let through", breaking(func(w *wrap) {
			w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
				if rec := w.look(ctx, req.Compensates); rec.State == operation.Attempting && rec.StepIn == 0 {
					req.Compensates = ""
				}
				return w.inner.Submit(ctx, req)
			}
		}), by("a-compensation-of-what-is-undecided-is-refused-whatever-has-expired")},
	}
}

// compensates takes compensations that are refused for this reason.
func compensates(w *wrap, refused error) {
	w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
		sub, err := w.inner.Submit(ctx, req)
		if errors.Is(err, refused) {
			req.Compensates = ""
			return w.inner.Submit(ctx, req)
		}
		return sub, err
	}
}
