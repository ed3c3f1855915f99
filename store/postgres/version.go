package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

// SchemaVersion is the newest schema that this code knows, and that a store needs.
const SchemaVersion = 6

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Version reads the version of the database's schema, 0 where there is none.
func Version(ctx context.Context, db querier) (int, error) {
	var there bool
	if err := db.QueryRow(ctx, `SELECT to_regprocedure('tenure.schema_version()') IS NOT NULL`).Scan(&there); err != nil || !there {
		return 0, err
	}
	var version int
	err := db.QueryRow(ctx, `SELECT tenure.schema_version()`).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return version, err
}

func checkVersion(ctx context.Context, db querier) error {
	const migrate = "run `tenure migrate --database-url URL`"
	version, err := Version(ctx, db)
	switch {
	case err != nil:
		return err
	case version == 0:
		return &SchemaError{Kind: ErrNoSchema, Detail: migrate}
	case version < SchemaVersion:
		return &SchemaError{Kind: ErrOlderSchema, Have: version, Want: SchemaVersion, Detail: migrate}
	case version > SchemaVersion:
		return &SchemaError{Kind: ErrNewerSchema, Have: version, Want: SchemaVersion, Detail: "use a newer tenure"}
	}
	return nil
}
