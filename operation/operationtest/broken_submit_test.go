package operationtest_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// taken answers a submission that is refused for a mismatch with what is there, where the fault has it so.
func taken(w *wrap, wrongly func(rec operation.Record, what string) bool) {
	w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
		sub, err := w.inner.Submit(ctx, req)
		var m *operation.MismatchError
		if errors.As(err, &m) {
			if rec := w.look(ctx, req.ID); wrongly(rec, m.What) {
				return operation.Submitted{Record: rec, Known: true}, nil
			}
		}
		return sub, err
	}
}

// submitting changes every submission.
func (w *wrap) submitting(change func(req *operation.SubmitRequest)) {
	w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
		change(&req)
		return w.inner.Submit(ctx, req)
	}
}

func submitTwins() []twin {
	return []twin{
		{"a submission compares the kind only", breaking(func(w *wrap) {
			taken(w, func(_ operation.Record, what string) bool { return what == "request" })
		}), by("O53-another-request-is-a-mismatch-in-every-state")},
		{"a submission compares nothing while an attempt is at work", breaking(func(w *wrap) {
			taken(w, func(rec operation.Record, _ string) bool { return rec.State == operation.Attempting })
		}), by("O53-another-request-is-a-mismatch-in-every-state", "O54-another-kind-is-a-mismatch-in-every-state")},
		{"a submission compares the request only", breaking(func(w *wrap) {
			taken(w, func(_ operation.Record, what string) bool { return what == "kind" })
		}), by("O54-another-kind-is-a-mismatch-in-every-state")},
		{"a submission compares bodies, not fingerprints", breaking(func(w *wrap) {
			w.submitting(func(req *operation.SubmitRequest) {
				if len(req.Request) > 0 {
					req.Fingerprint = operation.FingerprintOf(req.Kind, req.Request)
				}
			})
		}), by("O53-another-request-is-a-mismatch-in-every-state")},
		{"each submission is told as new", breaking(func(w *wrap) {
			w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
				sub, err := w.inner.Submit(ctx, req)
				sub.Known = false
				return sub, err
			}
		}), by("the-same-submission-again-is-the-operation-as-it-stands", "O19-a-hundred-submissions-of-one-id-are-one-operation")},
		{"what is to run later is begun at once", breaking(func(w *wrap) {
			w.submitting(func(req *operation.SubmitRequest) { req.RunIn = min(req.RunIn, 0) })
		}), by("one-to-run-later-is-not-begun-before")},
		{"priorities are ignored", breaking(func(w *wrap) {
			w.claimThose(func(a, b operation.Record) int { return cmp.Compare(b.Age, a.Age) }, func(operation.Record, []operation.Record) bool { return true })
		}), by("the-more-urgent-go-first")},
		{"the newest goes first", breaking(func(w *wrap) {
			w.claimThose(func(a, b operation.Record) int { return cmp.Compare(a.Age, b.Age) }, func(operation.Record, []operation.Record) bool { return true })
		}), by("of-one-priority-the-longest-due-goes-first")},
		{"an unknown id is an empty record", breaking(func(w *wrap) {
			w.get = func(ctx context.Context, id string) (operation.Record, error) {
				rec, err := w.inner.Get(ctx, id)
				if errors.Is(err, operation.ErrNotFound) {
					err = nil
				}
				return rec, err
			}
		}), by("an-unknown-id-is-not-found", "a-body-beyond-the-limit-is-refused-before-anything-else")},
		{"ids are compared without case", breaking(func(w *wrap) {
			w.get = func(ctx context.Context, id string) (operation.Record, error) { return w.inner.Get(ctx, fold(id)) }
		}), by("an-unknown-id-is-not-found")},
		{"the request is kept by reference", breaking(func(w *wrap) {
			kept := map[string][]byte{}
			w.submitting(func(req *operation.SubmitRequest) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if kept[req.ID] == nil {
					kept[req.ID] = req.Request
				}
			})
			w.told = func(rec *operation.Record) {
				w.mu.Lock()
				defer w.mu.Unlock()
				rec.Request = kept[rec.ID]
			}
		}), by("replies-and-requests-own-their-slices")},
		{"priority and order are not kept", breaking(func(w *wrap) {
			w.submitting(func(req *operation.SubmitRequest) { req.Priority, req.Order = 0, "" })
		}), by("a-submission-is-recorded-as-it-is", "a-job-tells-what-was-submitted")},
	}
}

// unordered lets the inner store know of no orders; what is told of them is as it was submitted, and what is blocked is said by the twin.
func unordered(w *wrap, blocks func(rec, by operation.Record) bool) {
	orders, submitted := map[string]string{}, []string{}
	w.submit = func(ctx context.Context, req operation.SubmitRequest) (operation.Submitted, error) {
		order := req.Order
		req.Order = ""
		sub, err := w.inner.Submit(ctx, req)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && !sub.Known {
			orders[req.ID] = order
			submitted = append(submitted, req.ID)
		}
		return sub, err
	}
	w.told = func(rec *operation.Record) {
		w.mu.Lock()
		defer w.mu.Unlock()
		rec.Order = orders[rec.ID]
	}
	at := func(rec operation.Record) int { return slices.Index(submitted, rec.ID) }
	w.claimThose(func(a, b operation.Record) int { return cmp.Compare(at(a), at(b)) }, func(rec operation.Record, all []operation.Record) bool {
		rec.Order = orders[rec.ID]
		for _, other := range all {
			other = w.look(context.Background(), other.ID)
			other.Order = orders[other.ID]
			if rec.Order != "" && at(other) < at(rec) && !other.State.Decided() && blocks(rec, other) {
				return false
			}
		}
		return true
	})
	w.jobs(func(j *operation.Job) { j.Order = orders[j.ID] })
}

func orderTwins() []twin {
	return []twin{
		{"order is ignored", breaking(func(w *wrap) {
			unordered(w, func(_, _ operation.Record) bool { return false })
		}), by("of-one-order-each-begins-when-the-one-before-is-decided", "order-is-kept-whatever-the-priority-and-the-time", "an-uncertain-one-blocks-its-order", "order-is-kept-across-kinds",
			"order-is-kept-with-many-workers")},
		{"an uncertain one does not block its order", breaking(func(w *wrap) {
			unordered(w, func(rec, by operation.Record) bool { return rec.Order == by.Order && by.State != operation.Uncertain })
		}), by("an-uncertain-one-blocks-its-order")},
		{"order is kept within a kind", breaking(func(w *wrap) {
			unordered(w, func(rec, by operation.Record) bool { return rec.Order == by.Order && by.Kind == rec.Kind })
		}), by("order-is-kept-across-kinds", "order-is-kept-with-many-workers")},
		{"one that is not due yet does not block", breaking(func(w *wrap) {
			unordered(w, func(rec, by operation.Record) bool { return rec.Order == by.Order && by.StepIn == 0 })
		}), by("order-is-kept-whatever-the-priority-and-the-time")},
		{"any order blocks every other", breaking(func(w *wrap) {
			unordered(w, func(_, by operation.Record) bool { return by.Order != "" })
		}), by("other-orders-and-none-are-not-blocked")},
		{"only a success lets the next begin", breaking(func(w *wrap) {
			w.claimThose(func(operation.Record, operation.Record) int { return 0 }, func(rec operation.Record, all []operation.Record) bool {
				return !slices.ContainsFunc(all, func(other operation.Record) bool {
					return rec.Order != "" && other.Order == rec.Order && other.Age > rec.Age && other.State != operation.Succeeded
				})
			})
		}), by("whatever-decides-lets-the-next-of-its-order-begin")},
	}
}

func claimTwins() []twin {
	return []twin{
		{"a claim does not skip what another has", breaking(func(w *wrap) {
			had := map[string]operation.Job{}
			inner := w.claim
			w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
				jobs, err := inner(ctx, req)
				w.mu.Lock()
				defer w.mu.Unlock()
				for id, j := range had {
					if w.look(ctx, id).State == operation.Attempting && len(jobs) < req.Limit {
						jobs = append(jobs, j)
					}
				}
				for _, j := range jobs {
					had[j.ID] = j
				}
				return jobs, err
			}
		}), by("O9-nothing-is-claimed-while-it-is-claimed", "O12-two-claimers-never-have-one-operation")},
		{"a number repeats", breaking(func(w *wrap) { renumber(w, func(j operation.Job) int64 { return int64(j.Ordinal) }) }),
			by("O18-numbers-rise-across-operations-and-attempts", "everything-at-once")},
		{"numbers fall", breaking(func(w *wrap) { renumber(w, func(j operation.Job) int64 { return 1<<40 - int64(j.Number) }) }),
			by("O18-numbers-rise-across-operations-and-attempts")},
		{"an attempt is recorded when it ends", breaking(func(w *wrap) {
			w.told = func(rec *operation.Record) {
				if rec.State == operation.Attempting {
					rec.State, rec.Step, rec.Attempts = operation.Pending, operation.Work, rec.Attempts[:len(rec.Attempts)-1]
				}
			}
		}), by("an-attempt-is-recorded-before-it-is-told")},
		{"the limit of a kind is ignored", breaking(func(w *wrap) { w.kinds(func(k *operation.KindClaim) { k.Limit = operation.MaxBatch }) }), by("a-claim-keeps-its-limits")},
		{"the limit in all is ignored", breaking(func(w *wrap) {
			w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
				req.Limit = min(req.Limit*operation.MaxBatch, operation.MaxBatch)
				return w.inner.Claim(ctx, req)
			}
		}), by("a-claim-keeps-its-limits")},
		{"a claim of one operation takes any", breaking(func(w *wrap) {
			w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
				req.ID = ""
				return w.inner.Claim(ctx, req)
			}
		}), by("a-claim-of-one-operation-takes-no-other")},
		{"unknown kinds are discarded", breaking(func(w *wrap) {
			w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
				for _, rec := range w.all(ctx) {
					if !slices.ContainsFunc(req.Kinds, func(k operation.KindClaim) bool { return k.Kind == rec.Kind }) {
						_, _ = w.inner.Cancel(ctx, rec.ID, "unknown kind")
					}
				}
				return w.inner.Claim(ctx, req)
			}
		}), by("O4-unknown-kinds-are-left-alone")},
		{"what is decided is claimed", breaking(func(w *wrap) {
			inner := w.claim
			w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
				jobs, err := inner(ctx, req)
				for _, rec := range w.all(ctx) {
					if rec.State == operation.Failed {
						jobs = append(jobs, operation.Job{Ref: operation.Ref{ID: rec.ID, Number: 1 << 40}, Kind: rec.Kind, Ordinal: 2, Remaining: req.TTL, TimeLeft: req.TTL})
					}
				}
				return jobs, err
			}
		}), by("nothing-decided-is-claimed", "an-operation-past-its-instant-has-failed-if-it-has-had-no-effect")},
	}
}

func boundTwins() []twin {
	return []twin{
		{"attempts that were not sent count", breaking(countUnsent), by("attempts-that-were-not-sent-do-not-count")},
		{"attempts are not bounded", breaking(func(w *wrap) { w.kinds(func(k *operation.KindClaim) { k.MaxAttempts = operation.MaxAttempts }) }),
			by("attempts-without-effect-are-bounded", "attempts-after-an-unknown-outcome-are-bounded")},
		{"attempts carry no instant", breaking(func(w *wrap) { w.kinds(func(k *operation.KindClaim) { k.NotAfter = 0 }) }),
			by("an-operation-past-its-instant-has-failed-if-it-has-had-no-effect", "no-attempt-follows-after-the-instant-that-was-carried", "that-the-instant-has-passed-is-refused-before-it-has")},
		{"a retry is not put off", breaking(func(w *wrap) { w.answers(func(c *operation.Completion) { c.RetryIn = min(c.RetryIn, 0) }) }),
			by("retry-in-puts-the-next-attempt-off", "a-retry-put-off-beyond-the-window-is-an-inquiry", "O45-inquiries-are-paced-by-who-asks")},
		{"a job has no request", breaking(func(w *wrap) { w.jobs(func(j *operation.Job) { j.Request = nil }) }), by("a-job-tells-what-was-submitted", "bodies-of-64-KiB-and-of-the-limit-are-kept-byte-by-byte")},
		{"a second attempt is told as sure", breaking(func(w *wrap) { w.jobs(func(j *operation.Job) { j.Unsure = false }) }),
			by("within-its-window-an-unknown-outcome-is-attempted-again", "a-window-without-end-has-none", "an-attempt-survives-a-restart-as-one-that-may-have-sent")},
	}
}

// renumber tells attempts by other numbers than the inner store knows.
func renumber(w *wrap, number func(j operation.Job) int64) {
	type try struct {
		id     string
		number int64
	}
	inner, told := map[try]int64{}, map[try]int64{}
	w.jobs(func(j *operation.Job) {
		w.mu.Lock()
		defer w.mu.Unlock()
		n := number(*j)
		inner[try{j.ID, n}], told[try{j.ID, int64(j.Number)}] = int64(j.Number), n
		setNumber(&j.Ref, n)
	})
	back := func(ref *operation.Ref) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n, ok := inner[try{ref.ID, int64(ref.Number)}]; ok {
			setNumber(ref, n)
		}
	}
	w.answers(func(c *operation.Completion) { back(&c.Ref) })
	w.told = func(rec *operation.Record) {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range rec.Attempts {
			ref := operation.Ref{Number: rec.Attempts[i].Number}
			setNumber(&ref, told[try{rec.ID, int64(ref.Number)}])
			rec.Attempts[i].Number = ref.Number
		}
	}
}

func windowTwins() []twin {
	year := 365 * 24 * time.Hour
	return []twin{
		{"the window is ignored", breaking(func(w *wrap) { w.kinds(func(k *operation.KindClaim) { k.Window = operation.Forever }) }),
			by("without-a-window-an-unknown-outcome-is-asked-about", "what-can-neither-be-attempted-nor-asked-about-is-idle", "beyond-its-window-no-attempt-follows", "a-worker-with-a-narrower-window-turns-to-asking")},
		{"no attempt follows an unknown one", breaking(func(w *wrap) { w.kinds(func(k *operation.KindClaim) { k.Window = 0 }) }),
			by("within-its-window-an-unknown-outcome-is-attempted-again", "a-window-without-end-has-none")},
		{"the window leaves no room for the attempt", breaking(func(w *wrap) {
			w.kinds(func(k *operation.KindClaim) {
				if k.Window > 0 && k.Window < operation.Forever {
					k.Window += k.Timeout
				}
			})
		}), by("an-attempt-that-would-end-beyond-the-window-is-not-begun", "the-window-holds-at-equality")},
		{"the window counts from the latest attempt", breaking(func(w *wrap) {
			w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
				var since time.Duration
				for _, rec := range w.all(ctx) {
					if n := len(rec.Attempts); n > 0 {
						since = rec.Attempts[0].Began - rec.Attempts[n-1].Began
					}
				}
				for i := range req.Kinds {
					if k := &req.Kinds[i]; k.Window > 0 && k.Window < year {
						k.Window += since
					}
				}
				return w.inner.Claim(ctx, req)
			}
		}), by("the-window-counts-from-the-first-attempt")},
		{"nothing can be asked about", breaking(func(w *wrap) { w.kinds(func(k *operation.KindClaim) { k.Asks = false }) }),
			by("without-a-window-an-unknown-outcome-is-asked-about", "O47-an-expired-attempt-is-asked-about-and-decided", "what-is-wished-away-is-asked-about-rather-than-attempted")},
		{"everything is asked about", breaking(func(w *wrap) { w.kinds(func(k *operation.KindClaim) { k.Asks = true }) }),
			by("what-can-neither-be-attempted-nor-asked-about-is-idle", "statistics-count-what-is-undecided-and-what-needs-an-operator")},
		{"without end is taken for a year", breaking(func(w *wrap) { w.kinds(func(k *operation.KindClaim) { k.Window = min(k.Window, year) }) }), by("a-window-without-end-has-none")},
		{"a retry forgets the window", breaking(func(w *wrap) {
			w.told = func(rec *operation.Record) {
				if rec.State == operation.Uncertain && rec.StepIn > time.Minute {
					rec.Step = operation.Work
				}
			}
		}), by("a-retry-put-off-beyond-the-window-is-an-inquiry")},
	}
}

// countUnsent allows no attempt after as many as there may be, whatever became of them.
func countUnsent(w *wrap) {
	w.claim = func(ctx context.Context, req operation.ClaimRequest) ([]operation.Job, error) {
		req.Kinds = slices.Clone(req.Kinds)
		for i := range req.Kinds {
			k := &req.Kinds[i]
			if slices.ContainsFunc(w.all(ctx), func(rec operation.Record) bool { return rec.Kind == k.Kind && len(rec.Attempts) >= k.MaxAttempts }) {
				k.MaxAttempts = 1
			}
		}
		return w.inner.Claim(ctx, req)
	}
}
