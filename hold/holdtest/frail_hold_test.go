package holdtest_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// sum is the lines as they are compared with what is free.
func (s *frail) sum(lines []hold.Line) ([]hold.Line, error) {
	sum, err := hold.Sum(lines)
	if err != nil {
		return nil, err
	}
	if s.is("demand is not summed") {
		sum = slices.Clone(lines)
		slices.SortFunc(sum, func(a, b hold.Line) int { return strings.Compare(a.Item, b.Item) })
	}
	if s.is("the caller's lines are sorted in place") {
		slices.SortFunc(lines, func(a, b hold.Line) int { return strings.Compare(a.Item, b.Item) })
	}
	return sum, nil
}

func (s *frail) Place(ctx context.Context, req hold.PlaceRequest) (hold.Hold, error) {
	if err := req.Check(); err != nil && !s.is("a place is not checked") {
		return hold.Hold{}, err
	}
	lines, err := s.sum(req.Lines)
	if err != nil {
		return hold.Hold{}, err
	}
	end, err := s.begin(ctx, "place")
	if err != nil {
		return hold.Hold{}, err
	}
	defer end()
	if r := s.holds[req.ID]; r != nil {
		if h, err, done := s.again(req, lines, r); done {
			return h, err
		}
	}
	for _, l := range lines {
		if s.items[l.Item] == nil {
			if s.is("an unknown item is taken for one that is sold out") {
				return hold.Hold{}, &hold.TakenError{Item: l.Item, Wanted: l.Quantity}
			}
			return hold.Hold{}, &hold.NotFoundError{What: "item", Name: l.Item}
		}
	}
	if err := s.limits(req, lines); err != nil {
		return hold.Hold{}, err
	}
	if s.is("limits are read before the lock") {
		s.yield()
	}
	if err := s.taken(lines); err != nil {
		if s.is("a refused place uses up its id") {
			s.holds[req.ID] = &reserved{req: req, lines: lines, placed: s.now(), ended: s.now(), state: hold.Released}
		}
		if !s.is("a hold has what it can get") {
			return hold.Hold{}, err
		}
		all := lines
		lines = nil
		for _, l := range all {
			if s.taken([]hold.Line{l}) == nil {
				lines = append(lines, l)
			}
		}
		if len(lines) == 0 {
			return hold.Hold{}, err
		}
	}
	if s.is("what is free is read before the lock") {
		s.yield()
	}
	if s.is("an id is looked up before the lock") {
		s.yield()
		if r := s.holds[req.ID]; r != nil && r.req.Actor == req.Actor { // a second row of the same id
			other := req.ID
			other[15]++
			s.holds[other] = r
		}
	}
	req.Lines = lines
	r := &reserved{req: req, lines: lines, placed: s.now(), expires: s.now() + req.TTL, state: hold.Held}
	s.holds[req.ID] = r
	return s.tell(r), nil
}

// again answers a place whose id is known, unless a fault takes it for a new one.
func (s *frail) again(req hold.PlaceRequest, lines []hold.Line, r *reserved) (hold.Hold, error, bool) { //nolint:revive // whether it is an answer stands last
	refuse := func(err error) (hold.Hold, error, bool) { return hold.Hold{}, err, true }
	if s.is("an id is used again for anything") {
		return hold.Hold{}, nil, false
	}
	if state := s.state(r); s.is("an id that is over is used again") && state.Over() && state != hold.Confirmed {
		return hold.Hold{}, nil, false
	}
	switch {
	case r.req.Actor != req.Actor && !s.is("an id is compared without its actor"):
		return refuse(&hold.MismatchError{ID: req.ID, What: "actor"})
	case !slices.Equal(r.lines, lines) && !s.is("an id is compared without its lines"):
		return refuse(&hold.MismatchError{ID: req.ID, What: "lines"})
	case r.req.TTL != req.TTL && !s.is("an id is compared without its TTL"):
		return refuse(&hold.MismatchError{ID: req.ID, What: "ttl"})
	}
	state := s.state(r)
	if state != hold.Held && state != hold.Confirmed && !s.is("a hold that is over is told as placed") {
		return refuse(&hold.OverError{ID: req.ID, State: state, What: "placing it again"})
	}
	if s.is("placing again is refused") {
		return refuse(&hold.MismatchError{ID: req.ID, What: "lines"})
	}
	if s.is("placing again prolongs it") && state == hold.Held {
		r.expires = s.now() + req.TTL
	}
	return s.tell(r), nil, true
}

func (s *frail) limits(req hold.PlaceRequest, lines []hold.Line) error {
	if s.is("limits are ignored") {
		return nil
	}
	var holds, units, wanted int64
	for _, r := range s.holds {
		live := s.state(r) == hold.Held || s.is("limits count what has expired") && r.state == hold.Held || s.is("limits count what is sold") && r.state == hold.Confirmed
		if !live || r.req.Actor != req.Actor && !s.is("limits are everybody's together") {
			continue
		}
		holds++
		for _, l := range r.lines {
			units += l.Quantity
		}
	}
	for _, l := range lines {
		wanted += l.Quantity
	}
	if s.is("a limit of units counts lines") {
		wanted = int64(len(lines))
	}
	if s.is("a limit is passed by one") {
		holds, units = holds-1, units-1
	}
	switch {
	case req.MaxHolds > 0 && holds >= req.MaxHolds:
		return &hold.LimitError{Actor: req.Actor, What: "holds", Most: req.MaxHolds, Live: holds}
	case req.MaxUnits > 0 && units+wanted > req.MaxUnits:
		return &hold.LimitError{Actor: req.Actor, What: "units", Most: req.MaxUnits, Live: units}
	}
	return nil
}

// change runs a change by the hold's actor.
func (s *frail) change(ctx context.Context, op string, id fence.ID, actor string, invalid error, f func(r *reserved) error) (hold.Hold, error) {
	if invalid != nil {
		return hold.Hold{}, invalid
	}
	end, err := s.begin(ctx, op)
	if err != nil {
		return hold.Hold{}, err
	}
	defer end()
	r := s.holds[id]
	switch {
	case r == nil:
		return hold.Hold{}, &hold.NotFoundError{What: "hold", Name: id.String()}
	case r.req.Actor != actor && !s.is(op+" by anybody") && (!s.is("actors know no case") || !strings.EqualFold(r.req.Actor, actor)):
		return hold.Hold{}, &hold.ActorError{ID: id, Actor: actor}
	}
	if err := f(r); err != nil {
		return hold.Hold{}, err
	}
	return s.tell(r), nil
}

func (s *frail) Extend(ctx context.Context, id fence.ID, actor string, ttl time.Duration) (hold.Hold, error) {
	return s.change(ctx, "extend", id, actor, hold.CheckExtend(id, actor, ttl), func(r *reserved) error {
		if s.is("an extension is lost") {
			return nil
		}
		if state := s.state(r); state != hold.Held && (state != hold.Expired || !s.is("an extension revives what has expired")) {
			return &hold.OverError{ID: id, State: state, What: "extending it"}
		}
		until := s.now() + ttl
		if s.is("an extension is added to what is left") {
			until = r.expires + ttl
		}
		if !s.is("an extension shortens") {
			until = max(until, r.expires)
		}
		r.expires = until
		return nil
	})
}

func (s *frail) Confirm(ctx context.Context, req hold.ConfirmRequest) (hold.Hold, error) {
	return s.change(ctx, "confirm", req.ID, req.Actor, req.Check(), func(r *reserved) error {
		state := s.state(r)
		if s.is("a confirmation reads, then writes") {
			s.yield()
		}
		switch {
		case state == hold.Confirmed && s.is("confirming twice sells twice"):
			s.sell(r, req)
			return nil
		case state == hold.Late && s.is("a late payment is sold when it is told again"):
			s.sell(r, req)
			return nil
		case state == hold.Confirmed || state == hold.Late:
			if r.reference != req.Reference && !s.is("references are not compared") {
				if s.is("another reference replaces the first") {
					r.reference = req.Reference
					return nil
				}
				return &hold.MismatchError{ID: req.ID, What: "reference"}
			}
			return nil
		case state == hold.Released && !s.is("what was released is sold"):
			return &hold.OverError{ID: req.ID, State: state, What: "confirming it"}
		case state == hold.Expired && !s.inTime(r, req):
			return s.late(r, req)
		}
		s.sell(r, req)
		return nil
	})
}

func (s *frail) sell(r *reserved, req hold.ConfirmRequest) {
	for _, l := range r.lines {
		if s.is("a confirmation sells the first line") && l != r.lines[0] {
			continue
		}
		s.items[l.Item].sold += l.Quantity
	}
	r.state, r.reference, r.ended = hold.Confirmed, req.Reference, s.now()
}

// inTime reports whether a confirmation counts though the hold's time has passed.
func (s *frail) inTime(r *reserved, req hold.ConfirmRequest) bool {
	if s.is("what has expired is confirmed") {
		return true
	}
	if s.is("what has expired is confirmed while it is free") {
		return s.taken(r.lines) == nil
	}
	over := s.now() - r.expires
	switch {
	case req.Grace == 0:
		return false
	case over > req.Grace, over == req.Grace && !s.is("equality of grace is missed"):
		return s.is("grace never ends") && s.taken(r.lines) == nil
	case s.is("grace looks at the first line"):
		return s.taken(r.lines[:1]) == nil
	}
	return s.is("grace takes what others have") || s.taken(r.lines) == nil
}

func (s *frail) late(r *reserved, req hold.ConfirmRequest) error {
	if s.is("a late payment is refused") {
		return &hold.OverError{ID: req.ID, State: hold.Expired, What: "confirming it"}
	}
	if s.is("a late payment is not recorded") {
		return nil
	}
	if s.is("a late payment sells") {
		s.sell(r, req)
	}
	r.state, r.reference, r.ended = hold.Late, req.Reference, s.now()
	return nil
}

func (s *frail) Release(ctx context.Context, id fence.ID, actor string) (hold.Hold, error) {
	return s.change(ctx, "release", id, actor, hold.CheckRelease(id, actor), func(r *reserved) error {
		state := s.state(r)
		if s.is("a release reads, then writes") {
			s.yield()
		}
		switch {
		case state == hold.Held && s.is("a release is lost"):
		case state == hold.Held, state == hold.Expired && s.is("what has expired is released"):
			r.state, r.ended = hold.Released, s.now()
		case state == hold.Confirmed && s.is("releasing what is sold frees it"):
			for _, l := range r.lines {
				s.items[l.Item].sold -= l.Quantity
			}
			r.state, r.reference, r.ended = hold.Released, "", s.now()
		case state == hold.Late && s.is("what is late is released"):
			r.state, r.reference = hold.Released, ""
		case state == hold.Released && s.is("releasing twice is refused"), state == hold.Confirmed, state == hold.Late:
			return &hold.OverError{ID: id, State: state, What: "releasing it"}
		case state == hold.Released && s.is("releasing twice frees twice"):
			for _, l := range r.lines {
				s.items[l.Item].back += l.Quantity
			}
		}
		return nil
	})
}
