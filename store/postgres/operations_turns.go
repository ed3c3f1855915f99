package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/lease"
)

// opTurns lets few calls at a time take a connection to wait with for what a transaction has locked: one for each operation or order, and half of the pool's connections in all.
// Whoever waits longer, beside a transaction that is open for long, waits here, and claims, renewals and completions of strangers find a connection.
type opTurns struct {
	half chan struct{}

	mu   sync.Mutex
	keys map[string]*opTurn
}

// opTurn is the turn at one key.
type opTurn struct {
	taken  chan struct{}
	asking int // that have it, or wait for it; guarded by opTurns.mu
}

func newOpTurns(conns int) *opTurns {
	return &opTurns{half: make(chan struct{}, max(conns/2, 1)), keys: map[string]*opTurn{}}
}

// take returns when it is the caller's turn at key, who gives it back, or with a [*lease.UnavailableError] when ctx has ended before.
func (t *opTurns) take(ctx context.Context, op, key string) (give func(), err error) {
	mine := t.ask(key)
	for i, turn := range []chan struct{}{mine.taken, t.half} {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			if i > 0 {
				<-mine.taken
			}
			t.left(key, mine)
			return nil, &lease.UnavailableError{Op: op, Err: fmt.Errorf("%w while waiting for its turn", context.Cause(ctx))}
		}
	}
	return func() {
		<-t.half
		<-mine.taken
		t.left(key, mine)
	}, nil
}

func (t *opTurns) ask(key string) *opTurn {
	t.mu.Lock()
	defer t.mu.Unlock()
	turn := t.keys[key]
	if turn == nil {
		turn = &opTurn{taken: make(chan struct{}, 1)}
		t.keys[key] = turn
	}
	turn.asking++
	return turn
}

func (t *opTurns) left(key string, turn *opTurn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if turn.asking--; turn.asking == 0 {
		delete(t.keys, key)
	}
}
