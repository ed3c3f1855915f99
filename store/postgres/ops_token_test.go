package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestFault14OneTokenManyOperations: one holder's token lets through two operations, and the same one twice only as what it is already: the token tells holders apart, and the id operations.
func TestFault14OneTokenManyOperations(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOffice(t)
	claim := f.acquire(ctx, f.open(ctx, time.Hour), "n")
	for i, want := range []struct {
		id    string
		known bool
	}{{"a", false}, {"b", false}, {"a", true}} {
		err := f.store.Fenced(ctx, claim, func(ctx context.Context, tx pgx.Tx) error {
			sub, err := f.ops.SubmitTx(ctx, tx, submission(want.id))
			if err == nil && sub.Known != want.known {
				t.Errorf("%d: %s was known: %v; want %v", i, want.id, sub.Known, want.known)
			}
			return err
		})
		if err != nil {
			t.Fatal(i, err)
		}
	}
	jobs, err := f.ops.Claim(ctx, claimOf(10))
	if err != nil || len(jobs) != 2 {
		t.Fatalf("%d attempts of two operations, %v", len(jobs), err)
	}
}
