package leasetest

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Case is one guarantee. Run returns an error that says which step found it broken, or nil.
type Case[H any] struct {
	Name string
	Run  func(ctx context.Context, h H) error
}

// Harness is one fresh authority, used by one case.
type Harness interface {
	// Store returns the store under test, always the same one unless the harness was restarted.
	Store() lease.Store
	// Advance makes it as if d had passed, by moving every stored instant back by d. d may be negative.
	Advance(ctx context.Context, d time.Duration) error
	// Check looks at the whole store for what must never be, such as two valid leases of one name.
	Check(ctx context.Context) error
}

// ManualHarness is an authority whose clock moves by Tick alone.
type ManualHarness interface {
	Harness
	// Tick moves the authority's clock forward by exactly d.
	Tick(d time.Duration)
}

// Operator is what a store offers to operators.
type Operator interface {
	lease.Revoker
	lease.Lister
	lease.Pruner
	lease.EpochRaiser
}

// OperatorHarness is a harness of a store with operator functions.
type OperatorHarness interface {
	Harness
	Operator() Operator
}

// DurableHarness is a harness of a store that outlives its processes.
type DurableHarness interface {
	Harness
	// Restart ends every process of the store as kill -9 would and opens the store again. Store then returns
	// the new one.
	Restart(ctx context.Context) error
}

// ResourceHarness is a harness with a resource that is fenced by the store's claims.
type ResourceHarness interface {
	Harness
	Resource() Resource
}

// DurableResourceHarness is a harness whose resource outlives its processes too. After a restart Resource
// returns the new one.
type DurableResourceHarness interface {
	ResourceHarness
	Restart(ctx context.Context) error
}

// RepairHarness is a harness with a fenced resource and operator functions.
type RepairHarness interface {
	ResourceHarness
	Operator() Operator
}

// Resource is one protected resource: a list of values that starts empty. Each method is one transaction,
// returns fence's typed errors where it refuses, and has then changed nothing. It is safe for concurrent use.
//
// between, where not nil, is called once within the transaction, after the check and before the write. It
// starts calls that may have to wait for this transaction, and does not wait for them without a bound.
type Resource interface {
	// Strict verifies the claim, calls between, appends value and commits.
	Strict(ctx context.Context, claim fence.Claim, value string, between func()) error
	// Marked enters with the claim, reads the content, calls between, writes edit(content) and commits.
	Marked(ctx context.Context, claim fence.Claim, edit func(content []string) []string, between func()) error
	// Blind admits the claim and appends value.
	Blind(ctx context.Context, claim fence.Claim, value string) error
	// Read returns the content.
	Read(ctx context.Context) ([]string, error)
	// Recreate deletes the resource's rows and makes them anew, empty, as an application would. Its mark
	// is not among them.
	Recreate(ctx context.Context) error
}
