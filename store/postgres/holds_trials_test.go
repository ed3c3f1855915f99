package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// counter is a rig and the holds on it.
type counter struct {
	*rig
	holds  *Holds
	place1 fence.ID // of a request that is made twice
}

func newCounter(t testing.TB) *counter {
	t.Helper()
	return counterIn(&rig{t: t, harness: newHarness(t)})
}

// counterIn has a store that waits at the database for as long as it takes.
func counterIn(r *rig) *counter {
	f := &counter{rig: r, holds: r.store.Holds()}
	f.holds.glance, f.holds.patience = time.Minute, time.Minute
	return f
}

// stock sets single items.
func (f *counter) stock(names ...string) {
	f.t.Helper()
	items := make([]hold.Item, len(names))
	for i, name := range names {
		items[i] = hold.Item{Name: name, Quantity: 1}
	}
	if err := f.holds.Stock(f.t.Context(), items); err != nil {
		f.t.Fatal(err)
	}
}

// want is a request of an actor for one of each item.
func (f *counter) want(actor string, ttl time.Duration, items ...string) hold.PlaceRequest {
	req := hold.PlaceRequest{ID: f.ids.New(), Actor: actor, TTL: ttl}
	for _, item := range items {
		req.Lines = append(req.Lines, hold.Line{Item: item, Quantity: 1})
	}
	return req
}

// place holds one of each item for an actor, which must succeed.
func (f *counter) place(actor string, ttl time.Duration, items ...string) hold.Hold {
	f.t.Helper()
	h, err := f.holds.Place(f.t.Context(), f.want(actor, ttl, items...))
	if err != nil {
		f.t.Fatal(err)
	}
	return h
}

// paid is the confirmation of a hold.
func paid(h hold.Hold) hold.ConfirmRequest {
	return hold.ConfirmRequest{ID: h.ID, Actor: h.Actor, Reference: "paid by " + h.Actor}
}

// is demands a hold's state.
func (f *counter) is(id fence.ID, want hold.State) hold.Hold {
	f.t.Helper()
	h, err := f.holds.Get(f.t.Context(), id)
	if err != nil || h.State != want {
		f.t.Fatalf("%v is %v, %v; want %v", id, h.State, err, want)
	}
	return h
}

// passed waits until a hold's deadline has passed by the server's clock, while others may have it locked.
func (f *counter) passed(ctx context.Context, id fence.ID) {
	f.t.Helper()
	if _, err := f.own.Exec(ctx, `SELECT pg_sleep(greatest(0, extract(epoch FROM until - clock_timestamp())) + 0.002) FROM tenure.hold WHERE id = $1`, uuid(id)); err != nil {
		f.t.Fatal(err)
	}
}

// soldTwice confirms holds that were told to be live, and is a ruleError if more is sold than there is.
func (f *counter) soldTwice(ctx context.Context, most int, all ...hold.Hold) error {
	sold := 0
	for _, h := range all {
		c, err := f.holds.Confirm(ctx, paid(h))
		if err == nil && c.State == hold.Confirmed {
			sold++
		}
	}
	if sold > most {
		return broken("%d were sold of %d", sold, most)
	}
	return nil
}

// itemGuards takes away the constraints that stand behind every form of selling.
const itemGuards = `ALTER TABLE tenure.item DROP CONSTRAINT never_oversold; DROP INDEX tenure.sold_once`

const (
	placeLock = "PERFORM 1 FROM tenure.item i WHERE i.name = ANY (v_items) ORDER BY i.name FOR NO KEY UPDATE;"
	lateClock = "v_now := clock_timestamp(); -- in a later statement than the locks"
)

func holdTrials() []trial {
	early := func(function string) []edit {
		return []edit{{function, lateClock, ""}, {function, "v_now timestamptz;", "v_now timestamptz := clock_timestamp();"}}
	}
	return []trial{
		{
			name: "a sale is slow, and the time of its hold passes",
			run:  slowSale,
			twins: map[string][]edit{
				"a place that does not lock the item": {{now: itemGuards}, {"hold_place", placeLock, ""}},
			},
		},
		{name: "the time of a hold passes while its confirmation waits", run: confirmedTooLate, twins: map[string][]edit{
			"the clock is read before the lock": early("hold_confirm"), "the item is locked by its update alone": {{"hold_lock", placeLock, ""}},
		}},
		{name: "the time of a hold passes while its extension waits", run: extendedTooLate, twins: map[string][]edit{"the clock is read before the lock": early("hold_extend")}},
		{
			name: "two want one unit at once",
			run:  twoAtOnce,
			twins: map[string][]edit{
				"decided by the look without locks": {{now: itemGuards}, {"hold_place", "FOR v_locked IN 0..1 LOOP", "FOR v_locked IN 0..0 LOOP"}},
			},
		},
		{
			name:  "a place and a sale want two items",
			run:   twoItems,
			twins: map[string][]edit{"a sale locks them in another order": {{"hold_lock", "ORDER BY i.name FOR", "ORDER BY i.name DESC FOR"}}},
		},
		{
			name:  "an actor places twice at once",
			run:   limitAtOnce,
			pause: []edit{{"hold_place", "INSERT INTO tenure.hold AS o", "PERFORM pg_advisory_xact_lock_shared(7077);\n\tINSERT INTO tenure.hold AS o"}},
			twins: map[string][]edit{"a limit without the actor's lock": {{"hold_place", "PERFORM pg_advisory_xact_lock(tenure.hold_actor_key(p_actor));", "NULL;"}}},
		},
	}
}

// repeatTrials are of what comes again, late, or goes meanwhile.
func repeatTrials() []trial {
	return []trial{
		{
			name:  "a place is repeated while it is under way",
			run:   repeatedMeanwhile,
			pause: []edit{{"hold_place", "j := tenure.hold_judge(", "PERFORM pg_advisory_xact_lock_shared(7077);\n\t\tj := tenure.hold_judge("}},
			twins: map[string][]edit{
				"the id is looked for before what is free": {
					{"hold_place", "PERFORM pg_advisory_xact_lock_shared(7077);", "IF EXISTS (SELECT 1 FROM tenure.hold o WHERE o.id = p_id) THEN RETURN tenure.hold_again(p_id, p_actor, v_items, v_quantities, v_ttl); END IF;\n\t\tPERFORM pg_advisory_xact_lock_shared(7077);"},
					{"hold_place", "IF EXISTS (SELECT 1 FROM tenure.hold o WHERE o.id = p_id) THEN -- asked later", "IF false THEN -- asked later"},
				},
			},
		},
		{
			name: "the clock steps back after somebody has acted on an expiry",
			run:  clockBack,
			twins: map[string][]edit{
				"expiry that is not a written verdict": {
					{now: itemGuards},
					{"hold_state", " OR EXISTS (SELECT 1 FROM tenure.hold_line l WHERE l.item = ANY (h.items) AND l.hold = h.id AND NOT l.live)", ""},
				},
				"nor one to a batch": {
					{now: itemGuards},
					{"hold_confirm_many", " AND NOT EXISTS (SELECT 1 FROM tenure.hold_line l WHERE l.item = ANY (h.items) AND l.hold = h.id AND NOT l.live)", ""},
				},
			},
		},
		{
			name: "a hold is forgotten beside one that is being confirmed within its grace",
			run:  forgottenInGrace,
			twins: map[string][]edit{
				"pruning that does not ask whether it is locked": {{"hold_prune", "FOR UPDATE OF o SKIP LOCKED", ""}, {"hold_prune", "FOR NO KEY UPDATE SKIP LOCKED", ""}},
			},
		},
	}
}

func slowSale(ctx context.Context, r *rig) error {
	f := counterIn(r)
	f.stock("seat")
	slow := f.place("slow", time.Second, "seat")
	x := r.begin(ctx, pgx.ReadCommitted)
	if h, err := f.holds.ConfirmTx(ctx, x, paid(slow)); err != nil || h.State != hold.Confirmed {
		return fmt.Errorf("%+v, %w", h, err)
	}
	f.passed(ctx, slow.ID)
	var quick hold.Hold
	placing := start(func() (err error) { quick, err = f.holds.Place(ctx, f.want("quick", time.Minute, "seat")); return err })
	r.blocked(ctx, 1, placing)
	x.commit(ctx)
	if err := <-placing; errors.Is(err, hold.ErrTaken) {
		return nil
	} else if err != nil {
		return err
	}
	if quick.State == hold.Held {
		return broken("a seat that was sold is held by %q", quick.Actor)
	}
	return nil
}

// late runs a call on a hold that waits for the item while the hold's time passes.
func late(ctx context.Context, r *rig, call func(f *counter, h hold.Hold) (hold.Hold, error)) (told hold.Hold, err error) {
	f := counterIn(r)
	f.stock("seat")
	h := f.place("slow", time.Second, "seat")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.item WHERE name = 'seat' FOR UPDATE`)
	waits := start(func() (err error) { told, err = call(f, h); return err })
	if !r.blocked(ctx, 1, waits) {
		return told, fmt.Errorf("it does not wait: %w", <-waits)
	}
	f.passed(ctx, h.ID)
	x.commit(ctx)
	return told, <-waits
}

func confirmedTooLate(ctx context.Context, r *rig) error {
	told, err := late(ctx, r, func(f *counter, h hold.Hold) (hold.Hold, error) { return f.holds.Confirm(ctx, paid(h)) })
	if err == nil && told.State != hold.Late {
		return broken("a hold is %v after its time", told.State)
	}
	return err
}

func extendedTooLate(ctx context.Context, r *rig) error {
	told, err := late(ctx, r, func(f *counter, h hold.Hold) (hold.Hold, error) { return f.holds.Extend(ctx, h.ID, h.Actor, time.Hour) })
	if err == nil {
		return broken("a hold whose time had passed is %v for %v", told.State, told.Left)
	}
	if !errors.Is(err, hold.ErrOver) {
		return err
	}
	return nil
}

func twoAtOnce(ctx context.Context, r *rig) error {
	f := counterIn(r)
	f.stock("seat")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `UPDATE tenure.item SET held = held WHERE name = 'seat'`)
	var told [2]hold.Hold
	var placing [2]chan error
	for i := range told {
		placing[i] = start(func() (err error) {
			req := f.want(fmt.Sprint("buyer ", i), time.Minute, "seat")
			req.MaxHolds = 10 // by itself, not with others
			told[i], err = f.holds.Place(ctx, req)
			return err
		})
	}
	if !r.blocked(ctx, 2, placing[0]) {
		return fmt.Errorf("they do not wait: %w", <-placing[0])
	}
	x.commit(ctx)
	for i := range told {
		if err := <-placing[i]; err != nil && !errors.Is(err, hold.ErrTaken) {
			return err
		}
	}
	if told[0].State == hold.Held && told[1].State == hold.Held {
		return broken("one unit is held twice")
	}
	if told[0].State != hold.Held && told[1].State != hold.Held {
		return broken("nobody has it")
	}
	return nil
}

func twoItems(ctx context.Context, r *rig) error {
	f := counterIn(r)
	if err := f.holds.Stock(ctx, []hold.Item{{Name: "a", Quantity: 2}, {Name: "b", Quantity: 2}}); err != nil {
		return err
	}
	h := f.place("seller", time.Minute, "a", "b")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT FROM tenure.item WHERE name = 'a' FOR UPDATE`)
	placing := start(func() error { _, err := f.holds.Place(ctx, f.want("buyer", time.Minute, "b", "a")); return err })
	if !r.blocked(ctx, 1, placing) {
		return fmt.Errorf("it does not wait: %w", <-placing)
	}
	selling := start(func() error { _, err := f.holds.Confirm(ctx, paid(h)); return err })
	if !r.blocked(ctx, 2, selling) {
		return fmt.Errorf("it does not wait: %w", <-selling)
	}
	x.commit(ctx)
	if err := errors.Join(<-placing, <-selling); err != nil {
		return err
	}
	if n, _ := deadlocks(r.harness); n > 0 {
		return broken("%d deadlocks", n)
	}
	return nil
}

func limitAtOnce(ctx context.Context, r *rig) error {
	f := counterIn(r)
	f.stock("a", "b")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, pauseLock)
	var placing []chan error
	for _, seat := range []string{"a", "b"} {
		req := f.want("greedy", time.Minute, seat)
		req.MaxHolds = 1
		placing = append(placing, start(func() error { _, err := f.holds.Place(ctx, req); return err }))
	}
	if !r.blocked(ctx, 2, placing[0]) {
		return fmt.Errorf("they do not wait: %w", <-placing[0])
	}
	x.commit(ctx)
	refused := 0
	for _, p := range placing {
		if err := <-p; errors.Is(err, hold.ErrLimit) {
			refused++
		} else if err != nil {
			return err
		}
	}
	if refused != 1 {
		return broken("an actor that may have one hold was refused %d of two", refused)
	}
	return nil
}

func repeatedMeanwhile(ctx context.Context, r *rig) error {
	f := counterIn(r)
	f.stock("seat")
	req := f.want("buyer", time.Minute, "seat")
	x := r.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, pauseLock)
	repeated := start(func() error {
		return pgx.BeginFunc(ctx, r.own, func(tx pgx.Tx) error { _, err := f.holds.PlaceTx(ctx, tx, req); return err })
	})
	if !r.blocked(ctx, 1, repeated) {
		return fmt.Errorf("it does not wait: %w", <-repeated)
	}
	if _, err := f.holds.Place(ctx, req); err != nil { // by the way for many, which is not held up
		return err
	}
	x.commit(ctx)
	if err := <-repeated; errors.Is(err, hold.ErrTaken) {
		return broken("a hold is in its own way: %v", err)
	} else if err != nil {
		return err
	}
	return nil
}

func clockBack(ctx context.Context, r *rig) error {
	f := counterIn(r)
	h := &holdHarness{r.harness}
	f.stock("one", "two")
	for _, seat := range []string{"one", "two"} { // the second is confirmed the long way
		first := f.place("first", time.Minute, seat)
		if err := h.Advance(ctx, 2*time.Minute); err != nil {
			return err
		}
		second := f.place("second", time.Hour, seat)
		if err := h.Advance(ctx, -10*time.Minute); err != nil {
			return err
		}
		req := paid(first)
		if seat == "two" {
			req.Grace = time.Nanosecond
		}
		told, err := f.holds.Confirm(ctx, req)
		if err != nil {
			return err
		}
		if told.State != hold.Late {
			if err := f.soldTwice(ctx, 0, second); err != nil {
				return broken("%s: the first is %v, and so is the second", seat, told.State)
			}
			return broken("%s: a hold that was taken over is %v", seat, told.State)
		}
	}
	return nil
}

func forgottenInGrace(ctx context.Context, r *rig) error {
	f := counterIn(r)
	f.stock("seat")
	h := f.place("slow", time.Minute, "seat")
	if err := (&holdHarness{r.harness}).Advance(ctx, 3*time.Hour); err != nil {
		return err
	}
	x := r.begin(ctx, pgx.ReadCommitted)
	req := paid(h)
	req.Grace = 24 * time.Hour
	if told, err := f.holds.ConfirmTx(ctx, x, req); err != nil || told.State != hold.Confirmed {
		return fmt.Errorf("%+v, %w", told, err)
	}
	pruning := start(func() error { _, err := f.holds.Prune(ctx, time.Hour, 10); return err })
	if r.blocked(ctx, 1, pruning) {
		x.commit(ctx)
		return errors.Join(broken("pruning waits for a sale"), <-pruning)
	}
	if err := <-pruning; err != nil {
		return err
	}
	x.commit(ctx)
	f.is(h.ID, hold.Confirmed)
	return nil
}
