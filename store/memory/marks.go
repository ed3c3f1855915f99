package memory

import (
	"context"
	"sync"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// Marks keeps the high-water marks of resources that live in this process apart from the authority. A mark
// lives as long as the Marks it is kept in, whatever becomes of its resource. Marks has nothing to do with
// a [Store]: claims of any authority may be presented. Safe for concurrent use.
type Marks struct {
	mu        sync.Mutex
	resources map[string]*marked // never deleted from: a forgotten mark would admit a stale writer
}

// marked is one resource.
type marked struct {
	turn  chan struct{} // held while work on the resource runs
	marks []fence.Mark  // one for each admitted name; guarded by turn
}

// NewMarks returns marks of resources that nothing has touched.
func NewMarks() *Marks { return &Marks{resources: map[string]*marked{}} }

// Enter writes the resource's mark and runs fn, which may read and write the resource; no other work on
// that resource runs until fn has returned. The first claim that enters binds the resource to its
// authority and name.
//
// Enter returns fn's error; the mark stays written. Where it refuses, fn was not called: a
// [*fence.RefusedError] that names the newer token, a [*fence.ForeignError] for another authority or a name that
// was not allowed, an error matching [fence.ErrInvalid] for a claim that is no claim. If ctx is done
// before the resource's turn came, the error matches [lease.ErrUnavailable]. fn must not use the same resource
// through these marks.
func (m *Marks) Enter(ctx context.Context, resource string, claim fence.Claim, fn func(ctx context.Context) error) error {
	return m.within(ctx, resource, "enter", func(r *marked) error {
		return r.pass(resource, claim, fence.Enter, func() error { return fn(ctx) })
	})
}

// Admit is Enter for a write that depends on nothing that was read.
func (m *Marks) Admit(ctx context.Context, resource string, claim fence.Claim, fn func(ctx context.Context) error) error {
	return m.within(ctx, resource, "admit", func(r *marked) error {
		return r.pass(resource, claim, fence.Admit, func() error { return fn(ctx) })
	})
}

// Allow admits one more name of an authority for the resource, beside those that entered. Each has a mark
// of its own. It returns an error matching [fence.ErrInvalid] for a name that is none, and one matching
// [lease.ErrUnavailable] if ctx is done before the resource's turn came.
func (m *Marks) Allow(ctx context.Context, resource string, authority fence.ID, name string) error {
	if err := fence.CheckName(name); err != nil {
		return err
	}
	return m.within(ctx, resource, "allow", func(r *marked) error {
		for _, mark := range r.marks {
			if mark.Authority == authority && mark.Name == name {
				return nil
			}
		}
		r.marks = append(r.marks, fence.Mark{Resource: resource, Authority: authority, Name: name})
		return nil
	})
}

func (m *Marks) within(ctx context.Context, resource, op string, fn func(r *marked) error) error {
	m.mu.Lock()
	r := m.resources[resource]
	if r == nil {
		r = &marked{turn: make(chan struct{}, 1)}
		m.resources[resource] = r
	}
	m.mu.Unlock()
	if ctx.Err() == nil {
		select {
		case r.turn <- struct{}{}:
			defer func() { <-r.turn }()
			return fn(r)
		case <-ctx.Done():
		}
	}
	return &lease.UnavailableError{Op: op, Err: context.Cause(ctx)}
}

// pass decides by the rule, writes the mark and runs fn.
func (r *marked) pass(resource string, claim fence.Claim, rule func(fence.Mark, fence.Claim) (fence.Mark, error), fn func() error) error {
	at := 0 // a stranger is measured by the first mark, which refuses it as foreign
	for i, mark := range r.marks {
		if mark.Authority == claim.Authority && mark.Name == claim.Name {
			at = i
		}
	}
	mark := fence.Mark{Resource: resource}
	if len(r.marks) > 0 {
		mark = r.marks[at]
	}
	mark, err := rule(mark, claim)
	if err != nil {
		return err
	}
	if len(r.marks) == 0 {
		r.marks = append(r.marks, mark)
	} else {
		r.marks[at] = mark
	}
	return fn()
}
