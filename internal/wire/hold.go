package wire

import (
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
)

func (r *reader) hold() error {
	if r.field == "" {
		return nil
	}
	return &hold.InvalidError{Field: r.field, Problem: r.problem}
}

// PutItem writes an item with what is known of it.
func PutItem(i hold.ItemInfo) *v1.Item {
	return &v1.Item{Name: i.Name, Quantity: i.Quantity, Sold: i.Sold, Held: i.Held}
}

// GetItem reads it.
func GetItem(m *v1.Item) hold.ItemInfo {
	return hold.ItemInfo{Item: hold.Item{Name: m.GetName(), Quantity: m.GetQuantity()}, Sold: m.GetSold(), Held: m.GetHeld()}
}

func putLine(l hold.Line) *v1.HoldLine {
	return &v1.HoldLine{Item: l.Item, Quantity: l.Quantity}
}

func getLine(m *v1.HoldLine) hold.Line {
	return hold.Line{Item: m.GetItem(), Quantity: m.GetQuantity()}
}

// PutPlace writes the request.
func PutPlace(r hold.PlaceRequest) *v1.PlaceHoldRequest {
	return &v1.PlaceHoldRequest{Id: ID(r.ID), Actor: r.Actor, Lines: All(r.Lines, putLine), Ttl: duration(r.TTL), MaxHolds: r.MaxHolds, MaxUnits: r.MaxUnits}
}

// GetPlace reads it.
func GetPlace(m *v1.PlaceHoldRequest) (hold.PlaceRequest, error) {
	var r reader
	req := hold.PlaceRequest{
		ID: r.id("id", m.GetId()), Actor: m.GetActor(), Lines: All(m.GetLines(), getLine), TTL: r.span("ttl", m.GetTtl()), MaxHolds: m.GetMaxHolds(), MaxUnits: m.GetMaxUnits(),
	}
	return req, r.hold()
}

// PutConfirm writes the request.
func PutConfirm(r hold.ConfirmRequest) *v1.ConfirmHoldRequest {
	return &v1.ConfirmHoldRequest{Id: ID(r.ID), Actor: r.Actor, Reference: r.Reference, Grace: duration(r.Grace)}
}

// GetConfirm reads it.
func GetConfirm(m *v1.ConfirmHoldRequest) (hold.ConfirmRequest, error) {
	var r reader
	req := hold.ConfirmRequest{ID: r.id("id", m.GetId()), Actor: m.GetActor(), Reference: m.GetReference(), Grace: r.span("grace", m.GetGrace())}
	return req, r.hold()
}

// PutHold writes a hold.
func PutHold(h hold.Hold) *v1.Hold {
	return &v1.Hold{
		Id: ID(h.ID), Actor: h.Actor, Lines: All(h.Lines, putLine), Ttl: duration(h.TTL), State: v1.HoldState(h.State), Left: duration(h.Left), Reference: h.Reference,
		Age: duration(h.Age), Ended: duration(h.Ended),
	}
}

// GetHold reads it.
func GetHold(m *v1.Hold) (hold.Hold, error) {
	var r reader
	h := hold.Hold{
		ID: r.id("id", m.GetId()), Actor: m.GetActor(), Lines: All(m.GetLines(), getLine), TTL: r.span("ttl", m.GetTtl()), State: hold.State(m.GetState()), Left: r.span("left", m.GetLeft()),
		Reference: m.GetReference(), Age: r.span("age", m.GetAge()), Ended: r.span("ended", m.GetEnded()),
	}
	return h, r.hold()
}

// PutHoldList writes the request.
func PutHoldList(r hold.ListRequest) *v1.ListHoldsRequest {
	return &v1.ListHoldsRequest{
		Actor: r.Actor, Item: r.Item, States: All(r.States, func(s hold.State) v1.HoldState { return v1.HoldState(s) }), After: ID(r.After), Limit: Int32(r.Limit),
	}
}

// GetHoldList reads it.
func GetHoldList(m *v1.ListHoldsRequest) (hold.ListRequest, error) {
	var r reader
	req := hold.ListRequest{
		Actor: m.GetActor(), Item: m.GetItem(), States: All(m.GetStates(), func(s v1.HoldState) hold.State { return hold.State(s) }), After: r.id("after", m.GetAfter()),
		Limit: page(m.GetLimit()),
	}
	return req, r.hold()
}

// GetHoldPrune reads what to forget.
func GetHoldPrune(m *v1.PruneHoldsRequest) (age time.Duration, err error) {
	var r reader
	age = r.span("age", m.GetAge())
	return age, r.hold()
}

// GetExtend reads how long.
func GetExtend(m *v1.ExtendHoldRequest) (req hold.PlaceRequest, err error) {
	var r reader
	req = hold.PlaceRequest{ID: r.id("id", m.GetId()), Actor: m.GetActor(), TTL: r.span("ttl", m.GetTtl())}
	return req, r.hold()
}

// HoldErrorOf is an error of package hold as the error of a call.
func HoldErrorOf(err error) error {
	if err == nil {
		return nil
	}
	if f := HoldFault(err); f != nil {
		return faulty(f, err)
	}
	return connect.NewError(connect.CodeUnknown, err)
}

// HoldFault is an error of package hold as a message, or nil.
func HoldFault(err error) *v1.Fault {
	if f := openFault[*hold.UnknownError, *hold.UnavailableError](err, func(e *hold.UnknownError) *v1.Fault {
		return call(codeUnknown, e.Op, ID(e.ID), e.Err, "")
	}, func(e *hold.UnavailableError) *v1.Fault { return call(codeUnavailable, e.Op, "", e.Err, "") }); f != nil {
		return f
	}
	var (
		invalid  *hold.InvalidError
		taken    *hold.TakenError
		limit    *hold.LimitError
		mismatch *hold.MismatchError
		actor    *hold.ActorError
		over     *hold.OverError
		missing  *hold.NotFoundError
	)
	switch {
	case errors.As(err, &invalid):
		return invalidFault(invalid.Field, invalid.Problem, false)
	case errors.As(err, &taken):
		return holdFault("taken", &v1.HoldFault{Item: taken.Item, Wanted: taken.Wanted, Free: taken.Free, Next: duration(taken.Next)})
	case errors.As(err, &limit):
		return holdFault("limit", &v1.HoldFault{Actor: limit.Actor, What: limit.What, Most: limit.Most, Live: limit.Live})
	case errors.As(err, &mismatch):
		return &v1.Fault{Code: codeMismatch, Facts: &v1.Fault_Mismatch{Mismatch: &v1.MismatchFault{What: mismatch.What, Id: ID(mismatch.ID)}}}
	case errors.As(err, &actor):
		return holdFault("actor", &v1.HoldFault{Id: ID(actor.ID), Actor: actor.Actor})
	case errors.As(err, &over):
		return holdFault("over", &v1.HoldFault{Id: ID(over.ID), State: v1.HoldState(over.State), What: over.What})
	case errors.As(err, &missing):
		return holdFault("not_found", &v1.HoldFault{What: missing.What, Item: missing.Name})
	}
	return nil
}

func holdFault(code string, facts *v1.HoldFault) *v1.Fault {
	return &v1.Fault{Code: code, Facts: &v1.Fault_Hold{Hold: facts}}
}

// HoldError is what HoldFault was made of, or nil for a fault that this version does not know.
func HoldError(f *v1.Fault) error {
	var r reader
	err := r.holdError(f)
	if r.field != "" {
		return nil
	}
	return err
}

func (r *reader) holdError(f *v1.Fault) error {
	if !fits(f) {
		return nil
	}
	switch facts := f.GetFacts().(type) {
	case *v1.Fault_Invalid:
		return &hold.InvalidError{Field: facts.Invalid.GetField(), Problem: facts.Invalid.GetProblem()}
	case *v1.Fault_Mismatch:
		return &hold.MismatchError{ID: r.id("id", facts.Mismatch.GetId()), What: facts.Mismatch.GetWhat()}
	case *v1.Fault_Call:
		c := facts.Call
		if f.GetCode() == codeUnknown {
			return &hold.UnknownError{Op: c.GetOp(), ID: r.id("id", c.GetId()), Err: errors.New(c.GetCause())}
		}
		return &hold.UnavailableError{Op: c.GetOp(), Err: errors.New(c.GetCause())}
	case *v1.Fault_Hold:
		h := facts.Hold
		switch f.GetCode() {
		case "taken":
			return &hold.TakenError{Item: h.GetItem(), Wanted: h.GetWanted(), Free: h.GetFree(), Next: r.span("next", h.GetNext())}
		case "limit":
			return &hold.LimitError{Actor: h.GetActor(), What: h.GetWhat(), Most: h.GetMost(), Live: h.GetLive()}
		case "actor":
			return &hold.ActorError{ID: r.id("id", h.GetId()), Actor: h.GetActor()}
		case "over":
			return &hold.OverError{ID: r.id("id", h.GetId()), State: hold.State(h.GetState()), What: h.GetWhat()}
		case "not_found":
			return &hold.NotFoundError{What: h.GetWhat(), Name: h.GetItem()}
		}
	}
	return nil
}

// GetHoldID reads an id.
func GetHoldID(text string) (fence.ID, error) {
	var r reader
	id := r.id("id", text)
	return id, r.hold()
}

// PutHoldGuarantees writes what a store of holds keeps.
func PutHoldGuarantees(g hold.Guarantees) *v1.HoldGuarantees {
	return &v1.HoldGuarantees{Store: g.Store, Durable: g.Durable, Exclusive: g.Exclusive}
}

// GetHoldGuarantees reads it.
func GetHoldGuarantees(m *v1.HoldGuarantees) hold.Guarantees {
	return hold.Guarantees{Store: m.GetStore(), Durable: m.GetDurable(), Exclusive: m.GetExclusive()}
}
