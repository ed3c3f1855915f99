package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func wakerCases() []Case[WakerHarness] {
	return []Case[WakerHarness]{
		named("an-append-wakes-who-waits", appendWakes),
		named("who-waits-for-nothing-waits-as-long-as-it-said", waitsInVain),
		named("what-is-held-up-wakes-nobody-all-the-time", heldUpWakesNobody),
		named("what-is-of-anothers-topic-wakes-nobody-all-the-time", othersTopics),
		named("a-wait-ends-with-its-context", waitEnds),
	}
}

const patience = 30 * time.Second // for what comes at once; on a store that takes so long nothing can be asserted

const soon = 3 * time.Second // for what needs no store

func appendWakes(s *stage, h WakerHarness) {
	s.none("x")
	type hint struct {
		woken bool
		err   error
	}
	hints := make(chan hint, 1)
	go func() {
		woken, err := h.Waker().Await(s.ctx, patience)
		hints <- hint{woken, err}
	}()
	// The wait may not have begun: what was appended since the last claim counts.
	s.append(notes("a")...)
	got := <-hints
	s.want(got.err == nil && got.woken, "waiting while a message was appended: %v, %v; want a hint", got.woken, got.err)
	s.take("y", "a")
}

func waitsInVain(s *stage, h WakerHarness) {
	s.waits(h)
	for _, d := range []time.Duration{-1, outbox.MaxTTL + 1} {
		if _, err := h.Waker().Await(s.ctx, d); !errors.Is(err, outbox.ErrInvalid) {
			s.fail("waiting for %v: %v", d, err)
		}
	}
}

// waits demands that five waits for nothing, each after a claim that gets nothing, take some time: a hint may be wrong, but not every time.
func (s *stage) waits(h WakerHarness, topics ...string) {
	began := time.Now()
	const short = 50 * time.Millisecond
	woken := true
	for i := 0; i < 5 && woken && !s.failed(); i++ {
		req := request(fmt.Sprint("w", len(topics), i))
		req.Topics = topics
		s.takes(req)
		var err error
		if woken, err = h.Waker().Await(s.ctx, short); err != nil {
			s.fail("waiting: %w", err)
		}
	}
	took := time.Since(began)
	s.want(!woken && took >= short && took < patience, "waits for nothing of up to %v took %v; the last was woken: %v", short, took, woken)
}

func heldUpWakesNobody(s *stage, h WakerHarness) {
	s.append(slices.Concat(line("k", "1", "2"), line("l", "3", "4"), []outbox.Message{note("5", bill)})...)
	s.take("x", "1", "2", "3", "4", "5")
	failed := s.verdict("1", outbox.Failed)
	failed.RetryIn = time.Hour
	s.settles("x", nil, failed, s.verdict("3", outbox.Published), s.verdict("5", outbox.Returned))
	s.append(line("l", "6")...)
	s.pause(bill, true, "for a while")
	s.waits(h)
}

func othersTopics(s *stage, h WakerHarness) {
	s.append(note("a", bill))
	s.waits(h, mail) // a relay that asks for nothing else, while nobody asks for the other
	s.take("x", "a")
}

func waitEnds(s *stage, h WakerHarness) {
	s.none("x")
	ctx, cancel := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = h.Waker().Await(ctx, outbox.MaxTTL) // what it says does not matter: it returns
	}()
	cancel()
	select {
	case <-ended:
	case <-time.After(soon):
		s.fail("a wait goes on %v after its context has ended", soon)
	}
}
