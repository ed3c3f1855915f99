package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/hold"
)

// ConfirmTx is [Holds.Confirm] in the sale's own transaction, on the store's database: what was sold and the record of the sale share one commit. The result's state is
// [hold.Confirmed] or [hold.Late]. Look at it: a late hold has sold nothing, so the sale must not be written, but the reference is recorded if the transaction commits: commit it, without the sale, and give back
// what was paid.
//
// Until the transaction has ended its items are locked: whoever would place, extend, confirm or release a hold on one of them waits, and a place that finds too little free without waiting is refused. So
// take the payment before the transaction begins, and let ConfirmTx be among its last statements. How long this call itself waits for such another transaction is the caller's to say, by lock_timeout. A transaction that waits for such another one while that waits for it is ended by the server ([ErrBeginAgain]). The store cannot
// raise synchronous_commit after the commit has begun: the call raises it for the transaction, where the role has lowered it.
//
// READ COMMITTED is the supported level. Above it, let it be the first statement: what has changed on the items since the snapshot is [ErrBeginAgain] (SQLSTATE 40001), and nothing is sold by what was so before.
//
// Besides the errors of Confirm it returns the driver's. After any error the transaction is aborted, and the caller rolls it back. tx is used as by any other statement: not by two goroutines at once.
func (h *Holds) ConfirmTx(ctx context.Context, tx pgx.Tx, req hold.ConfirmRequest) (hold.Hold, error) {
	return confirmIn(&req, func(text string, dest, args []any) error { return tx.QueryRow(ctx, text, args...).Scan(dest...) })
}

// ConfirmSQL is [Holds.ConfirmTx] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func (h *Holds) ConfirmSQL(ctx context.Context, tx *sql.Tx, req hold.ConfirmRequest) (hold.Hold, error) {
	return confirmIn(&req, func(text string, dest, args []any) error {
		return tx.QueryRowContext(ctx, text, sqlArgs(args)...).Scan(sqlDest(dest)...)
	})
}

// PlaceTx is [Holds.Place] in a transaction of the caller's own, on the store's database: the hold is there if and only if the transaction commits, and its TTL counts from the call. The items are locked until
// then, as by [Holds.ConfirmTx], and where the request has a limit, others that place for the actor wait: keep it short, and place several in the order of their items. Nobody else is told of the hold before the commit;
// the caller must not tell anybody either.
//
// It runs at READ COMMITTED alone (SQLSTATE TN007 otherwise): what is free above it is what was free before. Errors and sharing as for [Holds.ConfirmTx].
func (h *Holds) PlaceTx(ctx context.Context, tx pgx.Tx, req hold.PlaceRequest) (hold.Hold, error) {
	return placeIn(&req, func(text string, dest, args []any) error { return tx.QueryRow(ctx, text, args...).Scan(dest...) })
}

// PlaceSQL is [Holds.PlaceTx] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func (h *Holds) PlaceSQL(ctx context.Context, tx *sql.Tx, req hold.PlaceRequest) (hold.Hold, error) {
	return placeIn(&req, func(text string, dest, args []any) error {
		return tx.QueryRowContext(ctx, text, sqlArgs(args)...).Scan(sqlDest(dest)...)
	})
}

func confirmIn(req *hold.ConfirmRequest, do func(text string, dest, args []any) error) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	var rec holdRecord
	if err := do(confirmText, rec.dest(), confirmArgs(req)); err != nil {
		return hold.Hold{}, holdTxError(req.ID, req.Actor, err)
	}
	return rec.Hold, rec.read()
}

func placeIn(req *hold.PlaceRequest, do func(text string, dest, args []any) error) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	lines, err := hold.Sum(req.Lines)
	if err != nil {
		return hold.Hold{}, err
	}
	var rec holdRecord
	if err := do(placeText, rec.dest(), placeArgs(req, lines)); err != nil {
		return hold.Hold{}, holdTxError(req.ID, req.Actor, err)
	}
	return rec.Hold, rec.read()
}
