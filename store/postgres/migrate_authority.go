package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/fence"
)

// AuthorityInfo describes the authority of a database.
type AuthorityInfo struct {
	ID     fence.ID
	Schema int // version
	// The rest is known to members of tenure_owner alone.
	Known     bool
	Installed time.Time   // by the server's clock
	Issued    fence.Token // the latest token, or the floor that was set since; 0 if there is none
}

// ReadAuthority describes the authority of conn's database. It reads only. The role needs tenure_user.
//
// ReadAuthority returns a [*SchemaError] that matches [ErrNoSchema].
func ReadAuthority(ctx context.Context, conn *pgx.Conn) (AuthorityInfo, error) {
	var a AuthorityInfo
	version, err := Version(ctx, conn)
	if err != nil {
		return a, explained("reading the version of the schema", err)
	}
	if version == 0 {
		return a, &SchemaError{Kind: ErrNoSchema, Want: SchemaVersion, Detail: "run `tenure migrate --database-url URL`"}
	}
	a.Schema = version
	if a.ID, err = authorityID(ctx, conn); err != nil {
		return a, err
	}
	var issued int64
	err = conn.QueryRow(ctx, `SELECT a.origin, tenure.issued() FROM tenure.authority a`).Scan(&a.Installed, &issued)
	if state(err) == stateNotAllowed {
		return a, nil
	}
	if err != nil {
		return a, explained("reading the authority", err)
	}
	a.Known, a.Issued = true, fence.Token(issued)
	return a, nil
}

// NewAuthority gives the authority of conn's database another id, and raises its tokens: for a copy that is to live beside its
// parent. Claims under the old id are foreign from then on; marks that the database keeps go on under the new one.
// Programs that use the database must be started again: they would go on making claims under the old id. The role is a superuser
// or a member of tenure_owner.
//
// NewAuthority returns a [*SchemaError] that matches [ErrNoSchema]. If the answer to the commit was lost, [ReadAuthority] tells which id it is.
func NewAuthority(ctx context.Context, conn *pgx.Conn) (before, after fence.ID, err error) {
	if before, err = authorityID(ctx, conn); err != nil {
		return before, after, err
	}
	err = inTx(ctx, conn, opNewAuthority, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, `SELECT tenure.authority_new()`).Scan(&after)
	})
	return before, after, err
}

func authorityID(ctx context.Context, q querier) (fence.ID, error) {
	var id fence.ID
	err := q.QueryRow(ctx, `SELECT tenure.authority_id()`).Scan(&id)
	if s := state(err); s == stateUndefined || s == stateNoSchema {
		return id, &SchemaError{Kind: ErrNoSchema, Want: SchemaVersion, Detail: "run `tenure migrate --database-url URL`"}
	}
	if err != nil {
		return id, explained("reading the authority", err)
	}
	if id.IsZero() {
		return id, fmt.Errorf("postgres: the authority has no row: the schema was emptied by hand; take it down and migrate again")
	}
	return id, nil
}
