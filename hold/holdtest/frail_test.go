package holdtest_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// frail is a store of holds written for this test, apart from the oracle, that has one fault at most. Each fault is one place where it asks s.is.
type frail struct {
	fault string
	clock func() time.Duration

	mu    sync.Mutex
	skew  time.Duration // that was advanced
	read  time.Duration // the clock, once a call
	items map[string]*item
	holds map[fence.ID]*reserved
}

type item struct{ quantity, sold, back int64 } // back: given back by a fault

type reserved struct {
	req       hold.PlaceRequest
	lines     []hold.Line
	placed    time.Duration
	expires   time.Duration
	ended     time.Duration
	state     hold.State // as written: Held, though its time has passed
	reference string
}

func newFrail(fault string, clock func() time.Duration) *frail {
	return &frail{fault: fault, clock: clock, items: map[string]*item{}, holds: map[fence.ID]*reserved{}}
}

func (s *frail) is(fault string) bool { return s.fault == fault }

func (s *frail) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += d
}

func (s *frail) now() time.Duration { return s.read }

// begin takes the lock, and is undone by what it returns.
func (s *frail) begin(ctx context.Context, op string) (func(), error) {
	if ctx.Err() != nil && !s.is("an ended context is ignored") {
		return nil, &hold.UnavailableError{Op: op, Err: context.Cause(ctx)}
	}
	s.mu.Lock()
	s.read = s.clock() + s.skew
	return s.mu.Unlock, nil
}

// yield lets other calls in, as a statement of its own does.
func (s *frail) yield() {
	s.mu.Unlock()
	<-time.After(time.Millisecond)
	s.mu.Lock()
	s.read = s.clock() + s.skew
}

func (s *frail) state(r *reserved) hold.State {
	now := s.now()
	passed := now >= r.expires
	if s.is("equality is missed") {
		passed = now > r.expires
	}
	if s.is("a hold expires early") {
		passed = now >= r.expires-500*time.Millisecond
	}
	if r.state == hold.Held && passed {
		return hold.Expired
	}
	return r.state
}

// holding reports whether it keeps others out.
func (s *frail) holding(r *reserved) bool {
	if s.is("what has expired still holds") {
		return r.state == hold.Held
	}
	return s.state(r) == hold.Held
}

func (s *frail) held(name string) (n int64, next time.Duration) {
	for _, r := range s.holds {
		for _, l := range r.lines {
			if l.Item == name && s.holding(r) {
				n += l.Quantity
				if left := r.expires - s.now(); next == 0 || left < next != s.is("the last to expire is told as the next") {
					next = left
				}
			}
		}
	}
	return n, next
}

func (s *frail) free(name string) (int64, time.Duration) {
	held, next := s.held(name)
	return s.items[name].quantity - s.items[name].sold + s.items[name].back - held, next
}

func (s *frail) taken(lines []hold.Line) error {
	for _, l := range lines {
		if free, next := s.free(l.Item); free < l.Quantity {
			return &hold.TakenError{Item: l.Item, Wanted: l.Quantity, Free: free, Next: next}
		}
	}
	return nil
}

func (s *frail) Stock(ctx context.Context, items []hold.Item) error {
	if err := hold.CheckItems(items); err != nil {
		return err
	}
	end, err := s.begin(ctx, "stock")
	if err != nil {
		return err
	}
	defer end()
	if !s.is("the caller's items are sorted in place") {
		items = slices.Clone(items)
	}
	slices.SortFunc(items, func(a, b hold.Item) int { return strings.Compare(a.Name, b.Name) })
	check := func(i hold.Item) error {
		if s.items[i.Name] == nil {
			return nil
		}
		n, next := s.held(i.Name)
		if s.is("stock is lowered below what is held") {
			n = 0
		}
		if !s.is("stock is lowered below what is sold") {
			n += s.items[i.Name].sold
		}
		if n > i.Quantity {
			return &hold.TakenError{Item: i.Name, Wanted: n, Free: i.Quantity, Next: next}
		}
		return nil
	}
	for _, i := range items {
		if err := check(i); err != nil && !s.is("several items are stocked one by one") {
			return err
		}
	}
	if s.is("stock is checked before the lock") {
		s.yield()
	}
	for _, i := range items {
		if err := check(i); err != nil && s.is("several items are stocked one by one") {
			return err
		}
		if s.items[i.Name] == nil || s.is("stocking again forgets what was sold") {
			s.items[i.Name] = &item{}
		}
		s.items[i.Name].quantity = i.Quantity
	}
	return nil
}

func (s *frail) Get(ctx context.Context, id fence.ID) (hold.Hold, error) {
	end, err := s.begin(ctx, "get")
	if err != nil {
		return hold.Hold{}, err
	}
	defer end()
	r := s.holds[id]
	if r == nil {
		return hold.Hold{}, &hold.NotFoundError{What: "hold", Name: id.String()}
	}
	return s.tell(r), nil
}

func (s *frail) Guarantees() hold.Guarantees {
	if s.is("the store has no name") {
		return hold.Guarantees{}
	}
	return hold.Guarantees{Store: "frail"}
}

func (s *frail) List(ctx context.Context, req hold.ListRequest) ([]hold.Hold, error) {
	if err := req.Check(); err != nil && !s.is("a list takes any limit") {
		return nil, err
	}
	end, err := s.begin(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer end()
	found := []hold.Hold{}
	for _, id := range slices.SortedFunc(maps.Keys(s.holds), func(a, b fence.ID) int { return bytes.Compare(a[:], b[:]) }) {
		r := s.holds[id]
		state := s.state(r)
		if s.is("a list goes by the state as written") {
			state = r.state
		}
		on := slices.ContainsFunc(r.lines, func(l hold.Line) bool { return l.Item == req.Item })
		switch {
		case !req.After.Less(id) && !s.is("a list begins at the id"), req.After != (fence.ID{}) && bytes.Compare(id[:], req.After[:]) < 0:
		case req.Actor != "" && r.req.Actor != req.Actor && !s.is("a list is of any actor"):
		case len(req.States) > 0 && !slices.Contains(req.States, state):
		case req.Item != "" && !on && !s.is("a list is of any item"):
		default:
			found = append(found, s.tell(r))
		}
	}
	return found[:min(len(found), max(req.Limit, 0))], nil
}

func (s *frail) Items(ctx context.Context, prefix, after string, limit int) ([]hold.ItemInfo, error) {
	if err := hold.CheckPage(prefix, after, limit); err != nil {
		return nil, err
	}
	end, err := s.begin(ctx, "items")
	if err != nil {
		return nil, err
	}
	defer end()
	found := []hold.ItemInfo{}
	for _, name := range slices.Sorted(maps.Keys(s.items)) {
		if name <= after || !strings.HasPrefix(name, prefix) && (!s.is("a prefix knows no case") || !strings.HasPrefix(strings.ToLower(name), prefix)) {
			continue
		}
		held, _ := s.held(name)
		if s.is("items tell nothing as held") {
			held = 0
		}
		i := s.items[name]
		found = append(found, hold.ItemInfo{Item: hold.Item{Name: name, Quantity: i.quantity}, Sold: i.sold - i.back, Held: held})
	}
	return found[:min(len(found), limit)], nil
}

func (s *frail) Prune(ctx context.Context, age time.Duration, limit int) (int, error) {
	if err := hold.CheckPrune(age, limit); err != nil {
		return 0, err
	}
	end, err := s.begin(ctx, "prune")
	if err != nil {
		return 0, err
	}
	defer end()
	n := 0
	for id, r := range maps.Clone(s.holds) {
		since := s.now() - s.endOf(r)
		if s.is("the age counts from the placing") {
			since = s.now() - r.placed
		}
		over := s.state(r).Over() || s.is("what is live is forgotten with its time since it was placed") && s.now()-r.placed >= age
		if s.is("what has expired is never forgotten") {
			over = r.state.Over()
		}
		if !over || since < age && !s.is("what is live is forgotten with its time since it was placed") || n == limit && !s.is("forgetting knows no limit") {
			continue
		}
		if s.is("what is forgotten is chosen before the lock") {
			s.yield()
		}
		delete(s.holds, id)
		n++
		for _, l := range r.lines {
			if r.state == hold.Confirmed && s.is("prune gives back what is sold") {
				s.items[l.Item].back += l.Quantity
			}
		}
	}
	return n, nil
}

func (s *frail) endOf(r *reserved) time.Duration {
	if r.state == hold.Held {
		return r.expires
	}
	return r.ended
}

func (s *frail) tell(r *reserved) hold.Hold {
	h := hold.Hold{ID: r.req.ID, Actor: r.req.Actor, Lines: slices.Clone(r.lines), TTL: r.req.TTL, State: s.state(r), Reference: r.reference, Age: s.now() - r.placed}
	if s.is("replies share their lines") {
		h.Lines = r.lines
	}
	if s.is("the TTL told is what is left") {
		h.TTL = max(r.expires-s.now(), time.Microsecond)
	}
	if h.State == hold.Held {
		h.Left = r.expires - s.now()
		return h
	}
	h.Ended = s.now() - s.endOf(r)
	return h
}
