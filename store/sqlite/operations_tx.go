package sqlite

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tenure-go/tenure/operation"
)

// SubmitTx is [Operations.Submit] in a transaction of the caller's own on the store's file, or in one of [Store.Fenced]: the operation is recorded if and only if the transaction
// commits, and no worker sees it before. Where the id is known, an operation that another transaction has recorded is always a committed one: SQLite has one writer at a time.
//
// It first takes the file's only writer lock, so it should be the first statement of the transaction: after a read, SQLite refuses to write when somebody else has written since
// (SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT: roll back and begin again). A transaction of the caller's own does not take Tenure's turns and may starve beside busy stores;
// [Store.Fenced] does. Besides the errors of Submit it returns the driver's. The caller must roll back after any but a refusal of package operation.
func (o *Operations) SubmitTx(ctx context.Context, tx TX, req operation.SubmitRequest) (operation.Submitted, error) {
	if err := req.Check(); err != nil {
		return operation.Submitted{}, err
	}
	req.Request = bytes.Clone(req.Request)
	w, err := o.store.inTx(ctx, tx, "submit")
	if err != nil {
		return operation.Submitted{}, err
	}
	b := &opBatch{txWork: w, wall: o.store.cfg.wall}
	submitted, err := b.submit(req)
	if b.err != nil {
		return operation.Submitted{}, fmt.Errorf("submit of %q in a transaction: %w", req.ID, b.err)
	}
	return submitted, err
}

// CompleteTx is [Operations.Complete] of one operation in the worker's own transaction on the store's file, or in one of [Store.Fenced], so that what the worker has changed there and
// the record of it share one commit. It returns nil only if it has moved the operation, as its current attempt, while that was open. After any error the caller must roll back:
// a [*operation.StaleError] says that the attempt was ended, or overtaken, and nothing that was done in its name may stay.
//
// Nobody ends the attempt or begins another between this call and the end of the transaction, because it takes the file's only writer lock. As [Operations.SubmitTx], it should be the first statement, and
// in a transaction of the caller's own it may starve.
func (o *Operations) CompleteTx(ctx context.Context, tx TX, done operation.Completion) error {
	if err := done.Check(); err != nil {
		return err
	}
	w, err := o.store.inTx(ctx, tx, "complete")
	if err != nil {
		return err
	}
	b := &opBatch{txWork: w, wall: o.store.cfg.wall}
	err = b.complete(&done)
	if b.err != nil {
		return fmt.Errorf("complete of %q in a transaction: %w", done.ID, b.err)
	}
	return err
}
