package postgres

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/operation"
)

// SubmitTx is [Operations.Submit] in a transaction of the caller's own, on the store's database: the operation is recorded if and only if the transaction commits, and no worker sees it
// before. What it returns of an operation that is known is as this transaction sees it.
//
// Until the transaction has ended, whoever submits the same id waits for it; so do submissions and decisions of other operations of its order, where it has one; and what it compensates
// cannot be changed. A transaction that waits for such another one while that waits for it is ended by the server ([ErrBeginAgain]): submit several in the order of their ids.
//
// READ COMMITTED is the supported level. Above it, an id that another transaction has submitted since the snapshot is [ErrBeginAgain], and an operation with an order is
// refused (SQLSTATE TN007): what stands before it could not be seen.
//
// Besides the errors of Submit it returns the driver's. After any error the transaction is aborted, and the caller rolls it back. tx is used as by any other statement: not by two goroutines at once.
func (o *Operations) SubmitTx(ctx context.Context, tx pgx.Tx, req operation.SubmitRequest) (operation.Submitted, error) {
	return submitIn(&req, func(text string, dest []any, args []any) error { return tx.QueryRow(ctx, text, args...).Scan(dest...) })
}

// SubmitSQL is [Operations.SubmitTx] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func (o *Operations) SubmitSQL(ctx context.Context, tx *sql.Tx, req operation.SubmitRequest) (operation.Submitted, error) {
	return submitIn(&req, func(text string, dest []any, args []any) error {
		return tx.QueryRowContext(ctx, text, sqlArgs(args)...).Scan(sqlDest(dest)...)
	})
}

// CompleteTx is [Operations.Complete] of one operation in the worker's own transaction, on the store's database, so that what the worker has changed there and the record of it share one
// commit. It returns nil only if it has moved the operation, as its current attempt, while that was open. After any error the transaction is aborted and must be rolled back: a
// [*operation.StaleError] says that the attempt was ended, or overtaken, and nothing that was done in its name may stay; a [*operation.InvalidError] of the transaction, that this is the
// database of another authority.
//
// Until the transaction has ended nobody ends the attempt or begins another: expiry, evidence and renewals of this operation wait or pass it by. Let it be the last statement. The store cannot raise
// synchronous_commit after the commit has begun: the call raises it for the transaction, where the role has lowered it.
//
// READ COMMITTED is the supported level. Above it, an operation that has changed since the snapshot is [ErrBeginAgain], and one with an order is refused (SQLSTATE TN007). Sharing as for
// [Operations.SubmitTx].
func (o *Operations) CompleteTx(ctx context.Context, tx pgx.Tx, done operation.Completion) error {
	return o.completeIn(&done, func(text string, args []any) error {
		_, err := tx.Exec(ctx, text, args...)
		return err
	})
}

// CompleteSQL is [Operations.CompleteTx] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func (o *Operations) CompleteSQL(ctx context.Context, tx *sql.Tx, done operation.Completion) error {
	return o.completeIn(&done, func(text string, args []any) error {
		_, err := tx.ExecContext(ctx, text, sqlArgs(args)...)
		return err
	})
}

func submitIn(req *operation.SubmitRequest, do func(text string, dest, args []any) error) (operation.Submitted, error) {
	if err := req.Check(); err != nil {
		return operation.Submitted{}, err
	}
	var rec opRecord
	if err := do(submitText, rec.dest(), submitArgs(req)); err != nil {
		return operation.Submitted{}, opTxError(err)
	}
	if err := rec.read(); err != nil {
		return operation.Submitted{}, err
	}
	return operation.Submitted{Record: rec.Record, Known: rec.outcome == "known"}, nil
}

func (o *Operations) completeIn(done *operation.Completion, do func(text string, args []any) error) error {
	if err := done.Check(); err != nil {
		return err
	}
	return opTxError(do(completeHereText, append(completeArgs(done), o.store.id.String())))
}

// sqlArgs are arguments as database/sql takes them.
func sqlArgs(args []any) []any {
	for i, a := range args {
		if v, ok := a.(pgtype.Interval); ok {
			args[i], _ = v.Value() // of microseconds alone: it has no error
		}
	}
	return args
}

// sqlDest are destinations as database/sql fills them: what is an array there goes through the driver's types.
func sqlDest(dest []any) []any {
	m := pgtype.NewMap()
	for i, d := range dest {
		switch d.(type) {
		case *[]int64, *[]string, *[]pgtype.Interval, *[][]byte:
			dest[i] = m.SQLScanner(d)
		}
	}
	return dest
}
