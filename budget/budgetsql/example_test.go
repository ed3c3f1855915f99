package budgetsql_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/tenure-go/tenure/budget"
	"github.com/tenure-go/tenure/budget/budgetsql"
)

// A payment is recorded again where no connection was free or the transaction lost a race, and never where its commit may have come through.
func ExampleCall() {
	record := func(ctx context.Context, db *sql.DB, order int) error {
		return budget.Do(ctx, budget.Policy{Try: budget.Try{Name: "orders"}}, func(ctx context.Context) error {
			return budgetsql.Call(ctx, db.Conn, func(ctx context.Context, conn *sql.Conn) error {
				defer func() { _ = conn.Close() }()
				tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
				if err != nil {
					return err
				}
				defer tx.Rollback()
				if _, err := tx.ExecContext(ctx, "UPDATE orders SET paid = true WHERE id = $1", order); err != nil {
					return err
				}
				return tx.Commit()
			})
		})
	}
	fmt.Println(record(context.Background(), nil, 7))
	// Output: budget: invalid context: it carries no budget; use that of a Budget's Context
}
