package postgres

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/testdb"
	"github.com/tenure-go/tenure/operation"
)

// largest submits n operations with requests of the greatest size.
func (f *office) largest(ctx context.Context, n int) {
	f.t.Helper()
	body := bytes.Repeat([]byte("x"), operation.MaxBody)
	for i := range n {
		req := submission(fmt.Sprint("o", i))
		req.Request, req.Fingerprint = body, operation.FingerprintOf("k", body)
		if _, err := f.ops.Submit(ctx, req); err != nil {
			f.t.Fatal(err)
		}
	}
}

// repliesInBytes claims, and asks for what is due, until there is no more of 40 MiB, and says how large the replies were.
func repliesInBytes(ctx context.Context, f *office) (claims, dues []int, err error) {
	const n = 40
	f.largest(ctx, n)
	req := claimOf(n)
	req.Kinds[0].Window = 0
	for left := n; left > 0; {
		jobs, err := f.ops.Claim(ctx, req)
		if err != nil || len(jobs) == 0 {
			return nil, nil, fmt.Errorf("claimed %d: %w", len(jobs), err)
		}
		all := make([]operation.Completion, len(jobs))
		for i, j := range jobs {
			if len(j.Request) != operation.MaxBody {
				return nil, nil, fmt.Errorf("%s came with %d bytes", j.ID, len(j.Request))
			}
			all[i] = operation.Completion{Ref: j.Ref, Answer: operation.Answer{Known: operation.NoAnswer}}
		}
		if _, err := f.ops.Complete(ctx, all); err != nil {
			return nil, nil, err
		}
		claims, left = append(claims, len(jobs)), left-len(jobs)
	}
	for left := n; left > 0; {
		due, err := f.ops.Due(ctx, operation.DueRequest{Kinds: []string{"k"}, Limit: n, Hold: time.Hour})
		if err != nil || len(due) == 0 {
			return nil, nil, fmt.Errorf("due are %d: %w", len(due), err)
		}
		dues, left = append(dues, len(due)), left-len(due)
	}
	return claims, dues, nil
}

// TestRepliesAreBoundedInBytes: of 40 operations of 1 MiB a reply holds 32 MiB; the others stay, and come with the next.
func TestRepliesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	claims, dues, err := repliesInBytes(t.Context(), newOffice(t))
	if want := "[32 8] [32 8]"; err != nil || fmt.Sprint(claims, dues) != want {
		t.Fatalf("replies of %v and %v, %v; want %s", claims, dues, err, want)
	}
}

// TestRepliesWithoutABound is the twin: all of them in one reply.
func TestRepliesWithoutABound(t *testing.T) {
	t.Parallel()
	f := newOffice(t)
	if err := f.edit(t.Context(), edit{"op_fit", "x.before < 33554432", "true"}); err != nil {
		t.Fatal(err)
	}
	claims, dues, err := repliesInBytes(t.Context(), f)
	if err != nil || len(claims) == 2 || len(dues) == 2 {
		t.Fatalf("the twin was not caught: %v, %v, %v", claims, dues, err)
	}
}

// TestOldStringsChangeNothing: a session in which backslashes escape finds the same functions.
func TestOldStringsChangeNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := newOffice(t)
	for _, sql := range []string{
		`SELECT tenure.op_submit('a_b', 'k', '{}')`,
		`SELECT tenure.op_submit_many(ARRAY['c'], ARRAY['k'], ARRAY['{}'::bytea], ARRAY[sha256('{}')], ARRAY[0], ARRAY[interval '0'])`,
		`SELECT number FROM tenure.op_claim(ARRAY['k'], p_id => 'a_b')`,
		`DO $do$ BEGIN ASSERT 1 = (SELECT count(*) FROM tenure.op_list('{}', p_prefix => 'a_')) AND 0 = (SELECT count(*) FROM tenure.op_list('{}', p_prefix => '_')); END $do$`,
		`DO $do$ BEGIN PERFORM tenure.op_submit('a' || chr(31), 'k', '{}'); RAISE 'a control character'; EXCEPTION WHEN SQLSTATE 'TN004' THEN NULL; END $do$`,
	} {
		if err := f.exec(ctx, `SET standard_conforming_strings = off; `+sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	f.is("a_b", operation.Attempting)
	f.is("c", operation.Pending)
}

// TestTheWayBackFromBounds: what version 5 has replaced is again what it was.
func TestTheWayBackFromBounds(t *testing.T) {
	t.Parallel()
	s := testdb.Shared(t)
	conn := connect(t, s.URL(s.Database(t)))
	if _, err := migrate(t.Context(), conn, steps()[:4], MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	before := catalog(t, conn)
	if _, err := migrate(t.Context(), conn, steps()[:5], MigrateOptions{}); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(catalog(t, conn), before) {
		t.Fatal("version 5 changes nothing")
	}
	must(t, conn, steps()[4].downScript())
	if !slices.Equal(catalog(t, conn), before) {
		t.Error("after the way back the schema has other things than the fourth version")
	}
}
