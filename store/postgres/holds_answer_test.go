package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/hold"
	"github.com/tenure-go/tenure/hold/holdtest"
	"github.com/tenure-go/tenure/internal/testdb"
)

// holdAnswers are the calls whose answer is lost. Each is made again, and its second answer is the truth about the first.
func holdAnswers() map[string]struct {
	match string
	call  func(ctx context.Context, f *counter, req hold.PlaceRequest) (hold.Hold, error)
	want  hold.State
} {
	type row = struct {
		match string
		call  func(ctx context.Context, f *counter, req hold.PlaceRequest) (hold.Hold, error)
		want  hold.State
	}
	held := hold.Hold{Actor: "ann"}
	return map[string]row{
		"place": {"tenure.hold_place_many", func(ctx context.Context, f *counter, req hold.PlaceRequest) (hold.Hold, error) {
			req.ID, req.Lines = f.place1, []hold.Line{{Item: "free", Quantity: 1}}
			return f.holds.Place(ctx, req)
		}, hold.Held},
		"place with a limit": {"tenure.hold_place(", func(ctx context.Context, f *counter, req hold.PlaceRequest) (hold.Hold, error) {
			req.ID, req.Lines, req.MaxHolds = f.place1, []hold.Line{{Item: "free", Quantity: 1}}, 2
			return f.holds.Place(ctx, req)
		}, hold.Held},
		"extend": {"tenure.hold_extend", func(ctx context.Context, f *counter, req hold.PlaceRequest) (hold.Hold, error) {
			return f.holds.Extend(ctx, req.ID, "ann", time.Hour)
		}, hold.Held},
		"confirm": {"tenure.hold_confirm_many", func(ctx context.Context, f *counter, req hold.PlaceRequest) (hold.Hold, error) {
			held.ID = req.ID
			return f.holds.Confirm(ctx, paid(held))
		}, hold.Confirmed},
		"confirm with grace": {"tenure.hold_confirm(", func(ctx context.Context, f *counter, req hold.PlaceRequest) (hold.Hold, error) {
			return f.holds.Confirm(ctx, hold.ConfirmRequest{ID: req.ID, Actor: "ann", Reference: "r", Grace: time.Hour})
		}, hold.Confirmed},
		"release": {"tenure.hold_release", func(ctx context.Context, f *counter, req hold.PlaceRequest) (hold.Hold, error) {
			return f.holds.Release(ctx, req.ID, "ann")
		}, hold.Released},
	}
}

// TestAnswersOfHoldsAreLost: the commit's answer is lost; the call says that the outcome is unknown, and asking again tells what it was.
func TestAnswersOfHoldsAreLost(t *testing.T) {
	for name, a := range holdAnswers() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			l := newLossy(t, Options{})
			f := counterIn(l.rig)
			f.place1 = f.ids.New()
			f.stock("seat", "free")
			req := f.want("ann", time.Minute, "seat")
			if _, err := f.holds.Place(ctx, req); err != nil {
				t.Fatal(err)
			}
			lost := l.lose(a.match, nil)
			var unknown *hold.UnknownError
			if got, err := a.call(ctx, f, req); !errors.As(err, &unknown) {
				t.Fatalf("the lost answer: %+v, %v; want ErrUnknown", got, err)
			}
			lost()
			if got, err := a.call(ctx, f, req); err != nil || got.State != a.want || unknown.ID != got.ID {
				t.Fatalf("asked again: %+v, %v; want %v", got, err, a.want)
			}
			if err := (&holdHarness{l.harness}).Check(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestStrangersAtTheCounterShareNoFate: among calls that are coalesced some want an item that a sale has locked. The others are answered while they wait.
func TestStrangersAtTheCounterShareNoFate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newCounter(t)
	const n = 100
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("seat ", i)
	}
	f.stock(slices.Concat(names, []string{"locked", "sold"})...)
	mine := f.place("ann", time.Minute, "sold")
	x := f.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.item WHERE name IN ('locked', 'sold') FOR UPDATE`)
	late := make(chan error, 2)
	go func() { _, err := f.holds.Place(ctx, f.want("bob", time.Minute, "locked")); late <- err }()
	go func() { _, err := f.holds.Confirm(ctx, paid(mine)); late <- err }()
	var others sync.WaitGroup
	for _, name := range names {
		others.Go(func() {
			h, err := f.holds.Place(ctx, f.want("cid", time.Minute, name))
			if err == nil {
				h, err = f.holds.Confirm(ctx, paid(h))
			}
			if err != nil || h.State != hold.Confirmed {
				t.Error(name, h, err)
			}
		})
	}
	others.Wait()
	select {
	case err := <-late:
		t.Errorf("one did not wait: %v", err)
	default:
	}
	x.commit(ctx)
	for range 2 {
		if err := <-late; err != nil {
			t.Error(err)
		}
	}
}

// TestHoldsTakeRights: a member of tenure_user stocks, places and sells; forgetting takes tenure_operator, and the error says so; the tables are nobody's.
func TestHoldsTakeRights(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	admin, conn := asRole(t, roleUser)
	config := conn.Config()
	s := openStore(t, testdb.Shared(t).URLAs(config.User, config.Database), Options{})
	f := &counter{rig: &rig{t: t, harness: &harness{t: t, store: s}}, holds: s.Holds()}
	f.stock("a", "b", "c")
	sold, released, live := f.place("ann", time.Minute, "a"), f.place("ann", time.Minute, "b"), f.place("ann", time.Minute, "c")
	_, confirm := f.holds.Confirm(ctx, paid(sold))
	_, release := f.holds.Release(ctx, released.ID, "ann")
	_, extend := f.holds.Extend(ctx, live.ID, "ann", time.Hour)
	_, list := f.holds.List(ctx, hold.ListRequest{Limit: 10})
	items, page := f.holds.Items(ctx, "", "", 10)
	if err := errors.Join(confirm, release, extend, list, page); err != nil || len(items) != 3 {
		t.Fatal(items, err)
	}
	if _, err := f.holds.Prune(ctx, time.Hour, 10); !errors.Is(err, hold.ErrUnavailable) || !errors.Is(err, ErrSetup) || !strings.Contains(err.Error(), roleOperator) {
		t.Errorf("without tenure_operator: %v", err)
	}
	refusedRights(t, conn, `SELECT * FROM tenure.item`, `UPDATE tenure.item SET sold = 0`, `SELECT * FROM tenure.hold`, `UPDATE tenure.hold SET state = 2`, `DELETE FROM tenure.hold_line`,
		`SELECT tenure.hold_free(ARRAY['a'], now())`, `SELECT tenure.hold_lock('00000000-0000-0000-0000-000000000001', 'ann')`)
	must(t, admin, `GRANT tenure_operator TO `+config.User)
	if _, err := f.holds.Prune(ctx, time.Hour, 10); err != nil {
		t.Error(err)
	}
}

// TestBouncerHoldConformance runs the suite through PgBouncer in transaction mode, in both ways to do without prepared statements.
func TestBouncerHoldConformance(t *testing.T) {
	b := startBouncer(t)
	for _, mode := range []string{"cache_describe", "exec"} {
		t.Run(mode, func(t *testing.T) {
			runHolds(t, holdtest.Cases(), func(t testing.TB) *holdHarness { t.Helper(); return &holdHarness{b.harness(t, mode)} })
		})
	}
}
