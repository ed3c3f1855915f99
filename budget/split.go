package budget

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Part is what one of several dependencies may have of a budget.
type Part struct {
	Name    string
	Share   float64       // of what is left when the budget is split; more than 0
	Minimum time.Duration // what it needs to be worth starting; kept for it as long as it has not been started
}

// Split divides what a budget has left among named dependencies. Safe for concurrent use.
type Split struct {
	b     *Budget
	left  time.Duration // when it was made
	mu    sync.Mutex
	parts map[string]Part // that were not started
}

// Split divides what is left before the reserve. Shares add up to at most 1; what they leave is nobody's. Parts may be started in any order and at any time.
//
// It returns an error matching [ErrInvalid] for parts without a name or with the same one, for shares that are not above 0 or add up to more
// than 1, and for negative minimums; one matching [ErrNoTime] if the minimums together do not fit.
func (b *Budget) Split(parts ...Part) (*Split, error) {
	s := &Split{b: b, left: b.Remaining(), parts: make(map[string]Part, len(parts))}
	shares, minimums := 0.0, time.Duration(0)
	for _, p := range parts {
		_, twice := s.parts[p.Name]
		switch {
		case p.Name == "" || twice:
			return nil, &InvalidError{"part", fmt.Sprintf("name %q; want one of its own for each", p.Name)}
		case !(p.Share > 0 && p.Share <= 1):
			return nil, &InvalidError{"share", fmt.Sprintf("%v for %s; want more than 0 and at most 1", p.Share, p.Name)}
		case p.Minimum < 0:
			return nil, &InvalidError{"minimum", fmt.Sprintf("%v for %s is negative", p.Minimum, p.Name)}
		}
		s.parts[p.Name] = p
		shares += p.Share
		minimums += p.Minimum
		if minimums < 0 || minimums > s.left {
			return nil, &NoTimeError{What: "the minimums of the parts up to " + p.Name, Needs: minimums, Left: s.left, Reserve: b.reserve}
		}
	}
	if shares > 1+1e-9 { // 0.1 added ten times is a little more than 1
		return nil, &InvalidError{"shares", fmt.Sprintf("they add up to %v; want at most 1", shares)}
	}
	return s, nil
}

// Part begins the part of one dependency: its budget is its share of what was there to split, but at least its minimum, and at most what is left now without the minimums of
// those that were not begun. It ends before the reserve of the whole. A part is begun once; the caller calls End.
//
// It returns an error matching [ErrInvalid] for a name that was not split off, or twice, and one matching [ErrNoTime] if its minimum does not fit any more.
func (s *Split) Part(name string, options ...Option) (*Budget, error) {
	s.mu.Lock()
	p, ok := s.parts[name]
	if !ok {
		s.mu.Unlock()
		return nil, &InvalidError{"part", fmt.Sprintf("%q is none of those that were split off, or was begun already", name)}
	}
	delete(s.parts, name)
	kept := time.Duration(0)
	for _, other := range s.parts {
		kept += other.Minimum
	}
	s.mu.Unlock()
	at := s.b.spent()
	free := max(0, s.b.total-s.b.reserve-at) - kept
	needs := max(p.Minimum, time.Millisecond)
	if free < needs {
		err := &NoTimeError{What: "the part of " + name, Needs: needs, Left: free, Reserve: s.b.reserve}
		s.b.note(Entry{Kind: KindNotStarted, Name: name, At: at, Allowed: max(0, free), Err: err})
		return nil, err
	}
	within := min(free, max(needs, time.Duration(p.Share*float64(s.left))))
	ctx, cancel := context.WithDeadline(s.b.ctx, s.b.instant(at+within)) // however long it takes to come here
	part, err := Start(ctx, within, append([]Option{Named(name)}, options...)...)
	if err != nil {
		cancel()
		return nil, err
	}
	end := part.cancel
	once := sync.OnceFunc(func() {
		end()
		cancel()
		s.b.note(Entry{Kind: KindPart, Name: name, At: at, Took: part.spent(), Allowed: within})
	})
	part.cancel = once
	return part, nil
}
