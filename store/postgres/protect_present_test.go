package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// presenters are the ways to present, each in a transaction with a write.
func (s *shopRig) presenters(db *sql.DB) map[string]func(context.Context, string, ...fence.Claim) error {
	return map[string]func(context.Context, string, ...fence.Claim) error{
		"in a transaction": func(ctx context.Context, write string, claims ...fence.Claim) error {
			return s.write(ctx, pgx.ReadCommitted, statement(write), claims...)
		},
		"in a batch of its own": func(ctx context.Context, write string, claims ...fence.Claim) error {
			b := &pgx.Batch{}
			if err := QueuePresent(b, claims...); err != nil {
				return err
			}
			b.Queue(write)
			return FenceError(claims[0], s.own.SendBatch(ctx, b).Close())
		},
		"through database/sql": func(ctx context.Context, write string, claims ...fence.Claim) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := PresentSQL(ctx, tx, claims...); err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, write)
			return FenceError(claims[0], err)
		},
	}
}

// TestPresentSaysWhy: each end of a lease has its reason when it is presented, alone and among others, in each way to present; and the refusal is of that claim.
func TestPresentSaysWhy(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	db, err := sql.Open("pgx", s.url())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	good := s.claims(ctx, "orders/0", "orders/zz")
	for why, end := range map[fence.Reason]func(session fence.ID, c *fence.Claim) error{
		fence.Released: func(id fence.ID, c *fence.Claim) error { s.release(ctx, id, *c); return nil },
		fence.Expired:  func(id fence.ID, _ *fence.Claim) error { s.lapse(ctx, id); return nil },
		fence.Revoked: func(_ fence.ID, c *fence.Claim) error {
			_, err := s.store.Revoke(ctx, lease.RevokeRequest{Name: c.Name, Token: c.Token, Reason: "test"})
			return err
		},
		fence.Superseded: func(id fence.ID, c *fence.Claim) error { s.lapse(ctx, id); s.successor(ctx, c.Name); return nil },
		fence.NotGranted: func(_ fence.ID, c *fence.Claim) error { c.Acquisition = lease.NewID(); return nil },
	} {
		session := s.open(ctx, time.Hour)
		bad := s.acquire(ctx, session, "orders/"+why.String())
		if err := end(session, &bad); err != nil {
			t.Fatal(err)
		}
		for how, present := range s.presenters(db) {
			for _, claims := range [][]fence.Claim{{bad}, {good[0], bad, good[1]}} {
				err := present(ctx, `SELECT 1`, claims...)
				var refused *fence.RefusedError
				switch {
				case !errors.As(err, &refused) || refused.Why != why:
					t.Errorf("%v, %s, %d claims: %v", why, how, len(claims), err)
				case how != "in a batch of its own" && refused.Claim != bad: // FenceError takes the claim it is given there
					t.Errorf("%v, %s, %d claims: refused is %v", why, how, len(claims), refused.Claim)
				}
			}
		}
	}
	for how, present := range s.presenters(db) {
		if err := present(ctx, `UPDATE orders SET state = 'x' WHERE false`, good...); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		bad := rowRefused(present(ctx, `INSERT INTO orders VALUES (44)`, good...), "orders/44", fence.NotPresented)
		if bad != nil {
			t.Errorf("another row, %s: %v", how, bad)
		}
		foreign := good[0]
		foreign.Authority = s.ids.New()
		if err := present(ctx, `SELECT 1`, foreign); !errors.Is(err, fence.ErrForeign) {
			t.Errorf("another authority, %s: %v", how, err)
		}
		if err := present(ctx, `SELECT 1`, good[0], foreign); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("two authorities, %s: %v", how, err)
		}
	}
}

// TestPresentTakesBoundedClaims: none and too many are refused before anything is sent, and as many as are allowed pass.
func TestPresentTakesBoundedClaims(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	one := s.claims(ctx, "orders/1")[0]
	for count, want := range map[int]error{0: fence.ErrInvalid, 1: nil, MaxPresent: nil, MaxPresent + 1: fence.ErrInvalid} {
		err := pgx.BeginFunc(ctx, s.own, func(tx pgx.Tx) error { return Present(ctx, tx, slices.Repeat([]fence.Claim{one}, count)...) })
		if !errors.Is(err, want) {
			t.Errorf("%d claims: %v", count, err)
		}
	}
}

// TestPresentedNames: a claim is to the bytes of its name, whatever they mean to SQL, JSON or a collation.
func TestPresentedNames(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newShop(t)
	s.do(ctx, `CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false); CREATE TABLE named (name text COLLATE loose)`)
	if _, err := Protect(ctx, s.own, Protection{Table: "named", Name: "name"}); err != nil {
		t.Fatal(err)
	}
	insert := func(names ...string) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO named SELECT unnest($1::text[])`, names)
			return err
		}
	}
	for _, name := range []string{"a", "A", "á", "a\u0301", `a"b`, `a'b`, `a\b`, `{"a": 1}`, "a:b:c", "%s", " ", "a ", "{a,b}", "NULL", "null", fmt.Sprintf("%0512d", 1)} {
		c := s.claims(ctx, name)[0]
		if err := s.write(ctx, pgx.ReadCommitted, insert(name), c); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
		for _, other := range []string{name + "\u0301", "x" + name} {
			for _, names := range [][]string{{other}, {name, other}} {
				if err := s.write(ctx, pgx.ReadCommitted, insert(names...), c); !errors.Is(err, fence.ErrRefused) {
					t.Errorf("%.20q under a claim to %.20q: %v", names, name, err)
				}
			}
		}
	}
}
