package holdtest

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// Case is one guarantee. Run returns an error that says which step found it broken, or nil.
type Case[H any] struct {
	Name string
	Run  func(ctx context.Context, h H) error
}

// Harness is one fresh store of holds, used by one case.
type Harness interface {
	// Store returns the store under test, always the same one unless the harness was restarted.
	Store() hold.Store
	// Office returns the operator's side of the same store.
	Office() hold.Office
	// Advance makes it as if d, which is not negative, had passed: for instance by moving every stored instant back by d. No other call runs meanwhile.
	Advance(ctx context.Context, d time.Duration) error
	// Check looks at the whole store for what must never be, beyond what its replies show: such as a counter that is not the sum of what it counts.
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
