package postgres

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/operation"
)

// completedElsewhere completes an attempt in a transaction on a copy of its database that has become an authority of its own, and returns what the copy's operation is then.
func completedElsewhere(ctx context.Context, t *testing.T, complete func(o *Operations, tx pgx.Tx, c operation.Completion) error) (operation.State, error) {
	t.Helper()
	here, there := newOffice(t), newOffice(t)
	var jobs []operation.Job
	for _, f := range []*office{here, there} {
		f.submit("o")
		jobs = append(jobs, f.begin())
	}
	if jobs[0].Number != jobs[1].Number {
		t.Fatalf("attempts %d and %d: this test shows nothing", jobs[0].Number, jobs[1].Number)
	}
	if err := there.exec(ctx, `SELECT tenure.authority_new()`); err != nil { // both are copies of one
		t.Fatal(err)
	}
	err := pgx.BeginFunc(ctx, there.own, func(tx pgx.Tx) error { return complete(here.ops, tx, done(jobs[0])) })
	rec, gone := there.ops.Get(ctx, "o")
	if gone != nil {
		t.Fatal(gone)
	}
	return rec.State, err
}

// TestCompleteTxOfAnotherAuthority: the same id and number in another authority's database are another operation.
func TestCompleteTxOfAnotherAuthority(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	is, err := completedElsewhere(ctx, t, func(o *Operations, tx pgx.Tx, c operation.Completion) error { return o.CompleteTx(ctx, tx, c) })
	var invalid *operation.InvalidError
	if !errors.As(err, &invalid) || invalid.Field != "transaction" || is != operation.Attempting {
		t.Fatalf("%v, and the operation is %v", err, is)
	}
}

// TestCompleteTxWithoutTheAuthority is the twin: the bare function knows ids and numbers alone.
func TestCompleteTxWithoutTheAuthority(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	is, err := completedElsewhere(ctx, t, func(_ *Operations, tx pgx.Tx, c operation.Completion) error {
		_, err := tx.Exec(ctx, completeText, completeArgs(&c)...)
		return err
	})
	if err != nil || is != operation.Succeeded {
		t.Fatalf("the twin was not caught: %v, %v", err, is)
	}
}
