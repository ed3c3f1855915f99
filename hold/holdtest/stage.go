package holdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// The times of most cases. Between them and every Advance lies a second or more.
const (
	ttl     = 10 * time.Second
	within  = 7 * time.Second  // after it, a hold of ttl has 3 s left
	past    = 13 * time.Second // after it, a hold of ttl is over for 3 s
	rounded = time.Millisecond // what a store may round a duration by
)

// The actors of most cases.
const (
	ann = "ann"
	bob = "bob"
)

// stage is one run of a case. Its methods are the steps; the first step that finds something wrong is kept, and every later one does nothing, so that a case reads as what it does
// and not as what may fail. A stage belongs to one goroutine.
type stage struct {
	ctx   context.Context // of the case: a stage lives no longer than the call that made it
	h     Harness
	store *watch
	err   error
}

// named makes a case of steps.
func named[H Harness](name string, steps func(s *stage, h H)) Case[H] {
	return Case[H]{Name: name, Run: func(ctx context.Context, h H) error {
		s := &stage{ctx: ctx, h: h, store: newWatch(h)}
		steps(s, h)
		return errors.Join(s.err, s.store.finish(ctx))
	}}
}

// plain makes a case that needs nothing beside the store.
func plain(name string, steps func(s *stage)) Case[Harness] {
	return named(name, func(s *stage, _ Harness) { steps(s) })
}

func (s *stage) failed() bool { return s.err != nil }

// fail records the first thing that was found wrong.
func (s *stage) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

// want fails unless ok.
func (s *stage) want(ok bool, format string, args ...any) {
	if !ok {
		s.fail(format, args...)
	}
}

// advance lets d pass.
func (s *stage) advance(d time.Duration) {
	if s.failed() {
		return
	}
	if err := s.h.Advance(s.ctx, d); err != nil {
		s.fail("advancing by %v: %w", d, err)
	}
}

// idOf is the id of a name of at most 16 bytes; ids are in the order of the names.
func idOf(name string) fence.ID {
	var id fence.ID
	copy(id[:], name)
	return id
}

// line is a demand.
func line(item string, n int64) hold.Line { return hold.Line{Item: item, Quantity: n} }

// request is what most cases place: one of each item, for ttl.
func request(name, actor string, items ...string) hold.PlaceRequest {
	req := hold.PlaceRequest{ID: idOf(name), Actor: actor, TTL: ttl}
	for _, item := range items {
		req.Lines = append(req.Lines, line(item, 1))
	}
	return req
}

// requestOf is for other quantities.
func requestOf(name, actor string, lines ...hold.Line) hold.PlaceRequest {
	return hold.PlaceRequest{ID: idOf(name), Actor: actor, TTL: ttl, Lines: lines}
}

// stock sets that there are n of each item.
func (s *stage) stock(n int64, names ...string) {
	items := make([]hold.Item, len(names))
	for i, name := range names {
		items[i] = hold.Item{Name: name, Quantity: n}
	}
	s.stocked(items...)
}

func (s *stage) stocked(items ...hold.Item) {
	if s.failed() {
		return
	}
	if err := s.store.Stock(s.ctx, items); err != nil {
		s.fail("stocking %+v: %w", items, err)
	}
}

// place must be granted one of each item.
func (s *stage) place(name, actor string, items ...string) hold.Hold {
	return s.placed(request(name, actor, items...))
}

// placed must be granted.
func (s *stage) placed(req hold.PlaceRequest) hold.Hold {
	if s.failed() {
		return hold.Hold{}
	}
	h, err := s.store.Place(s.ctx, req)
	if err != nil {
		s.fail("placing %v of %v for %q: %w", req.ID, req.Lines, req.Actor, err)
		return h
	}
	sum, _ := hold.Sum(req.Lines)
	s.want(h.ID == req.ID && h.Actor == req.Actor && h.State == hold.Held && slices.Equal(h.Lines, sum) && near(h.TTL, req.TTL) && near(h.Left, req.TTL) && near(-h.Age, 0) && h.Reference == "",
		"placing %+v: %+v", req, h)
	return h
}

// refused must be refused, with an error of this kind.
func (s *stage) refused(req hold.PlaceRequest, kind error) {
	s.want(s.refusal(req, kind) != nil, "placing %v was not refused", req.ID)
}

// refusal must be of this kind; it is returned to be looked at.
func (s *stage) refusal(req hold.PlaceRequest, kind error) error {
	if s.failed() {
		return s.err
	}
	h, err := s.store.Place(s.ctx, req)
	s.kind(err, kind, "placing %v of %v for %q (%+v)", req.ID, req.Lines, req.Actor, h)
	return err
}

// taken must be refused because of this item. It returns when the next hold on it expires.
func (s *stage) taken(req hold.PlaceRequest, item string, wanted, free int64) time.Duration {
	var t *hold.TakenError
	err := s.refusal(req, hold.ErrTaken)
	s.want(s.failed() || errors.As(err, &t) && t.Item == item && t.Wanted == wanted && t.Free == free, "placing %v: %v; want that %d of %q are wanted and %d free", req.Lines, err, wanted, item, free)
	if s.failed() || t == nil {
		return 0
	}
	return t.Next
}

// limited must be refused because of this limit.
func (s *stage) limited(req hold.PlaceRequest, what string, most, live int64) {
	var l *hold.LimitError
	err := s.refusal(req, hold.ErrLimit)
	s.want(s.failed() || errors.As(err, &l) && *l == hold.LimitError{Actor: req.Actor, What: what, Most: most, Live: live}, "placing %v for %q: %v; want that it has %d of %d %s", req.Lines, req.Actor, err, live, most, what)
}

// differs must be refused because of what differs from the hold that has the id.
func (s *stage) differs(req hold.PlaceRequest, what string) {
	s.mismatch(s.refusal(req, hold.ErrMismatch), req.ID, what)
}

func (s *stage) mismatch(err error, id fence.ID, what string) {
	var m *hold.MismatchError
	s.want(s.failed() || errors.As(err, &m) && *m == hold.MismatchError{ID: id, What: what}, "%v; want another %s of %v", err, what, id)
}

// over must be an error that says how the hold ended.
func (s *stage) over(err error, id fence.ID, state hold.State, doing string) {
	if s.failed() {
		return
	}
	s.kind(err, hold.ErrOver, "%s", doing)
	var o *hold.OverError
	s.want(s.failed() || errors.As(err, &o) && o.ID == id && o.State == state, "%s: %v; want that %v is %v", doing, err, id, state)
}

// again must be answered with the hold as it stands.
func (s *stage) again(req hold.PlaceRequest, state hold.State) hold.Hold {
	if s.failed() {
		return hold.Hold{}
	}
	h, err := s.store.Place(s.ctx, req)
	if err != nil {
		s.fail("placing %v again while it is %v: %w", req.ID, state, err)
	}
	s.want(h.ID == req.ID && h.State == state, "placing %v again while it is %v: %+v", req.ID, state, h)
	return h
}

// extend must be granted, and leave so much.
func (s *stage) extend(name, actor string, by, left time.Duration) {
	if s.failed() {
		return
	}
	h, err := s.store.Extend(s.ctx, idOf(name), actor, by)
	if err != nil {
		s.fail("extending %q to %v from now: %w", name, by, err)
	}
	s.want(h.ID == idOf(name) && h.State == hold.Held && near(h.Left, left), "extending %q to %v from now leaves %v; want %v: %+v", name, by, h.Left, left, h)
}

// paid is the confirmation of most cases.
func paid(name, actor, reference string) hold.ConfirmRequest {
	return hold.ConfirmRequest{ID: idOf(name), Actor: actor, Reference: reference}
}

// confirm must answer with this state, and the reference.
func (s *stage) confirm(req hold.ConfirmRequest, state hold.State) hold.Hold {
	if s.failed() {
		return hold.Hold{}
	}
	h, err := s.store.Confirm(s.ctx, req)
	if err != nil {
		s.fail("confirming %v under %q: %w", req.ID, req.Reference, err)
	}
	s.want(h.ID == req.ID && h.State == state && h.Reference == req.Reference, "confirming %v under %q: %+v; want it %v", req.ID, req.Reference, h, state)
	return h
}

// sell must be confirmed under a reference made of its name.
func (s *stage) sell(name, actor string) { s.confirm(paid(name, actor, "pays "+name), hold.Confirmed) }

// release must answer with this state.
func (s *stage) release(name, actor string, state hold.State) {
	if s.failed() {
		return
	}
	h, err := s.store.Release(s.ctx, idOf(name), actor)
	if err != nil {
		s.fail("releasing %q: %w", name, err)
	}
	s.want(h.ID == idOf(name) && h.State == state, "releasing %q: %+v; want it %v", name, h, state)
}

// at must stand so.
func (s *stage) at(name string, state hold.State, reference string) hold.Hold {
	if s.failed() {
		return hold.Hold{}
	}
	h, err := s.store.Get(s.ctx, idOf(name))
	if err != nil {
		s.fail("looking at %q: %w", name, err)
	}
	s.want(h.ID == idOf(name) && h.State == state && h.Reference == reference, "%q: %+v; want it %v, reference %q", name, h, state, reference)
	return h
}

// item must have so much.
func (s *stage) item(name string, quantity, sold, held int64) {
	if s.failed() {
		return
	}
	all, err := s.store.Items(s.ctx, name, "", 1)
	if err != nil {
		s.fail("looking at %q: %w", name, err)
	}
	want := hold.ItemInfo{Item: hold.Item{Name: name, Quantity: quantity}, Sold: sold, Held: held}
	s.want(len(all) == 1 && all[0] == want, "%q: %+v; want %+v", name, all, want)
}

// near reports whether a duration is what it should be, up to what the steps of a case may take.
func near(got, want time.Duration) bool {
	return got <= want+rounded && got > want-2*time.Second
}

func kinds() []error {
	return []error{
		hold.ErrInvalid, hold.ErrTaken, hold.ErrLimit, hold.ErrMismatch, hold.ErrActor, hold.ErrOver, hold.ErrNotFound, hold.ErrUnknown, hold.ErrUnavailable,
	}
}

// kind demands an error of exactly one kind.
func (s *stage) kind(err, kind error, doing string, args ...any) {
	s.want(errors.Is(err, kind), "%s: %v; want an error that matches %q", fmt.Sprintf(doing, args...), err, kind)
	for _, other := range kinds() {
		s.want(!errors.Is(err, other) || errors.Is(kind, other), "%s: %v matches %q and %q", fmt.Sprintf(doing, args...), err, kind, other)
	}
}

// atOnce runs n calls at the same time, and demands that none fails.
func (s *stage) atOnce(n int, call func(i int) error) {
	if s.failed() {
		return
	}
	errs := make([]error, n)
	gate := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-gate
			errs[i] = call(i)
		})
	}
	close(gate)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.fail("at once: %w", err)
	}
}
