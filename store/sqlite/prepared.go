package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
)

// The common case of each check is one statement.
const (
	verifyStatement = `UPDATE tenure_lease SET token = ?3 WHERE name = ?1 AND acquisition = ?2 AND token = ?3 AND over = 0 AND hold_end = 0
		AND (SELECT expiry FROM tenure_session WHERE id = session AND ended = 0 AND since < ?3)
		> (SELECT anchor + ?4 FROM tenure_authority WHERE id = ?5 AND boot_id = ?6 AND mark <= anchor + ?4)`
	raiseStatement = `UPDATE tenure_mark SET token = ?1 WHERE resource = ?2 AND authority = ?3 AND name = ?4 AND token <= ?1
		AND NOT EXISTS (SELECT 1 FROM tenure_authority WHERE id = ?3 AND issued < ?1)`
)

// operationTexts are the common statements of [Operations.SubmitTx] and [Operations.CompleteTx].
func operationTexts() []string {
	return []string{lockClock, selectOperation, insertOperation, insertBody, succeed, insertResult, updateOperation}
}

// holdTexts are the common statements of [Holds.PlaceTx] and [Holds.ConfirmTx].
func holdTexts() []string {
	return []string{selectHold, selectItem, moveItem, insertHold, insertLine, endHold, endLines}
}

// mailTexts are the common statements of [Outbox.AppendTx] and [Inbox.Once].
func mailTexts() []string {
	return []string{selectKnown, insertMessage, insertMessageBody, insertNote, selectNote}
}

// Prepared has the statements of [Verify], [Enter], [Admit], [Present] and [Done], and those of operations, holds and messages, prepared once on a program's own database. Without it
// they are parsed anew in each transaction, which costs more than they do. Safe for concurrent use.
type Prepared struct {
	byText map[string]*sql.Stmt
}

// Prepare prepares the checks on db, which must have an authority's file open; [Prepared.Close] ends them. It returns
// the driver's error, such as for a file without Tenure's tables.
func Prepare(ctx context.Context, db *sql.DB) (*Prepared, error) {
	return prepareTexts(ctx, db, append(slices.Concat(operationTexts(), holdTexts(), mailTexts()), verifyStatement, raiseStatement, presentStatement, doneStatement))
}

func prepareTexts(ctx context.Context, db *sql.DB, texts []string) (*Prepared, error) {
	p := &Prepared{byText: map[string]*sql.Stmt{}}
	for _, text := range texts {
		statement, err := db.PrepareContext(ctx, text) //nolint:sqlclosecheck // Close does
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.byText[text] = statement
	}
	return p, nil
}

// In returns tx for the checks: sqlite.Verify(ctx, prepared.In(tx), claim), ops.CompleteTx(ctx, prepared.In(tx), done). It is valid as long as tx is.
func (p *Prepared) In(tx *sql.Tx) TX { return preparedTx{p, tx} }

// Close closes the statements. Transactions that use them must have ended.
func (p *Prepared) Close() error {
	var err error
	for _, statement := range p.byText {
		err = errors.Join(err, statement.Close())
	}
	return err
}

type preparedTx struct {
	p  *Prepared
	tx *sql.Tx
}

// ExecContext is part of [DBTX].
func (t preparedTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if statement := t.p.byText[query]; statement != nil {
		return t.tx.StmtContext(ctx, statement).ExecContext(ctx, args...) //nolint:sqlclosecheck // the transaction's end closes it
	}
	return t.tx.ExecContext(ctx, query, args...)
}

// QueryRowContext is part of [DBTX].
func (t preparedTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if statement := t.p.byText[query]; statement != nil {
		return t.tx.StmtContext(ctx, statement).QueryRowContext(ctx, args...) //nolint:sqlclosecheck // the transaction's end closes it
	}
	return t.tx.QueryRowContext(ctx, query, args...)
}

// QueryContext is part of [TX].
func (t preparedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if statement := t.p.byText[query]; statement != nil {
		return t.tx.StmtContext(ctx, statement).QueryContext(ctx, args...) //nolint:sqlclosecheck // the transaction's end closes it
	}
	return t.tx.QueryContext(ctx, query, args...)
}
