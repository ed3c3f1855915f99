package object

import (
	"context"

	"github.com/tenure-go/tenure/fence"
)

// Calls are the calls of this package on one bucket, so that a test can try others in their place.
type Calls struct {
	Put    func(ctx context.Context, key string, claim fence.Claim, content []byte) error
	Update func(ctx context.Context, key string, claim fence.Claim, fn func(old []byte) ([]byte, error)) error
	Enter  func(ctx context.Context, key string, claim fence.Claim) ([]byte, error)
	Delete func(ctx context.Context, key string, claim fence.Claim) error
}

// Change is what a twin has otherwise than the rules.
type Change struct {
	Nonce func() string
	Admit func(fence.Mark, fence.Claim) (fence.Mark, error)
}

// CallsOn are the calls by rules that are changed.
func CallsOn(b Bucket, c Change) Calls {
	r := sound(b)
	if c.Nonce != nil {
		r.nonce = c.Nonce
	}
	if c.Admit != nil {
		r.admit = c.Admit
	}
	return Calls{Put: r.put, Update: r.update, Enter: r.enter, Delete: r.remove}
}

// MaxAttempts is how often a call sends a PUT.
const MaxAttempts = maxAttempts
