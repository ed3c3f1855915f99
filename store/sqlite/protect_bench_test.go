package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// BenchmarkProtected writes rows of a table in one transaction, durably: unprotected, and protected by a lease for each row or one for all. The
// statements are prepared in both. "row by row" updates by key; "at once" is one UPDATE of all, where a row costs next to nothing but its triggers.
func BenchmarkProtected(b *testing.B) {
	const unprotected = "unprotected"
	for _, rows := range []int{1, 1000} {
		for _, at := range []string{"row by row", "at once"} {
			for _, name := range []string{unprotected, `'orders/' || id`, `'orders'`} {
				b.Run(fmt.Sprintf("%d rows/%s/%s", rows, at, name), func(b *testing.B) {
					g := newUnguarded(b, `CREATE TABLE orders (id INTEGER PRIMARY KEY, state INTEGER NOT NULL);
						WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) INSERT INTO orders SELECT i, 0 FROM n`)
					var claims []fence.Claim
					switch name {
					case unprotected:
					case `'orders'`:
						g.protect("orders", name)
						claims = append(claims, g.p.take("orders"))
					default:
						g.protect("orders", name)
						for i := range rows {
							claims = append(claims, g.p.take(fmt.Sprintf("orders/%d", i+1)))
						}
					}
					benchWrites(b, g, claims, rows, at == "at once")
				})
			}
		}
	}
}

func benchWrites(b *testing.B, g *guarded, claims []fence.Claim, rows int, atOnce bool) {
	b.Helper()
	ctx := context.Background()
	g.own.SetMaxOpenConns(1)
	prepared, err := Prepare(ctx, g.own)
	if err != nil {
		b.Fatal(err)
	}
	defer prepared.Close()
	text := `UPDATE orders SET state = state + 1 WHERE id = ?`
	if atOnce {
		text = `UPDATE orders SET state = state + 1 WHERE id <= ?`
	}
	update, err := g.own.PrepareContext(ctx, text)
	if err != nil {
		b.Fatal(err)
	}
	defer update.Close()
	write := func(tx *sql.Tx) error {
		if len(claims) > 0 {
			if err := Present(ctx, prepared.In(tx), claims...); err != nil {
				return err
			}
		}
		statement := tx.StmtContext(ctx, update) //nolint:sqlclosecheck // the transaction's end closes it
		for i := range rows {
			at := i + 1
			if atOnce {
				at = rows
			}
			if _, err := statement.ExecContext(ctx, at); err != nil {
				return err
			}
			if atOnce {
				break
			}
		}
		if len(claims) > 0 {
			return Done(ctx, prepared.In(tx))
		}
		return nil
	}
	for b.Loop() {
		if err := inOwnTx(ctx, g.own, write); err != nil {
			b.Fatal(err)
		}
	}
}
