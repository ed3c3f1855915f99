package operationtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/operation"
)

func raceCases() []Case[Harness] {
	return []Case[Harness]{
		plain("O19-a-hundred-submissions-of-one-id-are-one-operation", hundredSubmissions),
		plain("O12-two-claimers-never-have-one-operation", twoClaimers),
		plain("O12-of-two-recoverers-one-ends-an-attempt", twoRecoverers),
		plain("two-reconcilers-are-never-handed-the-same", twoReconcilers),
		plain("a-completion-and-an-expiry-at-once-agree", completionOrExpiry),
		plain("of-many-completions-at-once-one-counts", manyCompletions),
		plain("of-many-answers-at-once-one-decides-and-the-others-are-conflicts", manyAnswers),
		plain("a-claim-and-a-cancel-at-once-agree", claimOrCancel),
		plain("a-decision-and-a-compensation-at-once-agree", decisionOrCompensation),
		plain("order-is-kept-with-many-workers", orderWithWorkers),
		plain("everything-at-once", everythingAtOnce),
		plain("a-call-that-was-cut-off-is-settled-by-repeating-it", cutOffRepeated),
	}
}

// atOnce runs n calls at the same time, and demands that none fails.
func (s *stage) atOnce(n int, call func(i int) error) {
	if s.failed() {
		return
	}
	errs := make([]error, n)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gate
			errs[i] = call(i)
		})
	}
	close(gate)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.fail("at once: %w", err)
	}
}

// completeOne reports an answer from any goroutine.
func (s *stage) completeOne(ref operation.Ref, a operation.Answer) error {
	errs, err := s.store.Complete(s.ctx, []operation.Completion{{Ref: ref, Answer: a}})
	if err != nil {
		return err
	}
	return errs[0]
}

func hundredSubmissions(s *stage) {
	const n = 100
	var mu sync.Mutex
	fresh := 0
	s.atOnce(n, func(i int) error {
		req := request("o")
		if i%10 == 9 { // somebody takes the id for something else
			req = requestOf(other, "o")
		}
		sub, err := s.store.Submit(s.ctx, req)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil && !sub.Known:
			fresh++
		case err != nil && !errors.Is(err, operation.ErrMismatch):
			return fmt.Errorf("submission %d: %w", i, err)
		}
		return nil
	})
	s.want(fresh == 1, "%d of %d submissions of one id were told as new; want 1", fresh, n)
	s.want(len(s.claim(claiming(asking(), of(other, asking())))) == 1, "not one operation came of it")
}

func twoClaimers(s *stage) {
	const n, claimers = 120, 4
	for i := range n {
		s.submit(fmt.Sprintf("o%03d", i))
	}
	var mu sync.Mutex
	times := map[string]int{}
	s.atOnce(claimers, func(i int) error {
		req := claiming(repeating())
		req.Worker, req.Limit = fmt.Sprint("w", i), 7
		empty := 0
		for range n {
			if empty == 3 {
				break
			}
			jobs, err := s.store.Claim(s.ctx, req)
			if err != nil {
				return err
			}
			if len(jobs) == 0 { // others may hold what is left at this moment
				empty++
			}
			mu.Lock()
			for _, j := range jobs {
				times[j.ID]++
			}
			mu.Unlock()
		}
		return nil
	})
	for _, j := range s.claim(claiming(repeating())) { // what was skipped
		times[j.ID]++
	}
	s.want(len(times) == n, "%d of %d were claimed", len(times), n)
	for id, k := range times {
		s.want(k == 1, "%q was claimed %d times", id, k)
	}
}

func twoRecoverers(s *stage) {
	const n = 60
	for i := range n {
		s.submit(fmt.Sprintf("o%03d", i))
	}
	s.want(len(s.claim(claiming(asking()))) == n, "not all were claimed")
	s.advance(past)
	var mu sync.Mutex
	total := 0
	s.atOnce(4, func(int) error {
		for range 20 {
			k, err := s.store.Expire(s.ctx, 5)
			if err != nil {
				return err
			}
			mu.Lock()
			total += k
			mu.Unlock()
		}
		return nil
	})
	if !s.failed() { // what others held at that moment
		k, err := s.store.Expire(s.ctx, operation.MaxBatch)
		s.want(err == nil, "expiring: %v", err)
		total += k
	}
	s.want(total == n, "%d expiries of %d attempts were told", total, n)
	for i := range n {
		s.at(fmt.Sprintf("o%03d", i), operation.Uncertain, operation.Ask, operation.NoAnswer)
	}
}

func twoReconcilers(s *stage) {
	const n = 60
	for i := range n {
		s.submit(fmt.Sprintf("o%03d", i))
	}
	for _, j := range s.claim(claiming(asking())) {
		s.complete(j, noAnswer())
	}
	var mu sync.Mutex
	times := map[string]int{}
	due := func(limit int) (int, error) {
		recs, err := s.store.Due(s.ctx, operation.DueRequest{Kinds: []string{kind}, Limit: limit, Hold: long})
		mu.Lock()
		defer mu.Unlock()
		for _, rec := range recs {
			times[rec.ID]++
		}
		return len(recs), err
	}
	s.atOnce(4, func(int) error {
		for range 20 {
			if _, err := due(5); err != nil {
				return err
			}
		}
		return nil
	})
	if !s.failed() {
		_, err := due(n)
		s.want(err == nil, "asking what is due: %v", err)
	}
	s.want(len(times) == n, "%d of %d were handed out", len(times), n)
	for id, k := range times {
		s.want(k == 1, "%q was handed out %d times", id, k)
	}
}

func completionOrExpiry(s *stage) {
	const n = 30
	for i := range n {
		s.submit(fmt.Sprintf("o%03d", i))
	}
	jobs := s.claim(claiming(asking()))
	s.advance(past)
	errs := make([]error, len(jobs))
	s.atOnce(len(jobs)+4, func(i int) error {
		if i >= len(jobs) {
			for range 10 {
				if _, err := s.store.Expire(s.ctx, 3); err != nil {
					return err
				}
			}
			return nil
		}
		errs[i] = s.completeOne(jobs[i].Ref, effective("r"))
		return nil
	})
	for i, j := range jobs {
		if errs[i] == nil {
			s.at(j.ID, operation.Succeeded, operation.Idle, operation.Effective)
			continue
		}
		s.staleError(errs[i], j.Ref, j.Number)
		s.at(j.ID, operation.Uncertain, operation.Ask, operation.NoAnswer)
	}
}

func manyCompletions(s *stage) {
	for round := range 5 {
		id := fmt.Sprint("o", round)
		j := s.begun(id, asking())
		var mu sync.Mutex
		var counted []string
		s.atOnce(8, func(i int) error {
			err := s.completeOne(j.Ref, effective(fmt.Sprint(i)))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				counted = append(counted, fmt.Sprint(i))
			} else if !errors.Is(err, operation.ErrStale) {
				return err
			}
			return nil
		})
		rec := s.at(id, operation.Succeeded, operation.Idle, operation.Effective)
		s.want(slices.Equal(counted, []string{string(rec.Result)}) && rec.ConflictCount == 0, "of 8 completions at once %v were told as recorded, and the result is %q", counted, rec.Result)
	}
}

func manyAnswers(s *stage) {
	for round := range 5 {
		id := fmt.Sprint("o", round)
		j := s.begun(id, asking())
		s.complete(j, noAnswer())
		var mu sync.Mutex
		var decided []string
		s.atOnce(8, func(i int) error {
			_, err := s.store.Respond(s.ctx, operation.Response{ID: id, Number: j.Number, Answer: effective(fmt.Sprint(i))})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				decided = append(decided, fmt.Sprint(i))
			} else if !errors.Is(err, operation.ErrStale) && !errors.Is(err, operation.ErrDecided) {
				return err
			}
			return nil
		})
		rec := s.at(id, operation.Succeeded, operation.Idle, operation.Effective)
		s.want(slices.Equal(decided, []string{string(rec.Result)}) && rec.ConflictCount == 7 && len(rec.Conflicts) == 7, "of 8 answers at once %v decided; the result is %q, with %d conflicts", decided, rec.Result, rec.ConflictCount)
	}
}

func claimOrCancel(s *stage) {
	const n = 30
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("o%03d", i)
		s.submit(ids[i])
	}
	var mu sync.Mutex
	claimed := map[string]operation.Job{}
	claim := func(limit int) error {
		req := claiming(asking())
		req.Limit = limit
		jobs, err := s.store.Claim(s.ctx, req)
		mu.Lock()
		defer mu.Unlock()
		for _, j := range jobs {
			claimed[j.ID] = j
		}
		return err
	}
	told := make([]operation.Record, n)
	s.atOnce(n+4, func(i int) (err error) {
		if i >= n {
			for range 10 {
				if err := claim(2); err != nil {
					return err
				}
			}
			return nil
		}
		told[i], err = s.store.Cancel(s.ctx, ids[i], "not wanted")
		return err
	})
	for i, id := range ids {
		if j, ok := claimed[id]; ok {
			s.want(told[i].CancelWished && told[i].State == operation.Attempting, "%q was claimed, and its cancel answered %+v", id, told[i])
			s.complete(j, notSent())
		} else {
			s.want(told[i].State == operation.Cancelled, "%q was not claimed, and its cancel answered %+v", id, told[i])
		}
		s.want(s.get(id).State == operation.Cancelled, "%q is %v", id, s.get(id).State)
	}
	s.nothing(asking())
}

func decisionOrCompensation(s *stage) {
	for round := range 10 {
		id := fmt.Sprint("o", round)
		s.complete(s.begun(id, mute()), noAnswer())
		state := []operation.State{operation.Succeeded, operation.Failed}[round%2]
		var refunded error
		s.atOnce(2, func(i int) (err error) {
			if i == 0 {
				_, err = s.store.Resolve(s.ctx, operation.Verdict{ID: id, State: state, Reason: "seen"})
				return err
			}
			_, refunded = s.store.Submit(s.ctx, compensation("undoes "+id, id))
			return nil
		})
		_, err := s.store.Get(s.ctx, "undoes "+id)
		switch {
		case refunded == nil:
			s.want(state == operation.Succeeded && err == nil, "a compensation of what has %v was taken: %v", state, err)
		case errors.Is(refunded, operation.ErrUndecided), errors.Is(refunded, operation.ErrDecided) && state == operation.Failed:
			s.kind(err, operation.ErrNotFound, "getting a compensation that was refused")
		default:
			s.fail("a compensation of what is being resolved: %w", refunded)
		}
	}
}

func orderWithWorkers(s *stage) {
	const keys, each = 6, 8
	for i := range keys * each {
		s.submitted(ordered([]string{kind, other}[i%2], fmt.Sprintf("o%03d", i), fmt.Sprint("k", i/each)))
	}
	var mu sync.Mutex
	begun, open := map[string][]string{}, map[string]string{}
	total := 0
	s.atOnce(4, func(int) error {
		for range 100 * keys * each {
			mu.Lock()
			if total == keys*each {
				mu.Unlock()
				return nil
			}
			mu.Unlock()
			req := claiming(asking(), of(other, asking()))
			req.Limit = 3
			jobs, err := s.store.Claim(s.ctx, req)
			if err != nil {
				return err
			}
			mu.Lock()
			for _, j := range jobs {
				if open[j.Order] != "" {
					err = fmt.Errorf("%q was begun while %q of the same order was at work", j.ID, open[j.Order])
				}
				begun[j.Order], open[j.Order] = append(begun[j.Order], j.ID), j.ID
				total++
			}
			mu.Unlock()
			for _, j := range jobs {
				if err != nil {
					return err
				}
				mu.Lock()
				open[j.Order] = "" // before it is completed: the next may be begun as soon as it is
				mu.Unlock()
				if err := s.completeOne(j.Ref, effective("r")); err != nil {
					return err
				}
			}
		}
		return errors.New("it does not come to an end")
	})
	for key, ids := range begun {
		s.want(slices.IsSorted(ids) && len(ids) == each, "of order %q were begun, one after the other, %q", key, ids)
	}
}

// everythingAtOnce is for the checks of every reply, and of the store at the end.
func everythingAtOnce(s *stage) {
	const parties, rounds, ids = 6, 40, 12
	s.atOnce(parties, func(p int) error {
		for i := range rounds {
			n := p*31 + i*17
			id := fmt.Sprintf("o%02d", n%ids)
			for _, err := range s.anything(id, n) {
				if err != nil && !expected(err) {
					return fmt.Errorf("party %d, round %d, %s: %w", p, i, id, err)
				}
			}
		}
		return nil
	})
}

// expected reports whether an answer may come when others act on the same operation.
func expected(err error) bool {
	for _, kind := range []error{operation.ErrDecided, operation.ErrUndecided, operation.ErrStale, operation.ErrNotFound, operation.ErrMismatch, operation.ErrInvalid} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

func (s *stage) anything(id string, n int) []error {
	req := request(id)
	req.Order = []string{"", "k"}[n%2]
	_, submitted := s.store.Submit(s.ctx, req)
	rec, got := s.store.Get(s.ctx, id)
	claim := claiming([]operation.KindClaim{repeating(), asking()}[n%2])
	claim.Limit = 2
	jobs, claimed := s.store.Claim(s.ctx, claim)
	errs := []error{submitted, got, claimed}
	add := func(err error) { errs = append(errs, err) }
	for i, j := range jobs {
		answers := []operation.Answer{effective("r"), noAnswer(), notSent(), refused("not now"), final("no")}
		if i > 0 { // it is left to expire
			continue
		}
		add(s.completeOne(j.Ref, answers[n%len(answers)]))
	}
	switch n % 7 {
	case 0:
		_, err := s.store.Cancel(s.ctx, id, "not wanted")
		add(err)
	case 1:
		_, err := s.store.Respond(s.ctx, operation.Response{ID: id, Number: rec.Current(), Answer: effective(fmt.Sprint(n % 3))})
		add(err)
	case 2:
		add(s.h.Advance(s.ctx, past))
		_, err := s.store.Expire(s.ctx, 5)
		add(err)
	case 3:
		recs, err := s.store.Due(s.ctx, operation.DueRequest{Kinds: []string{kind}, Limit: 3, Hold: time.Second})
		add(err)
		for _, r := range recs {
			_, err := s.store.Inquired(s.ctx, operation.Inquiry{ID: r.ID, Finding: operation.NotObserved})
			add(err)
		}
	case 4:
		_, err := s.store.Resolve(s.ctx, operation.Verdict{ID: id, State: operation.Failed, Reason: "seen"})
		add(err)
	case 5:
		_, err := s.store.Submit(s.ctx, compensation("undoes "+id, id))
		add(err)
	case 6:
		_, err := s.store.Renew(s.ctx, operation.RenewRequest{Refs: []operation.Ref{{ID: id, Number: rec.Current()}}, TTL: ttl})
		add(err)
		_, err = s.store.Stats(s.ctx)
		add(err)
	}
	return errs
}
