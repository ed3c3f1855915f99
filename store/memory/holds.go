package memory

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/internal/clock"
)

// Holds keeps items and holds in this process's memory. Like [Store] it runs one call at a time, no call's outcome is ever unknown, and nothing survives the process. It is what every other store of
// holds is compared with, and no place to sell from.
type Holds struct {
	clock func() time.Duration
	turn  chan struct{} // as in Store

	// guarded by turn
	now   time.Duration
	items map[string]*stock
	holds map[fence.ID]*reservation
}

var (
	_ hold.Store  = (*Holds)(nil)
	_ hold.Office = (*Holds)(nil)
)

type stock struct{ quantity, sold int64 }

type reservation struct {
	actor     string
	lines     []hold.Line // summed, by name
	ttl       time.Duration
	placed    time.Duration
	expires   time.Duration
	ended     time.Duration
	state     hold.State // Held also when its time has passed: see stateOf
	reference string
}

// NewHolds returns a store without items.
func NewHolds(o Options) *Holds {
	if o.Clock == nil {
		o.Clock = clock.Client()
	}
	return &Holds{clock: o.Clock, turn: make(chan struct{}, 1), now: o.Clock(), items: map[string]*stock{}, holds: map[fence.ID]*reservation{}}
}

func (s *Holds) begin(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		select {
		case s.turn <- struct{}{}:
			s.now = max(s.now, s.clock())
			return nil
		case <-ctx.Done():
		}
	}
	return &hold.UnavailableError{Op: op, Err: context.Cause(ctx)}
}

func (s *Holds) end() { <-s.turn }

// Advance makes it as if d had passed.
func (s *Holds) Advance(d time.Duration) {
	s.turn <- struct{}{}
	defer s.end()
	for _, r := range s.holds {
		r.placed -= d
		r.expires -= d
		r.ended -= d
	}
}

func (s *Holds) stateOf(r *reservation) hold.State {
	if r.state == hold.Held && s.now >= r.expires {
		return hold.Expired
	}
	return r.state
}

// live calls f for every line of a live hold.
func (s *Holds) live(f func(id fence.ID, r *reservation, l hold.Line)) {
	for id, r := range s.holds {
		if s.stateOf(r) == hold.Held {
			for _, l := range r.lines {
				f(id, r, l)
			}
		}
	}
}

// held is how much of an item live holds have, and when the first of them expires.
func (s *Holds) held(item string) (n int64, next time.Duration) {
	s.live(func(_ fence.ID, r *reservation, l hold.Line) {
		if l.Item == item {
			if n += l.Quantity; next == 0 || r.expires-s.now < next {
				next = r.expires - s.now
			}
		}
	})
	return n, next
}

// taken is nil if all lines are free.
func (s *Holds) taken(lines []hold.Line) error {
	for _, l := range lines {
		i := s.items[l.Item]
		held, next := s.held(l.Item)
		if free := i.quantity - i.sold - held; free < l.Quantity {
			return &hold.TakenError{Item: l.Item, Wanted: l.Quantity, Free: free, Next: next}
		}
	}
	return nil
}

// Stock implements [hold.Store].
func (s *Holds) Stock(ctx context.Context, items []hold.Item) error {
	if err := hold.CheckItems(items); err != nil {
		return err
	}
	if err := s.begin(ctx, "stock"); err != nil {
		return err
	}
	defer s.end()
	items = slices.SortedFunc(slices.Values(items), func(a, b hold.Item) int { return strings.Compare(a.Name, b.Name) })
	for _, i := range items {
		if known := s.items[i.Name]; known != nil {
			if held, next := s.held(i.Name); known.sold+held > i.Quantity {
				return &hold.TakenError{Item: i.Name, Wanted: known.sold + held, Free: i.Quantity, Next: next}
			}
		}
	}
	for _, i := range items {
		if s.items[i.Name] == nil {
			s.items[i.Name] = &stock{}
		}
		s.items[i.Name].quantity = i.Quantity
	}
	return nil
}

// Place implements [hold.Store].
func (s *Holds) Place(ctx context.Context, req hold.PlaceRequest) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	lines, err := hold.Sum(req.Lines)
	if err != nil {
		return hold.Hold{}, err
	}
	if err := s.begin(ctx, "place"); err != nil {
		return hold.Hold{}, err
	}
	defer s.end()
	if r := s.holds[req.ID]; r != nil {
		return s.again(req, lines, r)
	}
	for _, l := range lines {
		if s.items[l.Item] == nil {
			return hold.Hold{}, &hold.NotFoundError{What: "item", Name: l.Item}
		}
	}
	if err := s.limits(req, lines); err != nil {
		return hold.Hold{}, err
	}
	if err := s.taken(lines); err != nil {
		return hold.Hold{}, err
	}
	r := &reservation{actor: req.Actor, lines: lines, ttl: req.TTL, placed: s.now, expires: s.now + req.TTL, state: hold.Held}
	s.holds[req.ID] = r
	return s.tell(req.ID, r), nil
}

// again answers a request whose id is known.
func (s *Holds) again(req hold.PlaceRequest, lines []hold.Line, r *reservation) (hold.Hold, error) {
	switch {
	case r.actor != req.Actor:
		return hold.Hold{}, &hold.MismatchError{ID: req.ID, What: "actor"}
	case !slices.Equal(r.lines, lines):
		return hold.Hold{}, &hold.MismatchError{ID: req.ID, What: "lines"}
	case r.ttl != req.TTL:
		return hold.Hold{}, &hold.MismatchError{ID: req.ID, What: "ttl"}
	}
	if state := s.stateOf(r); state != hold.Held && state != hold.Confirmed {
		return hold.Hold{}, &hold.OverError{ID: req.ID, State: state, What: "placing it again"}
	}
	return s.tell(req.ID, r), nil
}

func (s *Holds) limits(req hold.PlaceRequest, lines []hold.Line) error {
	var units int64
	ids := map[fence.ID]bool{}
	s.live(func(id fence.ID, r *reservation, l hold.Line) {
		if r.actor == req.Actor {
			ids[id] = true
			units += l.Quantity
		}
	})
	var wanted int64
	for _, l := range lines {
		wanted += l.Quantity
	}
	switch {
	case req.MaxHolds > 0 && int64(len(ids)) >= req.MaxHolds:
		return &hold.LimitError{Actor: req.Actor, What: "holds", Most: req.MaxHolds, Live: int64(len(ids))}
	case req.MaxUnits > 0 && units+wanted > req.MaxUnits:
		return &hold.LimitError{Actor: req.Actor, What: "units", Most: req.MaxUnits, Live: units}
	}
	return nil
}

// change runs a change of a hold by its actor.
func (s *Holds) change(ctx context.Context, op string, id fence.ID, actor string, invalid error, f func(r *reservation) error) (hold.Hold, error) {
	if invalid != nil {
		return hold.Hold{}, invalid
	}
	if err := s.begin(ctx, op); err != nil {
		return hold.Hold{}, err
	}
	defer s.end()
	r := s.holds[id]
	switch {
	case r == nil:
		return hold.Hold{}, &hold.NotFoundError{What: "hold", Name: id.String()}
	case r.actor != actor:
		return hold.Hold{}, &hold.ActorError{ID: id, Actor: actor}
	}
	if err := f(r); err != nil {
		return hold.Hold{}, err
	}
	return s.tell(id, r), nil
}

// Extend implements [hold.Store].
func (s *Holds) Extend(ctx context.Context, id fence.ID, actor string, ttl time.Duration) (hold.Hold, error) {
	return s.change(ctx, "extend", id, actor, hold.CheckExtend(id, actor, ttl), func(r *reservation) error {
		if state := s.stateOf(r); state != hold.Held {
			return &hold.OverError{ID: id, State: state, What: "extending it"}
		}
		r.expires = max(r.expires, s.now+ttl)
		return nil
	})
}

// Confirm implements [hold.Store].
func (s *Holds) Confirm(ctx context.Context, req hold.ConfirmRequest) (hold.Hold, error) {
	return s.change(ctx, "confirm", req.ID, req.Actor, req.Check(), func(r *reservation) error {
		switch state := s.stateOf(r); state {
		case hold.Confirmed, hold.Late:
			if r.reference != req.Reference {
				return &hold.MismatchError{ID: req.ID, What: "reference"}
			}
			return nil
		case hold.Released:
			return &hold.OverError{ID: req.ID, State: state, What: "confirming it"}
		case hold.Expired:
			free := s.taken(r.lines) == nil
			if s.now-r.expires >= req.Grace || !free {
				r.state, r.reference = hold.Late, req.Reference
				r.ended = s.now
				return nil
			}
		case hold.Held:
		}
		for _, l := range r.lines {
			s.items[l.Item].sold += l.Quantity
		}
		r.state, r.reference, r.ended = hold.Confirmed, req.Reference, s.now
		return nil
	})
}

// Release implements [hold.Store].
func (s *Holds) Release(ctx context.Context, id fence.ID, actor string) (hold.Hold, error) {
	return s.change(ctx, "release", id, actor, hold.CheckRelease(id, actor), func(r *reservation) error {
		switch state := s.stateOf(r); state {
		case hold.Held:
			r.state, r.ended = hold.Released, s.now
		case hold.Confirmed, hold.Late:
			return &hold.OverError{ID: id, State: state, What: "releasing it"}
		case hold.Released, hold.Expired:
		}
		return nil
	})
}

// Get implements [hold.Store].
func (s *Holds) Get(ctx context.Context, id fence.ID) (hold.Hold, error) {
	if err := s.begin(ctx, "get"); err != nil {
		return hold.Hold{}, err
	}
	defer s.end()
	r := s.holds[id]
	if r == nil {
		return hold.Hold{}, &hold.NotFoundError{What: "hold", Name: id.String()}
	}
	return s.tell(id, r), nil
}

// Guarantees implements [hold.Store].
func (s *Holds) Guarantees() hold.Guarantees {
	return hold.Guarantees{Store: "memory", Exclusive: true}
}

// List implements [hold.Office].
func (s *Holds) List(ctx context.Context, req hold.ListRequest) ([]hold.Hold, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "list"); err != nil {
		return nil, err
	}
	defer s.end()
	found := []hold.Hold{}
	for _, id := range slices.SortedFunc(maps.Keys(s.holds), func(a, b fence.ID) int { return bytes.Compare(a[:], b[:]) }) {
		r := s.holds[id]
		if !req.After.Less(id) || req.Actor != "" && r.actor != req.Actor || len(req.States) > 0 && !slices.Contains(req.States, s.stateOf(r)) ||
			req.Item != "" && !slices.ContainsFunc(r.lines, func(l hold.Line) bool { return l.Item == req.Item }) {
			continue
		}
		if found = append(found, s.tell(id, r)); len(found) == req.Limit {
			break
		}
	}
	return found, nil
}

// Items implements [hold.Office].
func (s *Holds) Items(ctx context.Context, prefix, after string, limit int) ([]hold.ItemInfo, error) {
	if err := hold.CheckPage(prefix, after, limit); err != nil {
		return nil, err
	}
	if err := s.begin(ctx, "items"); err != nil {
		return nil, err
	}
	defer s.end()
	found := []hold.ItemInfo{}
	for _, name := range slices.Sorted(maps.Keys(s.items)) {
		if name <= after || !strings.HasPrefix(name, prefix) {
			continue
		}
		held, _ := s.held(name)
		i := s.items[name]
		if found = append(found, hold.ItemInfo{Item: hold.Item{Name: name, Quantity: i.quantity}, Sold: i.sold, Held: held}); len(found) == limit {
			break
		}
	}
	return found, nil
}

// Prune implements [hold.Office].
func (s *Holds) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := hold.CheckPrune(age, limit); err != nil {
		return 0, err
	}
	if err := s.begin(ctx, "prune"); err != nil {
		return 0, err
	}
	defer s.end()
	n := 0
	for _, id := range slices.SortedFunc(maps.Keys(s.holds), func(a, b fence.ID) int {
		return cmp.Or(cmp.Compare(s.endOf(s.holds[a]), s.endOf(s.holds[b])), bytes.Compare(a[:], b[:]))
	}) {
		if r := s.holds[id]; s.stateOf(r).Over() && s.now-s.endOf(r) >= age && n < limit {
			delete(s.holds, id)
			n++
		}
	}
	return n, nil
}

// endOf is when a hold ended, or will.
func (s *Holds) endOf(r *reservation) time.Duration {
	if r.state == hold.Held {
		return r.expires
	}
	return r.ended
}

func (s *Holds) tell(id fence.ID, r *reservation) hold.Hold {
	h := hold.Hold{ID: id, Actor: r.actor, Lines: slices.Clone(r.lines), TTL: r.ttl, State: s.stateOf(r), Reference: r.reference, Age: s.now - r.placed}
	if h.State == hold.Held {
		h.Left = r.expires - s.now
	} else {
		h.Ended = s.now - s.endOf(r)
	}
	return h
}
