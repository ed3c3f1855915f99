package sqlite

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/outbox"
)

// AppendTx is [Outbox.Append] in a transaction of the caller's own on the store's file, or in one of [Store.Fenced]: the messages are there if and only if the transaction
// commits, and no relay sees them before. It returns their ids in order.
//
// Ordered messages are in the order of the commits, because nobody else appends before the transaction ends: AppendTx first takes the file's only writer lock. So it should
// be the first statement that writes, and none should have read before: after a read, SQLite refuses to write when somebody else has written since (SQLITE_BUSY,
// SQLITE_BUSY_SNAPSHOT: roll back and begin again). A transaction of the caller's own does not take Tenure's turns and may starve beside busy stores; [Store.Fenced] does.
//
// Besides the errors of Append it returns the driver's. The caller must roll back after any but a refusal of package outbox, which has changed nothing.
func (o *Outbox) AppendTx(ctx context.Context, tx TX, messages ...outbox.Message) ([]fence.ID, error) {
	mine, err := ownMessages(messages)
	if err != nil {
		return nil, err
	}
	w, err := o.store.inTx(ctx, tx, "append")
	if err != nil {
		return nil, err
	}
	b := &mailBatch{w}
	err = b.append(mine)
	if b.err != nil {
		return nil, fmt.Errorf("append of %d messages in a transaction: %w", len(messages), b.err)
	}
	if err != nil {
		return nil, err
	}
	return mine.ids(), nil
}
