package outboxtest

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// Case is one guarantee. Run returns an error that says which step found it broken, or nil.
type Case[H any] struct {
	Name string
	Run  func(ctx context.Context, h H) error
}

// Harness is one fresh store of messages, used by one case.
type Harness interface {
	// Store returns the store under test, always the same one unless the harness was restarted.
	Store() outbox.Store
	// Office returns the operator's side of the same store.
	Office() outbox.Office
	// Advance makes it as if d, which is not negative, had passed: for instance by moving every stored instant back by d. No other call runs meanwhile. At its end a case moves it by more than a month.
	Advance(ctx context.Context, d time.Duration) error
	// Check looks at the whole store for what must never be, beyond what its replies show: such as a row of a key that is not what its messages are.
	Check(ctx context.Context) error
}

// ManualHarness is a store whose clock moves by Tick alone.
type ManualHarness interface {
	Harness
	// Tick moves the store's clock forward by exactly d.
	Tick(d time.Duration)
}

// DurableHarness is a harness of a store that outlives its processes.
type DurableHarness interface {
	Harness
	// Restart ends every process of the store as kill -9 would and opens the store again. Store and Office then return the new one.
	Restart(ctx context.Context) error
}

// TransactionHarness is a harness of a store that appends in a caller's transaction.
type TransactionHarness interface {
	Harness
	// Begin begins a transaction of the caller's own, on a connection of its own.
	Begin(ctx context.Context) (Tx, error)
}

// Tx is a caller's transaction. It is used by one goroutine, and ended by Commit or Rollback.
type Tx interface {
	Append(ctx context.Context, messages []outbox.Message) ([]fence.ID, error)
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// WakerHarness is a harness of a store that can say that there may be something to claim.
type WakerHarness interface {
	Harness
	// Waker returns the same store.
	Waker() outbox.Waker
}
