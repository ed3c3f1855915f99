package sqlite

import "database/sql"

// txWork is what a transaction does with operations or holds, wherever it runs: in the writer, in a caller's transaction, or reading alone.
type txWork struct {
	conn  opConn
	now   int64 // authority time, read after the writer lock was won
	wrote bool
	err   error // the SQL error that ends the transaction
}

// fail records the SQL error that ends the transaction and returns it.
func (b *txWork) fail(err error) error {
	if b.err == nil {
		b.err = err
	}
	return err
}

// exec runs a statement that writes, and returns how many rows it moved.
func (b *txWork) exec(text string, args ...any) (int64, error) {
	result, err := b.conn.exec(text, args...)
	if err != nil {
		return 0, b.fail(err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return 0, b.fail(err)
	}
	b.wrote = b.wrote || n > 0
	return n, nil
}

// one is exec where just one row must move.
func (b *txWork) one(text string, args ...any) error {
	n, err := b.exec(text, args...)
	if err == nil && n != 1 {
		err = b.fail(affectedError(n))
	}
	return err
}

// each calls scan for each row of a query.
func (b *txWork) each(scan func(*sql.Rows) error, text string, args ...any) error {
	rows, err := b.conn.query(text, args...)
	if err != nil {
		return b.fail(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return b.fail(err)
		}
	}
	if err := rows.Err(); err != nil {
		return b.fail(err)
	}
	return nil
}
