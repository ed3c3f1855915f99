package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func cutCases() []Case[Harness] {
	return []Case[Harness]{
		plain("an-append-that-was-cut-off-is-settled-by-repeating-it", appendCutOff),
		plain("a-settlement-that-was-cut-off-is-settled-by-repeating-it", settleCutOff),
		plain("what-a-claim-that-was-cut-off-has-got-comes-again", claimCutOff),
	}
}

// cut runs a call whose context ends while it may be under way, and returns an error unless it was done, or says that it was not, or may have been.
func (s *stage) cut(i int, call func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	timer := time.AfterFunc(time.Duration(i)*100*time.Microsecond, cancel)
	defer timer.Stop()
	err := call(ctx)
	if err == nil || errors.Is(err, outbox.ErrUnavailable) || errors.Is(err, outbox.ErrUnknown) {
		return nil
	}
	return fmt.Errorf("cut off after %d00 us: %w", i, err)
}

func appendCutOff(s *stage) {
	const callers = 20
	s.atOnce(callers, func(i int) error {
		messages := []outbox.Message{note(fmt.Sprint("a", i), mail), ordered(fmt.Sprint("b", i), mail, fmt.Sprint("k", i)), ordered(fmt.Sprint("c", i), mail, fmt.Sprint("k", i))}
		call := func(ctx context.Context) error {
			_, err := s.store.Append(ctx, messages)
			return err
		}
		if err := s.cut(i, call); err != nil {
			return err
		}
		return call(s.ctx)
	})
	got := s.claim(request("x"))
	s.want(s.failed() || len(got.Deliveries) == 3*callers, "of %d messages %d were handed out", 3*callers, len(got.Deliveries))
}

func settleCutOff(s *stage) {
	const callers = 20
	var all []string
	for i := range callers {
		all = append(all, fmt.Sprint("a", i), fmt.Sprint("b", i))
	}
	s.append(notes(all...)...)
	s.take("x", all...)
	s.atOnce(callers, func(i int) error {
		req := outbox.SettleRequest{Claim: claimOf("x"), Verdicts: []outbox.Verdict{s.verdict(fmt.Sprint("a", i), outbox.Published), s.verdict(fmt.Sprint("b", i), outbox.Failed)}}
		call := func(ctx context.Context) error {
			done, err := s.store.Settle(ctx, req)
			if err == nil && done.Applied != 2 {
				return fmt.Errorf("settling again: %+v", done)
			}
			return err
		}
		if err := s.cut(i, call); err != nil {
			return err
		}
		return call(s.ctx)
	})
	for i := range callers {
		s.at(fmt.Sprint("a", i), outbox.Delivered, 1)
		s.errorsOf(s.at(fmt.Sprint("b", i), outbox.Pending, 1), fmt.Sprint("1 no b", i))
	}
}

func claimCutOff(s *stage) {
	const callers = 10
	var all []string
	for i := range 5 * callers {
		all = append(all, fmt.Sprint("m", i))
	}
	s.append(notes(all...)...)
	var mu sync.Mutex
	told := 0
	s.atOnce(callers, func(i int) error {
		return s.cut(i, func(ctx context.Context) error {
			req := request(fmt.Sprint("x", i))
			req.Limit = 5
			b, err := s.store.Claim(ctx, req)
			mu.Lock()
			defer mu.Unlock()
			told += len(b.Deliveries)
			return err
		})
	})
	s.advance(past)
	got := s.claim(request("y"))
	s.want(s.failed() || len(got.Deliveries) == len(all), "of %d messages, of which claims that may have been cut off were told %d, %d come again", len(all), told, len(got.Deliveries))
}
