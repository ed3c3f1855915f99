package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/hold"
)

// holdCalls are the functions of holds, with calls that do their work: on seat "a" and stock "s".
func holdCalls() []string {
	const id = `('00000000-0000-7000-8000-0000000000' || '%s')::uuid`
	a, b, c, d := fmt.Sprintf(id, "0a"), fmt.Sprintf(id, "0b"), fmt.Sprintf(id, "0c"), fmt.Sprintf(id, "0d")
	return []string{
		`hold_place(` + a + `, 'ann', ARRAY['a', 's'], ARRAY[1, 2]::bigint[], '1 minute', 100, 100)`, `hold_place(` + a + `, 'ann', ARRAY['a', 's'], ARRAY[1, 2]::bigint[], '1 minute')`,
		`hold_place_many(ARRAY[` + b + `, ` + c + `], ARRAY['bob', 'cid'], ARRAY['1 minute', '1 minute']::interval[], ARRAY[1, 2], ARRAY['s', 'a'], ARRAY[1, 1]::bigint[])`,
		`hold_place(` + d + `, 'dan', ARRAY['s'], ARRAY[1]::bigint[], '1 minute')`,
		`hold_extend(` + a + `, 'ann', '2 minutes')`, `hold_confirm(` + a + `, 'ann', 'r')`, `hold_confirm(` + a + `, 'ann', 'r')`, `hold_confirm_many(ARRAY[` + b + `], ARRAY['bob'], ARRAY['r'])`,
		`hold_release(` + d + `, 'dan')`, `hold_get(` + a + `)`, `item_stock(ARRAY['n', 's'], ARRAY[1, 1000000]::bigint[])`, `items('a', '', 10)`,
		`hold_list('ann', 's', ARRAY['held'])`, `hold_list('ann', NULL, ARRAY['held'])`, `hold_list(NULL, 's', ARRAY['held'])`, `hold_list(NULL, NULL, ARRAY['held'])`,
		`hold_list('ann', p_limit => 10)`, `hold_list(NULL, 's', p_limit => 10)`, `hold_list(p_limit => 10)`, `hold_prune('1 hour', 10)`,
	}
}

// holdScanning calls each function of holds on tables that are empty and known to be, and returns those that scanned a table which grows, as [rig.scanning] does.
func (f *counter) holdScanning() []string {
	f.t.Helper()
	ctx := f.t.Context()
	if _, err := f.own.Exec(ctx, `ANALYSE tenure.item, tenure.hold, tenure.hold_line`); err != nil {
		f.t.Fatal(err)
	}
	x := f.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT tenure.item_stock(ARRAY['a', 's'], ARRAY[1, 1000]::bigint[])`)
	var found []string
	for _, call := range holdCalls() {
		before := x.holdScans()
		x.do(ctx, `SELECT * FROM tenure.`+call)
		if after := x.holdScans(); after != before {
			found = append(found, fmt.Sprintf("%s: %s, before %s", call, after, before))
		}
	}
	return found
}

// holdScans is how often this transaction has scanned the tables of holds.
func (x *hand) holdScans() (text string) {
	x.t.Helper()
	err := x.QueryRow(x.t.Context(), `SELECT string_agg(relname || ' ' || seq_scan, ', ' ORDER BY relname) FROM pg_stat_xact_user_tables
		WHERE schemaname = 'tenure' AND relname IN ('item', 'hold', 'hold_line')`).Scan(&text)
	if err != nil {
		x.t.Fatal(err)
	}
	return text
}

func TestPlansOfHoldsOnEmptyTables(t *testing.T) {
	t.Parallel()
	for _, found := range newCounter(t).holdScanning() {
		t.Error(found)
	}
}

// TestUnboundPlansOfHoldsScan: without the setting, the test above finds the scan.
func TestUnboundPlansOfHoldsScan(t *testing.T) {
	t.Parallel()
	f := newCounter(t)
	if _, err := f.own.Exec(t.Context(), `ALTER FUNCTION tenure.hold_place_many RESET enable_seqscan`); err != nil {
		t.Fatal(err)
	}
	if found := f.holdScanning(); !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, "hold_place_many") }) {
		t.Fatalf("not found, but %q", found)
	}
}

// fillHolds makes n ended holds of stock "s", most of them sold, by one actor and by as many as there are, n live ones, n single seats that are sold, and n that are free. The plans are made before.
const fillHolds = `
INSERT INTO tenure.item (name, quantity, sold) SELECT 'seat-' || lpad(i::text, 7, '0'), 1, (i <= $1)::int FROM generate_series(1, 2 * $1::int) i;
UPDATE tenure.item SET quantity = 10000000, sold = $1, held = $1 WHERE name = 's';
INSERT INTO tenure.hold (id, actor, state, units, ttl, placed, until, reference, items, quantities)
SELECT gen_random_uuid(), CASE WHEN i % 2 = 0 THEN 'ann' ELSE 'actor-' || i END, CASE WHEN i % 4 = 3 THEN 3 ELSE 2 END, 1, '1 minute', now() - interval '1 minute', now() + (i % 7 - 5) * interval '1 second',
	CASE WHEN i % 4 <> 3 THEN 'r' END, ARRAY[CASE WHEN i <= $1 THEN 's' ELSE 'seat-' || lpad((i - $1)::text, 7, '0') END], '{1}' FROM generate_series(1, 2 * $1::int) i;
INSERT INTO tenure.hold_line (item, hold, quantity, until, live, sole) SELECT items[1], id, 1, until, false, items[1] <> 's' FROM tenure.hold WHERE state <> 1 AND until > '-infinity' AND items[1] <> 'a';
WITH h AS (INSERT INTO tenure.hold (id, actor, units, ttl, placed, until, items, quantities)
	SELECT gen_random_uuid(), 'live-' || i, 1, '1 minute', now(), now() + interval '1 hour', '{s}', '{1}' FROM generate_series(1, $1::int) i RETURNING id, until)
INSERT INTO tenure.hold_line (item, hold, quantity, until) SELECT 's', id, 1, until FROM h`

// holdPages is how many pages each call touches, by plans that were made when the tables were new. No statistics are made meanwhile, as on a server they are within a minute or so.
func (f *counter) holdPages(n int) map[string]int {
	f.t.Helper()
	ctx := f.t.Context()
	x := f.begin(ctx, pgx.ReadCommitted)
	x.do(ctx, `SELECT tenure.item_stock(ARRAY['a', 's'], ARRAY[1, 1000000]::bigint[])`)
	x.do(ctx, `SAVEPOINT planned`)
	for _, call := range holdCalls() { // as a connection has done that is as old as the tables
		x.do(ctx, `SELECT * FROM tenure.`+call)
	}
	x.do(ctx, `ROLLBACK TO planned`)
	for _, statement := range strings.Split(strings.ReplaceAll(fillHolds, "$1", fmt.Sprint(n)), ";\n") {
		x.do(ctx, statement)
	}
	pages := map[string]int{}
	for i, call := range holdCalls() {
		for _, explain := range []string{`SAVEPOINT s`, ``, `ROLLBACK TO s`, ``} { // the first time it is planned, which reads the catalog
			if explain != "" {
				x.do(ctx, explain)
				continue
			}
			var text []byte
			if err := x.QueryRow(ctx, `EXPLAIN (ANALYSE, BUFFERS, FORMAT JSON) SELECT * FROM tenure.`+call).Scan(&text); err != nil {
				f.t.Fatal(call, err)
			}
			var plans []struct {
				Plan map[string]any
			}
			if err := json.Unmarshal(text, &plans); err != nil {
				f.t.Fatal(err)
			}
			pages[fmt.Sprintf("%02d %s", i, call)] = int(plans[0].Plan["Shared Hit Blocks"].(float64) + plans[0].Plan["Shared Read Blocks"].(float64))
		}
	}
	return pages
}

// TestPagesOfHoldsDoNotGrow: beside 100,000 ended holds of one item, as many live ones of it, as many of one actor, and as many sold seats, no call touches more than a handful of pages more than beside a hundred. Asked for what
// has ended, or all, a list reads a page of it.
func TestPagesOfHoldsDoNotGrow(t *testing.T) {
	t.Parallel()
	few, many := newCounter(t).holdPages(100), newCounter(t).holdPages(100_000)
	for call, n := range many {
		t.Logf("%4d pages, %4d beside few: %.120s", n, few[call], call)
		if strings.Contains(call, "ARRAY['held']") && !strings.Contains(call, "'ann'") {
			continue // it reads what is live
		}
		if n > few[call]+80 {
			t.Errorf("%s touches %d pages, and %d beside few", call, n, few[call])
		}
	}
}

// TestAMassExpiryIsFreedInSteps: 20,000 holds of one item expire at once; the next place frees a thousand of them, enough for itself, and a refusal counts the rest as free.
func TestAMassExpiryIsFreedInSteps(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newCounter(t)
	const n = 20_000
	if err := f.holds.Stock(ctx, []hold.Item{{Name: "s", Quantity: n}}); err != nil {
		t.Fatal(err)
	}
	_, err := f.own.Exec(ctx, `WITH h AS (INSERT INTO tenure.hold (id, actor, units, ttl, placed, until, items, quantities)
		SELECT gen_random_uuid(), 'a' || i, 1, '1 minute', now(), now() - interval '1 second', '{s}', '{1}' FROM generate_series(1, 20000) i RETURNING id, until)
		INSERT INTO tenure.hold_line (item, hold, quantity, until) SELECT 's', id, 1, until FROM h; `)
	if err == nil {
		_, err = f.own.Exec(ctx, `UPDATE tenure.item SET held = 20000`)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.place("buyer", time.Hour, "s")
	var held int
	if err := f.own.QueryRow(ctx, `SELECT held FROM tenure.item`).Scan(&held); err != nil || held != n-1000+1 {
		t.Errorf("%d are counted as held, %v; want %d", held, err, n-1000+1)
	}
	req := f.want("greedy", time.Hour)
	req.Lines = []hold.Line{{Item: "s", Quantity: n}}
	var taken *hold.TakenError
	if _, err := f.holds.Place(ctx, req); !errors.As(err, &taken) || taken.Free != n-1 {
		t.Errorf("%v; want %d free", err, n-1)
	}
	req.ID, req.Lines[0].Quantity = f.ids.New(), n-1
	if h, err := f.holds.Place(ctx, req); err != nil || h.State != hold.Held {
		t.Errorf("what is left: %+v, %v", h, err)
	}
	var live int
	if err := f.own.QueryRow(ctx, `SELECT held, (SELECT sum(quantity) FROM tenure.hold_line WHERE live) FROM tenure.item`).Scan(&held, &live); err != nil || held != n || live != n {
		t.Errorf("%d are counted as held, %d are, %v; want %d", held, live, err, n)
	}
}

// TestLinesByHalfTheirKeyAreFound: a form that looks for a line by its hold alone reads the whole index, and the test of pages says so.
func TestLinesByHalfTheirKeyAreFound(t *testing.T) {
	t.Parallel()
	f := newCounter(t)
	if err := f.edit(t.Context(), edit{"hold_extend", "WHERE l.item = ANY (h.items) AND l.hold = p_id", "WHERE l.hold = p_id"}); err != nil {
		t.Fatal(err)
	}
	for call, n := range f.holdPages(20_000) {
		if strings.Contains(call, "hold_extend") && n > 300 {
			t.Log(n, call)
			return
		}
	}
	t.Error("not found")
}
