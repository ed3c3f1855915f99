package sqlite

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/hold"
)

// PlaceTx is [Holds.Place] in a transaction of the caller's own on the store's file, or in one of [Store.Fenced]: the hold is there if and only if the transaction commits, and nobody places
// or sells what it holds before it ends. What is free is read under the file's only writer lock, whatever the isolation: nothing is held twice. Its time runs from the call, not from the commit.
//
// It first takes the file's only writer lock, so it should be the first statement of the transaction: after a read, SQLite refuses to write when somebody else has written since
// (SQLITE_BUSY, SQLITE_BUSY_SNAPSHOT: roll back and begin again). A transaction of the caller's own does not take Tenure's turns and may starve beside busy stores;
// [Store.Fenced] does. Besides the errors of Place it returns the driver's. The caller must roll back after any but a refusal of package hold.
func (h *Holds) PlaceTx(ctx context.Context, tx TX, req hold.PlaceRequest) (hold.Hold, error) {
	lines, err := checkPlace(&req)
	if err != nil {
		return hold.Hold{}, err
	}
	return h.inTx(ctx, tx, "place", req.ID, func(b *holdBatch) (hold.Hold, error) { return b.place(&req, lines) })
}

// ConfirmTx is [Holds.Confirm] in the sale's own transaction on the store's file, or in one of [Store.Fenced]: what is sold and the record of the sale share one commit. Look at the state of what it returns, and
// write the sale only where that is [hold.Confirmed]. A payment that came late is a result and no error: nothing is sold, and it is recorded if the transaction commits. After any error the caller must roll back.
//
// A hold that was valid when ConfirmTx returned stays sold however long the transaction then takes: nobody can place a hold before it ends. As [Holds.PlaceTx], it should be the first statement, and in a
// transaction of the caller's own it may starve. Wait for no payment in the transaction, because all of the file's writers wait for it: pay first, then confirm.
// A write of a store beside a transaction that stays open is answered after 5 s, or when its context ends: with [hold.ErrUnavailable], or with [hold.ErrUnknown] where the writer had taken it up. Reads, and places that are refused, go on.
func (h *Holds) ConfirmTx(ctx context.Context, tx TX, req hold.ConfirmRequest) (hold.Hold, error) {
	if err := req.Check(); err != nil {
		return hold.Hold{}, err
	}
	return h.inTx(ctx, tx, "confirm", req.ID, func(b *holdBatch) (hold.Hold, error) { return b.confirm(&req) })
}

func (h *Holds) inTx(ctx context.Context, tx TX, op string, id fence.ID, f func(*holdBatch) (hold.Hold, error)) (hold.Hold, error) {
	w, err := h.store.inTx(ctx, tx, op)
	if err != nil {
		return hold.Hold{}, err
	}
	told, err := f(&holdBatch{txWork: w})
	if w.err != nil {
		return hold.Hold{}, fmt.Errorf("%s of %v in a transaction: %w", op, id, w.err)
	}
	return told, err
}
