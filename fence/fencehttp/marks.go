package fencehttp

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/fence"
)

// Marks is the high-water rule with the marks in this process's memory: the first claim binds a resource to its authority and
// name, and no token below the highest that came is let in after it. It notices no expiry.
//
// The marks are lost with the process: after a restart the first claim that comes is let in, be it a stale one. Keep them in a database
// (Enter of store/postgres or store/sqlite, in a [CheckFunc]) where that matters. No mark is ever forgotten to make
// room for another: a forgotten mark would let a stale owner in. Tokens are believed: whoever can send a claim with a
// high token shuts the holders out, so let requests come from clients that are known. Safe for concurrent use.
type Marks struct {
	most int

	mu    sync.Mutex
	marks map[string]fence.Mark
}

// NewMarks returns marks for at most this many resources, at about 200 bytes each and their names; an error matching
// [ErrOption] for less than one.
func NewMarks(most int) (*Marks, error) {
	if most < 1 {
		return nil, fmt.Errorf("%w: want room for one mark or more, got %d", ErrOption, most)
	}
	return &Marks{most: most, marks: map[string]fence.Mark{}}, nil
}

// Within is the [Check]. Beside the errors of [fence.Enter] it returns one matching [ErrFull] for a resource that is new when
// there is no more room.
func (m *Marks) Within(ctx context.Context, resource string, claim fence.Claim, serve func(ctx context.Context) error) error {
	if err := m.enter(resource, claim); err != nil {
		return err
	}
	return serve(ctx)
}

func (m *Marks) enter(resource string, claim fence.Claim) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	mark, known := m.marks[resource]
	if !known && len(m.marks) >= m.most {
		return fmt.Errorf("fencehttp: %w: %d resources have one, and %q is new; nothing was passed on; keep the marks in a database", ErrFull, m.most, resource)
	}
	mark.Resource = resource
	mark, err := fence.Enter(mark, claim)
	if err != nil {
		return err
	}
	m.marks[resource] = mark
	return nil
}
