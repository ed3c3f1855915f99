package outboxtest

import (
	"context"
	"errors"
	"time"

	"github.com/tenure-go/tenure/outbox"
)

func wakerCases() []Case[WakerHarness] {
	return []Case[WakerHarness]{
		named("an-append-wakes-who-waits", appendWakes),
		named("who-waits-for-nothing-waits-as-long-as-it-said", waitsInVain),
		named("a-wait-ends-with-its-context", waitEnds),
	}
}

const patience = 30 * time.Second // for what comes at once; on a store that takes so long nothing can be asserted

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
	s.none("x")
	began := time.Now()
	const short = 50 * time.Millisecond
	for range 5 { // a hint may be wrong, but not every time
		woken, err := h.Waker().Await(s.ctx, short)
		if err != nil {
			s.fail("waiting: %w", err)
			return
		}
		if !woken {
			break
		}
	}
	took := time.Since(began)
	s.want(took >= short && took < patience, "five waits for nothing of up to %v took %v", short, took)
	if _, err := h.Waker().Await(s.ctx, -1); !errors.Is(err, outbox.ErrInvalid) {
		s.fail("waiting for less than no time: %v", err)
	}
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
	case <-time.After(patience):
		s.fail("a wait goes on %v after its context has ended", patience)
	}
}
