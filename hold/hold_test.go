package hold_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// TestErrorsAreOfOneKind demands that each error matches one kind, keeps its cause, and says what it is about.
func TestErrorsAreOfOneKind(t *testing.T) {
	cause := errors.New("the line was cut")
	id := fence.ID{1}
	kinds := map[error]error{
		hold.ErrInvalid: &hold.InvalidError{Field: "ttl", Problem: "too long"}, hold.ErrTaken: &hold.TakenError{Item: "seat", Wanted: 2, Free: 1, Next: time.Second},
		hold.ErrLimit: &hold.LimitError{Actor: "ann", What: "holds", Most: 3, Live: 3}, hold.ErrMismatch: &hold.MismatchError{ID: id, What: "lines"}, hold.ErrActor: &hold.ActorError{ID: id, Actor: "bob"},
		hold.ErrOver: &hold.OverError{ID: id, State: hold.Late, What: "releasing it"}, hold.ErrNotFound: &hold.NotFoundError{What: "item", Name: "seat"},
		hold.ErrUnknown: &hold.UnknownError{Op: "place", ID: id, Err: cause}, hold.ErrUnavailable: &hold.UnavailableError{Op: "place", Err: cause},
	}
	parts := map[error][]string{
		hold.ErrInvalid: {"ttl", "too long"}, hold.ErrTaken: {`"seat"`, "2", "1 free", "1s"}, hold.ErrLimit: {`"ann"`, "3 live holds"}, hold.ErrMismatch: {id.String(), "lines"},
		hold.ErrActor: {id.String(), `"bob"`}, hold.ErrOver: {id.String(), "late", "releasing it"}, hold.ErrNotFound: {"item", `"seat"`}, hold.ErrUnknown: {"place", id.String(), "again"},
		hold.ErrUnavailable: {"place", "not applied"},
	}
	for kind, err := range kinds {
		for other := range kinds {
			if errors.Is(err, other) != errors.Is(kind, other) {
				t.Errorf("%v: matches %q is %t", err, other, errors.Is(err, other))
			}
		}
		for _, part := range parts[kind] {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
		if wants := errors.Is(kind, hold.ErrUnknown) || errors.Is(kind, hold.ErrUnavailable); errors.Is(err, cause) != wants {
			t.Errorf("%v: keeps its cause is %t", err, !wants)
		}
	}
	if sold := (&hold.TakenError{Item: "seat", Wanted: 1}).Error(); !strings.Contains(sold, "nothing is held") {
		t.Errorf("of what is sold out: %q", sold)
	}
}

func TestStates(t *testing.T) {
	want := []string{"State(0)", "held", "confirmed", "released", "expired", "late", "State(6)"}
	for i, text := range want {
		s := hold.State(i)
		if s.String() != text || s.Over() != (i >= 2 && i <= 5) {
			t.Errorf("state %d is %v, over %t", i, s, s.Over())
		}
	}
}

func TestSum(t *testing.T) {
	lines := []hold.Line{{Item: "b", Quantity: 1}, {Item: "a", Quantity: 2}, {Item: "b", Quantity: 3}}
	before := slices.Clone(lines)
	sum, err := hold.Sum(lines)
	if want := []hold.Line{{Item: "a", Quantity: 2}, {Item: "b", Quantity: 4}}; err != nil || !slices.Equal(sum, want) || !slices.Equal(lines, before) {
		t.Errorf("summed to %v, %v; the lines are %v", sum, err, lines)
	}
	most := slices.Repeat([]hold.Line{{Item: "a", Quantity: hold.MaxQuantity}}, hold.MaxLines)
	if _, err := hold.Sum(most[:1]); err != nil {
		t.Errorf("the most of one item: %v", err)
	}
	if _, err := hold.Sum(most); !errors.Is(err, hold.ErrInvalid) {
		t.Errorf("more than the most: %v", err)
	}
	if hold.MaxLines > math.MaxInt64/hold.MaxQuantity {
		t.Error("the sum of the most lines does not fit")
	}
}

// TestChecksNameTheField demands that what no store accepts is refused by the field that is wrong, and that what lies at the limit is accepted.
func TestChecksNameTheField(t *testing.T) {
	id := fence.ID{1}
	line := []hold.Line{{Item: "a", Quantity: 1}}
	place := func(change func(r *hold.PlaceRequest)) error {
		r := hold.PlaceRequest{ID: id, Actor: "ann", Lines: line, TTL: time.Minute}
		change(&r)
		return r.Check()
	}
	confirm := func(change func(r *hold.ConfirmRequest)) error {
		r := hold.ConfirmRequest{ID: id, Actor: "ann", Reference: "r"}
		change(&r)
		return r.Check()
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		field string // "" is accepted
		err   error
	}{
		{"", place(func(*hold.PlaceRequest) {})},
		{"id", place(func(r *hold.PlaceRequest) { r.ID = fence.ID{} })},
		{"actor", place(func(r *hold.PlaceRequest) { r.Actor = x(hold.MaxActor + 1) })},
		{"", place(func(r *hold.PlaceRequest) { r.Actor = x(hold.MaxActor) })},
		{"lines", place(func(r *hold.PlaceRequest) { r.Lines = nil })},
		{"", place(func(r *hold.PlaceRequest) { r.Lines = slices.Repeat(line, hold.MaxLines) })},
		{"lines", place(func(r *hold.PlaceRequest) { r.Lines = slices.Repeat(line, hold.MaxLines+1) })},
		{"item", place(func(r *hold.PlaceRequest) { r.Lines = []hold.Line{{Item: "a\n", Quantity: 1}} })},
		{"quantity", place(func(r *hold.PlaceRequest) { r.Lines = []hold.Line{{Item: "a"}} })},
		{"limits", place(func(r *hold.PlaceRequest) { r.MaxUnits = -1 })},
		{"ttl", place(func(r *hold.PlaceRequest) { r.TTL = hold.MaxTTL + 1 })},
		{"", confirm(func(r *hold.ConfirmRequest) { r.Reference, r.Grace = x(hold.MaxReference), hold.MaxGrace })},
		{"reference", confirm(func(r *hold.ConfirmRequest) { r.Reference = x(hold.MaxReference + 1) })},
		{"grace", confirm(func(r *hold.ConfirmRequest) { r.Grace = -1 })},
		{"actor", hold.CheckExtend(id, "", time.Minute)}, {"ttl", hold.CheckExtend(id, "ann", 0)}, {"", hold.CheckExtend(id, "ann", hold.MinTTL)},
		{"id", hold.CheckRelease(fence.ID{}, "ann")}, {"", hold.CheckRelease(id, "ann")},
		{"items", hold.CheckItems(nil)}, {"items", hold.CheckItems([]hold.Item{{Name: "a"}, {Name: "a"}})}, {"", hold.CheckItems([]hold.Item{{Name: "a", Quantity: hold.MaxQuantity}, {Name: "b"}})},
		{"", hold.CheckPage("", "", hold.MaxList)}, {"prefix", hold.CheckPage("\xff", "", 1)}, {"after", hold.CheckPage("", "\x00", 1)}, {"limit", hold.CheckPage("", "", 0)},
		{"", (&hold.ListRequest{Limit: 1, States: []hold.State{hold.Held, hold.Late}}).Check()}, {"state", (&hold.ListRequest{Limit: 1, States: []hold.State{0}}).Check()},
		{"actor", (&hold.ListRequest{Limit: 1, Actor: "\x01"}).Check()}, {"item", (&hold.ListRequest{Limit: 1, Item: "\x01"}).Check()},
		{"", hold.CheckPrune(hold.MinPruneAge, hold.MaxPrune)}, {"age", hold.CheckPrune(hold.MinPruneAge-1, 1)}, {"limit", hold.CheckPrune(hold.MinPruneAge, hold.MaxPrune+1)},
	} {
		var invalid *hold.InvalidError
		if errors.As(c.err, &invalid) != (c.field != "") || invalid != nil && invalid.Field != c.field {
			t.Errorf("%v; want it to name %q", c.err, c.field)
		}
	}
}
