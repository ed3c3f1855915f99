package main

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// TestOnlyProtectedTablesOfSQLiteRefuse: the same as testOnlyProtectedTablesRefuse, of the tables in a file.
func TestOnlyProtectedTablesOfSQLiteRefuse(t *testing.T) {
	ctx := t.Context()
	f := &sqliteProtectSide{}
	closeAfter(t, f.close)
	if err := f.open(ctx, filepath.Join(t.TempDir(), "t.db"), protectMany+10); err != nil {
		t.Fatal(err)
	}
	good := slices.Clone(f.claims)
	for _, shape := range sqliteProtectShapes() {
		for _, s := range f.sides {
			bold := s
			bold.presents = false
			err := f.write(ctx, shape, bold)
			if errors.Is(err, fence.ErrRefused) != (s.name == protectFull) {
				t.Errorf("%s: %s, and nothing was presented: %v", shape.name, s.name, err)
			}
			f.claims[0].Token = good[0].Token + 1_000_000 // never issued
			if err := f.write(ctx, shape, s); errors.Is(err, fence.ErrAhead) != s.presents {
				t.Errorf("%s: %s, under a token that was never issued: %v", shape.name, s.name, err)
			}
			copy(f.claims, good)
			if err := f.write(ctx, shape, s); err != nil {
				t.Errorf("%s: %s, under the claims: %v", shape.name, s.name, err)
			}
		}
	}
	last := sqliteProtectShapes()[0]
	if was, err := f.store.Unprotect(ctx, last.table); !was || err != nil {
		t.Fatal(was, err)
	}
	bold := f.sides[len(f.sides)-1]
	bold.presents = false
	if err := f.write(ctx, last, bold); err != nil {
		t.Errorf("an unprotected table: %v", err)
	}
}
