package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// AppendTx is [Outbox.Append] in a transaction of the caller's own, on the store's database: the messages are there if and only if it commits. It is meant for the transaction that writes what the messages tell.
//
// An ordered message waits for the end of every other transaction that has appended one to its topic and key, and holds up those that come after it until this one has ended; so append these last. One call takes
// its keys in one order, so two calls do not wait for each other; several calls in one transaction may, and then the server ends one of the two ([ErrBeginAgain]). What is not ordered waits for nobody, unless its id is being appended elsewhere.
//
// Every level of isolation will do, for the order of a key is that of this lock, not of snapshots. Above READ COMMITTED an id that another transaction has appended since the snapshot is [ErrBeginAgain] (SQLSTATE 40001). The call raises
// synchronous_commit for the transaction, where the role has lowered it. While a relay waits, the transaction notifies it at its commit, so one that has appended may be refused by PREPARE TRANSACTION.
//
// Besides the errors of Append it returns the driver's. After any error but one matching [outbox.ErrInvalid] the transaction is aborted, and the caller rolls it back. tx is used as by any other statement: not by two goroutines at once.
func (o *Outbox) AppendTx(ctx context.Context, tx pgx.Tx, messages ...outbox.Message) ([]fence.ID, error) {
	a, err := newAppending(messages)
	if err != nil {
		return nil, err
	}
	if err := tx.QueryRow(ctx, a.text, a.args...).Scan(nil); err != nil {
		return nil, outboxTxError(err)
	}
	return a.ids, nil
}

// AppendSQL is [Outbox.AppendTx] for a transaction of database/sql, with the driver pgx/v5/stdlib.
func (o *Outbox) AppendSQL(ctx context.Context, tx *sql.Tx, messages ...outbox.Message) ([]fence.ID, error) {
	a, err := newAppending(messages)
	if err != nil {
		return nil, err
	}
	for i, arg := range a.args {
		if id, ok := arg.(pgtype.UUID); ok {
			a.args[i] = fmt.Sprintf("%x", id.Bytes)
		}
	}
	var told any
	if err := tx.QueryRowContext(ctx, a.text, a.args...).Scan(&told); err != nil {
		return nil, outboxTxError(err)
	}
	return a.ids, nil
}
