package operationtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/operation"
)

// cuts are the times after which a call is cut off: from before it began to well within its commit.
func cuts() []time.Duration {
	var all []time.Duration
	for d := time.Duration(0); d < 2*time.Millisecond; d += 80 * time.Microsecond {
		all = append(all, d)
	}
	return all
}

// cutOff runs a call that is cut off after d, and reports whether it was certainly not applied.
func (s *stage) cutOff(d time.Duration, doing string, call func(ctx context.Context) error) (not bool) {
	if s.failed() {
		return false
	}
	ctx, cancel := context.WithTimeout(s.ctx, d)
	defer cancel()
	err := call(ctx)
	s.want(err == nil || errors.Is(err, operation.ErrUnknown) || errors.Is(err, operation.ErrUnavailable), "%s, cut off: %v; want success, ErrUnknown or ErrUnavailable", doing, err)
	return errors.Is(err, operation.ErrUnavailable)
}

func cutOffRepeated(s *stage) {
	for i, d := range cuts() {
		id := fmt.Sprint("o", i)
		if s.cutOff(d, "a submission", func(ctx context.Context) error { _, err := s.store.Submit(ctx, request(id)); return err }) {
			_, err := s.store.Get(s.ctx, id)
			s.kind(err, operation.ErrNotFound, "getting what was certainly not submitted")
		}
		s.settled(request(id))
		not := s.cutOff(d, "a claim", func(ctx context.Context) error { _, err := s.store.Claim(ctx, claiming(repeating())); return err })
		rec := s.get(id)
		s.want(!not || rec.State == operation.Pending, "a claim that was certainly not applied has begun %q: %+v", id, rec)
		j := s.reclaimed(id)
		report := operation.Completion{Ref: j.Ref, Answer: effective("r")}
		not = s.cutOff(d, "a completion", func(ctx context.Context) error {
			errs, err := s.store.Complete(ctx, []operation.Completion{report})
			if err == nil {
				err = errs[0]
			}
			return err
		})
		rec = s.get(id)
		s.want(!not || rec.State == operation.Attempting, "a completion that was certainly not applied has moved %q: %+v", id, rec)
		if err := s.completing(j.Ref, report.Answer, 0); err != nil { // it was recorded, perhaps only now
			s.staleError(err, j.Ref, j.Number)
		}
		rec = s.get(id)
		s.want(rec.State == operation.Succeeded && string(rec.Result) == "r" && rec.ConflictCount == 0, "after a repetition: %+v", rec)
	}
}

// settled submits what may have been submitted. A claim that was cut off in an earlier round may arrive only now, and begin it.
func (s *stage) settled(req operation.SubmitRequest) {
	if s.failed() {
		return
	}
	sub, err := s.store.Submit(s.ctx, req)
	s.want(err == nil && sub.ID == req.ID && (sub.State == operation.Pending || sub.State == operation.Attempting), "submitting again what was cut off: %+v, %v", sub, err)
}

// reclaimed claims an operation that a claim which was cut off may have, or may still get: nobody works on that one.
func (s *stage) reclaimed(id string) operation.Job {
	for range 5 {
		if jobs := s.claim(claiming(repeating())); len(jobs) == 1 && jobs[0].ID == id {
			return jobs[0]
		}
		s.advance(past)
		if s.failed() {
			break
		}
		if _, err := s.store.Expire(s.ctx, operation.MaxBatch); err != nil {
			s.fail("expiring: %w", err)
		}
	}
	s.fail("%q is claimed by nobody, and cannot be claimed", id)
	return operation.Job{}
}
