package sqlite

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
)

// Prepared statements decide as parsed ones do, and each check runs on one.
func TestPreparedChecks(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := openPath(t, path)
	p := join(t, s, time.Minute)
	first := p.take("a")
	db := plainDB(t, path, "?_txlock=immediate")
	checks, err := Prepare(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := checks.Close(); err != nil {
			t.Error(err)
		}
	})
	for text, statement := range checks.byText {
		if statement == nil {
			t.Errorf("not prepared: %s", text)
		}
	}
	in := func(check func(tx DBTX) error) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := check(checks.In(tx)); err != nil {
			return err
		}
		return tx.Commit()
	}
	verify := func(claim fence.Claim) error {
		return in(func(tx DBTX) error { return Verify(t.Context(), tx, claim) })
	}
	enter := func(claim fence.Claim) error {
		return in(func(tx DBTX) error { return Enter(t.Context(), tx, "r", claim) })
	}
	admit := func(claim fence.Claim) error {
		return in(func(tx DBTX) error { return Admit(t.Context(), tx, "r", claim) })
	}
	if err := errors.Join(verify(first), enter(first), admit(first)); err != nil {
		t.Fatalf("the holder: %v", err)
	}
	p.drop(first)
	second := p.take("a")
	if err := errors.Join(enter(second), verify(second)); err != nil {
		t.Fatalf("the successor: %v", err)
	}
	for name, check := range map[string]func(fence.Claim) error{"verify": verify, "enter": enter, "admit": admit} {
		if err := check(first); !errors.Is(err, fence.ErrRefused) {
			t.Errorf("%s of the former holder: %v", name, err)
		}
	}
	if _, err := Prepare(t.Context(), emptyDB(t)); err == nil {
		t.Error("prepared on a file without Tenure's tables")
	}
}

func emptyDB(t *testing.T) *sql.DB {
	t.Helper()
	return plainDB(t, newPath(t), "")
}
