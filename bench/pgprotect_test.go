package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/store/postgres"
)

// testOnlyProtectedTablesRefuse: a table that checks nothing would be as fast as its twin, and a twin that is another table would be no twin.
func testOnlyProtectedTablesRefuse(t *testing.T, side *pgSide) {
	t.Helper()
	ctx := t.Context()
	f := &pgProtectSide{pgSide: side, sides: protectSides()}
	if err := f.open(ctx, protectMany+10, 1); err != nil { // each side has written once, and as many rows as it should
		t.Fatal(err)
	}
	good := slices.Clone(f.claims)
	for _, shape := range protectShapes() {
		var made []string
		for _, s := range f.sides {
			bold := s
			bold.presents = false
			err := f.write(ctx, shape, bold, 0)
			refused := new(fence.RefusedError)
			if was := errors.As(err, &refused) && refused.Why == fence.NotPresented; was != (s.name == protectFull) {
				t.Errorf("%s: %s, and nothing was presented: %v", shape.name, s.name, err)
			}
			f.claims[0].Token = good[0].Token + 1_000_000 // never issued
			if err := f.write(ctx, shape, s, 0); errors.Is(err, fence.ErrAhead) != s.presents {
				t.Errorf("%s: %s, under a token that was never issued: %v", shape.name, s.name, err)
			}
			copy(f.claims, good)
			if err := f.write(ctx, shape, s, 0); err != nil {
				t.Errorf("%s: %s, under the claims: %v", shape.name, s.name, err)
			}
			made = append(made, f.describe(t, shape.table+s.suffix))
		}
		if made[0] != made[1] || made[0] != made[2] {
			t.Errorf("%s: the tables differ: %q", shape.name, made)
		}
	}
	// A table that has lost its protection does not pass for one that has it.
	last := protectShapes()[len(protectShapes())-1]
	if _, err := postgres.Unprotect(ctx, side.admin, last.table); err != nil {
		t.Fatal(err)
	}
	bold := f.sides[len(f.sides)-1]
	bold.presents = false
	if err := f.write(ctx, last, bold, 0); err != nil {
		t.Errorf("an unprotected table: %v", err)
	}
}

// describe is the columns, indexes and settings of a table, with T for its name.
func (f *pgProtectSide) describe(t *testing.T, table string) string {
	t.Helper()
	var text string
	err := f.admin.QueryRow(t.Context(), `SELECT concat(c.reloptions, (SELECT string_agg(concat(a.attname, ' ', a.atttypid::regtype, a.attnotnull), ', ' ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
		(SELECT string_agg(pg_get_indexdef(i.indexrelid), '; ' ORDER BY i.indexrelid) FROM pg_index i WHERE i.indrelid = c.oid)) FROM pg_class c WHERE c.oid = $1::text::regclass`, table).Scan(&text)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(text, table, "T")
}

// TestProtectStatementsAreThoseOfTheReport: 1,000 rows are 1,000 rows.
func TestProtectStatementsAreThoseOfTheReport(t *testing.T) {
	if len(sqliteProtectShapes()) != 6 {
		t.Errorf("SQLite has %d of the 6 statements", len(sqliteProtectShapes()))
	}
	for _, shape := range slices.Concat(protectShapes(), sqliteProtectShapes()) {
		if want := map[bool]int64{true: 1, false: protectMany}[strings.Contains(shape.name, "1 row")]; shape.rows() != want {
			t.Errorf("%s writes %d rows", shape.name, shape.rows())
		}
	}
}
